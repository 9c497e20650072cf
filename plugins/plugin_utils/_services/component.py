# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a component says of itself so that it can be deployed: one program, on a plain host or in a cluster.

It runs as a user of its own, with one folder for its data and one with files that hold secrets. Who deploys it makes
the systemd unit, or the manifests, from that.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import secrets
import typing as t

from ...module_utils._model.service_deploy import Retention

# The credentials of a service by name, as they are in its file of the state home.
Credentials = t.Mapping[str, str]
_TOKEN_BYTES: t.Final = 30
# The part of a disk that data with a bound may take. Source: Prometheus, "Storage", 80 to 85 % of the disk.
DISK_SHARE: t.Final = 0.8
# The credentials of an object store, by the names that S3's own programs have for them.
ACCESS: t.Final = "AWS_ACCESS_KEY_ID"
SECRET: t.Final = "AWS_SECRET_ACCESS_KEY"
# The credentials of a component that is ``secure``, beside its own: key and certificate (base64), and for what places.
TLS_KEY, TLS_CERTIFICATE, TLS_PLACES = "TLS_KEY", "TLS_CERTIFICATE", "TLS_PLACES"
# Made by a service when it is set up, and kept on the controller alone: neither its host nor its cluster has them.
UNSEAL_KEY, ROOT_TOKEN = "UNSEAL_KEY", "ROOT_TOKEN"


@dataclasses.dataclass(frozen=True, slots=True)
class ArtifactStore:
    """The bucket that a service keeps its files in. ``keys``: by the names that S3's own programs have for them."""

    ref: str
    endpoint: str
    region: str
    ca: str | None
    keys: Credentials = dataclasses.field(repr=False)
    addressing: str = "path"


