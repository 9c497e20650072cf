# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A mail server that keeps what it is given: RFC 5321 with AUTH PLAIN, and STARTTLS or TLS from the first byte."""

from __future__ import annotations

import base64
import email.message
import email.parser
import socket
import ssl
import threading
import typing as t

TLS = t.Literal["none", "starttls", "implicit"]


class MailServer:
    """Takes mail for one login on loopback; ``received`` holds (encrypted, recipient, message)."""

    def __init__(
        self, tls: TLS, certificate: tuple[str, str] | None = None, login: tuple[str, str] | None = None
    ) -> None:
        self.received: list[tuple[bool, str, email.message.Message]] = []
        self._tls, self._login = tls, login
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if certificate:
            self._context.load_cert_chain(*certificate)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                sock, _address = self._listener.accept()
            except OSError:
                return
            with sock:
                try:
                    self._converse(sock)
                except OSError:
                    continue

    def _converse(self, sock: socket.socket) -> None:
        encrypted = self._tls == "implicit"
        sock = self._context.wrap_socket(sock, server_side=True) if encrypted else sock
        lines, allowed, to = sock.makefile("rb"), self._login is None, ""
        sock.sendall(b"220 mail.example.org\r\n")
        while line := lines.readline().decode().strip():
            verb, _space, rest = line.partition(" ")
            reply = "250 OK"
            if verb.upper() == "EHLO":
                offer = "STARTTLS" if self._tls == "starttls" and not encrypted else "AUTH PLAIN"
                reply = f"250-mail.example.org\r\n250 {offer}"
            elif verb.upper() == "AUTH":
                _nobody, *given = base64.b64decode(rest.split()[-1]).decode().split("\0")
                allowed = tuple(given) == self._login
                reply = "235 OK" if allowed else "535 5.7.8 the password is wrong"
            elif verb.upper() == "RCPT":
                to, reply = rest.partition(":")[2], reply if allowed else "530 5.7.0 log in first"
            elif verb.upper() == "DATA":
                sock.sendall(b"354 go\r\n")
                text = ""
                while (part := lines.readline().decode()) not in (".\r\n", ""):
                    text += part
                self.received.append((encrypted, to, email.parser.Parser().parsestr(text)))
            elif verb.upper() == "QUIT":
                sock.sendall(b"221 bye\r\n")
                return
            sock.sendall(f"{'220 go' if verb.upper() == 'STARTTLS' else reply}\r\n".encode())
            if verb.upper() == "STARTTLS":
                sock, encrypted = self._context.wrap_socket(sock, server_side=True), True
                lines = sock.makefile("rb")
