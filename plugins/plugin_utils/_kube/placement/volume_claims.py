# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the volume claims of a job get a volume that all of its pods can use, before anything is submitted."""

from __future__ import annotations

import typing as t

from ....module_utils._model.errors import RefusedError
from ....module_utils._model.job import Job, Mount
from ..api.kinds import KubeObject

# Engines with one more pod beside those of the ranks: mpirun's, Ray's head.
_ENGINES_WITH_EXTRA_POD = ("mpijob", "rayjob")


def pending_storage_class(claim: KubeObject) -> str:
    """Return the StorageClass of a claim that has no volume yet, empty for other claims."""
    waits = (claim.get("status") or {}).get("phase") == "Pending"
    return str((claim.get("spec") or {}).get("storageClassName") or "") if waits else ""


def check_volumes(
    job: Job, live: t.Mapping[str, KubeObject], namespace: str, classes: t.Collection[str] | None = None
) -> None:
    """Raise for claims that will get no volume or that several pods cannot use at the same time.

    :param live: the PersistentVolumeClaims of the job's namespace by name.
    :param classes: the names of the cluster's StorageClasses, None when they were not read.
    :raises RefusedError: naming the claim.
    """
    for mount in job.mounts:
        if mount.pvc is None:
            continue
        if mount.pvc not in live:
            raise RefusedError(
                f"{_pvc_title(mount)} does not exist in the namespace {namespace}",
                "Create it, name another, or set placement.namespace",
            )
        _check_volume(job, mount, live[mount.pvc], classes)


def _pvc_title(mount: Mount) -> str:
    return f"job.mounts.{mount.name}: PersistentVolumeClaim {mount.pvc}"


def _check_volume(job: Job, mount: Mount, claim: KubeObject, classes: t.Collection[str] | None) -> None:
    title = _pvc_title(mount)
    if (claim.get("status") or {}).get("phase") == "Lost" or claim["metadata"].get("deletionTimestamp"):
        raise RefusedError(f"{title} is being deleted or has lost its volume")
    wanted = pending_storage_class(claim)
    if classes is not None and wanted and wanted not in classes:
        names = f"the cluster has {', '.join(sorted(classes))}" if classes else "the cluster has none"
        raise RefusedError(
            f"{title} has no volume, and its StorageClass {wanted} does not exist ({names})",
            "Create the claim again with a StorageClass of the cluster, or name another claim",
        )
    modes = set(claim["spec"].get("accessModes") or ())
    enough = {"ReadWriteMany", *(["ReadOnlyMany"] if mount.read_only else [])}
    # A single worker and the extra pod of its engine may run on the one node that has the volume.
    if job.nodes > 1 and not modes & enough:
        count = job.nodes + (1 if job.engine in _ENGINES_WITH_EXTRA_POD else 0)
        raise RefusedError(
            f"{title} allows {', '.join(sorted(modes))}, but {count} pods, possibly on several nodes, would mount it",
            "Use a claim with access mode ReadWriteMany",
        )
    if modes == {"ReadOnlyMany"} and not mount.read_only:
        raise RefusedError(f"{title} is read-only", "Set read_only: true")
