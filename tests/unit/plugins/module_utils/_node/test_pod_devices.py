# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The devices that a pod was given, against those that its job asked for."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import pod_preflight
from ansible_collections.muster.training.tests.unit.plugins.module_utils._node.pod_lab import PodLab


@pytest.fixture
def lab(tmp_path: pathlib.Path) -> t.Iterator[PodLab]:
    found = PodLab(tmp_path)
    yield found
    found.close()


def test_rdma_that_was_asked_for_must_be_there() -> None:
    found = {"gpus": 0, "rdma": [], "memlock_bytes": 8 << 20}
    with pytest.raises(pod_preflight.PodRefusal, match="/dev/infiniband has no device"):
        pod_preflight.check_devices({"rdma": True}, found)
    told = pod_preflight.check_devices({"rdma": True}, {**found, "rdma": ["uverbs0"]})
    assert told == ["only 8 MiB of memory can be locked: RDMA needs LimitMEMLOCK=infinity"]


def test_gpus_that_were_asked_for_must_be_there_where_they_can_be_counted() -> None:
    found: dict[str, t.Any] = {"gpus": 0, "rdma": [], "memlock_bytes": None}
    with pytest.raises(pod_preflight.PodRefusal, match="has 4 GPUs, the job needs 8$"):
        pod_preflight.check_devices({"gpus": 8}, {**found, "gpus": 4})
    with pytest.raises(
        pod_preflight.PodRefusal, match="has 0 GPUs, the job needs 8; make nvidia the default container runtime"
    ):
        pod_preflight.check_devices({"gpus": 8}, found)
    assert pod_preflight.check_devices({"gpus": 0}, found) == []
    assert pod_preflight.check_devices({"gpus": 8}, {**found, "gpus": 8}) == []
    told = pod_preflight.check_devices({"gpus": 1}, {**found, "gpus": None})
    assert told == ["whether the pod has the 1 GPUs of the job cannot be told from /dev"]


@pytest.mark.parametrize(
    ("names", "count"),
    [
        (["null", "nvidiactl", "nvidia-uvm"], 0),
        (["nvidia0", "nvidia1", "nvidia10", "nvidiactl"], 3),
        (["null", "dxg"], None),
        (["nvhost-gpu", "nvmap"], None),
        (["nvidia0", "nvhost-gpu"], 1),
    ],
)
def test_gpus_are_counted_by_their_device_files(names: list[str], count: int | None) -> None:
    assert pod_preflight.count_gpus(names) == count


def test_a_pod_without_the_gpus_that_it_asked_for_starts_nothing(lab: PodLab) -> None:
    if pod_preflight.count_gpus(os.listdir("/dev")) != 0:
        pytest.skip("this machine has GPUs")
    end = lab.run(lab.spec(0, ["echo", "runs"], gpus=1))
    assert (end.code, end.lines) == (78, []) and "the pod has 0 GPUs, the job needs 1" in end.text
