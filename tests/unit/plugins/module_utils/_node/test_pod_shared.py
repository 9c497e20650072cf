# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods that must see one checkpoint folder before their programs start: real pods as processes, each attempt anew."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import pod_shared, shared_folder
from ansible_collections.muster.training.tests.unit.plugins.module_utils._node.pod_lab import PodLab


@pytest.fixture
def lab(tmp_path: pathlib.Path) -> t.Iterator[PodLab]:
    found = PodLab(tmp_path)
    yield found
    found.close()


@pytest.mark.parametrize("policy", ["whole", "torchrun"])
def test_pods_that_see_one_folder_start_and_leave_nothing_in_it(
    lab: PodLab, tmp_path: pathlib.Path, policy: str
) -> None:
    spec: dict[str, t.Any] = {"nodes": 2, "shared_wait_s": 10.0, "policy": policy}
    first = lab.start(lab.spec(0, ["echo", "ran"], **spec))
    second = lab.run(lab.spec(1, ["echo", "ran"], **spec), 1)
    assert (second.code, second.lines) == (0, ["ran"]), second.text
    end = lab.end(first)
    assert (end.code, end.lines) == (0, ["ran"]), end.text
    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_a_pod_with_a_folder_of_its_own_refuses_and_no_program_begins(lab: PodLab, tmp_path: pathlib.Path) -> None:
    spec: dict[str, t.Any] = {"nodes": 2, "shared_wait_s": 0.5, "wait_s": 4}
    first = lab.start(lab.spec(0, ["echo", "ran"], **spec))
    second = lab.run(lab.spec(1, ["echo", "ran"], **spec, checkpoint_dir=str(tmp_path / "own")), 1)
    assert second.code == 78 and second.lines == [], second.text
    (event,) = second.events("pod_refused")
    assert f"does not see in {tmp_path / 'own'} what n0 wrote there" in event["detail"]
    for way in ("Mount one shared file system", "checkpoints.path", "checkpoints.shared: false"):
        assert way in event["detail"]
    end = lab.end(first)
    assert end.code == 69 and end.lines == [] and "1 of 1 other nodes did not connect" in end.text
    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_a_part_per_node_is_not_tested(lab: PodLab, tmp_path: pathlib.Path) -> None:
    first = lab.start(lab.spec(0, ["echo", "ran"], nodes=2))
    second = lab.run(lab.spec(1, ["echo", "ran"], nodes=2, checkpoint_dir=str(tmp_path / "own")), 1)
    assert (second.code, lab.end(first).code) == (0, 0)


def test_a_pod_that_comes_late_finds_the_file_again(tmp_path: pathlib.Path) -> None:
    proof = pod_shared.begin_proof({"shared_wait_s": 5.0, "checkpoint_dir": str(tmp_path), "nodes": 3})
    assert proof is not None and pod_shared.begin_proof({"shared_wait_s": None}) is None
    for rank in (1, 2):
        assert proof.answer(rank, "ask")["proof"] == proof.proof
    proof.answer(1, "seen")
    assert not proof.is_complete and len(list(tmp_path.iterdir())) == 1
    proof.answer(2, "seen")
    assert proof.is_complete and list(tmp_path.iterdir()) == []
    # A replaced pod of an elastic gang.
    answer = proof.answer(2, "ask")
    assert shared_folder.find_problem(tmp_path, answer["proof"], "n0", 0) == ""
    proof.answer(2, "seen")
    assert list(tmp_path.iterdir()) == []
