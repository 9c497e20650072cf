# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When the pods of a gang ask for the first one; the meeting itself is in test_pod.py."""

from __future__ import annotations

import pathlib
import signal
import socket
import sys
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import (
    pod_discovery,
)
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


def test_the_others_find_the_first_node_whoever_comes_first(lab: PodLab) -> None:
    show = [sys.executable, "-c", "import os; print(os.environ['MASTER_ADDR'])"]
    second = lab.start(lab.spec(1, show, nodes=2), 1)
    time.sleep(0.5)
    assert second.poll() is None
    first = lab.start(lab.spec(0, ["sh", "-c", "sleep 3; echo $MASTER_ADDR"], nodes=2))
    # localhost stands for the first pod's name; the second one hears what it leads to.
    assert lab.end(second).lines == ["127.0.0.1"] and lab.end(first).lines == ["127.0.0.1"]


def test_a_pod_of_another_attempt_is_not_taken_for_the_first(lab: PodLab) -> None:
    lab.start(lab.spec(0, ["sleep", "60"], nodes=2))
    end = lab.run(lab.spec(1, ["true"], nodes=2, wait_s=1), 1, MUSTER_RESTARTS="1")
    assert end.code == 69
    assert "node 1 (n1): the gang could not form" in end.text and f"belongs to {lab.run_id} attempt 1" in end.text


@pytest.mark.parametrize(
    ("name", "problem"),
    [("no-such-name.invalid", "does not resolve"), ("localhost", "does not answer")],
)
def test_a_first_node_that_is_not_there_is_named(lab: PodLab, name: str, problem: str) -> None:
    end = lab.run(lab.spec(1, ["true"], nodes=2, coordinator=name, wait_s=1), 1)
    assert end.code == 69 and problem in end.text and "Traceback" not in end.text


def test_waiting_for_the_first_node_can_be_stopped(lab: PodLab) -> None:
    process = lab.start(lab.spec(1, ["true"], nodes=2, wait_s=60), 1)
    time.sleep(1)
    process.send_signal(signal.SIGTERM)
    assert lab.end(process, within_s=10).code == 143


def test_strangers_at_the_meeting_are_no_guests() -> None:
    meeting = pod_discovery.DiscoveryServer("127.0.0.1", 0, {"run_id": "x", "attempt": 1})
    try:
        run = {"run_id": "x", "attempt": 1}
        for bad in (b"", b"GET / HTTP/1.1\r\n\r\n", b"[]\n", b'{"run_id": "x", "attempt": 1}\n', b"\xff\n"):
            with socket.create_connection(("127.0.0.1", meeting.port)) as link:
                link.sendall(bad)
        found = pod_discovery.find_first_pod(
            "localhost", meeting.port, {"rank": 3, "node": "n3"}, run, time.monotonic() + 5, lambda _: True, print
        )
        assert found == "127.0.0.1" and meeting.seen == {3: "n3"}
    finally:
        meeting.close()
