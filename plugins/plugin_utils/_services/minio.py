# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MinIO as an object store: one process with one folder. Its project has ended: each deployment warns of that.

The keys are files that its variables name, and its console is off.
"""

from __future__ import annotations

import typing as t

from .component import ACCESS, SECRET, Component, Credentials, Site, make_keys, tls_files, write_listen

_USER, _PASSWORD = "root-user", "root-password"


def write_files(site: Site, credentials: Credentials) -> dict[str, str]:
    """Return the keys, and the certificate by the names that MinIO looks for."""
    keys = {_USER: credentials[ACCESS], _PASSWORD: credentials[SECRET]}
    return keys | tls_files(site, credentials, "private.key", "public.crt")


def command(site: Site) -> list[str]:
    """Return the words behind ``minio``. Without a certificate in the folder it serves HTTP."""
    return ["server", "--quiet", "--address", write_listen(site), "--certs-dir", site.files, site.data]


def environment(site: Site) -> dict[str, str]:
    """Return where the keys are; nothing is asked of MinIO's own servers. Settings of a user are looked for nowhere."""
    return {
        "HOME": site.files,
        "MINIO_ROOT_USER_FILE": f"{site.files}/{_USER}",
        "MINIO_ROOT_PASSWORD_FILE": f"{site.files}/{_PASSWORD}",
        "MINIO_BROWSER": "off",
        "MINIO_UPDATE": "off",
    }


COMPONENT: t.Final = Component(
    kind="object_store",
    provider="minio",
    member="minio",
    image="quay.io/minio/minio",
    port=9000,
    ready="/minio/health/ready",
    statuses=(200,),
    make_credentials=make_keys,
    write_files=write_files,
    command=command,
    secret_keys={"access_key": ACCESS, "secret_key": SECRET},
    memory="1Gi",
    environment=environment,
    warning="MinIO's project has ended: this is its last release with an image, of 2025-09, and holes that were found "
    "since then, such as CVE-2025-62506, stay open in it. Use seaweedfs or rustfs for what is new",
)
