# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The wire against real sockets on loopback: sizes, times, compression, TLS, proxies, kept connections."""

from __future__ import annotations

import datetime
import gzip
import ipaddress
import pathlib
import socket
import ssl
import threading
import time
import typing as t

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ansible_collections.muster.training.plugins.module_utils._http import sockets
from ansible_collections.muster.training.plugins.module_utils._http.clock import SYSTEM_CLOCK, Deadline
from ansible_collections.muster.training.plugins.module_utils._http.connection_pool import ConnectionPool
from ansible_collections.muster.training.plugins.module_utils._http.errors import CHUNK, ExchangeError
from ansible_collections.muster.training.plugins.module_utils._http.messages import HttpRequest
from ansible_collections.muster.training.plugins.module_utils._http.retry import Timeouts
from ansible_collections.muster.training.plugins.module_utils._http.tls import TlsOptions
from ansible_collections.muster.training.plugins.module_utils._http.urls import Origin
from ansible_collections.muster.training.tests.support.loopback import http_answer, raw_server, read_request, reply

GET = HttpRequest("GET", "/v1/nodes")
POST = HttpRequest("POST", "/v1/nodes", body=b"{}")


def exchange(port: int, request: HttpRequest = GET, total_s: float = 10.0, **options: t.Any) -> bytes:
    wire = options.pop("wire", None) or ConnectionPool(**options)
    origin = Origin("http", "127.0.0.1", port)
    return wire(origin, request, Deadline(SYSTEM_CLOCK, total_s)).body


def test_request_on_the_wire_is_complete() -> None:
    seen: list[bytes] = []
    request = HttpRequest("POST", "/v1/nodes", (("a", "b c"),), {"X-One": "1"}, b'{"n":1}')
    with raw_server(reply(http_answer(b"{}"), seen=seen)) as port:
        assert exchange(port, request) == b"{}"
    head, _mark, body = seen[0].partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /v1/nodes?a=b+c HTTP/1.1" and body == b'{"n":1}'
    assert set(lines[1:]) == {f"Host: 127.0.0.1:{port}", "Accept-Encoding: gzip", "X-One: 1", "Content-Length: 7"}


def test_connection_is_kept_for_reads_and_fresh_for_creates() -> None:
    def go_on(sock: socket.socket) -> None:
        while read_request(sock):
            sock.sendall(http_answer(b"1"))

    wire = ConnectionPool()
    with raw_server(go_on, reply(http_answer(b"2"))) as port:
        assert [exchange(port, request, wire=wire) for request in (GET, GET, POST)] == [b"1", b"1", b"2"]
    wire.close()


def test_a_kept_connection_that_died_is_replaced_unseen() -> None:
    wire = ConnectionPool()
    with raw_server(reply(http_answer(b"1")), reply(http_answer(b"2"))) as port:
        assert exchange(port, wire=wire) == b"1"
        time.sleep(0.05)
        assert exchange(port, wire=wire) == b"2"


@pytest.mark.parametrize(
    ("answer", "problem", "transient"),
    [
        (b"", "connection was lost", True),
        (http_answer(b"x" * 10)[:-4], "cut short", True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc", "cut short", True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "cut short|not HTTP", True),
        (b"SSH-2.0-OpenSSH_9.9\r\n", "not HTTP", False),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n", "not HTTP", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n", "larger than 1000 bytes", False),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 5000, "larger than 1000 bytes", False),
        (http_answer(gzip.compress(b"0" * 300_000), headers={"Content-Encoding": "gzip"}), "larger than 1000", False),
        (http_answer(gzip.compress(b"0" * 90)[:-9], headers={"Content-Encoding": "gzip"}), "cut short", True),
        (http_answer(b"not gzip", headers={"Content-Encoding": "gzip"}), "response is damaged", False),
        (http_answer(b"x", headers={"Content-Encoding": "br"}), "not requested", False),
    ],
)
def test_bad_answers(answer: bytes, problem: str, transient: bool) -> None:
    with raw_server(reply(answer)) as port, pytest.raises(ExchangeError, match=problem) as caught:
        exchange(port, POST, max_body_bytes=1000)
    assert caught.value.sent
    if problem != "cut short|not HTTP":
        assert caught.value.transient is transient


