# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests to an S3 store with addresses that the controller signed: this node has no key and no package for it.

A signed address is a secret: no message here holds more of it than the host and the path.
"""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import contextlib
import http.client
import re
import socket
import ssl
import time
import typing as t
import urllib.parse

_BODY_LIMIT = 1 << 20
# A buffer of this size is made for each read: larger ones cost more than they save.
_CHUNK = 1 << 18
# Seconds without a byte after which a connection has failed.
SILENT_S = 30.0
_ATTEMPTS = 4
_TRANSIENT = (408, 429, 500, 502, 503, 504)
_FIXES = {
    "NoSuchBucket": ("the bucket does not exist", "Check its name, or create it: it is never created from here"),
    "NoSuchKey": ("the object does not exist", "It was deleted meanwhile, or the prefix is wrong"),
    "InvalidAccessKeyId": ("the access key is not known to the store", "Check secret_ref and the endpoint"),
    "SignatureDoesNotMatch": ("the secret key does not fit the access key", "Check secret_ref, region and addressing"),
    "AccessDenied": ("the credentials lack a permission", "Allow list, read and write on this bucket"),
    "RequestTimeTooSkewed": ("the controller's clock is off", "Set the controller's clock (NTP)"),
    "ExpiredToken": ("the session token has expired", "Get new credentials and run this command again"),
    "AuthorizationHeaderMalformed": ("the region is wrong", "Set region to the bucket's"),
    "AuthorizationQueryParametersError": ("the signed address is refused", "Check region, and the controller's clock"),
    "PermanentRedirect": ("the bucket is in another region or has another address", "Set region and endpoint"),
    "PreconditionFailed": ("the object was changed meanwhile", "Run again when nothing writes there any more"),
    "QuotaExceeded": ("the store's quota is used up", "Raise it, or delete objects"),
    "XMinioStorageFull": ("the store is full", "Add disk space, or delete objects"),
    "InvalidRegion": ("the region is wrong", "Set region to the bucket's"),
}


class S3Error(Exception):
    """A request that failed: ``problem`` and ``fix`` in words, HTTP status and S3's code where there were any."""

    def __init__(self, problem: str, fix: str = "", *, status: int = 0, code: str = "") -> None:
        super().__init__(problem)
        self.problem, self.fix, self.status, self.code = problem, fix, status, code

    @property
    def transient(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status in _TRANSIENT or not self.status


class Answer(t.NamedTuple):
    """Status, headers (lower case) and body of a response; the body is empty when it went to a sink."""

    status: int
    headers: dict[str, str]
    body: bytes


class Source(t.Protocol):
    """Opens the bytes of a body anew for each attempt."""

    def __call__(self) -> t.Iterator[bytes]: ...


class Store:
    """One store: its own certificates, and the connection that is kept for the next request. Not for threads."""

    def __init__(self, ca: str | None = None, clock: t.Callable[[], float] = time.monotonic) -> None:
        self._ca, self._clock = ca, clock
        self._connection: http.client.HTTPConnection | None = None
        self._place: tuple[str, str] | None = None

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def send(
        self,
        method: str,
        url: str,
        body: bytes = b"",
        *,
        source: Source | None = None,
        size: int = 0,
        headers: t.Mapping[str, str] | None = None,
        sink: t.Callable[[bytes], object] | None = None,
        allow: t.Collection[int] = (),
    ) -> Answer:
        """Send a request one time.

        :param source: the body where it is not in memory, ``size`` bytes of it.
        :param sink: takes the body of a success as it comes.
        :raises S3Error: for every answer but a success or one that ``allow`` names.
        """
        parts = urllib.parse.urlsplit(url)
        data = source() if source is not None else body
        length = size if source is not None else len(body)
        try:
            connection = self._connect(parts)
            plain = {"Content-Length": str(length), "Connection": "keep-alive", **(headers or {})}
            connection.request(method, f"{parts.path}?{parts.query}", data if length else None, plain)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            if 200 <= response.status < 300 and sink is not None:
                read = _drain(response, sink)
                _require_whole(found, read, parts)
                return Answer(response.status, found, b"")
            answer = Answer(response.status, found, response.read(_BODY_LIMIT))
            if response.read(1):
                self.close()
        except (OSError, http.client.HTTPException) as exc:
            self.close()
            raise S3Error(*_explain_transport(exc, parts)) from exc
        if 200 <= answer.status < 300 or answer.status in allow:
            return answer
        raise explain(answer, parts)

    def send_again(self, method: str, url: str, body: bytes = b"", **values: t.Any) -> Answer:
        """Send a request that may be repeated; a transient failure is tried again, after a growing while."""
        for attempt in range(_ATTEMPTS):
            try:
                return self.send(method, url, body, **values)
            except S3Error as exc:
                if not exc.transient or attempt == _ATTEMPTS - 1:
                    raise
            time.sleep(0.2 * 3**attempt)
        raise AssertionError("the last attempt raises or returns")

    def read_again(self, url: str, limit: int, headers: t.Mapping[str, str] | None = None) -> bytes:
        """Return a whole body of at most ``limit`` bytes; each attempt begins anew."""
        for attempt in range(_ATTEMPTS):
            body = bytearray()

            def take(data: bytes, body: bytearray = body) -> None:
                body.extend(data)
                if len(body) > limit:
                    raise S3Error("the answer is larger than any that is expected here", status=1)

            try:
                self.send("GET", url, headers=headers, sink=take)
                return bytes(body)
            except S3Error as exc:
                if not exc.transient or attempt == _ATTEMPTS - 1:
                    self.close()
                    raise
            time.sleep(0.2 * 3**attempt)
        raise AssertionError("the last attempt raises or returns")

    def _connect(self, parts: urllib.parse.SplitResult) -> http.client.HTTPConnection:
        place = (parts.scheme, parts.netloc)
        if self._connection is None or self._place != place:
            self.close()
            host, port = str(parts.hostname), parts.port
            if parts.scheme == "https":
                context = ssl.create_default_context(cadata=self._ca)
                self._connection = http.client.HTTPSConnection(host, port, timeout=SILENT_S, context=context)
            else:
                self._connection = http.client.HTTPConnection(host, port, timeout=SILENT_S)
            self._place = place
        return self._connection


def describe(parts: urllib.parse.SplitResult) -> str:
    """Return what may be shown of an address: neither the query, which signs it, nor a user."""
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.hostname}{port}{urllib.parse.unquote(parts.path)}"


