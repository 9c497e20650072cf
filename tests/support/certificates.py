# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Certificates that prove too little: expired, of another host, or of an authority that no one knows."""

from __future__ import annotations

import datetime
import ipaddress
import pathlib

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def make_certificate(
    folder: pathlib.Path, address: str, first: int, last: int, *, has_authority: bool = False
) -> tuple[str, str]:
    """Write a certificate for an address, from day ``first`` to ``last`` of today, and its key; return their paths."""
    key = ec.generate_private_key(ec.SECP256R1())
    signer = ec.generate_private_key(ec.SECP256R1()) if has_authority else key
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "an API")])
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "an authority")]) if has_authority else name
    today = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(today + datetime.timedelta(days=first))
        .not_valid_after(today + datetime.timedelta(days=last))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), False)
        .add_extension(x509.BasicConstraints(ca=not has_authority, path_length=None), True)
        .sign(signer, hashes.SHA256())
    )
    paths = folder / "cert.pem", folder / "key.pem"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return str(paths[0]), str(paths[1])
