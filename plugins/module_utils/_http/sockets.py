# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Opens connections: name resolution, TCP, proxy tunnels and TLS, each read and write within the deadline."""

from __future__ import annotations

import io
import socket
import ssl
import threading
import typing as t

from .clock import Deadline
from .errors import CHUNK, OTHER_PROTOCOL, ExchangeError
from .retry import Timeouts
from .urls import Origin, Proxy, is_address

_Address = tuple[socket.AddressFamily, t.Any]
_MAX_PROXY_RESPONSE = 16 * 1024
# OpenSSL's reasons for a response that is not TLS.
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL")


class _TimedReader(io.RawIOBase):
    """The reading side of a socket; each read gets what is left of the deadline, never more than ``read_s``."""

    def __init__(self, sock: TimedSocket) -> None:
        self._sock = sock

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: t.Any) -> int:
        return self._sock.receive_into(buffer)


class TimedSocket:
    """A socket as ``http.client`` uses it. A per-read timeout alone would let one byte a second continue for ever.

    ``close`` does nothing, since ``http.client`` closes before the body is read; :meth:`shut` closes.
    """

    def __init__(self, raw: socket.socket, deadline: Deadline, step_s: float) -> None:
        self.raw = raw
        self._buffer: bytearray | None = None
        self.arm(deadline, step_s)

    def arm(self, deadline: Deadline, step_s: float) -> None:
        """Set the limits of the exchange that follows."""
        self._deadline, self._step_s, self.received = deadline, step_s, 0

    def _limit(self) -> None:
        self.raw.settimeout(self._deadline.within(self._step_s))

    def receive_into(self, buffer: t.Any) -> int:
        self._limit()
        count = self.raw.recv_into(buffer)
        self.received += count
        return count

    def hold(self) -> None:
        """Buffer what is sent from now on until :meth:`release`: head and body of a request make one TLS record."""
        self._buffer = bytearray()

    def release(self) -> None:
        """Send the buffer."""
        buffer, self._buffer = self._buffer, None
        if buffer:
            self.sendall(buffer)

    def sendall(self, data: t.Any) -> None:
        if self._buffer is not None:
            self._buffer += data
            return
        view = memoryview(data).cast("B")
        for start in range(0, len(view), CHUNK):
            self._limit()
            self.raw.sendall(view[start : start + CHUNK])

    def makefile(self, mode: str = "rb", *_args: t.Any) -> io.BufferedReader:
        return io.BufferedReader(_TimedReader(self), CHUNK)

    def close(self) -> None:
        return None

    def shut(self) -> None:
        self.raw.close()


