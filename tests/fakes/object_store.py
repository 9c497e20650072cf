# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An object store in memory for unit tests: objects by path, ranges, lists, and faults that a test asks for.

It checks no signature: real stores do that in the end-to-end tests.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import re
import ssl
import threading
import time
import typing as t
import urllib.parse
import xml.sax.saxutils

LISTED = b'<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"></ListBucketResult>'


class ObjectStore:
    """The objects, what was asked for, and the faults to come."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.asked: list[tuple[str, str, str]] = []
        self.buckets = {"bucket"}
        self.listed: bytes | None = LISTED
        # Sent with objects, beside their ETag.
        self.headers: dict[str, str] = {}
        # (method, path) -> what is done instead, once each: a status, or "cut" for half of the body.
        self.faults: dict[tuple[str, str], list[int | str]] = {}
        # method -> the status and the code with which all such requests are refused.
        self.refusals: dict[str, tuple[int, str]] = {}
        self.url = ""
        # How long each answer takes, and how far its clock is ahead.
        self.delay_s = self.ahead_s = 0.0

    def etag(self, key: str) -> str:
        """Return the ETag of an object, in quotes."""
        return f'"{hashlib.md5(self.objects[key], usedforsecurity=False).hexdigest()}"'

    def list_page(self, query: str) -> bytes:
        """Return a page of the list of the bucket; what to continue after is the number of the next object."""
        asked = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        keys = sorted(key for key in self.objects if key.startswith(asked.get("prefix", "")))
        first = int(asked.get("continuation-token", "0"))
        last = first + int(asked.get("max-keys", "1000"))
        rows = "".join(
            f"<Contents><Key>{xml.sax.saxutils.escape(key)}</Key><Size>{len(self.objects[key])}</Size>"
            f"<ETag>{xml.sax.saxutils.escape(self.etag(key))}</ETag></Contents>"
            for key in keys[first:last]
        )
        more = f"<NextContinuationToken>{last}</NextContinuationToken>" if last < len(keys) else ""
        rows += f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>{more}"
        return LISTED.replace(b"></ListBucketResult>", f">{rows}</ListBucketResult>".encode())

    def address(self, key: str) -> str:
        """Return what stands for a signed address."""
        return f"{self.url}/bucket/{urllib.parse.quote(key)}?X-Amz-Signature=abc"


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: ObjectStore

    def log_message(self, format: str, *args: t.Any) -> None:
        """Print nothing."""

    def date_time_string(self, timestamp: float | None = None) -> str:
        """Return the time of the store."""
        return super().date_time_string(int((time.time() if timestamp is None else timestamp) + self.store.ahead_s))

    def _carry_out(self) -> None:
        time.sleep(self.store.delay_s)
        parts = urllib.parse.urlsplit(self.path)
        path = urllib.parse.unquote(parts.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.store.asked.append((self.command, path, self.headers.get("Range", "")))
        waiting = self.store.faults.get((self.command, path), [])
        fault = waiting.pop(0) if waiting else None
        if isinstance(fault, int):
            self._answer(fault, b"<Error><Code>InternalError</Code></Error>")
            return
        if self.command in self.store.refusals:
            status, code = self.store.refusals[self.command]
            self._answer(status, f"<Error><Code>{code}</Code><Region>eu-west-1</Region></Error>".encode())
            return
        bucket, _slash, key = path.lstrip("/").partition("/")
        if bucket not in self.store.buckets and self.command == "PUT" and not key:
            self.store.buckets.add(bucket)
            self._answer(200)
        elif bucket not in self.store.buckets:
            self._answer(404, b"<Error><Code>NoSuchBucket</Code></Error>")
        elif not key:
            self._answer(200, self.store.list_page(parts.query) if self.store.listed is None else self.store.listed)
        elif self.command == "PUT":
            self.store.objects[key] = body
            self._answer(200)
        elif self.command == "DELETE":
            self.store.objects.pop(key, None)
            self._answer(204)
        else:
            self._send_object(key, self.store.objects.get(key), fault)

    do_GET = do_PUT = do_DELETE = do_HEAD = _carry_out

    def _send_object(self, key: str, data: bytes | None, fault: object) -> None:
        if data is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        etag = self.store.etag(key)
        if self.headers.get("If-Match", etag) != etag:
            self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
            return
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if asked:
            data = data[int(asked[1]) : int(asked[2]) + 1 if asked[2] else None]
        headers = {"ETag": etag, **self.store.headers}
        self._answer(206 if asked else 200, data, cut=fault == "cut", headers=headers)

    def _answer(
        self, status: int, body: bytes = b"", cut: bool = False, headers: t.Mapping[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if cut else body)
        if cut:
            self.close_connection = True


@contextlib.contextmanager
def running(certificate: tuple[str, str] | None = None) -> t.Iterator[ObjectStore]:
    """Serve a store on loopback; over TLS with the files of a certificate and its key."""
    store = ObjectStore()
    handler = type("Handler", (_Handler,), {"store": store})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        store.url = f"http{'s' if certificate else ''}://127.0.0.1:{server.server_address[1]}"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
            # A client that hangs up is what this is about.
            server.handle_error = lambda *_args: None  # type: ignore[method-assign]
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield store
        server.shutdown()
