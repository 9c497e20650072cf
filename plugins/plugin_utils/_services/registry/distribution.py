# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Distribution, the registry of the CNCF, as a service: one user, HTTPS, and images in one folder.

Its settings are YAML, of which JSON is a part.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import json
import secrets
import typing as t

from ....module_utils._model.errors import RefusedError
from ..component import Component, Credentials, Site, make_token, tls_files, write_listen

USER: t.Final = "REGISTRY_USERNAME"
PASSWORD: t.Final = "REGISTRY_PASSWORD"
_HASH, _SHARED = "REGISTRY_HTPASSWD", "REGISTRY_SECRET"
_NAME: t.Final = "registry-user"
_CONFIG = "registry.yml"
# bcrypt's own alphabet, and its cost as a power of two.
_ALPHABET: t.Final = "./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_COST = 10


def make_credentials() -> dict[str, str]:
    """Return a new user, the hash of its password, and what signs the state of uploads."""
    password = make_token()
    return {USER: _NAME, PASSWORD: password, _HASH: hash_password(password), _SHARED: make_token()}


def hash_password(password: str) -> str:
    """Return a password as htpasswd keeps it for distribution, which reads bcrypt alone.

    :raises RefusedError: when the C library of the controller does not make it.
    """
    salt = "".join(secrets.choice(_ALPHABET) for _index in range(21)) + "."
    name = ctypes.util.find_library("crypt")
    crypt = getattr(ctypes.CDLL(name), "crypt", None) if name else None
    made = b""
    if crypt is not None:
        crypt.restype, crypt.argtypes = ctypes.c_char_p, [ctypes.c_char_p, ctypes.c_char_p]
        made = crypt(password.encode(), f"$2y${_COST:02}${salt}".encode()) or b""
    if not made.startswith(b"$2y$") or len(made) != 60:
        raise RefusedError(
            "the C library of this controller makes no bcrypt, by which the registry keeps its password",
            "Deploy from a controller with libcrypt (Debian, Ubuntu, Fedora), or bind a registry",
        )
    return made.decode()


def write_files(site: Site, credentials: Credentials) -> dict[str, str]:
    """Return the settings, the user, and key and certificate."""
    config: dict[str, t.Any] = {
        "version": 0.1,
        "log": {"level": "info", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": site.data}, "delete": {"enabled": True}},
        "health": {"storagedriver": {"enabled": True, "interval": "10s", "threshold": 3}},
        "auth": {"htpasswd": {"realm": site.name, "path": f"{site.files}/htpasswd"}},
        "http": {"addr": write_listen(site), "secret": credentials[_SHARED]},
    }
    if site.proxy:
        # A week, and it asks again when a tag is pulled.
        config["proxy"] = {"remoteurl": site.proxy, "ttl": "168h"}
    if site.is_secure:
        config["http"]["tls"] = {"key": f"{site.files}/tls.key", "certificate": f"{site.files}/tls.crt"}
    files = {_CONFIG: json.dumps(config, indent=1), "htpasswd": f"{credentials[USER]}:{credentials[_HASH]}\n"}
    return files | tls_files(site, credentials, "tls.key", "tls.crt")


def command(site: Site) -> list[str]:
    """Return the words behind ``registry``."""
    return ["serve", f"{site.files}/{_CONFIG}"]


COMPONENT: t.Final = Component(
    kind="registry",
    provider="distribution",
    member="registry",
    image="docker.io/library/registry",
    port=5000,
    # Answers without a user; /v2/ asks for one.
    ready="/",
    statuses=(200,),
    make_credentials=make_credentials,
    write_files=write_files,
    command=command,
    secret_keys={"username": USER, "password": PASSWORD},
    memory="128Mi",
    secure=True,
    # The kubelet pulls, in the network of the Node.
    on_node=True,
    # Version 3 sends traces to this machine unless told otherwise.
    environment=lambda _site: {"OTEL_TRACES_EXPORTER": "none"},
)
