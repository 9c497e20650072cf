# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The probe of a pod network whose policies do not hold yet, or never will."""

from __future__ import annotations

import socket
import threading

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import pod_network_test
from ansible_collections.muster.training.tests.support.kube_api import free_port

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
