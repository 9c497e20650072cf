# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RustFS as an object store: one process with one folder. The keys are files that its command names."""

from __future__ import annotations

import typing as t

from .component import ACCESS, SECRET, Component, Credentials, Site, make_keys, tls_files, write_listen

_ACCESS_FILE, _SECRET_FILE = "access-key", "secret-key"


def write_files(site: Site, credentials: Credentials) -> dict[str, str]:
    """Return the keys, and the certificate by the names that RustFS looks for."""
    keys = {_ACCESS_FILE: credentials[ACCESS], _SECRET_FILE: credentials[SECRET]}
    return keys | tls_files(site, credentials, "rustfs_key.pem", "rustfs_cert.pem")


def command(site: Site) -> list[str]:
    """Return the words behind ``rustfs``."""
    keys = ["--access-key-file", f"{site.files}/{_ACCESS_FILE}", "--secret-key-file", f"{site.files}/{_SECRET_FILE}"]
    secure = ["--tls-path", site.files] if site.is_secure else []
    return ["server", "--address", write_listen(site), *keys, *secure, site.data]


def environment(_site: Site) -> dict[str, str]:
    """Return what its command has no words for: no console, no question for a newer version, its log in the journal."""
    return {
        "RUSTFS_CONSOLE_ENABLE": "false",
        "RUSTFS_CHECK_UPDATE": "false",
        "RUSTFS_OBS_LOG_DIRECTORY": "",
    }


COMPONENT: t.Final = Component(
    kind="object_store",
    provider="rustfs",
    member="rustfs",
    image="docker.io/rustfs/rustfs",
    port=9000,
    ready="/health/ready",
    statuses=(200,),
    make_credentials=make_keys,
    write_files=write_files,
    command=command,
    secret_keys={"access_key": ACCESS, "secret_key": SECRET},
    memory="512Mi",
    environment=environment,
)
