# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Backups of a control plane: what a manifest says, which ones are kept, and whether one may be restored to a machine.

Pure decisions: what is on the machine and in the shelves is read before.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from . import validators as f
from .errors import InputError, RefusedError
from .k3s import is_older

# As they sort, so they were made.
ID: t.Final = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{4}\Z")
NEWEST: t.Final = "newest"
# Of a server's data: the copy, its archive, and what unpacking or the former data take.
_TIMES: t.Final = 3
_SPARE_BYTES: t.Final = 256 << 20
_SHOWN: t.Final = 12


def _identifier(value: t.Any, path: str) -> str:
    found = f.text(value, path)
    if not ID.match(found):
        raise InputError(path, f"'{found[:80]}' names no backup", "Its form is 20261129T061500Z-1a2b")
    return found


def _hex(value: t.Any, path: str) -> str:
    found = f.text(value, path)
    if not re.fullmatch(r"[0-9a-f]{32,64}", found):
        raise InputError(path, "must be 32 to 64 hexadecimal digits")
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class BackupManifest:
    """What a backup is. It is written when its archive is whole, so an archive without one does not count.

    ``authority``: the SHA-256 of the cluster's CA. ``plain_bytes``: the size of the archive before it was sealed,
    ``size`` and ``sha256`` are of the sealed one. ``salt`` and ``key_check`` tell a wrong key, ``seal`` a changed
    manifest: it is keyed, over all other fields.
    """

    id: str = f.field(_identifier)
    cluster: str = f.field(f.name(63))
    made_at: str = f.field(f.text)
    host: str = f.field(f.text)
    datastore: str = f.field(f.choice("sqlite", "etcd"))
    k3s_version: str = f.field(f.text)
    authority: str = f.field(_hex)
    plain_bytes: int = f.field(f.integer(0, 2**50))
    data_bytes: int = f.field(f.integer(0, 2**50))
    size: int = f.field(f.integer(0, 2**50))
    sha256: str = f.field(_hex)
    salt: str = f.field(_hex)
    key_check: str = f.field(_hex)
    seal: str = f.field(f.text, "")
    format: int = f.field(f.integer(1), 1)

    @classmethod
    def from_dict(cls, value: t.Any, path: str = "manifest") -> BackupManifest:
        """Return the manifest in ``value``; InputError naming what is wrong, also of a later format."""
        if isinstance(value, dict) and isinstance(value.get("format"), int) and value["format"] > 1:
            raise InputError(path, f"is of the later format {value['format']}", "Update the collection")
        return f.section(cls)(value, path)


@dataclasses.dataclass(frozen=True, slots=True)
class ControlPlane:
    """What of a server matters for backup and restore.

    ``authority``: the SHA-256 of its CA, ``datastore``: ``sqlite`` or ``etcd``, ``current``: the version of its binary,
    each empty where there is none. ``begun`` is the backup whose restore was begun and has not ended, ``done`` the one
    that its datastore came from. ``data_bytes`` and ``free_bytes``: of its datastore, and of the disk that it is on.
    """

    authority: str = f.field(f.text, "")
    datastore: str = f.field(f.choice("sqlite", "etcd"), "")
    current: str = f.field(f.text, "")
    active: bool = f.field(f.boolean, default=False)
    begun: str = f.field(f.text, "")
    done: str = f.field(f.text, "")
    data_bytes: int = f.field(f.integer(0, 2**60), 0)
    free_bytes: int = f.field(f.integer(0, 2**60), 0)

    @classmethod
    def from_dict(cls, value: t.Any, path: str = "machine") -> ControlPlane:
        """Return what was read; what is empty is not there."""
        options = f.dictionary(value, path)
        return f.section(cls)({key: item for key, item in options.items() if item != ""}, path)


@dataclasses.dataclass(frozen=True, slots=True)
class RestoreOrder:
    """What was asked for. ``version``: of K3s, as it shall be. ``known``: the SHA-256 of the CA in the state home's
    kubeconfig, empty without one. ``servers``: how many the inventory has.
    """

    version: str
    known: str = ""
    overwrite: bool = False
    again: bool = False
    servers: int = 1


