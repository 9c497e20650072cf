# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A file system that all nodes share: its options, and what a node's look at it means."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import ipaddress
import posixpath
import typing as t
import urllib.parse

from . import validators as f
from .errors import InputError
from .filesystem_mounts import CLIENTS, check_mounting
from .juicefs_volume import PROVIDER as VOLUME

if t.TYPE_CHECKING:
    from .service import Service

PROVIDERS: t.Final = ("path", "nfs", "smb", "storage_class")
# Where pods of a check have the volume of a claim.
CLAIM_PATH: t.Final = "/mnt/muster-check"
# Within what time a check must be over on a node that does not wait for another one. A mount whose server is away does
# not answer at all.
LIMIT_S: t.Final = 30.0
# Folders of every machine, and of the collection in pods.
_RESERVED: t.Final = ("/proc", "/sys", "/dev", "/muster", "/etc", "/usr", "/bin", "/sbin", "/lib", "/boot", "/run")
# Names of one file system: that of a mount command and those of the kernel.
_TYPES: t.Final = {"nfs": ("nfs", "nfs4"), "smb": ("cifs", "smb3"), "gpfs": ("gpfs", "mmfs"), "weka": ("wekafs",)}
_MOUNT: t.Final = "Mount it there on this node, or leave the node out"


@dataclasses.dataclass(frozen=True, slots=True)
class Filesystem:
    """Where nodes have a shared file system.

    ``type`` is what the kernel calls it (``lustre``); null takes any that is not the node's own disk. ``locks``: false
    where locks of one node need not hold on the others. ``marker`` is the content of the file that the check leaves at
    its root, by which a node is known to have this one; of a binding only. Of a StorageClass (``storage_class``) jobs
    have the ``claim`` of their namespace; ``size`` is that of a claim that the check makes. ``mount``: whether the role
    filesystem_client mounts it on nodes, with further ``options`` of the mount. Of a volume of JuiceFS ``cache_gb``
    bounds what a node keeps on its disk, and ``version`` is that of the program; of a binding only.
    """

    path: str | None = f.field(f.text, None)
    type: str | None = f.field(f.text, None)
    locks: bool = f.field(f.boolean, True)
    marker: str | None = f.field(f.text, None)
    storage_class: str | None = f.field(f.text, None)
    claim: str | None = f.field(f.name(63), None)
    size: str | None = f.field(f.text, None)
    mount: bool = f.field(f.boolean, False)
    options: str | None = f.field(f.text, None)
    cache_gb: int | None = f.field(f.integer(1, 100_000), None)
    version: str | None = f.field(f.text, None)


# The keys of ``filesystem`` that only one way to have it reads.
_CLAIM_KEYS: t.Final = ("storage_class", "claim", "size")
_MOUNT_KEYS: t.Final = ("path", "type", "mount", "options")


def check_service(service: Service, where: str) -> None:
    """Refuse an entry of ``muster_services`` that is not a file system.

    :raises InputError: naming the key.
    """
    asked = service.filesystem or Filesystem()
    if service.provider not in PROVIDERS:
        given = "is required" if service.provider is None else f"'{service.provider}' is not a shared file system"
        raise InputError(f"{where}.provider", given, f"Use {' or '.join(PROVIDERS)}")
    refuse_own_keys(asked, where)
    if asked.cache_gb is not None:
        fix = "Leave it out: who mounts it bounds its cache"
        raise InputError(f"{where}.filesystem.cache_gb", f"is for mode: deploy with provider: {VOLUME}", fix)
    is_share = service.provider == "smb" and asked.mount
    for key in ("resources", "region", "ca", *(() if is_share else ("secret_ref",)), "hosts"):
        if getattr(service, key):
            fix = "Leave it out, or have a share mounted from here: provider: smb with filesystem.mount: true"
            raise InputError(f"{where}.{key}", "has no effect for this file system", fix if key == "secret_ref" else "")
    check_mounting(service, asked, where)
    _refuse_other_keys(service, asked, where)
    if service.provider in CLIENTS and service.state == "present":
        read_source(str(service.provider), service.endpoint or "", f"{where}.endpoint")
    if service.state == "present" and service.provider != "storage_class":
        check_path(asked.path, f"{where}.filesystem.path")


def refuse_own_keys(asked: Filesystem, where: str) -> None:
    """Refuse what a binding alone says.

    :raises InputError: naming the key.
    """
    for key, reason in (("marker", "is read from the file system"), ("version", "is that of deploy.version")):
        if getattr(asked, key) is not None:
            raise InputError(f"{where}.filesystem.{key}", reason, "Leave it out")