@dataclasses.dataclass(frozen=True, slots=True)
class Peer:
    """The service that another one works with. ``ca``: the certificates by which it is known.

    It asks for a ``token``, for ``user`` and ``password``, or for none of them.
    """

    endpoint: str
    ca: str | None = None
    user: str = ""
    password: str = dataclasses.field(default="", repr=False)
    token: str = dataclasses.field(default="", repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Site:
    """Where a service runs, as its program sees it. ``listen``: the address that users of the service reach.

    ``files``: the folder with the files of ``Component.write_files``; ``data``: the folder that it may write.
    ``names``: the names and addresses by which users reach it; ``login``: whether it asks them who they are.
    ``artifacts``: the bucket for its files, None where they are in ``data``; ``database``: the address of its database
    with the password, empty for a file in ``data``; ``proxy``: the registry that it pulls through from; ``peer``: the
    Alertmanager of a Prometheus, the Prometheus of a Grafana; ``webhook``: the address that an Alertmanager tells of
    alerts, with ``webhook_token`` where it asks for one; ``config`` its own configuration in place of
    ours; ``in_cluster``: whether it runs as a pod; ``volume_bytes``: what its claim holds, None where that is
    not known; ``retention``: what is to be kept of metrics.
    """

    name: str
    endpoint: str
    listen: str
    port: int
    data: str
    files: str
    names: tuple[str, ...] = ()
    login: bool = False
    artifacts: ArtifactStore | None = None
    database: str = dataclasses.field(default="", repr=False)
    proxy: str | None = None
    peer: Peer | None = None
    webhook: str = dataclasses.field(default="", repr=False)
    webhook_token: str = dataclasses.field(default="", repr=False)
    config: str = dataclasses.field(default="", repr=False)
    in_cluster: bool = False
    volume_bytes: int | None = None
    retention: Retention = Retention()

    @property
    def is_secure(self) -> bool:
        """Whether it serves HTTPS."""
        return self.endpoint.startswith("https:")


@dataclasses.dataclass(frozen=True, slots=True)
class BringUp:
    """A service that runs and is to serve. ``place``: the file of its credentials, which ``keep`` writes."""

    option: str
    endpoint: str
    place: str
    credentials: t.Callable[[], Credentials]
    keep: t.Callable[[Credentials], None]
    check: bool
    wait_s: int


def no_environment(_site: Site) -> dict[str, str]:
    """Return no variables: the command of the program says everything."""
    return {}


def no_size_limit(_site: Site) -> int | None:
    """Return that it is not known how much a service stores."""
    return None


def no_secrets(_site: Site, _credentials: Credentials) -> dict[str, str]:
    """Return no variables with secrets: the program reads files."""
    return {}


@dataclasses.dataclass(frozen=True, slots=True)
class Component:
    """One component, the same on both backends.

    ``provider``: its name in ``muster_services`` and in the list of downloads; ``member``: its program in the archive
    of the release, and in the image; ``image`` is without its version. ``ready``: the path that answers with one of
    ``statuses`` when it serves. ``make_credentials`` is called once for each service; ``write_files`` returns files
    with secrets by name; ``command`` are the words behind the program. ``secret_keys``: what a binding's credential is
    called -> its name in the credentials. ``secure``: it always serves HTTPS, with a certificate that is made for its
    addresses; ``on_node``: in clusters it is reached at its Node's address, from the controller too. ``size``:
    that of its claim where none is asked for. ``environment``: variables without a secret, for what the command cannot
    say. ``warning``: what who chooses it should know. ``bring_up``: what the controller does with a program that runs
    and does not serve by itself. ``packages``: for a program of Python, what pip installs on a host for a version;
    ``tag``: the image's, where it is not the version itself; ``login_by_choice``: it asks for a user where that is
    wished; ``hidden``: variables with secrets, for a program that reads them from nowhere else. ``host_fix``: what to
    do on hosts, where it is deployed in clusters alone; ``watches``: what its pod reads of the cluster
    (resources of the core group); ``size_limit``: the bytes that its data may take at most, None for one without a
    bound.
    """

    kind: str
    provider: str
    member: str
    image: str
    port: int
    ready: str
    statuses: tuple[int, ...]
    make_credentials: t.Callable[[], dict[str, str]]
    write_files: t.Callable[[Site, Credentials], dict[str, str]]
    command: t.Callable[[Site], list[str]]
    secret_keys: t.Mapping[str, str]
    memory: str = "256Mi"
    size: str = "100Gi"
    secure: bool = False
    on_node: bool = False
    environment: t.Callable[[Site], dict[str, str]] = no_environment
    warning: str = ""
    bring_up: t.Callable[[BringUp], bool] | None = None
    packages: t.Callable[[str], tuple[str, ...]] | None = None
    tag: str = "{version}"
    login_by_choice: bool = False
    hidden: t.Callable[[Site, Credentials], dict[str, str]] = no_secrets
    host_fix: str = ""
    watches: tuple[str, ...] = ()
    size_limit: t.Callable[[Site], int | None] = no_size_limit


def drop_controller_keys(credentials: Credentials) -> dict[str, str]:
    """Return the credentials that the machine or the cluster of a service may hold."""
    return {name: value for name, value in credentials.items() if name not in (UNSEAL_KEY, ROOT_TOKEN)}


def fingerprint(credentials: Credentials) -> str:
    """Return what tells the keys of one service from those of another; a certificate for other addresses is none."""
    kept = sorted(
        f"{name}={value}" for name, value in drop_controller_keys(credentials).items() if not name.startswith("TLS_")
    )
    return hashlib.sha256("\n".join(kept).encode()).hexdigest()


def certificate_of(credentials: Credentials) -> str | None:
    """Return the certificate that users of a service trust, None for one that serves HTTP."""
    text = credentials.get(TLS_CERTIFICATE)
    return base64.b64decode(text).decode() if text else None


def write_listen(site: Site) -> str:
    """Return address and port as programs take them."""
    return f"{f'[{site.listen}]' if ':' in site.listen else site.listen}:{site.port}"


def tls_files(site: Site, credentials: Credentials, key: str, certificate: str) -> dict[str, str]:
    """Return the files of key and certificate by these names, none for a service that serves HTTP."""
    if not site.is_secure:
        return {}
    names = {key: TLS_KEY, certificate: TLS_CERTIFICATE}
    return {name: base64.b64decode(credentials[kept]).decode() for name, kept in names.items()}


def make_keys() -> dict[str, str]:
    """Return a new pair of keys of an object store."""
    return {ACCESS: f"AK{secrets.token_hex(9).upper()}", SECRET: make_token()}


def make_token() -> str:
    """Return a random text of 40 letters, digits, hyphens and underscores."""
    return secrets.token_urlsafe(_TOKEN_BYTES)
