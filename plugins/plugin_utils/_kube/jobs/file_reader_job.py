# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds a Job whose pod sees the checkpoints of a run, on their mount or in a bucket, so that they can be read."""

from __future__ import annotations

import dataclasses
import typing as t

from ....module_utils._model import job_backends
from ....module_utils._model.job import Job
from ..api.kinds import JsonObject, KubeObject, ObjectMeta
from ..objects.short_pod import build_short_pod_spec
from . import limit_range, pod_template
from .spec import CONTAINER, object_name

LABEL: t.Final = "muster.training/file-reader"
_TTL_S = 60
# The reader of a controller that was killed is not deleted: it ends by itself.
_DEADLINE_S: t.Final = 6 * 3600


@dataclasses.dataclass(frozen=True, slots=True)
class ReaderImage:
    """The image of a reader, and the Secrets with which the kubelet pulls it, beside those that the job names."""

    name: str
    pull_secrets: tuple[str, ...] = ()


def build(
    job: Job,
    run_id: str,
    name: str,
    namespace: str,
    node: str | None,
    image: ReaderImage,
    ranges: t.Sequence[KubeObject] = (),
) -> KubeObject:
    """Return the Job of one pod, on ``node`` where the checkpoints are on that node's own disk.

    :param ranges: the namespace's LimitRanges.
    """
    home = job_backends.checkpoint_mount(job)
    mounts = [item for item in job.mounts if item.name == home]
    labels = {LABEL: object_name(run_id)}
    container: JsonObject = {
        "name": CONTAINER,
        "image": image.name,
        "command": ["sh", "-c", f"trap 'exit 0' TERM; sleep {_DEADLINE_S} & wait"],
        "resources": limit_range.apply_limits(limit_range.SMALL_POD, ranges),
        "securityContext": {"allowPrivilegeEscalation": False},
        "volumeMounts": [{"name": f"data-{mount.name}", "mountPath": mount.path, "readOnly": True} for mount in mounts],
    }
    named = [
        ref.path for ref in job.secret_refs if ref.deliver == "registry" and ref.source == "kubernetes" and ref.path
    ]
    pulls = [*named, *image.pull_secrets]
    volumes = [pod_template.build_data_volume(mount) for mount in mounts]
    spec = build_short_pod_spec(container, volumes, pulls, node=node, deadline_s=_DEADLINE_S)
    body: JsonObject = {
        "backoffLimit": 0,
        "activeDeadlineSeconds": _DEADLINE_S,
        "ttlSecondsAfterFinished": _TTL_S,
        "template": {"metadata": {"labels": labels}, "spec": spec},
    }
    meta: ObjectMeta = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": body}
