# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A certificate that is its own authority: who has its key is let in, and no one else."""

from __future__ import annotations

import datetime
import ipaddress
import typing as t

from ...module_utils._model.errors import RefusedError

# It is never renewed: it ends with the service.
_DAYS: t.Final = 20 * 365


def make(name: str, addresses: t.Sequence[str] = ("127.0.0.1",), names: t.Sequence[str] = ("localhost",)) -> list[str]:
    """Return a private key and its certificate in PEM form, for servers and clients at these places.

    :raises RefusedError: when the package is missing that ansible-core itself requires.
    """
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
    except ImportError as exc:
        raise RefusedError("the Python of ansible-playbook has no cryptography", "pip install cryptography") from exc
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    places = [*map(x509.DNSName, names), *(x509.IPAddress(ipaddress.ip_address(item)) for item in addresses)]
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
    # A clock that is a day behind still takes it.
    builder = builder.not_valid_before(now - datetime.timedelta(days=1))
    builder = builder.not_valid_after(now + datetime.timedelta(days=_DAYS))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    # Clients that follow RFC 5280 to the letter (Python 3.13) ask for both of an authority.
    use = dict.fromkeys(("content_commitment", "data_encipherment", "key_agreement", "crl_sign"), False)
    use |= {"key_encipherment": False, "encipher_only": False, "decipher_only": False}
    usage = x509.KeyUsage(digital_signature=True, key_cert_sign=True, **use)
    builder = builder.add_extension(usage, critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    builder = builder.add_extension(x509.SubjectAlternativeName(places), critical=False)
    builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    certificate = builder.sign(key, hashes.SHA256())
    text = serialization.Encoding.PEM
    private = key.private_bytes(text, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return [private.decode(), certificate.public_bytes(text).decode()]