def check_backup(host: str, machine: ControlPlane, known: str) -> None:
    """Refuse a machine of which no backup of this cluster can be taken.

    :raises RefusedError: naming it.
    """
    if not machine.datastore or not machine.authority:
        raise RefusedError(f"{host}: no K3s server has its data on it", "Run the playbook cluster, or name the server")
    if not machine.current:
        raise RefusedError(f"{host}: its K3s does not say its version", "Look at k3s --version on it")
    if machine.begun:
        fix = "Run the playbook restore again with that backup, then take a new one"
        raise RefusedError(f"{host}: the restore of {machine.begun} was begun on it and has not ended", fix)
    if known and machine.authority != known:
        raise _other_cluster(f"{host} is", machine.authority, known)
    _check_space(host, machine, machine.data_bytes)


def decide_restore(host: str, machine: ControlPlane, backup: BackupManifest, order: RestoreOrder) -> str:
    """Return why nothing is to be done on a machine, empty when the backup is to be restored to it.

    :raises RefusedError: saying why it must not be.
    """
    if order.known and backup.authority != order.known:
        raise _other_cluster(f"the backup {backup.id} is", backup.authority, order.known)
    if machine.authority and machine.authority != backup.authority and not machine.begun:
        fix = "Remove that one first (cluster_absent), or name another machine"
        raise RefusedError(
            f"{host} has a server of another cluster than the backup {backup.id} (CA {machine.authority[:_SHOWN]}, not "
            f"{backup.authority[:_SHOWN]})",
            fix,
        )
    if is_older(order.version, backup.k3s_version):
        fix = f"Set k3s_version: {backup.k3s_version} or newer"
        raise RefusedError(
            f"{host} shall have K3s {order.version}, and the backup {backup.id} is of {backup.k3s_version}: an older "
            "K3s does not read what a newer one has written",
            fix,
        )
    if (order.servers > 1) != (backup.datastore == "etcd"):
        fix = "Have muster_k3s_role: server on one machine for sqlite, on three or five for etcd, as when it was made"
        what = f"the backup {backup.id} is of {backup.datastore}, and the inventory has {order.servers} servers"
        raise RefusedError(what, fix)
    if machine.done == backup.id and machine.datastore and machine.active and not machine.begun and not order.again:
        again = "-e muster_restore_again=true sets it back once more"
        return f"the backup {backup.id} was restored to {host} already; {again}"
    if machine.datastore and not (machine.begun or order.overwrite or order.again):
        runs = "K3s runs on it with data" if machine.active else "K3s has data on it"
        fix = "Changes since the backup would be lost; -e muster_restore_overwrite=true restores it all the same"
        raise RefusedError(f"{host}: {runs} of this cluster", fix)
    _check_space(host, machine, max(backup.data_bytes, backup.plain_bytes))
    return ""


def choose_backup(found: t.Sequence[BackupManifest], wanted: str) -> BackupManifest:
    """Return the backup of this id, or the newest.

    :raises RefusedError: where it is not there, with those that are.
    """
    ordered = sorted(found, key=lambda item: item.id)
    if wanted == NEWEST and ordered:
        return ordered[-1]
    for item in ordered:
        if item.id == wanted:
            return item
    names = ", ".join(item.id for item in reversed(ordered[-5:]))
    if wanted == NEWEST:
        raise RefusedError("there is no whole backup of this cluster", "Take one with the playbook backup")
    fix = f"The newest are: {names}" if names else "There is none: take one with the playbook backup"
    raise RefusedError(f"the backup {wanted[:80]} is not there", fix)


def choose_removed(ids: t.Iterable[str], keep: int) -> list[str]:
    """Return the ids of backups that are more than ``keep``, the oldest first."""
    ordered = sorted(set(ids))
    return ordered[: max(0, len(ordered) - keep)]


def _check_space(host: str, machine: ControlPlane, data_bytes: int) -> None:
    need = _TIMES * data_bytes + _SPARE_BYTES
    if machine.free_bytes < need:
        raise RefusedError(
            f"{host}: {need / 1e9:.2f} GB are needed for copies of the datastore and {machine.free_bytes / 1e9:.2f} GB "
            "are free below /var/lib/rancher",
            "Free some, such as old logs and images",
        )


def _other_cluster(what: str, seen: str, known: str) -> RefusedError:
    return RefusedError(
        f"{what} of another cluster than the one that has this name here (CA {seen[:_SHOWN]}, not {known[:_SHOWN]})",
        "Name its own cluster (muster_cluster)",
    )
