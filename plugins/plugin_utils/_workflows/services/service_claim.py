# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The claim of a service's data in a cluster: for one pod that stays on its Node, of a StorageClass or in a folder."""

from __future__ import annotations

import typing as t

from ....module_utils._model.errors import RefusedError
from ..._kube.api.client import MANAGER, Client
from ..._kube.api.kinds import KubeObject
from ..._kube.nodes import capacity
from ..._kube.objects.apply import apply
from .deploy import DeployOrder

KIND: t.Final = "v1/PersistentVolumeClaim"
_LABELS: t.Final = {"app.kubernetes.io/managed-by": "muster.training"}


def ensure_pvc(order: DeployOrder, client: Client, name: str) -> bool:
    """Make the claim, or bring it to the size that is asked for; return whether that changes anything.

    One that the user names, or that another tool made, is used as it is.

    :raises RefusedError: when the one that the user names is not there, or the cluster has no storage for one.
    """
    live = client.get(KIND, name, order.place.namespace)
    if order.place.claim is not None and live is None:
        where = f"{order.place.namespace}/{name}"
        raise RefusedError(f"{order.option}.claim: there is no claim {where}", "Create it, or name another")
    if order.place.claim is not None or (live is not None and not is_applied(live)):
        return False
    storage_class = None if order.place.host_path else _choose_class(order, client, live)
    return apply(client, build_objects(order, name, storage_class), MANAGER, check=order.check).changed


def build_objects(order: DeployOrder, name: str, storage_class: str | None) -> list[KubeObject]:
    """Return the claim, and before it its volume where it is a folder of the Node (``storage_class`` None)."""
    place, space = order.place, str(order.place.namespace)
    size, modes, volume = order.volume_size, ["ReadWriteOnce"], f"{space}-{name}"
    about: dict[str, t.Any] = {"accessModes": modes, "resources": {"requests": {"storage": size}}}
    own = {"storageClassName": storage_class or "", **({} if storage_class else {"volumeName": volume})}
    meta: t.Any = {"name": name, "namespace": space, "labels": _LABELS}
    claim: t.Any = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": {**about, **own}}
    if storage_class is not None:
        return [claim]
    spec = {
        "capacity": {"storage": size},
        "accessModes": modes,
        "storageClassName": "",
        "persistentVolumeReclaimPolicy": "Retain",
        "claimRef": {"namespace": space, "name": name},
        "hostPath": {"path": place.host_path, "type": "DirectoryOrCreate"},
    }
    whole: t.Any = {"apiVersion": "v1", "kind": "PersistentVolume",
                    "metadata": {"name": volume, "labels": _LABELS}, "spec": spec}  # fmt: skip
    return [whole, claim]


def is_applied(live: KubeObject) -> bool:
    """Return whether this collection made an object: it applies under one name."""
    managers = live["metadata"].get("managedFields") or ()
    return any(item.get("manager") == MANAGER for item in managers)


def _choose_class(order: DeployOrder, client: Client, live: KubeObject | None) -> str:
    """Return the class that is named, else the one that the claim has, else the one to prefer."""
    wanted = order.place.storage_class
    there: t.Any = (live or {}).get("spec") or {}
    if not wanted and there.get("storageClassName"):
        return str(there["storageClassName"])
    names = [item.name for item in capacity.read_storage(client.list("storage.k8s.io/v1/StorageClass").items)]
    if not names or (wanted and wanted not in names):
        shown = f"; it has {', '.join(names)}" if names else ""
        raise RefusedError(
            f"{order.option}.storage_class: the cluster has no StorageClass{f' {wanted}' if wanted else ''}{shown}",
            "Set host_path to a folder of the Node, or claim to one that you made",
        )
    return wanted or names[0]
