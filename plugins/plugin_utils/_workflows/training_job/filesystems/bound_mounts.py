# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``mounts[].binding``: shared file systems of a job, on hosts at their own path, in pods as a folder of the node."""

from __future__ import annotations

import dataclasses
import posixpath
import typing as t

from .....module_utils._model.binding import Binding
from .....module_utils._model.errors import InputError
from .....module_utils._model.job import Dataset, Job, Mount
from .....module_utils._model.shared_filesystem import Filesystem
from ...shared import bindings
from ...shared.state_dir import StateHome
from ..object_stores.job_nodes import JobNodes


def resolve(home: StateHome, job: Job) -> Job:
    """Return the job with the places of the shared file systems that its mounts and datasets name.

    :raises InputError: when a binding does not exist, or is not of a file system that can be used so.
    """
    mounts = tuple(_resolve_mount(home, job, mount) if mount.binding else mount for mount in job.mounts)
    places = {mount.binding: mount.path for mount in mounts if mount.binding}
    datasets = tuple(_resolve_dataset(item, places) for item in job.datasets)
    return dataclasses.replace(job, mounts=mounts, datasets=datasets)


def require_reachable(home: StateHome, job: Job, nodes: JobNodes) -> None:
    """Refuse a file system that a node of the job cannot use.

    :raises RefusedError: with the matrix.
    """
    for mount in job.mounts:
        if mount.binding:
            option = f"job.mounts.{mount.name}.binding"
            nodes.require_reachable(bindings.load_binding(home, mount.binding, option), option)


def _resolve_mount(home: StateHome, job: Job, mount: Mount) -> Mount:
    where = f"job.mounts.{mount.name}"
    binding = bindings.load_binding(home, str(mount.binding), f"{where}.binding")
    if binding.component != "shared_filesystem" or binding.filesystem is None:
        problem = f"'{binding.name}' is a binding of {binding.component}, not of shared_filesystem"
        raise InputError(f"{where}.binding", problem, "Name a bucket in checkpoints.binding or datasets.binding")
    known = binding.filesystem
    _require_same(mount, binding, known, where)
    if "write" not in binding.access_modes and not mount.read_only:
        raise InputError(
            f"{where}.read_only", f"must be true: {binding.name} is bound for reading", "Set read_only: true"
        )
    if known.claim and not job.on_kubernetes:
        problem = f"{binding.name} is of a StorageClass, whose volumes only pods have"
        raise InputError(f"{where}.binding", problem, "Set placement: {backend: kubernetes}, or name another binding")
    if not job.on_kubernetes and posixpath.normpath(mount.path) != known.path:
        fix = f"Set path: {known.path}, which pods can have too"
        raise InputError(f"{where}.path", f"is {known.path} on plain hosts, where {binding.name} is mounted", fix)
    return dataclasses.replace(mount, host_path=known.path, marker=known.marker, pvc=known.claim)


def _require_same(mount: Mount, binding: Binding, known: Filesystem, where: str) -> None:
    """Refuse what the job says of a binding and is not so, as in the record of a run that began elsewhere."""
    for key, value in (("host_path", known.path), ("marker", known.marker), ("pvc", known.claim)):
        said: t.Any = getattr(mount, key)
        if said not in (None, value):
            fix = f"Leave {key} out to use what {binding.name} is bound to now"
            raise InputError(f"{where}.{key}", f"is another than that of the binding {binding.name}", fix)


def _resolve_dataset(dataset: Dataset, places: t.Mapping[str, str]) -> Dataset:
    if dataset.mode != "mount" or dataset.binding is None:
        return dataset
    path = posixpath.normpath(posixpath.join(places[dataset.binding], (dataset.prefix or "").strip("/")))
    if dataset.path not in (None, path):
        fix = "In prefix, name a folder of the file system; leave path out"
        raise InputError(f"job.datasets.{dataset.name}.path", f"is {path} by its binding", fix)
    return dataclasses.replace(dataset, path=path)