def explain(answer: Answer, parts: urllib.parse.SplitResult) -> S3Error:
    """Return the error of a refusal."""
    where, code = describe(parts), _xml(answer.body, "Code")
    region = answer.headers.get("x-amz-bucket-region") or _xml(answer.body, "Region")
    if b"<html" in answer.body[:2000].lower() and not code:
        fix = "Check the endpoint: a web page answers there, of a console, a proxy or a login"
        return S3Error(f"{where} answered {answer.status} with a web page, not as S3", fix, status=answer.status or 1)
    said, fix = _FIXES.get(code, (code or "no reason given", ""))
    if not code and answer.status in (301, 307):
        said, fix = _FIXES["PermanentRedirect"]
    if not code and answer.status == 403:
        said, fix = _FIXES["AccessDenied"]
    message = _xml(answer.body, "Message").lower()
    if code in ("AccessDenied", "ExpiredPresignRequest") and ("expired" in message or code != "AccessDenied"):
        said, fix = "the signed address has expired", "Run this command again; check the controller's clock (NTP)"
    if region and ("region" in said):
        fix = f"Set region: {region}"
    return S3Error(f"{where} answered {answer.status}: {said}", fix, status=answer.status, code=code)


def _explain_transport(exc: Exception, parts: urllib.parse.SplitResult) -> tuple[str, str]:
    port = f":{parts.port}" if parts.port else ""
    where = f"{parts.hostname}{port}"
    if isinstance(exc, ssl.SSLCertVerificationError):
        why = exc.verify_message or "not valid"
        fix = "Set ca to the store's own CA" if "self" in why or "issuer" in why else "Renew or correct its certificate"
        return f"the certificate of {where} is refused: {why}", fix
    if isinstance(exc, ssl.SSLError):
        return f"{where} does not speak TLS ({exc.reason or 'handshake failed'})", "Check the endpoint: http or https"
    if isinstance(exc, socket.gaierror):
        return f"the name {parts.hostname} is not known here", "Check the endpoint and this node's DNS"
    if isinstance(exc, TimeoutError):
        return f"{where} did not answer within {SILENT_S:.0f} s", "Check firewalls and routes to it"
    if isinstance(exc, http.client.HTTPException):
        return f"{where} gave no HTTP answer ({type(exc).__name__})", "Check the endpoint: http or https, and its port"
    said = getattr(exc, "strerror", None) or type(exc).__name__
    return f"{where}: {said}", "Check the endpoint, and that the service runs and this node may connect to it"


def _drain(response: http.client.HTTPResponse, sink: t.Callable[[bytes], object]) -> int:
    read = 0
    # What has arrived, and not before a whole chunk has: after a cut, little was received in vain.
    while data := response.read1(_CHUNK):
        read += len(data)
        sink(data)
    # Before Python 3.13, read1 leaves an answer of a known length open at its end: no other request could follow it.
    response.read()
    return read


def _require_whole(headers: t.Mapping[str, str], read: int, parts: urllib.parse.SplitResult) -> None:
    with contextlib.suppress(ValueError):
        if read < int(headers.get("content-length", "0")):
            raise S3Error(f"{describe(parts)}: the answer was cut off after {read} bytes")


def _xml(body: bytes, name: str) -> str:
    """Return the text of the first element ``name``, as far as it is plain."""
    found = re.search(rf"<{name}>([^<]{{1,200}})</{name}>", body.decode(errors="replace"))
    return re.sub(r"[^A-Za-z0-9 ._:-]", "", found[1]) if found else ""
