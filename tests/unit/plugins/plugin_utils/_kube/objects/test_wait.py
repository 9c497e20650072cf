# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waits for objects continue through outages of the API server, in virtual time."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._http.messages import HttpResponse
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.wait import WaitTarget, wait
from ansible_collections.muster.training.tests.support.fake_clock import FakeClock
from ansible_collections.muster.training.tests.support.outage_server import FRONTS, Cluster

Object = dict[str, t.Any]


# A server that was away is up a moment before it serves.


@FRONTS
@pytest.mark.parametrize("seconds", [5, 60, 300])
def test_a_wait_outlives_an_outage(seconds: float, front: HttpResponse | None) -> None:
    cluster = Cluster(FakeClock(), seconds, front)
    client = cluster.client()
    outcome = wait(client, [WaitTarget(client.resource("ConfigMap"), "team", "late")], until="present", timeout_s=3600)
    assert outcome.end == "done" and outcome.outages == 1
    assert cluster.clock.now - cluster.end < 10, "seen soon after"
    assert 2 <= cluster.asked <= seconds / 2 + 10, "asked now and then"
