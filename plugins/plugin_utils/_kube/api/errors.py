# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an API server refuses, as one line that names the object and the reason.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping

from ....module_utils._http.messages import HttpResponse, decode_json
from ....module_utils._model.errors import TransportError, one_line

_SHOWN = 400
# Our own word, beside the API's: not an object is missing, but what serves its kind.
NO_PATH = "NoPath"
# Texts, compiled by the first refusal: most calls meet none, and every task of a play imports this.
_TYPED = r"failed to create typed (?:patch|live) object \([^)]*\): |&value\.valueUnstructured\{Value:([^}]*)\}"
# Refusals that end by themselves soon after a server or a controller came up.
_SOON = (
    "failed calling webhook",
    "status unknown for quota",
    "error looking up service account",
    "no matches for kind",
)
_WEBHOOK = r'failed calling webhook "([^"]+)"'
# Of what etcd says (api/v3rpc/rpctypes/error.go) that which passes; a request that is too large stays so.
_STORE = r"etcdserver: (?:request timed out|no leader|too many requests|server stopped)|leader changed"


class KubeError(TransportError):
    """The API server's answer with an error status.

    ``status`` is the HTTP status, ``reason`` the API's word for it (``NotFound``, ``Conflict``, ``Invalid``, …),
    ``causes`` its details as (reason, field, message).
    """

    def __init__(
        self,
        what: str,
        message: str,
        fix: str = "",
        *,
        status: int = 0,
        reason: str = "",
        causes: tuple[tuple[str, str, str], ...] = (),
    ) -> None:
        super().__init__(f"{what}: {message}", fix, ambiguous=status >= 500)
        self.status = status
        self.reason = reason
        self.causes = causes
        self.what = what
        self.detail = message


def plain(value: t.Any, limit: int = _SHOWN) -> str:
    """Return text of the server as one line of bounded length."""
    text = " ".join(one_line(str(value)).split())
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def ends_soon(said: str) -> bool:
    """Return whether the words of a refusal are those of one that ends by itself."""
    return any(mark in said for mark in _SOON)


def read_status(body: bytes) -> Mapping[str, t.Any]:
    """Return the ``Status`` object of an error's body, empty when it is none."""
    try:
        value = decode_json(body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) and value.get("kind") == "Status" else {}


def webhook_away(response: HttpResponse) -> bool:
    """Return whether a write was not done because an admission webhook did not answer."""
    return response.status == 500 and re.search(_WEBHOOK, str(read_status(response.body).get("message"))) is not None


def store_away(response: HttpResponse) -> bool:
    """Return whether the server's store, etcd, did not take a request: it had no leader, or no time."""
    return response.status == 500 and re.search(_STORE, str(read_status(response.body).get("message"))) is not None


def refusal(what: str, response: HttpResponse) -> KubeError:
    """Return the error for an answer about the object or request ``what``."""
    said = read_status(response.body)
    if response.status == 404 and not said:
        # No object is missing, but the path: of a kind without a CRD, or all of them where another server listens.
        fix = "Check that the kubeconfig's server is an API server, and that it serves this kind"
        return KubeError(what, "the server does not know this path (404)", fix, status=404, reason=NO_PATH)
    return from_status(what, response.status, said)


def from_status(what: str, status: int, said: Mapping[str, t.Any]) -> KubeError:
    """Return the error for a ``Status`` object, from an answer or from a watch."""
    details = said.get("details") if isinstance(said.get("details"), dict) else {}
    causes = tuple(_causes(details or {}))
    reason = str(said.get("reason") or "")
    message, fix = _words(status, reason, plain(said.get("message") or f"answered {status}"), causes)
    return KubeError(what, message, fix, status=status, reason=reason, causes=causes)


def _causes(details: Mapping[str, t.Any]) -> t.Iterator[tuple[str, str, str]]:
    for cause in details.get("causes") or []:
        if isinstance(cause, dict):
            yield tuple(plain(cause.get(key) or "") for key in ("reason", "field", "message"))  # type: ignore[misc]


def _words(status: int, reason: str, message: str, causes: tuple[tuple[str, str, str], ...]) -> tuple[str, str]:
    """Return message and advice for a refusal."""
    first = causes[0][0] if causes else ""
    typed = re.sub(_TYPED, lambda match: match.group(1) or "", message)
    if typed != message:
        return f"does not fit its kind: {typed}", "Correct the field that is named"
    webhook = re.search(_WEBHOOK, message)
    if webhook:
        return f"the admission webhook {webhook.group(1)} does not answer: {message}", "Check the Pods behind it"
    if first == "FieldManagerConflict":
        return _conflict(causes), "Leave these fields out, or set force_conflicts to take them over"
    if first == "NamespaceTerminating":
        return f"its namespace is being deleted: {message}", "Wait until it is gone, or name another"
    if reason == "Invalid" and causes:
        shown = "; ".join(f"{field}: {text}" for _unused, field, text in causes[:5])
        return f"is not valid: {shown}", "An immutable field needs a new object" if "immutable" in shown else ""
    return message, _ADVICE.get(status, "")


_ADVICE = {
    401: "Log in again, or give another credential",
    403: "Ask for the right to do this, or satisfy the policy that is named",
    410: "Read again from the start",
    429: "The API server is overloaded: try later",
    503: "The API server, or what stands behind this API, is not ready",
}


def _conflict(causes: tuple[tuple[str, str, str], ...]) -> str:
    fields: dict[str, list[str]] = {}
    for reason, field, message in causes:
        if reason == "FieldManagerConflict":
            match = re.search(r'conflict with "([^"]+)"', message)
            fields.setdefault(match.group(1) if match else message, []).append(field)
    parts = [
        f"{manager} owns {', '.join(names[:8])}{' …' if len(names) > 8 else ''}" for manager, names in fields.items()
    ]
    return f"conflicts with other field managers: {'; '.join(parts)}"