def _refuse_other_keys(service: Service, asked: Filesystem, where: str) -> None:
    """Refuse keys of another way to have a file system, and a class without a name."""
    of_class = service.provider == "storage_class"
    if service.provider not in CLIENTS and service.endpoint is not None:
        fix = "Name the class: filesystem.storage_class" if of_class else "Name the folder: filesystem.path"
        raise InputError(f"{where}.endpoint", f"has no effect with provider: {service.provider}", fix)
    for key in _MOUNT_KEYS if of_class else _CLAIM_KEYS:
        if getattr(asked, key):
            raise InputError(f"{where}.filesystem.{key}", f"has no effect with provider: {service.provider}")
    if service.state == "present" and of_class and not asked.storage_class:
        raise InputError(f"{where}.filesystem.storage_class", "is required", "kubectl get storageclass lists them")


def read_source(provider: str, endpoint: str, option: str) -> str:
    """Return what the kernel calls an export or share: ``nfs://HOST/EXPORT`` or ``smb://HOST/SHARE`` as a mount has it.

    :raises InputError: never showing the address, which may hold a password.
    """
    fix = "Write nfs://HOST/EXPORT" if provider == "nfs" else "Write smb://HOST/SHARE"
    try:
        parts = urllib.parse.urlsplit(endpoint)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise InputError(option, "is not the address of a server", fix) from None
    if parts.username or parts.password:
        fix = "Write credentials to a file of the nodes (credentials=FILE, 0600)"
        raise InputError(option, "must not contain a user or a password", fix)
    path = parts.path.rstrip("/")
    if parts.scheme != provider or not host or not path or port or parts.query or parts.fragment:
        raise InputError(option, f"is not the address of {'an export' if provider == 'nfs' else 'a share'}", fix)
    shown = f"[{host}]" if ":" in host else host
    return f"{shown}:{path}" if provider == "nfs" else f"//{host}{path}"


def source_of(provider: str, endpoint: str, name: str) -> str:
    """Return what the kernel calls a file system that is mounted, empty where that is not known."""
    if provider == VOLUME:
        return f"JuiceFS:{name}"
    return "" if provider in ("path", "storage_class") else read_source(provider, endpoint, "endpoint")


def is_source(actual: str, wanted: str) -> bool:
    """Return whether a mount is of an export or share; of a server's name and an address it is not known."""
    same = [_split_source(item) for item in (actual.lower(), wanted.lower())]
    hosts = [host for host, _export in same]
    if same[0][1] != same[1][1]:
        return False
    return hosts[0] == hosts[1] or not all(_is_address(host) for host in hosts)


def _split_source(source: str) -> tuple[str, str]:
    host, _slash, export = source.removeprefix("//").partition("/")
    return host.removesuffix(":").strip("[]"), export.rstrip("/")


