# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A StorageClass of csi-driver-nfs: each claim of a cluster is a folder of one export, which many pods mount."""

from __future__ import annotations

import dataclasses
import typing as t

from .errors import InputError, RefusedError
from .filesystem_mounts import CLIENTS

if t.TYPE_CHECKING:
    from .service import Service
    from .service_deploy import Deploy

PROVIDER: t.Final = "csi_nfs"
DRIVER: t.Final = "nfs.csi.k8s.io"
LABEL: t.Final = "muster.training/service"
_UNREAD: t.Final = ("port", "tls", "size", "storage_class", "host_path", "claim", "image", "node", "clients", "version",
                    "database", "store")  # fmt: skip
_UNREAD_OF_MOUNT: t.Final = ("path", "type", "marker", "options", "cache_gb", "version")
# Of a unit of systemd alone.
_OF_UNITS: t.Final = ("_netdev", "nofail")
_FIX: t.Final = "Name another class in filesystem.storage_class"
Object = dict[str, t.Any]


@dataclasses.dataclass(frozen=True, slots=True)
class ClassFacts:
    """What a cluster has. ``live``: the class of that name; ``used``: whether a volume of the driver is there."""

    live: t.Mapping[str, t.Any] | None
    has_driver: bool
    has_helm_charts: bool
    used: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class ClassPlan:
    """What the role makes or removes. ``objects``: the class, none where it is there already and is the user's own."""

    objects: tuple[Object, ...]
    needs_driver: bool
    removes_class: bool = False
    removes_driver: bool = False


def check_class(service: Service, place: Deploy, where: str) -> None:
    """Refuse an entry of ``muster_services`` by which no class can be made.

    :raises InputError: naming the key.
    """
    if not place.namespace:
        fix = "Write {namespace: kube-system, export: NAME}: where the driver is installed"
        raise InputError(f"{where}.deploy.host", "is not for a StorageClass, which is in a cluster", fix)
    of_mount = (_UNREAD_OF_MOUNT, service.filesystem, f"{where}.filesystem")
    for keys, of, option in ((("resources",), service, where), (_UNREAD, place, f"{where}.deploy"), of_mount):
        for key in keys:
            if getattr(of, key, None):
                raise InputError(f"{option}.{key}", f"has no effect with provider: {PROVIDER}", "Leave it out")
    if place.delete_data:
        fix = "Delete the folders where they are exported"
        raise InputError(f"{where}.deploy.delete_data", "is not for a class: its folders stay on the server", fix)
    if not (service.filesystem and service.filesystem.storage_class):
        raise InputError(f"{where}.filesystem.storage_class", "is required", "Name the class that is made")
    if not place.export and service.state == "present":
        fix = "Name the file system of NFS whose folders claims are"
        raise InputError(f"{where}.deploy.export", "is required", fix)


def build_class(name: str, storage_class: str, source: str) -> Object:
    """Return the class. ``source``: the export as a mount names it, ``SERVER:/FOLDER``."""
    server, _colon, share = source.rpartition(":")
    options = [word for word in CLIENTS["nfs"].options.split(",") if word not in _OF_UNITS]
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": storage_class, "labels": {LABEL: name}},
        "provisioner": DRIVER,
        "parameters": {
            "server": server.strip("[]"),
            "share": share,
            # A claim that is made again under its name has its files.
            "subDir": "${pvc.metadata.namespace}/${pvc.metadata.name}",
            # The driver's own default is to delete the files with the claim.
            "onDelete": "retain",
            # Pods run as users of their own.
            "mountPermissions": "0777",
        },
        "reclaimPolicy": "Retain",
        "volumeBindingMode": "Immediate",
        "allowVolumeExpansion": True,
        "mountOptions": options,
    }


def decide(wanted: Object | None, facts: ClassFacts, option: str) -> ClassPlan:
    """Return what is to be done for a class, or to remove it (``wanted`` None).

    :raises RefusedError: where a class of that name is another one, or nothing can install the driver.
    """
    is_ours = facts.live is not None and LABEL in (facts.live["metadata"].get("labels") or {})
    if wanted is None:
        return ClassPlan((), False, removes_class=is_ours, removes_driver=is_ours and not facts.used)
    if facts.live is not None:
        _refuse_other(wanted, facts.live, option)
    if not facts.has_driver and not facts.has_helm_charts:
        raise RefusedError(
            f"{option}.provider: the cluster has no {DRIVER}, and no HelmChart (helm.cattle.io/v1) to install it by",
            "Install the chart csi-driver-nfs with helm, and run it again",
        )
    is_other = facts.live is not None and not is_ours
    return ClassPlan(() if is_other else (wanted,), not facts.has_driver)


def _refuse_other(wanted: Object, live: t.Mapping[str, t.Any], option: str) -> None:
    """Refuse a class of another driver or export, or one that deletes files with a claim; no class can be changed."""
    name, mine = wanted["metadata"]["name"], wanted["parameters"]
    found = live.get("parameters") or {}
    if live.get("provisioner") != DRIVER:
        problem = f"{name} is there and is of {live.get('provisioner')}, not of {DRIVER}"
        raise RefusedError(f"{option}.filesystem.storage_class: {problem}", _FIX)
    for key in ("server", "share"):
        if str(found.get(key)).rstrip("/") != mine[key].rstrip("/"):
            problem = f"{name} is there with {key} {found.get(key)}, not {mine[key]}, and a class does not change"
            raise RefusedError(f"{option}.filesystem.storage_class: {problem}", _FIX)
    if live.get("reclaimPolicy") != "Retain" and found.get("onDelete", "delete") == "delete":
        problem = f"{name} is there and deletes the files with a claim (onDelete: delete)"
        raise RefusedError(f"{option}.filesystem.storage_class: {problem}", f"{_FIX}, or bind it with mode: bind")
