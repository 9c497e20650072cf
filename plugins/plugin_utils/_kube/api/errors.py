# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Errors of an API server: one line that names the object and the reason."""

from __future__ import annotations

import re
import typing as t

from ....module_utils._http.messages import HttpResponse, decode_json
from ....module_utils._model.errors import TransportError, one_line

_SHOWN = 400
# A reason beside the API's own ones: the server does not serve the path at all.
NO_PATH = "NoPath"
# Texts, compiled by the first error: most calls have none, and every task of a play imports this.
_TYPED = r"failed to create typed (?:patch|live) object \([^)]*\): |&value\.valueUnstructured\{Value:([^}]*)\}"
# Errors that pass by themselves soon after a server or a controller started.
_SOON = (
    "failed calling webhook",
    "status unknown for quota",
    "error looking up service account",
    "no matches for kind",
)
_WEBHOOK = r'failed calling webhook "([^"]+)"'
# The transient errors of etcd (api/v3rpc/rpctypes/error.go).
_STORE = r"etcdserver: (?:request timed out|no leader|too many requests|server stopped)|leader changed"


class Status(t.TypedDict, total=False):
    """The API's answer to a request that failed (Status in the API's reference)."""

    kind: str
    message: str
    reason: str
    code: int
    details: dict[str, t.Any]


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

    @property
    def is_forbidden(self) -> bool:
        """Whether the user may not do this: the credential was rejected (401), or a right is missing (403)."""
        return self.status in (401, 403)

    @property
    def is_terminating(self) -> bool:
        """Whether nothing can be created because the namespace is being deleted."""
        return any(cause[0] == "NamespaceTerminating" for cause in self.causes)


def server_text(value: object, limit: int = _SHOWN) -> str:
    """Return text of the server as one line of bounded length."""
    text = " ".join(one_line(str(value)).split())
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def ends_soon(message: str) -> bool:
    """Return whether an error message is one of those that pass by themselves."""
    return any(mark in message for mark in _SOON)


def read_status(body: bytes) -> Status:
    """Return the ``Status`` object of an error's body, empty when the body is something else."""
    try:
        value = decode_json(body)
    except ValueError:
        return {}
    return t.cast("Status", value) if isinstance(value, dict) and value.get("kind") == "Status" else {}


def is_webhook_unavailable(response: HttpResponse) -> bool:
    """Return whether a write was refused because an admission webhook did not answer."""
    return response.status == 500 and re.search(_WEBHOOK, str(read_status(response.body).get("message"))) is not None


def is_store_unavailable(response: HttpResponse) -> bool:
    """Return whether the server's store, etcd, did not accept a request: it had no leader, or timed out."""
    return response.status == 500 and re.search(_STORE, str(read_status(response.body).get("message"))) is not None


def refusal_error(what: str, response: HttpResponse) -> KubeError:
    """Return the error for an answer about the object or request ``what``."""
    status = read_status(response.body)
    if response.status == 404 and not status:
        # The path is missing, not the object: its kind has no CRD, or another server listens there.
        fix = "Check that the kubeconfig's server is an API server, and that it serves this kind"
        return KubeError(what, "the server does not know this path (404)", fix, status=404, reason=NO_PATH)
    return error_from_status(what, response.status, status)


def error_from_status(what: str, code: int, status: Status) -> KubeError:
    """Return the error for a ``Status`` object, from an answer or from a watch."""
    causes = tuple(_parse_causes(status.get("details")))
    reason = str(status.get("reason") or "")
    message, fix = _describe(code, reason, server_text(status.get("message") or f"answered {code}"), causes)
    return KubeError(what, message, fix, status=code, reason=reason, causes=causes)


def _parse_causes(details: object) -> t.Iterator[tuple[str, str, str]]:
    for cause in (details.get("causes") if isinstance(details, dict) else None) or []:
        if isinstance(cause, dict):
            yield tuple(server_text(cause.get(key) or "") for key in ("reason", "field", "message"))  # type: ignore[misc]


def _describe(status: int, reason: str, message: str, causes: tuple[tuple[str, str, str], ...]) -> tuple[str, str]:
    """Return message and advice for a refusal."""
    first = causes[0][0] if causes else ""
    typed = re.sub(_TYPED, lambda match: match.group(1) or "", message)
    if typed != message:
        return f"does not fit its kind: {typed}", "Correct the field that is named"
    webhook = re.search(_WEBHOOK, message)
    if webhook:
        return f"the admission webhook {webhook.group(1)} does not answer: {message}", "Check the Pods behind it"
    if first == "FieldManagerConflict":
        return _describe_conflict(causes), "Leave these fields out, or set force_conflicts to take them over"
    if first == "NamespaceTerminating":
        return f"its namespace is being deleted: {message}", "Wait until it is deleted, or name another namespace"
    if reason == "Invalid" and causes:
        shown = "; ".join(f"{field}: {text}" for _unused, field, text in causes[:5])
        return f"is not valid: {shown}", "An immutable field needs a new object" if "immutable" in shown else ""
    return message, _ADVICE.get(status, "")


_ADVICE = {
    401: "Log in again, or give another credential; a team's token is renewed by the playbook team",
    403: "Get the permission (RBAC) for it, or satisfy the policy that is named",
    410: "Read again from the start",
    429: "The API server is overloaded: try later",
    503: "The API server, or the service behind this API, is not ready",
}


def _describe_conflict(causes: tuple[tuple[str, str, str], ...]) -> str:
    fields: dict[str, list[str]] = {}
    for reason, field, message in causes:
        if reason == "FieldManagerConflict":
            match = re.search(r'conflict with "([^"]+)"', message)
            fields.setdefault(match.group(1) if match else message, []).append(field)
    parts = [
        f"{manager} owns {', '.join(names[:8])}{' …' if len(names) > 8 else ''}" for manager, names in fields.items()
    ]
    return f"conflicts with other field managers: {'; '.join(parts)}"
