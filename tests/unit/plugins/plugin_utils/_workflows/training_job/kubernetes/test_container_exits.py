# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Containers whose end no rank reports."""

from __future__ import annotations

import typing as t

from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs import rayjob
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs.spec import ROLE_LABEL
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes.container_exits import (
    ContainerExits,
)

Dict = dict[str, t.Any]


def pod(uid: str, role: str = "node") -> Dict:
    limits = {"name": "node", "resources": {"limits": {"memory": "2Gi"}}}
    return {
        "metadata": {"name": f"r-{uid}", "uid": uid, "labels": {ROLE_LABEL: role}},
        "spec": {"containers": [limits]},
    }


def ended(code: int, reason: str = "Error") -> Dict:
    return {"state": {"terminated": {"exitCode": code, "reason": reason}}}


def test_a_container_that_exceeded_its_memory_is_reported_once() -> None:
    exits = ContainerExits("JobSet", 2)
    (line,) = exits.of_container(pod("a"), ended(137, "OOMKilled"), "gpu-1", True)
    assert line == "the container on gpu-1 exceeded its memory (OOMKilled, limit 2Gi)"
    assert exits.of_container(pod("a"), ended(137, "OOMKilled"), "gpu-1", True) == []
    assert exits.killed_since(0.0) == ("gpu-1", line) and exits.killed_since(1e12) is None
    assert exits.of_container(pod("b"), ended(1), "gpu-1", True) == [] and not exits.start_failure()


def test_heads_of_ray_that_end_too_often_before_any_rank_are_a_failure() -> None:
    exits = ContainerExits("RayJob", 2)
    for uid in ("a", "b"):
        assert exits.of_container(pod(uid, rayjob.HEAD), ended(1), "n", False)
    assert not exits.start_failure()
    exits.of_container(pod("c", rayjob.HEAD), ended(1), "n", False)
    assert exits.start_failure() == "r-c ended before the program began: exit code 1"
    exits.forget()
    assert not exits.start_failure()
    assert exits.of_container(pod("d", rayjob.HEAD), ended(143), "n", False) == [], "it was stopped"
    assert exits.of_container(pod("e", rayjob.HEAD), ended(1), "n", True) == [], "ranks have begun"
