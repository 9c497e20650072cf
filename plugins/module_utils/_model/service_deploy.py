# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a service of ``mode: deploy`` runs: on one host of the inventory, or in a cluster."""

from __future__ import annotations

import dataclasses
import typing as t

from . import validators as f
from .binding import NAME_LIMIT, SecretPointer
from .errors import InputError

# The gateway's port and those beside it, with the ones that are 10000 above them.
_LOWEST_PORT: t.Final = 1024
_HIGHEST_PORT: t.Final = 55000
_HOST_KEYS: t.Final = ("address", "version", "python", "collect")
_CLUSTER_KEYS: t.Final = ("node", "size", "storage_class", "host_path", "claim", "image")


@dataclasses.dataclass(frozen=True, slots=True)
class Retention:
    """How long metrics are kept, and how much of the disk they may take (GB of 10^9 bytes): the smaller bound holds."""

    days: int = f.field(f.integer(1, 3650), 30)
    gb: int | None = f.field(f.integer(1, 100_000), None)


@dataclasses.dataclass(frozen=True, slots=True)
class Deploy:
    """One of ``host`` and ``namespace`` is set.

    ``address``: the one by which nodes reach the host. ``node``: the Node that the pod is bound to. ``claim``: the
    claim of the data, by default one that is made; ``host_path``: a folder of that Node for it. ``tls``: HTTPS also
    where the service can do without. ``delete_data``: whether ``state: absent`` deletes the data. ``login`` and
    ``artifacts`` are of a tracker: whether it asks for a user, and the binding of the object store with its files.
    ``python``: on a host the interpreter of an environment that has the service's program already. ``database``: where
    the address of a tracker's database is, None for a file of its own, or that of a volume's metadata. ``store``: the
    object store that has the data of a volume. ``export``: the file system of NFS that a class is of. ``proxy``: the
    registry that one that is deployed pulls through from. ``collect``: how often its space is freed. ``alertmanager``:
    where Prometheus sends alerts, ``prometheus``: what Grafana reads, both an address or the name of a service.
    ``webhook``: where the address is that an Alertmanager tells of alerts; ``config``: a file with its whole
    configuration instead. ``clients`` are of a file system: the networks whose machines may mount it; ``host_path`` is
    then a folder of the host. ``retention``: what Prometheus keeps.
    """

    host: str | None = f.field(f.text, None)
    namespace: str | None = f.field(f.name(63), None)
    port: int | None = f.field(f.integer(_LOWEST_PORT, _HIGHEST_PORT), None)
    address: str | None = f.field(f.text, None)
    version: str | None = f.field(f.text, None)
    node: str | None = f.field(f.text, None)
    size: str | None = f.field(f.text, None)
    storage_class: str | None = f.field(f.text, None)
    host_path: str | None = f.field(f.text, None)
    claim: str | None = f.field(f.name(63), None)
    image: str | None = f.field(f.text, None)
    tls: bool = f.field(f.boolean, False)
    login: bool = f.field(f.boolean, False)
    artifacts: str | None = f.field(f.name(NAME_LIMIT), None)
    python: str | None = f.field(f.text, None)
    database: SecretPointer | None = f.field(f.section(SecretPointer), None)
    store: str | None = f.field(f.name(NAME_LIMIT), None)
    collect: str | None = f.field(f.choice("daily", "weekly", "monthly"), None)
    export: str | None = f.field(f.name(NAME_LIMIT), None)
    proxy: str | None = f.field(f.text, None)
    alertmanager: str | None = f.field(f.text, None)
    prometheus: str | None = f.field(f.text, None)
    webhook: SecretPointer | None = f.field(f.section(SecretPointer), None)
    config: str | None = f.field(f.text, None)
    clients: tuple[str, ...] = f.field(f.list_of(f.text), ())
    retention: Retention | None = f.field(f.section(Retention), None)
    delete_data: bool = f.field(f.boolean, False)


@dataclasses.dataclass(frozen=True, slots=True)
class PodsSetting:
    """From where services are checked as pods see them. ``image`` has Python, ``python`` where it is not in PATH."""

    namespace: str = f.field(f.name(63))
    image: str = f.field(f.text)
    python: str | None = f.field(f.text, None)
    pull_secrets: tuple[str, ...] = f.field(f.list_of(f.text), ())


def is_address(value: str) -> bool:
    """Return whether a text is the address of a server, not the name of a service."""
    return not {":", "/", "."}.isdisjoint(value)


def check_deploy(value: Deploy | None, option: str, kind: str = "") -> Deploy:
    """Return the place of a service that is deployed, which one of a ``kind`` has.

    :raises InputError: when there is none or there are two, or a key is of the other backend.
    """
    example = "Write deploy: {host: NAME}, or deploy: {namespace: NAME} for a cluster"
    if value is None or not (value.host or value.namespace):
        raise InputError(option, "does not say where the service runs", example)
    if value.host and value.namespace:
        raise InputError(option, "names a host and a namespace", example)
    unfit, where = (_CLUSTER_KEYS, "in clusters") if value.host else (_HOST_KEYS, "on hosts")
    of_host = ("host_path",) if kind == "shared_filesystem" else ()
    for key in unfit:
        if getattr(value, key) is not None and key not in of_host:
            raise InputError(f"{option}.{key}", f"is for services {where} only")
    if value.python and not value.python.startswith("/"):
        raise InputError(f"{option}.python", "must be an absolute path of the host", "Write /PATH/bin/python")
    _check_address(value.database, f"{option}.database")
    _check_address(value.webhook, f"{option}.webhook", ("url", "token"))
    return value


def _check_address(pointer: SecretPointer | None, option: str, known: tuple[str, ...] = ("url",)) -> None:
    for key in pointer.keys if pointer else ():
        if key not in known:
            raise InputError(f"{option}.keys.{key}", "is not part of an address", f"Known are: {', '.join(known)}")
    if pointer and pointer.source != "env" and not pointer.path:
        raise InputError(f"{option}.path", f"is required with from: {pointer.source}")
