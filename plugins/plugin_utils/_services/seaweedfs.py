# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SeaweedFS as an object store: one process, of which only the S3 gateway can be reached from elsewhere.

Its master, volume server and filer answer over HTTP without a key, so they listen on loopback. Over gRPC, where the
gateway takes new identities from its callers, all parts ask for a certificate that only this service has.
"""

from __future__ import annotations

import base64
import json
import typing as t

from . import own_certificate
from .component import ACCESS, SECRET, Component, Credentials, Site, make_keys, tls_files

_KEY: t.Final = "GRPC_KEY"
_CERTIFICATE: t.Final = "GRPC_CERTIFICATE"
_IDENTITIES = "s3.json"
_PARTS = ("master", "volume", "filer", "s3", "client")
# Volumes of one GiB: they fit on a disk of any size, and space of deleted objects becomes free in small steps.
_VOLUME_MB = 1024
_ACTIONS = ("Admin", "Read", "Write", "List", "Tagging")


def make_credentials() -> dict[str, str]:
    """Return a new pair of keys, and the certificate of the service's parts."""
    key, certificate = (base64.b64encode(text.encode()).decode() for text in own_certificate.make("seaweedfs"))
    return {**make_keys(), _KEY: key, _CERTIFICATE: certificate}


def write_files(site: Site, credentials: Credentials) -> dict[str, str]:
    """Return SeaweedFS' list of identities (one, which may do everything), and what its parts know each other by."""
    keys = [{"accessKey": credentials[ACCESS], "secretKey": credentials[SECRET]}]
    identities = {"identities": [{"name": "muster", "credentials": keys, "actions": _ACTIONS}]}
    key, certificate = f"{site.files}/grpc.key", f"{site.files}/grpc.crt"
    parts = [f'[grpc.{name}]\ncert = "{certificate}"\nkey = "{key}"\n' for name in _PARTS]
    files = {
        _IDENTITIES: json.dumps(identities),
        "security.toml": f'[grpc]\nca = "{certificate}"\n\n' + "\n".join(parts),
        "grpc.key": base64.b64decode(credentials[_KEY]).decode(),
        "grpc.crt": base64.b64decode(credentials[_CERTIFICATE]).decode(),
    }
    return files | tls_files(site, credentials, "tls.key", "tls.crt")


def command(site: Site) -> list[str]:
    """Return the words behind ``weed``. A bucket is never made by writing to one that is not there."""
    ports = {"master": site.port + 1, "volume": site.port + 2, "filer": site.port + 3}
    options = {
        "dir": site.data,
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "filer": "true",
        "s3": "true",
        "s3.ip.bind": site.listen,
        "s3.port": str(site.port),
        "s3.config": f"{site.files}/{_IDENTITIES}",
        "s3.autoCreateBucket": "false",
        "s3.iam": "false",
        "s3.port.iceberg": "0",
        "s3.port.lance": "0",
        **{f"{name}.port": str(port) for name, port in ports.items()},
        "master.volumeSizeLimitMB": str(_VOLUME_MB),
        "master.telemetry": "false",
        "volume.max": "0",
        "volume.preStopSeconds": "1",
        "volume.minFreeSpace": "5",
    }
    if site.is_secure:
        options |= {"s3.key.file": f"{site.files}/tls.key", "s3.cert.file": f"{site.files}/tls.crt"}
    return [
        "-logtostderr=true",
        f"-config_dir={site.files}",
        "server",
        *(f"-{name}={value}" for name, value in options.items()),
    ]


COMPONENT: t.Final = Component(
    kind="object_store",
    provider="seaweedfs",
    member="weed",
    image="docker.io/chrislusf/seaweedfs",
    port=8333,
    ready="/healthz",
    statuses=(200,),
    make_credentials=make_credentials,
    write_files=write_files,
    command=command,
    secret_keys={"access_key": ACCESS, "secret_key": SECRET},
    memory="512Mi",
)
