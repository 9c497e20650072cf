# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The interface of a provider at which machines can be created, and the parts that all providers share.

To add a provider: a folder with ``client`` and ``mapping`` (reading), and ``provision`` with one subclass of
:class:`MachineProvider` and its declaration, ``PROVIDER``; then an inventory plugin.
"""

from __future__ import annotations

import abc
import dataclasses
import typing as t

from ...module_utils._http.client import HttpClient
from ...module_utils._http.clock import Clock
from ...module_utils._http.messages import HttpRequest, HttpResponse, JsonResponse, decode_json, json_request
from ...module_utils._http.retry import parse_retry_after
from ...module_utils._model.errors import ApiError, TransportError
from ...module_utils._model.lease import (
    Instance,
    Leftover,
    Listing,
    OrderRefused,
    OrderResult,
    OrderUnsettled,
    ProviderTraits,
    SshEndpoint,
    parse_instance_name,
)
from ...module_utils._model.offer import Offer, OfferQuery, Order
from ...module_utils._secrets.sources import SecretSource
from .connection import ProviderConnection
from .listing import FRESH
from .node_record import ProviderHost
from .parsing import JsonObject, as_mapping, error_words, positive, text

ANY_ERROR = range(400, 600)
# After a call that certainly never left (no address, no connection): a short while for the network to come back.
UNSENT_RETRY_S = 15.0
_REASON_CHARS = 200


@dataclasses.dataclass(frozen=True, slots=True)
class Capabilities:
    """What a provider supports, so that a request it cannot meet is refused before anything is sent.

    ``user_data`` names what the provider runs at first boot: cloud-init, a shell script, or nothing.
    """

    clusters: bool = False
    image_required: bool = False
    user_data: t.Literal["cloud-init", "script", "none"] = "none"


class ProviderAccount(abc.ABC):
    """One account whose instances can be listed and deleted. Methods may be called from several threads.

    ``account`` is the user's name for it, else the ``fingerprint`` of its credential. ``api`` is the API's address.
    """

    name: t.ClassVar[str]
    traits: t.ClassVar[ProviderTraits]

    def __init__(self, access: ProviderConnection, account: str = "", default_url: str = "") -> None:
        self.fingerprint = access.account
        self.account = account or access.account
        self.api = str(access.base(default_url))
        self.clock = access.clock
        self._server_time = access.server_time

    def read_listing(self) -> Listing:
        """Return everything the account has, how old that is, and the API's clock. Raises TransportError."""
        with self._server_time.watch() as ages:
            instances = self.list_instances()
        return Listing(instances, max(ages, default=0.0), self._server_time.offset_s)

    @abc.abstractmethod
    def list_instances(self) -> tuple[Instance, ...]:
        """Return everything the account has that bills or may come to bill. Raises TransportError."""

    @abc.abstractmethod
    def delete(self, instance: Instance) -> bool:
        """Delete by id: true when the provider accepted it, false for an unknown id. Raises TransportError."""

    def leftovers(self, clusters: t.Collection[str]) -> tuple[Leftover, ...]:
        """Return what carries a name of ``clusters`` and remains without its machine. Raises TransportError."""
        return ()


class MachineProvider(ProviderAccount):
    """One account at a provider of machines."""

    capabilities: t.ClassVar[Capabilities]

    @abc.abstractmethod
    def offers(self, query: OfferQuery, count: int = 1) -> tuple[Offer, ...]:
        """Return what can be ordered now and may fit ``query``; ``count`` is the machines of a unit cluster.

        Raises TransportError.
        """

    @abc.abstractmethod
    def knows(self, instance: Instance) -> bool:
        """Return whether the provider knows a machine by its id, and it has not ended. Raises TransportError."""

    @abc.abstractmethod
    def create(self, order: Order) -> OrderResult:
        """Place one order, in one call that is never repeated, and classify the answer."""


@dataclasses.dataclass(frozen=True, slots=True)
class ProviderDeclaration:
    """A provider of machines: its name, how to open an account, and the environment variable of its credential.

    ``open_account`` takes the connection and the user's name for the account.
    """

    name: str
    open_account: t.Callable[[ProviderConnection, str], MachineProvider]
    variable: str

    def secret_source(self, path: str) -> SecretSource:
        """Return the sources of its credential; ``path`` is the option's place for errors."""
        return SecretSource(f"{path}.api_token", f"{path}.api_token_file", (self.variable,))


def send_order(
    http: HttpClient,
    request: HttpRequest,
    read: t.Callable[[JsonResponse], OrderResult | None],
    detail: t.Callable[[object], str],
    clock: Clock,
) -> OrderResult:
    """Send a create call once and return its result.

    ``read`` knows the provider's own codes and shapes; where it returns None, or raises LookupError, TypeError
    or ValueError for an undocumented shape, the status alone decides.
    """
    try:
        answer = http.call(request._replace(idempotent=False), allow=ANY_ERROR)
    except TransportError as error:
        return classify_transport_error(error)
    try:
        result = read(answer)
    except (LookupError, TypeError, ValueError):
        result = None
    return result or classify_status(answer, detail, clock.time())


def classify_transport_error(error: TransportError) -> OrderResult:
    """Return the answer for a call without one: only a call that was never sent is certainly without effect."""
    if error.ambiguous:
        return OrderUnsettled(error.message)
    if isinstance(error, ApiError):
        return OrderRefused("rule", error.message)
    return OrderRefused("throttled", error.message, UNSENT_RETRY_S)


