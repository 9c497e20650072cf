# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""TLS: which certificates are trusted, and unusable files."""

from __future__ import annotations

import datetime
import ipaddress
import pathlib
import socket
import ssl
import typing as t

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ansible_collections.muster.training.plugins.module_utils._http.clock import SYSTEM_CLOCK, Deadline
from ansible_collections.muster.training.plugins.module_utils._http.connection_pool import ConnectionPool
from ansible_collections.muster.training.plugins.module_utils._http.errors import CHUNK, ExchangeError
from ansible_collections.muster.training.plugins.module_utils._http.messages import HttpRequest
from ansible_collections.muster.training.plugins.module_utils._http.tls import TlsOptions
from ansible_collections.muster.training.plugins.module_utils._http.urls import Origin
from ansible_collections.muster.training.tests.support.loopback import http_answer, raw_server, read_request


@pytest.mark.parametrize("options", [TlsOptions(client_pem="no pem"), TlsOptions(ca_pem="no pem")])
def test_credentials_that_are_no_pem_are_refused(options: TlsOptions) -> None:
    with pytest.raises(ExchangeError, match="a TLS file cannot be used"):
        options.context()
    assert "no pem" not in repr(TlsOptions(client_pem="no pem"))


GET = HttpRequest("GET", "/v1/nodes")


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
