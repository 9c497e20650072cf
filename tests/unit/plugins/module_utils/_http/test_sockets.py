# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Opening connections: names, address families, proxies and tunnels."""

from __future__ import annotations

import datetime
import ipaddress
import pathlib
import socket
import ssl
import threading
import typing as t

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ansible_collections.muster.training.plugins.module_utils._http import sockets
from ansible_collections.muster.training.plugins.module_utils._http.clock import SYSTEM_CLOCK, Deadline
from ansible_collections.muster.training.plugins.module_utils._http.connection_pool import ConnectionPool
from ansible_collections.muster.training.plugins.module_utils._http.errors import ExchangeError
from ansible_collections.muster.training.plugins.module_utils._http.messages import HttpRequest
from ansible_collections.muster.training.plugins.module_utils._http.tls import TlsOptions
from ansible_collections.muster.training.plugins.module_utils._http.urls import Origin
from ansible_collections.muster.training.tests.support.loopback import http_answer, raw_server, read_request, reply

GET = HttpRequest("GET", "/v1/nodes")


POST = HttpRequest("POST", "/v1/nodes", body=b"{}")


def exchange(port: int, request: HttpRequest = GET, total_s: float = 10.0, **options: t.Any) -> bytes:
    wire = options.pop("wire", None) or ConnectionPool(**options)
    origin = Origin("http", "127.0.0.1", port)
    return wire(origin, request, Deadline(SYSTEM_CLOCK, total_s)).body


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