def classify_preparation_error(error: TransportError) -> OrderResult:
    """Return the answer for an order whose preparation failed (a key at the provider): nothing was ordered."""
    if isinstance(error, ApiError) and error.status in (401, 403):
        return OrderRefused("credentials", error.message)
    if isinstance(error, ApiError) and error.status in (400, 422):
        return OrderRefused("rule", error.message)
    return OrderRefused("throttled", error.message, UNSENT_RETRY_S)


def _is_not_found(response: HttpResponse) -> bool:
    return response.status in (404, 410)


def classify_status(answer: JsonResponse, detail: t.Callable[[object], str], now: float) -> OrderResult:
    """Return the answer by the HTTP status, where the provider's own codes decide nothing."""
    status = answer.status
    reason = f"status {status}{_error_suffix(answer, detail)}"
    if status == 429:
        return OrderRefused("throttled", reason, parse_retry_after(answer.headers.get("retry-after"), now))
    if status == 402:
        return OrderRefused("quota", reason)
    if status == 401:
        return OrderRefused("credentials", reason)
    # After 408, 409, 425, any 5xx or a success of a wrong shape the server may have created something.
    if status in (408, 409, 425) or status >= 500 or status < 400:
        return OrderUnsettled(reason)
    return OrderRefused("rule", reason)


def _error_suffix(answer: JsonResponse, detail: t.Callable[[object], str]) -> str:
    try:
        text = detail(answer.data)
    except (LookupError, TypeError, AttributeError):
        return ""
    # An error in a success has another shape than those that the provider documents.
    text = text or error_words(answer.data)
    clean = "".join(char if char.isprintable() else " " for char in text)[:_REASON_CHARS]
    return f": {clean}" if clean else ""


def _is_done(response: HttpResponse) -> bool:
    return response.status < 400


def send_delete(
    http: HttpClient,
    request: HttpRequest,
    absent: t.Callable[[HttpResponse], bool] = _is_not_found,
    done: t.Callable[[HttpResponse], bool] = _is_done,
) -> bool:
    """Send a delete, which may be repeated safely; false when the id does not exist.

    ``absent`` returns whether an answer means that, ``done`` whether it means that the delete was accepted; every other
    answer is raised.
    """
    repeatable = request._replace(idempotent=True)
    response = http.send(repeatable, allow=(400, 404, 410))
    if done(response):
        return True
    if absent(response):
        return False
    raise http.status_error(request, response)


def knows_id(
    http: HttpClient,
    path: str,
    build: t.Callable[[JsonObject], Instance],
    key: str = "",
    absent: t.Callable[[HttpResponse], bool] = _is_not_found,
) -> bool:
    """Return whether an answer to a machine's own path shows it, and not as gone.

    ``key`` is what it stands behind there, ``absent`` whether an answer means that there is none.
    """
    request = json_request("GET", path, headers=FRESH)
    response = http.send(request, allow=(400, 404, 410))
    if absent(response):
        return False
    if response.status >= 400:
        raise http.status_error(request, response)
    try:
        data = as_mapping(decode_json(response.body))
    except ValueError:
        raise http.unexpected_response_error(request, response) from None
    shown = data.get(key) if key else data
    if not isinstance(shown, dict) or not shown.get("id"):
        raise http.unexpected_response_error(request, response)
    machine = _build_safely("", shown, build)
    # What has ended costs nothing: one that still does bills, whatever its state is called.
    return machine.state != "gone" or bool(machine.price_usd_per_hour)


def build_instance(
    host: ProviderHost, *, detail: str, terminal: bool, token: str | None = None, machine: str | None = None
) -> Instance:
    """Return the instance of a listed machine; ``machine`` names the physical machine where that is known."""
    parts = parse_instance_name(host.name)
    record = host.record
    return Instance(
        provider=record["provider"],
        id=host.id,
        name=host.name,
        token=parts.token if parts else token,
        state=record["state"],
        detail=detail,
        terminal=terminal,
        region=record["region"],
        price_usd_per_hour=positive(record["price_usd_per_hour"]),
        ssh=_ssh_endpoint(host),
        host=machine,
        record=record,
    )


def build_instances(
    provider: str, listed: t.Iterable[JsonObject], build: t.Callable[[JsonObject], Instance]
) -> tuple[Instance, ...]:
    """Return the instances of a listing. One that cannot be read is there all the same, with its id and its name."""
    return tuple(_build_safely(provider, raw, build) for raw in listed)


def _build_safely(provider: str, raw: JsonObject, build: t.Callable[[JsonObject], Instance]) -> Instance:
    try:
        return build(raw)
    except Exception:
        key = text(raw.get("id")) or str(raw.get("id"))
        name = text(raw.get("name")) or text(raw.get("label")) or key
        parts = parse_instance_name(name)
        token = parts.token if parts else text(raw.get("muster_token"))
        return Instance(provider, key, name, token, "unknown", detail="its entry cannot be read")


def _ssh_endpoint(host: ProviderHost) -> SshEndpoint | None:
    user = host.record["ssh"]["user"] or "root"
    public = host.record["addresses"]["public"]
    endpoint = None
    if host.direct is not None:
        address, port, direct_user = host.direct
        endpoint = SshEndpoint(address, port, direct_user or user)
    elif public and host.record["kind"] != "container":
        # Port 22 of a container's address is another machine: its host.
        endpoint = SshEndpoint(public[0]["address"], 22, user)
    return endpoint if endpoint is not None and endpoint.is_plain else None


def post_request(path: str, body: object = None) -> HttpRequest:
    """Return a POST of JSON."""
    return json_request("POST", path, body=body)
