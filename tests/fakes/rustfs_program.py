# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for RustFS' program: its own words and variables and no others, its files, and the address of its health.

What it takes is from RustFS' public description of its command line; it stores nothing.
"""

from __future__ import annotations

import argparse
import http.server
import os
import pathlib
import ssl
import sys

VARIABLES = {"RUSTFS_CONSOLE_ENABLE": ("true", "false"), "RUSTFS_CHECK_UPDATE": ("true", "false"),
             "RUSTFS_OBS_LOG_DIRECTORY": None}  # fmt: skip


class Health(http.server.BaseHTTPRequestHandler):
    """Ready at once."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path in ("/health", "/health/ready") else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_words: object) -> None:
        """Say nothing."""


def parse(words: list[str]) -> argparse.Namespace:
    """Return the options, or end with status 2 as RustFS does."""
    parser = argparse.ArgumentParser("rustfs", allow_abbrev=False)
    server = parser.add_subparsers(required=True).add_parser("server", allow_abbrev=False)
    server.add_argument("volumes", nargs="+")
    for name in ("address", "access-key-file", "secret-key-file", "tls-path"):
        server.add_argument(f"--{name}", required=name != "tls-path")
    options = parser.parse_args(words)
    for name, value in os.environ.items():
        if name.startswith("RUSTFS_") and (name not in VARIABLES or value not in (VARIABLES[name] or (value,))):
            parser.error(f"the variable {name} is not known")
    for name in (*options.volumes, options.access_key_file, options.secret_key_file):
        if not pathlib.Path(name).exists():
            parser.error(f"{name} does not exist")
    keys = [pathlib.Path(name).read_text() for name in (options.access_key_file, options.secret_key_file)]
    if not all(8 <= len(key) <= 128 and key == key.strip() for key in keys):
        parser.error("the keys are none")
    return options


def main() -> None:
    """Serve until the process is ended."""
    options = parse(sys.argv[1:])
    host, _colon, port = options.address.rpartition(":")
    server = http.server.HTTPServer((host.strip("[]"), int(port)), Health)
    if options.tls_path:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        folder = pathlib.Path(options.tls_path)
        context.load_cert_chain(folder / "rustfs_cert.pem", folder / "rustfs_key.pem")
        server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
