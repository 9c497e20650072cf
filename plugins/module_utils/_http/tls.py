# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""TLS options: how the server and the client prove who they are."""

from __future__ import annotations

import os
import ssl
import tempfile
import typing as t

from .errors import ExchangeError


class TlsOptions(t.NamedTuple):
    """How the server proves who it is (``ca_path`` or ``ca_pem``, ``verify``) and, if needed, how the client does.

    A client certificate is given as files (``client_cert``, ``client_key``) or as ``client_pem``, certificate and key
    one after the other. ``server_name`` is the name that the server's certificate must bear, when it is not the host
    of the address.
    """

    verify: bool = True
    ca_path: str = ""
    client_cert: str = ""
    client_key: str = ""
    ca_pem: str = ""
    client_pem: str = ""
    server_name: str = ""

    def __repr__(self) -> str:
        shown = ((name, value) for name, value in self._asdict().items() if name != "client_pem")
        return f"TlsOptions({', '.join(f'{name}={value!r}' for name, value in shown)})"

    def context(self) -> ssl.SSLContext:
        """Return a TLS context; raise :class:`ExchangeError` when a file cannot be used."""
        try:
            context = ssl.create_default_context(cafile=self.ca_path or None, cadata=self.ca_pem or None)
            if self.client_pem:
                _load_pem(context, self.client_pem)
            elif self.client_cert:
                context.load_cert_chain(self.client_cert, self.client_key or None, password=_refuse_password)
        except (OSError, ValueError) as exc:
            raise ExchangeError(
                f"a TLS file cannot be used ({_reason(exc)})", fix="Check ca_path", sent=False
            ) from None
        if self.ca_pem:
            # Private CAs often leave out what RFC 5280 wants of public ones, and Python 3.13 began to require it.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def _reason(exc: Exception) -> str:
    if isinstance(exc, ssl.SSLError):
        return "certificate and key do not belong together" if "MISMATCH" in str(exc.reason) else "it is not PEM"
    if isinstance(exc, OSError):
        return (exc.strerror or "unreadable").lower()
    return "the key has a password" if "password" in str(exc) else "it is not PEM"


def _refuse_password() -> t.NoReturn:
    # Without this, OpenSSL asks on the terminal and a play hangs.
    raise ValueError("a password is needed")


def _load_pem(context: ssl.SSLContext, pem: str) -> None:
    """Load a certificate and its key. Python takes them from files only, so they are put in memory, never on a disk."""
    if not hasattr(os, "memfd_create"):
        with tempfile.NamedTemporaryFile() as stream:
            stream.write(pem.encode())
            stream.flush()
            context.load_cert_chain(stream.name, password=_refuse_password)
        return
    number = os.memfd_create("pem", os.MFD_CLOEXEC)
    try:
        os.write(number, pem.encode())
        context.load_cert_chain(f"/proc/self/fd/{number}", password=_refuse_password)
    finally:
        os.close(number)
