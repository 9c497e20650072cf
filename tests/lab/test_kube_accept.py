# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The acceptance of a real cluster, with real torch in pods: scaling, two gangs, a member's rights, kill and resume."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab.kube import plan
from ansible_collections.muster.training.tests.lab.test_team import Office, ended, office
from ansible_collections.muster.training.tests.support.kube_lab import kube_lab, not_run

__all__ = ["kube_lab", "office"]

pytestmark = pytest.mark.torch


def test_a_cluster(office: Office) -> None:
    """Of two nodes, or four or eight (``python -m tools.lab up --nodes 4``).

    The quota holds one gang of as many pods. What the network should carry nobody has declared.
    """
    lab = office.lab
    size = 1 << (len(lab.nodes).bit_length() - 1)
    if not lab.torch:
        not_run("the cluster has no torch (MUSTER_TORCH_PYTHON)")
    ended(office.admin(team_pod_security="privileged", team_quota={"cpu": size, "memory": f"{2 * size}Gi"}))
    job: dict[str, t.Any] = {
        "image": lab.image,
        "placement": {"backend": "kubernetes", "namespace": office.name},
        "resources": {"cpu": 0.5, "memory": "2Gi"},
        "env": {"PYTHONPATH": lab.torch, "OMP_NUM_THREADS": "1"},
        "mounts": [
            {"name": "torch", "path": lab.torch, "host_path": lab.torch, "read_only": True},
            {"name": "checkpoints", "path": "/checkpoints", "host_path": plan.SHARED},
        ],
        "checkpoints": {"path": f"/checkpoints/{office.name}"},
    }
    values = {
        "muster_train_hosts": "localhost",
        "muster_accept_job": job,
        "muster_user_kubeconfig": str(office.kubeconfig),
        "fleet_acceptance_nodes": size,
        "fleet_acceptance_seconds": 1,
        "fleet_acceptance_tests": ["fabric", "scaling", "queue", "user", "resume"],
        # Pods on one machine share its processors: only that figures come is looked at.
        "fleet_acceptance_efficiency_fail": 0.0,
    }
    play = office.play("accept", "admin", lab.kubeconfig, values)
    try:
        output, _ = play.communicate(timeout=240 + 90 * size)
    finally:
        lab.unlabel()
    assert "Traceback" not in output, output
    value = json.loads((office.folder / "admin" / "default" / "accept.json").read_text())
    parts = {part["name"]: part for part in value["parts"]}
    (island,) = parts["fabric"]["islands"]
    assert (island["ranks"], island["wrong_values"]) == ({"expected": size, "seen": size, "missing": []}, 0), output
    assert island["transport"]["verdict"] == "tcp" and island["bandwidth"]["busbw_gb_s"] > 0
    assert [parts[name]["outcome"] for name in ("queue", "user", "resume")] == ["pass"] * 3, output
    counts = [1 << power for power in range(size.bit_length())]
    assert [(row["nodes"], row["ranks"]) for row in parts["scaling"]["points"]] == [
        (count, count) for count in counts
    ], output
    first, second = parts["queue"]["runs"]
    assert first["ended"] <= second["began"]
    assert parts["resume"]["drill"]["world_size"] == size
