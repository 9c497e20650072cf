# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A file system that is exported by NFS from a machine of the user's own: what is asked for, and what its host gets."""

from __future__ import annotations

import dataclasses
import ipaddress
import re
import typing as t
import uuid

from .errors import InputError
from .filesystem_mounts import check_options
from .juicefs_volume import PROVIDER as VOLUME
from .juicefs_volume import check_volume
from .nfs_class import PROVIDER as CSI_NFS
from .nfs_class import check_class

if t.TYPE_CHECKING:
    from .service import Service
    from .service_deploy import Deploy

# ``nfs``: the server of the kernel where the host has one, else NFS-Ganesha; ``nfs_ganesha``: always that.
SERVERS: t.Final = ("nfs", "nfs_ganesha")
# Keys of ``deploy`` and of ``filesystem`` that a server of NFS, or who mounts from it, has no use for.
_UNREAD: t.Final = ("port", "version", "tls", "database", "store", "export")
_UNREAD_OF_MOUNT: t.Final = ("type", "marker", "storage_class", "claim", "size", "cache_gb", "version")
# What is deployed in another way than by a server of NFS.
_OTHERS: t.Final[dict[str, t.Callable[[Service, Deploy, str], None]]] = {VOLUME: check_volume, CSI_NFS: check_class}
# What a line of exports(5), a file of NFS-Ganesha and a unit of systemd take as it is.
_EXPORT: t.Final = re.compile(r"(/[A-Za-z0-9_][A-Za-z0-9_.-]*)+\Z")
_CLIENTS_FIX: t.Final = "List the networks of the nodes: [10.0.0.0/24]"


@dataclasses.dataclass(frozen=True, slots=True)
class FilesystemServer:
    """What the role shared_filesystem makes on ``host``: ``export`` is the folder there, for ``clients``.

    ``fsid`` stays the same for one name in one cluster: nodes that have it mounted know it by that when its disk has
    another number. ``listen``: the address that nodes use, all of them where it is a name.
    """

    name: str
    host: str
    provider: str
    endpoint: str
    export: str
    listen: str
    clients: tuple[str, ...]
    fsid: str
    state: str
    delete_data: bool


def check_deployed(service: Service, place: Deploy, where: str) -> None:
    """Refuse an entry of ``muster_services`` by which no file system can be exported.

    :raises InputError: naming the key.
    """
    if service.provider in _OTHERS:
        _OTHERS[service.provider](service, place, where)
        return
    if service.provider not in (None, *SERVERS):
        fix = f"Use {', '.join((*SERVERS, *_OTHERS))}, or mode: bind for a file system that is there"
        raise InputError(f"{where}.provider", f"'{service.provider}' is not deployed", fix)
    if not place.host:
        raise InputError(f"{where}.deploy.namespace", "is not for NFS, whose server is on a host", "Write {host: NAME}")
    of_mount = (_UNREAD_OF_MOUNT, service.filesystem, f"{where}.filesystem")
    for keys, of, option in ((("resources",), service, where), (_UNREAD, place, f"{where}.deploy"), of_mount):
        for key in keys:
            if getattr(of, key, None):
                raise InputError(f"{option}.{key}", "has no effect for a file system that is deployed", "Leave it out")
    if service.state == "absent":
        return
    _check_clients(place, f"{where}.deploy.clients")
    _check_export(service, find_export(service, place), f"{where}.deploy.host_path")


def _check_clients(place: Deploy, option: str) -> None:
    if not place.clients:
        raise InputError(option, "is required: who may mount it", _CLIENTS_FIX)
    for text in place.clients:
        try:
            network = ipaddress.ip_network(text)
        except ValueError:
            raise InputError(option, f"'{text}' is not a network or an address", _CLIENTS_FIX) from None
        if network.prefixlen == 0:
            raise InputError(option, f"'{text}' is every machine there is: root of each could write", _CLIENTS_FIX)


def _check_export(service: Service, export: str, option: str) -> None:
    if not _EXPORT.match(export):
        fix = "Write it with letters, digits, dots, hyphens and underscores, and without '..'"
        raise InputError(option, f"'{export}' is not an absolute path below /", fix)
    asked = service.filesystem
    path = asked.path if asked else None
    if path and any(f"{one}/".startswith(f"{other}/") for one, other in ((path, export), (export, path))):
        fix = "Name another folder in one of them"
        raise InputError(option, f"{export} and filesystem.path {path} are in one another", fix)
    if asked and asked.options is not None:
        check_options(dataclasses.replace(asked, mount=True), option.replace("deploy.host_path", "filesystem.options"))


def find_export(service: Service, place: Deploy) -> str:
    """Return the folder of the host that nodes mount."""
    return place.host_path or f"/srv/muster/{service.name}"


def plan_server(service: Service, place: Deploy, cluster: str, address: str) -> FilesystemServer:
    """Return what the host gets. ``address``: that by which nodes reach it."""
    try:
        found: ipaddress.IPv4Address | ipaddress.IPv6Address | None = ipaddress.ip_address(address)
    except ValueError:
        found = None
    shown = f"[{found}]" if found is not None and found.version == 6 else address
    export = find_export(service, place)
    return FilesystemServer(
        name=service.name,
        host=str(place.host),
        provider=service.provider or SERVERS[0],
        endpoint=f"nfs://{shown}{export}",
        export=export,
        listen=str(found) if found is not None else "0.0.0.0",
        clients=place.clients,
        fsid=str(uuid.uuid5(uuid.NAMESPACE_URL, f"muster.training/{cluster}/{service.name}")),
        state=service.state,
        delete_data=place.delete_data,
    )
