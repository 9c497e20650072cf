# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The probe of a pod network whose policies do not hold yet, or never will."""

from __future__ import annotations

import pathlib
import socket
import threading
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import (
    pod_network_test,
)
from ansible_collections.muster.training.tests.support.kube_api import free_port
from ansible_collections.muster.training.tests.unit.plugins.module_utils._node.pod_lab import PodLab

ME = {"rank": 0, "node": "a"}


def other(port: int) -> dict[str, object]:
    return {"rank": 1, "node": "b", "address": "127.0.0.1", "port": port}


def test_a_pod_that_is_let_through_a_moment_later_is_reached() -> None:
    port = free_port()
    listening = threading.Event()

    def listen() -> None:
        listener = socket.create_server(("127.0.0.1", port))
        listening.set()
        pod_network_test._serve_rank(listener, 1)

    timer = threading.Timer(0.6, listen)
    timer.daemon = True
    timer.start()
    assert pod_network_test._find_unreachable(ME, [other(port)]) == []
    assert listening.is_set()


def test_what_stays_shut_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_network_test, "_PATIENCE_S", 0.6)
    port = free_port()
    assert pod_network_test._find_unreachable(ME, [other(port)]) == [
        f"node rank 0 (a) → 1 (b) at 127.0.0.1:{port}: Connection refused"
    ]
    assert pod_network_test._find_unreachable(ME, []) == []


@pytest.fixture
def lab(tmp_path: pathlib.Path) -> t.Iterator[PodLab]:
    found = PodLab(tmp_path)
    yield found
    found.close()


def test_a_probe_proves_that_all_pods_reach_each_other(lab: PodLab) -> None:
    running = [lab.start(lab.spec(rank, [], mode="probe", nodes=3), rank) for rank in (2, 1, 0)]
    ends = [lab.end(process) for process in running]
    assert [end.code for end in ends] == [0, 0, 0]
    marks = [mark["data"] for mark in ends[2].marks]
    assert [item["tried"] for item in marks[:-1]] == [2, 2, 2]
    assert marks[-1] == {"verdict": True, "ok": True, "nodes": 3, "problems": []}


def test_a_probe_names_who_is_missing(lab: PodLab) -> None:
    running = [lab.start(lab.spec(rank, [], mode="probe", nodes=3, wait_s=2), rank) for rank in (1, 0)]
    ends = [lab.end(process) for process in running]
    assert ends[1].code == 69
    assert "muster: node rank 2 did not connect within 2 s" in ends[1].text
    alone = lab.run(lab.spec(1, [], mode="probe", nodes=2, wait_s=1, coordinator="no-such-name.invalid"), 1)
    assert alone.code == 69 and "no-such-name.invalid" in alone.text and "Traceback" not in alone.text
