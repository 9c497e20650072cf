# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HTTPS and one user for the programs of Prometheus, which read the same file for it (``--web.config.file``)."""

from __future__ import annotations

import json
import typing as t

from ..component import Credentials, Peer, Site, make_token, tls_files
from ..registry.distribution import hash_password

USER: t.Final = "PROMETHEUS_USERNAME"
PASSWORD: t.Final = "PROMETHEUS_PASSWORD"
KEYS: t.Final = {"username": USER, "password": PASSWORD}
_HASH: t.Final = "PROMETHEUS_HASH"
_NAME: t.Final = "metrics-user"
FILE: t.Final = "web.yml"


def make_credentials() -> dict[str, str]:
    """Return a new user, and the hash of its password."""
    password = make_token()
    return {USER: _NAME, PASSWORD: password, _HASH: hash_password(password)}


def write_files(site: Site, credentials: Credentials) -> dict[str, str]:
    """Return the file, and key and certificate beside it."""
    web: dict[str, t.Any] = {"basic_auth_users": {credentials[USER]: credentials[_HASH]}}
    if site.is_secure:
        web["tls_server_config"] = {"cert_file": "tls.crt", "key_file": "tls.key"}
    return {FILE: json.dumps(web, indent=1), **tls_files(site, credentials, "tls.key", "tls.crt")}


def describe_client(peer: Peer) -> dict[str, t.Any]:
    """Return how a program of Prometheus asks a service that may want a user, and may have a certificate of its own."""
    found: dict[str, t.Any] = {}
    if peer.user:
        found["basic_auth"] = {"username": peer.user, "password": peer.password}
    if peer.token:
        found["authorization"] = {"credentials": peer.token}
    if peer.ca:
        found["tls_config"] = {"ca": peer.ca}
    return found