def test_gzip_is_unpacked() -> None:
    answer = http_answer(gzip.compress(b'{"a":1}'), headers={"Content-Encoding": "gzip"})
    with raw_server(reply(answer)) as port:
        assert exchange(port) == b'{"a":1}'


@pytest.mark.parametrize("part", [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"])
def test_a_byte_now_and_then_does_not_outlive_the_deadline(part: bytes) -> None:
    stop = threading.Event()

    def drip(sock: socket.socket) -> None:
        read_request(sock)
        sock.sendall(part)
        while not stop.wait(0.02):
            sock.sendall(b"x")

    started = time.monotonic()
    with raw_server(drip) as port, pytest.raises(ExchangeError, match="in time"):
        exchange(port, total_s=0.4)
    stop.set()
    assert 0.3 < time.monotonic() - started < 2.0


def test_silence_ends_with_the_read_timeout() -> None:
    def silent(sock: socket.socket) -> None:
        read_request(sock)
        sock.recv(1)

    with raw_server(silent) as port, pytest.raises(ExchangeError, match="in time") as caught:
        exchange(port, timeouts=Timeouts(read_s=0.2))
    assert caught.value.transient and caught.value.sent


def test_nobody_listens() -> None:
    with raw_server() as port:
        pass
    with pytest.raises(ExchangeError, match=f"no connection to 127.0.0.1 port {port}") as caught:
        exchange(port)
    assert not caught.value.sent and caught.value.transient


def test_unknown_host_is_named() -> None:
    with pytest.raises(ExchangeError, match="no-such-host.invalid cannot be resolved"):
        ConnectionPool(proxy="none")(Origin("http", "no-such-host.invalid", 80), GET, Deadline(SYSTEM_CLOCK, 10))


def test_a_resolver_that_hangs_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_a, **_k: release.wait(5))
    with pytest.raises(ExchangeError, match="no response from the name server"):
        sockets.resolve("slow.example.com", 443, 0.05)
    release.set()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_an_address_needs_no_resolver(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def started(_self: object) -> None:
        raise AssertionError("a thread for an address")

    monkeypatch.setattr(sockets.threading.Thread, "start", started)
    ((_family, address),) = sockets.resolve(host, 443, 1.0)
    assert address[:2] == (host, 443)


def test_second_family_is_tried_when_the_first_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    with raw_server() as dead:
        pass
    with raw_server(reply(http_answer(b"4"))) as port:
        found = [(socket.AF_INET6, 1, 6, "", ("::1", dead, 0, 0)), (socket.AF_INET, 1, 6, "", ("127.0.0.1", port))]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_a, **_k: found)
        origin = Origin("http", "two.example.com", port)
        assert ConnectionPool(proxy="none")(origin, GET, Deadline(SYSTEM_CLOCK, 5)).body == b"4"


def test_families_take_turns() -> None:
    six, four = socket.AF_INET6, socket.AF_INET
    mixed = sockets._alternate_families([(six, 1), (six, 2), (six, 3), (four, 4)])
    assert mixed == [(six, 1), (four, 4), (six, 2), (six, 3)]


def make_certificate(folder: pathlib.Path, *, days: int = 1) -> tuple[str, str]:
    """Write a self-signed certificate for 127.0.0.1; negative ``days`` make it expired."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "loopback")])
    end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(end - datetime.timedelta(days=9))
        .not_valid_after(end)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    paths = str(folder / "cert.pem"), str(folder / "key.pem")
    pathlib.Path(paths[0]).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    pathlib.Path(paths[1]).write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return paths


def over_tls(paths: tuple[str, str]) -> t.Callable[[socket.socket], None]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*paths)

    def converse(sock: socket.socket) -> None:
        with context.wrap_socket(sock, server_side=True) as secure:
            read_request(secure)
            secure.sendall(http_answer(b'"tls"'))

    return converse


def get_tls(port: int, tls: TlsOptions, host: str = "127.0.0.1") -> bytes:
    return ConnectionPool(tls=tls)(Origin("https", host, port), GET, Deadline(SYSTEM_CLOCK, 10)).body


def test_tls_trusts_only_what_it_is_told_to(tmp_path: pathlib.Path) -> None:
    paths = make_certificate(tmp_path)
    with raw_server(over_tls(paths)) as port:
        assert get_tls(port, TlsOptions(ca_path=paths[0])) == b'"tls"'
    with raw_server(over_tls(paths)) as port, pytest.raises(ExchangeError, match="certificate was refused") as caught:
        get_tls(port, TlsOptions())
    assert not caught.value.transient and not caught.value.sent and "clock" in caught.value.fix
    with raw_server(over_tls(paths)) as port, pytest.raises(ExchangeError, match=r"refused \(Hostname mismatch"):
        get_tls(port, TlsOptions(ca_path=paths[0]), host="localhost")
    with raw_server(over_tls(paths)) as port:
        assert get_tls(port, TlsOptions(verify=False)) == b'"tls"'


def test_expired_certificate_is_refused(tmp_path: pathlib.Path) -> None:
    paths = make_certificate(tmp_path, days=-1)
    with raw_server(over_tls(paths)) as port, pytest.raises(ExchangeError, match="expired"):
        get_tls(port, TlsOptions(ca_path=paths[0]))


def test_a_server_without_tls_is_named() -> None:
    def talk(sock: socket.socket) -> None:
        # What is not read when a socket closes resets the connection, and the answer may be lost.
        sock.recv(CHUNK)
        sock.sendall(b"SSH-2.0-x\r\n")

    with (
        raw_server(talk) as port,
        pytest.raises(ExchangeError, match="the server does not speak TLS"),
    ):
        get_tls(port, TlsOptions())


@pytest.mark.parametrize(("content", "reason"), [(None, "no such file"), (b"junk", "not PEM")])
def test_unusable_ca_file(tmp_path: pathlib.Path, content: bytes | None, reason: str) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ExchangeError, match=reason):
        TlsOptions(ca_path=str(path)).context()


def test_plain_http_goes_through_the_proxy_in_absolute_form(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []
    with raw_server(reply(http_answer(b"1"), seen=seen)) as port:
        wire = ConnectionPool(proxy=f"http://user:p%40ss@127.0.0.1:{port}")
        assert wire(Origin("http", "api.example.com", 80), GET, Deadline(SYSTEM_CLOCK, 5)).body == b"1"
    assert seen[0].startswith(b"GET http://api.example.com/v1/nodes HTTP/1.1\r\nHost: api.example.com\r\n")
    assert b"Proxy-Authorization: Basic dXNlcjpwQHNz\r\n" in seen[0]


def test_https_goes_through_a_tunnel(tmp_path: pathlib.Path) -> None:
    paths = make_certificate(tmp_path)
    seen: list[bytes] = []
    serve = over_tls(paths)

    def proxy(sock: socket.socket) -> None:
        seen.append(read_request(sock))
        sock.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        serve(sock)

    with raw_server(proxy) as port:
        wire = ConnectionPool(tls=TlsOptions(verify=False), proxy=f"http://127.0.0.1:{port}")
        assert wire(Origin("https", "api.example.com", 443), GET, Deadline(SYSTEM_CLOCK, 5)).body == b'"tls"'
    assert seen == [b"CONNECT api.example.com:443 HTTP/1.1\r\nHost: api.example.com:443\r\n\r\n"]


@pytest.mark.parametrize(
    ("answer", "problem"), [(b"HTTP/1.1 407 No\r\n\r\n", r"refused the tunnel \(407\)"), (b"", "closed")]
)
def test_a_proxy_that_refuses(answer: bytes, problem: str) -> None:
    with raw_server(reply(answer)) as port, pytest.raises(ExchangeError, match=problem) as caught:
        wire = ConnectionPool(proxy=f"http://127.0.0.1:{port}")
        wire(Origin("https", "api.example.com", 443), POST, Deadline(SYSTEM_CLOCK, 5))
    assert not caught.value.sent
