# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pod that sees the checkpoints of a run: its one mount, its node, and what it may do."""

from __future__ import annotations

import typing as t

from ansible_collections.muster.training.plugins.module_utils._model.job import Job, parse_job
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs import file_reader_job

IMAGE = file_reader_job.ReaderImage("host/i@sha256:0", ("own",))


def job(**mount: t.Any) -> Job:
    mounts = [{"name": "data", "path": "/data", "pvc": "d"}, {"name": "ckpt", "path": "/ckpt", **mount}]
    registry = {"name": "R", "from": "kubernetes", "path": "pulls", "as": "registry"}
    about = {"name": "j", "image": "i", "script": "/t.py", "mounts": mounts, "checkpoints": {"path": "/ckpt/x"}}
    return parse_job({**about, "secret_refs": [registry], "placement": {"backend": "kubernetes"}})


def pod(made: t.Any) -> t.Any:
    return made["spec"]["template"]["spec"]


def test_it_has_the_claim_of_the_checkpoints_alone_and_reads_it() -> None:
    made = file_reader_job.build(job(pvc="claim"), "r", "muster-files-1", "team", None, IMAGE)
    spec = pod(made)
    assert (made["kind"], made["metadata"]["name"], made["metadata"]["namespace"]) == ("Job", "muster-files-1", "team")
    (container,), (volume,) = spec["containers"], spec["volumes"]
    assert volume["persistentVolumeClaim"]["claimName"] == "claim"
    assert container["volumeMounts"] == [{"name": volume["name"], "mountPath": "/ckpt", "readOnly": True}]
    assert spec["imagePullSecrets"] == [{"name": "pulls"}, {"name": "own"}] and "affinity" not in spec
    assert container["image"] == "host/i@sha256:0"
    assert spec["automountServiceAccountToken"] is False and "nvidia.com/gpu" not in str(container["resources"])


def test_on_a_nodes_own_disk_it_is_on_that_node_and_ends_by_itself() -> None:
    made = file_reader_job.build(job(host_path="/var/ckpt"), "r", "muster-files-1", "team", "gpu-1", IMAGE)
    spec = pod(made)
    assert spec["volumes"][0]["hostPath"] == {"path": "/var/ckpt"} and "gpu-1" in str(spec["affinity"])
    limit = t.cast("dict[str, t.Any]", made["spec"])["activeDeadlineSeconds"]
    assert spec["activeDeadlineSeconds"] == limit and f"sleep {limit}" in spec["containers"][0]["command"][-1]
