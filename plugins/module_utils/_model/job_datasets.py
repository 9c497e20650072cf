# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the datasets of a job come from, and which of their options exclude each other: rules on a job."""

from __future__ import annotations

import typing as t

from .errors import InputError
from .job_backends import is_below

if t.TYPE_CHECKING:
    from .job import Dataset, Job


def mounted_paths(job: Job) -> list[str]:
    """Return the paths at which nodes must have datasets already."""
    return [str(item.path) for item in job.datasets if item.mode == "mount"]


def check_datasets(job: Job) -> None:
    """Refuse datasets whose options do not fit together.

    :raises InputError: naming the dataset and the option.
    """
    names = [dataset.name for dataset in job.datasets]
    for dataset in job.datasets:
        option = f"job.datasets.{dataset.name}"
        if names.count(dataset.name) > 1:
            raise InputError("job.datasets", f"'{dataset.name}' is listed twice")
        _check_cache(job, dataset, option)
        if dataset.mode == "mount":
            _check_mount(job, dataset, option)
        elif dataset.binding is not None:
            _check_bound(dataset, option)
        else:
            _check_local(dataset, option)


def _check_cache(job: Job, dataset: Dataset, option: str) -> None:
    if dataset.cache is None:
        return
    if not job.on_kubernetes:
        raise InputError(f"{option}.cache", "is for pods", "Plain hosts stage a dataset once a node anyway")
    if dataset.mode != "stage" or dataset.binding is None:
        raise InputError(f"{option}.cache", "is for a dataset that is staged from a binding")
    mounts = [mount for mount in job.mounts if is_below(dataset.cache, mount.path)]
    if not dataset.cache.startswith("/") or not mounts:
        raise InputError(
            f"{option}.cache", "is on no mount", "Name a folder of the node (host_path) or a claim in mounts"
        )
    nearest = max(mounts, key=lambda mount: len(mount.path))
    if nearest.read_only:
        raise InputError(f"{option}.cache", f"is on the mount '{nearest.name}', which is read_only")


def _check_mount(job: Job, dataset: Dataset, option: str) -> None:
    if dataset.binding is not None:
        # Its path follows from the mount.
        if ".." in (dataset.prefix or "").split("/"):
            raise InputError(f"{option}.prefix", "must not contain '..'")
        if not any(mount.binding == dataset.binding for mount in job.mounts):
            fix = "Name a shared file system there too: mounts: [{name, path, binding}]; a bucket is staged or streamed"
            raise InputError(f"{option}.binding", "is on no mount of the job", fix)
        return
    _refuse_prefix(dataset, option)
    if not dataset.path or not dataset.path.startswith("/"):
        raise InputError(f"{option}.path", "must be an absolute path of the nodes with mode: mount")
    if job.on_kubernetes and not any(is_below(dataset.path, mount.path) for mount in job.mounts):
        fix = "Name a shared file system (binding), a claim or a folder of the node in mounts"
        raise InputError(f"{option}.path", "is on no mount of the job", fix)


def _check_bound(dataset: Dataset, option: str) -> None:
    if dataset.path is not None:
        raise InputError(
            f"{option}.path", "cannot be used with binding", "In prefix, name a folder or an object of the bucket"
        )
    if ".." in (dataset.prefix or "").split("/"):
        raise InputError(f"{option}.prefix", "must not contain '..'")
    if not dataset.read_only:
        raise InputError(
            f"{option}.read_only",
            "must be true with a binding: all runs of a node share what is staged",
            "Have the program copy what it changes",
        )


def _check_local(dataset: Dataset, option: str) -> None:
    if dataset.mode == "stream":
        raise InputError(f"{option}.binding", "is required with mode: stream", "Name a binding of an object store")
    _refuse_prefix(dataset, option)
    if not dataset.path:
        raise InputError(f"{option}.path", "is required", "Or name a binding, and in prefix a folder of its bucket")


def _refuse_prefix(dataset: Dataset, option: str) -> None:
    if dataset.prefix is not None:
        raise InputError(f"{option}.prefix", "requires a binding", "Name in binding the object store that has it")
