# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which volume claims all pods of a job can use."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.kinds import KubeObject
from ansible_collections.muster.training.plugins.plugin_utils._kube.placement.volume_claims import check_volumes
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._kube.jobs.plans import CLAIM, plan


def claim(*modes: str, **changes: t.Any) -> dict[str, KubeObject]:
    return {
        "claim": {
            "metadata": {"name": "claim", **changes},
            "spec": {"accessModes": list(modes)},
            "status": {"phase": "Bound"},
        }
    }


@pytest.mark.parametrize(
    ("live", "mount", "nodes", "problem"),
    [
        ({}, CLAIM, 2, "PersistentVolumeClaim claim does not exist"),
        (
            claim("ReadWriteOnce"),
            CLAIM,
            2,
            "allows ReadWriteOnce, but 2 pods, possibly on several nodes, would mount it",
        ),
        (claim("ReadWriteOncePod"), CLAIM, 2, "allows ReadWriteOncePod"),
        (claim("ReadOnlyMany"), CLAIM, 2, "allows ReadOnlyMany"),
        (claim("ReadOnlyMany"), CLAIM, 1, "is read-only. Set read_only"),
        (claim("ReadWriteMany", deletionTimestamp="2026-11-21T00:00:00Z"), CLAIM, 2, "is being deleted or has lost"),
        (claim("ReadWriteMany"), CLAIM, 2, None),
        (claim("ReadWriteOnce"), CLAIM, 1, None),
        (claim("ReadOnlyMany"), {**CLAIM, "read_only": True}, 2, None),
    ],
)
def test_a_claim_that_several_nodes_cannot_use_is_refused(
    live: dict[str, KubeObject], mount: dict[str, t.Any], nodes: int, problem: str | None
) -> None:
    job = plan(nodes=nodes, mounts=[mount]).job
    if problem is None:
        check_volumes(job, live, "team")
        return
    with pytest.raises(RefusedError, match=problem):
        check_volumes(job, live, "team")


@pytest.mark.parametrize(
    ("phase", "wanted", "classes", "problem"),
    [
        ("Pending", "fast", ("slow", "local"), r"its StorageClass fast does not exist \(the cluster has local, slow\)"),
        ("Pending", "fast", (), r"its StorageClass fast does not exist \(the cluster has none\)"),
        ("Pending", "fast", ("fast",), None),
        ("Pending", "fast", None, None),
        ("Pending", "", (), None),
        # A volume that somebody made by hand needs no class of that name.
        ("Bound", "fast", (), None),
    ],
)
def test_a_claim_whose_class_is_not_there_will_get_no_volume(
    phase: str, wanted: str, classes: tuple[str, ...] | None, problem: str | None
) -> None:
    live = claim("ReadWriteMany")
    live["claim"]["spec"]["storageClassName"] = wanted
    live["claim"]["status"]["phase"] = phase
    job = plan(nodes=2, mounts=[CLAIM]).job
    if problem is None:
        check_volumes(job, live, "team", classes)
        return
    with pytest.raises(RefusedError, match=problem):
        check_volumes(job, live, "team", classes)


def test_the_pod_beside_the_ranks_mounts_a_claim_too() -> None:
    """With one worker both may lie on the node to which the volume belongs; with two they cannot."""
    check_volumes(plan(nodes=1, mounts=[CLAIM], launcher="mpi").job, claim("ReadWriteOnce"), "team")
    with pytest.raises(
        RefusedError, match="allows ReadWriteOnce, but 3 pods, possibly on several nodes, would mount it"
    ):
        check_volumes(plan(nodes=2, mounts=[CLAIM], launcher="mpi").job, claim("ReadWriteOnce"), "team")
