# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which jobs are tested on a cluster."""

from __future__ import annotations

import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.module_utils._model.job_backends import Surroundings, choose_backend
from ansible_collections.muster.training.plugins.plugin_utils._workflows.fabric_verify import (
    kubernetes_target,
)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({}, None),
        ({"placement": {"backend": "hosts"}, "image": "x"}, None),
        ({"placement": "kubernetes"}, None),
        ({"placement": {"backend": "kubernetes"}, "image": "x"}, "x"),
        ({"template": "pytorch_ddp", "placement": {"backend": "kubernetes"}, "image": "y"}, "y"),
    ],
)
def test_a_job_for_kubernetes_means_a_cluster(value: t.Any, found: str | None) -> None:
    user_job = kubernetes_target.find_kubernetes_job({"job": value}, Surroundings(machines=True, cluster=False))
    assert (user_job and user_job.settings["image"]) == found


@pytest.mark.parametrize(
    "value", ["text", ["list"], {"template": "other"}, {"placement": {"backend": "kubernetes"}, "env": ["A=1"]}]
)
def test_what_is_no_job_is_named(value: t.Any) -> None:
    with pytest.raises(InputError, match=r"^job"):
        kubernetes_target.find_kubernetes_job({"job": value}, Surroundings(machines=False, cluster=True))


@pytest.mark.parametrize(("machines", "cluster"), [(True, False), (False, True), (True, True), (False, False)])
def test_a_job_without_a_backend_is_tested_where_it_will_run(machines: bool, cluster: bool) -> None:
    around = Surroundings(machines, cluster)
    value: dict[str, t.Any] = {"image": "x", "placement": {"namespace": "vision"}}
    found = kubernetes_target.find_kubernetes_job({"job": value}, around)
    assert (found is not None) == (choose_backend(True, around).backend == "kubernetes")


def test_the_state_of_a_pod_that_gathers_facts() -> None:
    ended = {"terminated": {"exitCode": 3}}
    pod = {"status": {"phase": "Failed", "containerStatuses": [{"name": "x", "state": ended}]}}
    assert kubernetes_target.FactsPod.from_object(pod) == kubernetes_target.FactsPod("Failed", 3, "")
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "manifest unknown"}}
    pod = {"metadata": {"name": "p"}, "status": {"phase": "Pending", "containerStatuses": [{"state": waiting}]}}
    state = kubernetes_target.FactsPod.from_object(pod)
    assert (state.phase, state.exit_code) == ("Pending", 1) and "manifest unknown" in state.problem


def test_a_cluster_without_a_node_for_the_job_says_what_keeps_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    target = object.__new__(kubernetes_target.KubernetesTarget)
    progress = types.SimpleNamespace(say=lambda _line: None)
    target._request = t.cast("t.Any", types.SimpleNamespace(check=False, options={}, progress=progress))
    value = {"image": "x", "gpus_per_node": 2, "gpu": {"model": "h100"}, "placement": {"backend": "kubernetes"}}
    user_job = kubernetes_target.find_kubernetes_job({"job": value}, Surroundings(machines=False, cluster=True))
    assert user_job is not None
    target._user_job, target.own_network, target._excluded = user_job, False, []
    target._job = parse_job(
        {
            "name": "x",
            "command": ["true"],
            "launcher": "command",
            "image": "x",
            "gpu": {"model": "h100"},
            "placement": {"backend": "kubernetes"},
        }
    )
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"nvidia.com/gpu": "2"}}
    nodes: t.Any = {"lab-1": {"metadata": {"name": "lab-1"}, "status": ready}}
    monkeypatch.setattr(target, "_list_nodes", lambda: nodes)
    with pytest.raises(RefusedError, match=r"no node of the cluster could be tested: lab-1 \(GPU unknown\)"):
        target.find_nodes()
