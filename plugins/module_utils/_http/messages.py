# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HTTP requests and responses as values; their text never shows query, headers or body."""

from __future__ import annotations

import json
import re
import string
import types
import typing as t
import urllib.parse
from collections.abc import Mapping

from .._model.errors import InputError
from .urls import Query, encode_query

Method = t.Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]

_NONE: t.Final[Mapping[str, str]] = types.MappingProxyType({})
_SAFE = ("GET", "HEAD")
_IDEMPOTENT = ("GET", "HEAD", "PUT", "DELETE")
_TOKEN = frozenset(string.ascii_letters + string.digits + "!#$%&'*+.^_`|~-")
_REQUEST_IDS = ("x-request-id", "request-id", "x-amzn-requestid", "x-amz-request-id", "cf-ray")


class HttpRequest(t.NamedTuple):
    """One call. ``path`` begins with a slash and is already encoded (see :func:`.urls.route`).

    ``idempotent`` says whether sending it twice is harmless; by default the method decides (RFC 9110 section
    9.2.2). A create by PUT must set it to false: only a 429 is then retried, since anything else may have worked.
    """

    method: Method
    path: str
    query: Query = ()
    headers: Mapping[str, str] = _NONE
    body: bytes | None = None
    idempotent: bool | None = None

    def __repr__(self) -> str:
        return f"HttpRequest(method={self.method!r}, path={self.path!r}, idempotent={self.idempotent!r})"

    @property
    def target(self) -> str:
        """The path with its query, as it goes over the wire."""
        return self.path + encode_query(self.query)

    @property
    def safe(self) -> bool:
        """Whether the call only reads, so that it cannot have changed anything."""
        return self.method in _SAFE

    @property
    def repeatable(self) -> bool:
        """Whether the call may be sent again when it is unknown whether it took effect."""
        return self.method in _IDEMPOTENT if self.idempotent is None else self.idempotent


class HttpResponse(t.NamedTuple):
    """One response. Header names are lower case; ``body`` is whole and unpacked."""

    status: int
    headers: Mapping[str, str] = _NONE
    body: bytes = b""

    def __repr__(self) -> str:
        return f"HttpResponse(status={self.status!r})"

    def request_id(self) -> str:
        """Return the server's id of this call, for its support; empty without one."""
        for name in _REQUEST_IDS:
            value = re.sub(r"[^A-Za-z0-9._:/=-]", "", self.headers.get(name, ""))
            if value:
                return value[:80]
        return ""

    def content_type(self) -> str:
        """Return the media type without parameters, safe to show."""
        value = self.headers.get("content-type", "").split(";")[0].strip().lower()
        return re.sub(r"[^a-z0-9.+/-]", "", value)[:60] or "no content type"


class JsonResponse(t.NamedTuple):
    """A decoded JSON response: ``data`` is None when the body is empty."""

    status: int
    data: t.Any
    headers: Mapping[str, str] = _NONE

    def __repr__(self) -> str:
        return f"JsonResponse(status={self.status!r})"


def check_headers(headers: Mapping[str, str]) -> None:
    """Refuse header names or values that would end the header early. The value is not shown."""
    for name, value in headers.items():
        plain = value.isascii() and (value.isprintable() or value.replace("\t", " ").isprintable())
        if not name or not _TOKEN.issuperset(name) or not plain:
            raise InputError(f"header {name!r}", "has characters in its name or value that HTTP does not allow")


def json_request(
    method: Method,
    path: str,
    *,
    query: Query = (),
    body: t.Any = None,
    form: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    idempotent: bool | None = None,
) -> HttpRequest:
    """Build a call that expects JSON; ``body`` is sent as JSON or ``form`` as a web form, not both."""
    all_headers = {"Accept": "application/json", **(headers or {})}
    data: bytes | None = None
    if form is not None:
        data = urllib.parse.urlencode(dict(form)).encode()
        all_headers.setdefault("Content-Type", "application/x-www-form-urlencoded")
    elif body is not None:
        data = json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
        all_headers.setdefault("Content-Type", "application/json")
    return HttpRequest(method, path, tuple(query), all_headers, data, idempotent)


def _refuse_constant(name: str) -> t.NoReturn:
    raise ValueError(f"{name} is not JSON")


def decode_json(body: bytes) -> t.Any:
    """Return the JSON value of ``body``, None for an empty one; raise ``ValueError`` for anything else."""
    if not body.strip():
        return None
    try:
        return json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        # The parser's own message quotes the text, which may hold a secret.
        raise ValueError("not JSON") from None
