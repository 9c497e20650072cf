# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans for the tests of builders, made of the real parts: job, launcher and sources."""

from __future__ import annotations

import typing as t

from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.module_utils._model.pod_spec import PROGRAM_FILES
from ansible_collections.muster.training.plugins.plugin_utils._hosts import agent_package
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.kinds import KubeObject
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs import registry as jobs_registry
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs.spec import EligibleNodes, KubePlan, Queue
from ansible_collections.muster.training.plugins.plugin_utils._launch import registry
from ansible_collections.muster.training.plugins.plugin_utils._launch.base import RunContext

CLAIM = {"name": "data", "path": "/data", "pvc": "claim"}
PROGRAM = {name: agent_package.read_sources()[name] for name in PROGRAM_FILES}
RUN_ID = "char-lm-0a1b2c3d"
# The smallest job of each engine.
ENGINES: dict[str, dict[str, t.Any]] = {
    "jobset": {},
    "indexed_job": {"placement": {"engine": "indexed_job"}},
    "trainjob": {"placement": {"engine": "trainjob"}},
    "mpijob": {"launcher": "mpi"},
    "rayjob": {"launcher": "ray"},
    "volcano": {"placement": {"engine": "volcano"}},
}


def plan(plan_values: t.Mapping[str, t.Any] | None = None, /, **changes: t.Any) -> KubePlan:
    """Return the plan of a job; ``changes`` are the job's, ``plan_values`` the plan's own."""
    value = {
        "name": "char-lm",
        "nodes": 2,
        "image": "registry.example/train:1",
        "script": "train.py",
        "code": {"from": "path", "ref": "."},
        **changes,
    }
    value["placement"] = {"backend": "kubernetes", **changes.get("placement", {})}
    job = parse_job(value)
    path = job.checkpoints.path
    context = RunContext(RUN_ID, 20_000, 1, f"{path}/{RUN_ID}" if path else None)
    given = {"archive": b"packed", **(plan_values or {})}
    return KubePlan(job, RUN_ID, "default", "team-a", registry.pods(job, context), PROGRAM, **given)


def build(plan_values: t.Mapping[str, t.Any] | None = None, /, **changes: t.Any) -> list[KubeObject]:
    return jobs_registry.build(plan(plan_values, **changes))


def pod_of(item: KubeObject) -> KubeObject:
    """Return the first pod template's specification in a JobSet."""
    return t.cast(KubeObject, item["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"])


ISLAND = {"key": "muster.training/island", "operator": "In", "values": ["a"]}


RICH: dict[str, t.Any] = {
    "gpus_per_node": 2,
    "mounts": [CLAIM, {"name": "scratch", "path": "/scratch", "host_path": "/mnt", "read_only": True}],
    "checkpoints": {"path": "/data/run", "grace_s": 90},
    "resources": {"cpu": 0.5, "memory": "3Gi", "rdma": True},
    "timeout_s": 600,
    "env": {"PYTHONPATH": "/opt", "X": "1"},
    "secret_refs": [
        {"name": "TOKEN", "from": "env"},
        {"name": "KEY", "from": "kubernetes", "path": "theirs", "key": "k", "as": "file"},
        {"name": "PULL", "from": "kubernetes", "path": "run-pull", "as": "registry"},
    ],
    "restart": {"fatal_exit_codes": [65, 3], "max_crashes": 5},
}


RICH_PLAN: dict[str, t.Any] = {
    "secret": "run-secrets",
    "pull_secrets": ("run-pull",),
    "queue": Queue("gpus", topology=True, island_level="muster.training/island"),
    "fleet": EligibleNodes((ISLAND,), rdma_resource="rdma/hca", whole_node=True),
    "egress_denied": True,
}


def variants(engine: str) -> list[list[KubeObject]]:
    """Return an engine's objects for the smallest job, one with everything, and one on the nodes' own network."""
    changes, place = ENGINES[engine], ENGINES[engine].get("placement", {})
    host = {**RICH, "placement": {**place, "network_mode": "host", "priority": "high"}}
    found = [build(**changes), build(RICH_PLAN, **{**changes, **RICH}), build(RICH_PLAN, **{**changes, **host})]
    if engine not in ("trainjob", "rayjob"):
        found.append(build(**{**changes, "ttl_after_finished_s": 60}))
    if engine in ("jobset", "indexed_job"):
        found.append(build(**{**changes, "elastic": {"min": 1}}))
    return found


def templates(value: t.Any) -> t.Iterator[KubeObject]:
    """Yield every pod template in an object."""
    if isinstance(value, dict):
        if "containers" in value.get("spec", {}):
            yield value
        for item in value.values():
            yield from templates(item)
    elif isinstance(value, list):
        for item in value:
            yield from templates(item)
