# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When the pods of a gang ask for the first one; the meeting itself is in test_pod.py."""

from __future__ import annotations

import pathlib
import socket
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import pod_discovery
from ansible_collections.muster.training.tests.unit.plugins.module_utils._node.pod_lab import PodLab


@pytest.fixture
def lab(tmp_path: pathlib.Path) -> t.Iterator[PodLab]:
    found = PodLab(tmp_path)
    yield found
    found.close()


def test_a_name_is_not_asked_for_before_it_can_be_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster's resolver keeps the answer that there is none for seconds."""
    asked: list[float] = []
    paused: list[float] = []

    def resolve(_name: str) -> str:
        asked.append(sum(paused))
        raise socket.gaierror(-2, "unknown")

    def pause(seconds: float) -> bool:
        paused.append(seconds)
        return len(paused) < 3

    monkeypatch.setattr(pod_discovery, "resolve_name", resolve)
    began = time.monotonic()
    with pytest.raises(TimeoutError, match="stopped while waiting"):
        pod_discovery.find_first_pod("node-0.x", 1, {}, {}, began + 60, pause, print, began)
    assert len(asked) == 2 and 0.8 < asked[0] <= pod_discovery.SETTLE_S
    del asked[:], paused[:]
    with pytest.raises(TimeoutError):
        pod_discovery.find_first_pod("node-0.x", 1, {}, {}, began + 60, pause, print, began - 2)
    assert asked[0] == 0.0, "a pod that took its time asks at once"
    with pytest.raises(TimeoutError, match="stopped while waiting"):
        pod_discovery.find_first_pod("node-0.x", 1, {}, {}, began + 60, lambda _seconds: False, print, time.monotonic())
    assert len(asked) == 3


def test_a_pod_that_looks_for_the_first_one_takes_its_time(lab: PodLab) -> None:
    meeting = pod_discovery.DiscoveryServer("127.0.0.1", lab.port + 1, {"run_id": lab.run_id, "attempt": 1})
    try:
        began = time.time()
        end = lab.run(lab.spec(1, ["true"], nodes=2), 1)
    finally:
        meeting.close()
    assert end.code == 0 and end.events("agent_started")[0]["at"] - began >= pod_discovery.SETTLE_S