def resolve(host: str, port: int, timeout_s: float) -> list[_Address]:
    """Return the addresses of ``host``, families in turn, or raise :class:`ExchangeError` after ``timeout_s``.

    The resolver cannot be interrupted (glibc waits 10 s and more for a dead name server), so it runs in a thread; an
    address needs none.
    """
    if is_address(host):
        return [(entry[0], entry[4]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    outcome: list[t.Any] = []

    def query_resolver() -> None:
        try:
            outcome.append(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as exc:
            outcome.append(exc)

    thread = threading.Thread(target=query_resolver, daemon=True, name="resolve")
    thread.start()
    thread.join(timeout_s)
    result = outcome[0] if outcome else TimeoutError()
    if isinstance(result, (OSError, UnicodeError)):
        reason = "no response from the name server" if isinstance(result, TimeoutError) else "unknown host name"
        fix = "Check the address and this machine's DNS"
        raise ExchangeError(f"{host} cannot be resolved ({reason})", fix=fix, sent=False, transient=True)
    return _alternate_families([(entry[0], entry[4]) for entry in result])


def _alternate_families(addresses: list[_Address]) -> list[_Address]:
    """Put families in turn (RFC 8305 section 4), so that a dead IPv6 route costs one attempt only."""
    first = [entry for entry in addresses if entry[0] == addresses[0][0]]
    rest = [entry for entry in addresses if entry[0] != addresses[0][0]]
    mixed: list[_Address] = []
    for index in range(max(len(first), len(rest))):
        mixed += first[index : index + 1] + rest[index : index + 1]
    return mixed


def dial(host: str, port: int, limit: Deadline) -> socket.socket:
    """Open a TCP connection before ``limit``; the addresses of ``host`` share the time."""
    problem = "no address"
    addresses = resolve(host, port, limit.seconds_left())
    for left, (family, address) in zip(range(len(addresses), 0, -1), addresses, strict=True):
        # Half the time for each address but the last: a black hole must leave some for the next.
        step_s = limit.within(max(0.2, limit.seconds_left() / min(left, 2)))
        raw = socket.socket(family, socket.SOCK_STREAM)
        try:
            raw.settimeout(step_s)
            raw.connect(address)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as exc:
            raw.close()
            problem = "timed out" if isinstance(exc, TimeoutError) else (exc.strerror or "failed").lower()
            continue
        return raw
    fix = "Check that the server is up, its address, and the VPN, firewall or proxy on the way"
    raise ExchangeError(f"no connection to {host} port {port} ({problem})", fix=fix, sent=False, transient=True)


def _open_tunnel(sock: TimedSocket, origin: Origin, proxy: Proxy) -> None:
    """Ask ``proxy`` for a tunnel to ``origin`` (CONNECT, RFC 9110 section 9.3.6)."""
    host = f"[{origin.host}]" if ":" in origin.host else origin.host
    lines = [f"CONNECT {host}:{origin.port} HTTP/1.1", f"Host: {host}:{origin.port}"]
    if proxy.credentials:
        lines.append(f"Proxy-Authorization: {proxy.credentials}")
    sock.sendall("\r\n".join([*lines, "", ""]).encode("ascii"))
    response = b""
    # Byte by byte: the bytes after the empty line belong to TLS and must stay in the socket.
    while not response.endswith(b"\r\n\r\n"):
        byte = bytearray(1)
        if not sock.receive_into(byte) or len(response) > _MAX_PROXY_RESPONSE:
            raise ExchangeError("the proxy closed the connection", sent=False, transient=True)
        response += bytes(byte)
    status = response.split(None, 2)[1:2]
    if not status or not status[0].startswith(b"2"):
        shown = status[0].decode("ascii", "replace")[:3] if status else "nothing"
        raise ExchangeError(f"the proxy refused the tunnel ({shown})", fix="Check the proxy setting", sent=False)


def _start_tls(raw: socket.socket, name: str, context: ssl.SSLContext, timeout_s: float) -> socket.socket:
    raw.settimeout(timeout_s)
    try:
        return context.wrap_socket(raw, server_hostname=name)
    except ssl.SSLCertVerificationError as exc:
        fix = "Check the host name, the clock of this machine and the CA option"
        raise ExchangeError(f"the TLS certificate was refused ({exc.verify_message})", fix=fix, sent=False) from None
    except ssl.SSLError as exc:
        message = "the server does not speak TLS" if exc.reason in _NO_TLS else f"TLS failed ({exc.reason or 'closed'})"
        raise ExchangeError(message, fix=OTHER_PROTOCOL, sent=False) from None


def connect(
    origin: Origin,
    proxy: Proxy | None,
    context: t.Callable[[], ssl.SSLContext],
    deadline: Deadline,
    timeouts: Timeouts,
    server_name: str = "",
) -> TimedSocket:
    """Return a ready connection to ``origin``; raise :class:`ExchangeError` or ``OSError``, before anything is sent.

    ``server_name`` is the name that the server's certificate must bear, when it is not the one in the address.
    """
    hop = proxy or origin
    raw = dial(hop.host, hop.port, deadline.shorter(timeouts.connect_s))
    try:
        if origin.scheme == "https":
            if proxy:
                _open_tunnel(TimedSocket(raw, deadline, timeouts.connect_s), origin, proxy)
            raw = _start_tls(raw, server_name or origin.host, context(), deadline.within(timeouts.connect_s))
    except BaseException:
        raw.close()
        raise
    return TimedSocket(raw, deadline, timeouts.read_s)
