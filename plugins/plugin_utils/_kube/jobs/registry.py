# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The engines by name; a new engine is added here."""

from __future__ import annotations

import typing as t

from ..api.kinds import KubeObject
from . import indexed_job, jobset, mpijob, rayjob, trainjob, volcano
from .spec import KubePlan

_ENGINES: dict[str, t.Callable[[KubePlan], list[KubeObject]]] = {
    "jobset": jobset.build,
    "indexed_job": indexed_job.build,
    "trainjob": trainjob.build,
    "mpijob": mpijob.build,
    "rayjob": rayjob.build,
    "volcano": volcano.build,
}


# What an engine needs beside Kubernetes: apiVersion, kind, and what installs them.
NEEDS: dict[str, tuple[str, str, str]] = {
    "jobset": ("jobset.x-k8s.io/v1alpha2", "JobSet", "JobSet 0.10 or newer"),
    "trainjob": ("trainer.kubeflow.org/v1alpha1", "TrainJob", "Kubeflow Trainer 2"),
    "mpijob": ("kubeflow.org/v2beta1", "MPIJob", "the MPI operator (v2beta1)"),
    "rayjob": ("ray.io/v1", "RayJob", "KubeRay"),
    "volcano": ("batch.volcano.sh/v1alpha1", "Job", "Volcano"),
}


def build(plan: KubePlan) -> list[KubeObject]:
    """Return the objects of the run in the order in which they are created; the last one runs the job."""
    return _ENGINES[plan.job.engine](plan)