def _is_address(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return bool(ipaddress.ip_address(host))
    return False


def check_path(path: str | None, option: str) -> None:
    """Refuse a path at which no file system of the user's can be.

    :raises InputError: naming the option.
    """
    if path is None:
        raise InputError(option, "is required", "Name the folder at which all nodes have it")
    if not path.startswith("/") or posixpath.normpath(path) != path or path == "/":
        raise InputError(
            option, f"'{path}' is not an absolute path below /", "Write it without '..' and without a / at its end"
        )
    if any(path == item or path.startswith(f"{item}/") for item in _RESERVED):
        raise InputError(option, f"must not be in {', '.join(_RESERVED)}")


@dataclasses.dataclass(frozen=True, slots=True)
class MountReport:
    """What one node saw of a file system, as ``_node/mount_check.py`` returns it.

    ``failed``: at which step it ended, empty for none; ``error`` is then the kernel's name of the error.
    """

    failed: str = ""
    error: str = ""
    type: str = ""
    source: str = ""
    is_own_disk: bool = False
    marker: str | None = None
    made: bool = False
    wrote: bool = False
    unread: bool = False
    user: int = 0
    owner: int | None = None
    locks: str | None = None
    free_bytes: int | None = None
    free_files: int | None = None
    latency_ms: float | None = None
    mb_per_s: float | None = None

    @classmethod
    def from_dict(cls, value: t.Mapping[str, t.Any]) -> MountReport:
        """Return the look in a node's answer; what this version does not know is passed over."""
        names = {field.name for field in dataclasses.fields(cls)}
        return cls(**{key: item for key, item in value.items() if key in names})


Problem = tuple[str, str]


def list_types(wanted: str | None) -> list[str]:
    """Return what the kernel may call the type that the user names; ``fuse`` is also each ``fuse.NAME``."""
    return [*_TYPES.get(wanted, (wanted,)), f"fuse.{wanted}"] if wanted else []


def matches_type(actual: str, wanted: str) -> bool:
    """Return whether a file system is of the type that the user names."""
    return any(actual == name or actual.startswith(f"{name}.") for name in list_types(wanted))


def judge(filesystem: Filesystem, look: MountReport, source: str = "", provider: str = "path") -> Problem | None:
    """Return what is wrong with a file system on one node, and what to do; None where nothing is.

    :param source: the export or share that must be mounted, of ``provider``.
    """
    found = _judge(filesystem, look, source)
    if found is not None and found[1] == _MOUNT and provider in CLIENTS:
        client = CLIENTS[provider]
        command = f"mount -t {client.type} -o {client.shown} {source} {filesystem.path}"
        package = client.packages["Debian"]
        fix = f"Set filesystem.mount: true, or install {package} on this node and mount it: {command}"
        return found[0], fix
    if found is not None and found[1] == _MOUNT and provider == VOLUME:
        return found[0], "Run `services` again, which mounts it, and look at its unit (systemctl status 'muster-*')"
    return found


def _judge(filesystem: Filesystem, look: MountReport, source: str) -> Problem | None:
    path = str(filesystem.path)
    if look.failed in _ENDED:
        problem, fix = _ENDED[look.failed]
        return problem.format(path=path, error=look.error), fix
    if look.failed == "list":
        return _explain_error(path, look)
    if filesystem.type and not matches_type(look.type, filesystem.type):
        return f"{path} is on {look.type} ({look.source}), not on {filesystem.type}", _MOUNT
    if look.is_own_disk and filesystem.storage_class:
        disk = f"its volume is on the node's own disk ({look.type} {look.source}), which no other node has"
        return disk, "Name a StorageClass whose driver has ReadWriteMany"
    if look.is_own_disk and not filesystem.type:
        return f"{path} is on the node's own disk ({look.type} {look.source}): nothing is mounted there", _MOUNT
    if source and not is_source(look.source, source):
        return f"{path} has {look.source}, not {source}", _MOUNT
    if look.failed:
        return _explain_error(path, look)
    if filesystem.locks and look.locks in ("none", "local"):
        return _explain_locks(path, look)
    return None


# What ends a check before anything is known of the mount.
_ENDED: t.Final[dict[str, Problem]] = {
    "absent": ("{path} does not exist", _MOUNT),
    "folder": ("{path} is not a folder", "Name the folder at which the file system is mounted"),
    "time": (
        "{path} did not answer within the time of the check",
        "Its server or the network to it is away: what uses the mount waits until it is back, or umount -f -l it",
    ),
    "crash": ("the check of {path} ended without an answer ({error})", "Look at the kernel's log of the node (dmesg)"),
}
_ERRORS: t.Final[dict[str, Problem]] = {
    "EROFS": ("is mounted read-only", "Mount it for writing, or set access_modes: [read]"),
    "EDQUOT": ("is over a quota", "Raise the quota of the user or project, or delete files"),
    "ESTALE": (
        "is a stale handle: the server exports another file system than the one that is mounted",
        "Unmount and mount it again; give the export a fixed fsid",
    ),
    "EIO": ("answers with I/O errors", "Look at the server and at the kernel's log of the node (dmesg)"),
    "ENOTCONN": ("has lost its program (FUSE)", "Unmount it (umount -l) and start its unit again"),
    "EHOSTDOWN": ("has lost its server", "Look at the server and at the network to it"),
}


def _explain_error(path: str, look: MountReport) -> Problem:
    if look.error in ("EACCES", "EPERM"):
        if look.failed == "list":
            return (
                f"{path} may not be read by uid {look.user}",
                "Give the user the folder, or let the server export it so",
            )
        if look.user == 0:
            fix = "Export it with no_root_squash, or run as a user who may write there"
            return f"{path} may not be written by root: the server squashes root", fix
        return f"{path} may not be written by uid {look.user}", "Give the user the folder (chown), or another folder"
    if look.error == "ENOSPC":
        if look.free_files == 0:
            return f"{path} has no inodes left", "Delete files, or use a file system with more inodes"
        return f"{path} is full", "Delete files, or use a larger file system"
    problem, fix = _ERRORS.get(look.error, (f"fails at {look.failed} ({look.error})", "Look at its server"))
    return f"{path} {problem}", fix


def _explain_locks(path: str, look: MountReport) -> Problem:
    fix = (
        "Mount it with locks (Lustre: flock; SMB: without nobrl; NFS: without nolock), or set filesystem.locks: false "
        "where programs need none"
    )
    if look.locks == "none":
        return f"{path} has no locks (fcntl)", fix
    return f"{path} does not share locks (fcntl) between nodes", fix


def choose_marker(expected: str | None, looks: t.Mapping[str, MountReport]) -> str | None:
    """Return the marker by which nodes have the same file system: the known one, else that of most of them."""
    seen = [look.marker for look in looks.values() if look.marker and not look.failed]
    return expected or (collections.Counter(seen).most_common(1)[0][0] if seen else None)


def judge_marker(
    path: str, marker: str | None, node: str, looks: t.Mapping[str, MountReport], bound: bool
) -> Problem | None:
    """Return whether a node has another file system than the others.

    :param bound: whether ``marker`` is that of the binding that there is already.
    """
    seen = looks[node].marker
    if seen is None or marker is None or seen == marker:
        return None
    same = sorted(name for name, look in looks.items() if look.marker == marker)
    if same:
        return f"{path} is another file system than on {', '.join(same[:3])}", "Mount the same one on all nodes"
    where = "that was bound" if bound else "of the others"
    fix = "Mount that one, or remove the binding (state: absent) and bind this one"
    return f"{path} is not the file system {where}", fix
