# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MPIJob: workers, launcher, and the launcher's resources."""

from __future__ import annotations

import json

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs.spec import Queue
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._kube.jobs.plans import (
    ENGINES,
    build,
)


def test_an_mpijob_removes_its_workers_and_waits_for_them() -> None:
    objects = build(**ENGINES["mpijob"], processes_per_node=4, gpus_per_node=4)
    spec = objects[-1]["spec"]
    assert spec["runPolicy"]["cleanPodPolicy"] == "Running" and spec["slotsPerWorker"] == 4
    assert spec["launcherCreationPolicy"] == "WaitForWorkersReady"
    launcher, worker = (spec["mpiReplicaSpecs"][kind] for kind in ("Launcher", "Worker"))
    assert (launcher["replicas"], worker["replicas"]) == (1, 2)
    # The Service of an MPIJob has the names of ready pods alone, and workers find each other before their sshd runs.
    assert "readinessProbe" not in worker["template"]["spec"]["containers"][0]
    asked = launcher["template"]["spec"]["containers"][0]["resources"]
    assert asked["requests"] == {"cpu": "10m", "memory": "64Mi"} and set(asked["limits"]) == {"cpu", "memory"}
    told = json.loads(objects[0]["data"]["launcher.json"])
    # One argument each: "-np 8" as one argument is read by no mpirun.
    assert told["argv"][1:3] == ["-np", "8"] and not any(" " in item for item in told["argv"])
    assert told["env"]["OMPI_MCA_orte_default_hostfile"] == told["env"]["PRTE_MCA_prte_default_hostfile"]
    assert told["env"]["PRTE_MCA_prte_keep_fqdn_hostnames"] == "false"


@pytest.mark.parametrize(
    ("queue", "asked"),
    [
        (None, {"cpu", "memory"}),
        (Queue("q", quota_resources=frozenset({"cpu", "nvidia.com/gpu"})), {"cpu"}),
        (Queue("q", quota_resources=frozenset({"nvidia.com/gpu"})), set()),
        (Queue("q"), set()),
    ],
)
def test_a_launcher_asks_for_nothing_that_its_queue_has_no_quota_for(queue: Queue | None, asked: set[str]) -> None:
    """Kueue never admits a gang of which a pod asks for such a resource."""
    spec = build({"queue": queue}, **ENGINES["mpijob"])[-1]["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]
    resources = spec["containers"][0]["resources"]
    assert set(resources.get("requests", {})) == set(resources.get("limits", {})) == asked
