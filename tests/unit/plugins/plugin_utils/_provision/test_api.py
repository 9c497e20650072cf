# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real clock and threads: orders leave at the same time, waiting ends with the first answer. Measures time."""

from __future__ import annotations

import threading
import time

from ansible_collections.muster.training.plugins.module_utils._model.lease import Instance, OrderResult, ProviderTraits
from ansible_collections.muster.training.plugins.module_utils._model.offer import Candidate, Order
from ansible_collections.muster.training.plugins.plugin_utils._provision.api import ThreadScheduler
from ansible_collections.muster.training.plugins.plugin_utils._provision.create import Terms, create_pool
from ansible_collections.muster.training.plugins.plugin_utils._provision.create_state import PoolRequest
from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger.ledger_session import LedgerSession
from ansible_collections.muster.training.tests.fakes.pool_world import Lines
from ansible_collections.muster.training.tests.fakes.sim_provider import SimProvider, h100
from ansible_collections.muster.training.tests.fakes.virtual import VirtualClock

NODES, BOOT_S, CALL_S = 16, 1.0, 0.2
left_at: list[float] = []


class SlowProvider(SimProvider):
    """Every call takes a moment, as over a network; time is real."""

    lock = threading.Lock()

    def create(self, order: Order) -> OrderResult:
        left_at.append(time.monotonic())
        time.sleep(CALL_S)
        with self.lock:
            self.clock._now = time.time()
            return super().create(order)

    def list_instances(self) -> tuple[Instance, ...]:
        self.clock._now = time.time()
        return super().list_instances()


def test_a_gang_is_ordered_at_once_and_costs_one_boot() -> None:
    clock = VirtualClock(time.time())
    traits = ProviderTraits(poll_interval_s=0.05)
    provider = SlowProvider(clock, offers=[h100()], boot_s=BOOT_S, traits=traits)
    request = PoolRequest("lab", "h100", NODES, (Candidate(provider="lambda"),), time.time() + 60, gate=False)
    lines = Lines()
    started = time.monotonic()
    with ThreadScheduler() as stage:
        outcome = create_pool(
            request, {"lambda": provider}, LedgerSession([], lines), stage, prober=None, terms=Terms()
        )
    wall = time.monotonic() - started
    assert outcome.failure == "" and len(provider.machines) == NODES
    assert len(left_at) == NODES and max(left_at) - min(left_at) < 1.0
    # One after the other, the calls alone would take 3.2 s.
    assert wall < NODES * CALL_S


def test_waiting_ends_with_the_first_answer_or_in_time() -> None:
    with ThreadScheduler(2) as stage:
        before = stage.now()
        slow, fast = stage.submit(lambda: time.sleep(0.4)), stage.submit(lambda: "done")
        stage.wait([slow, fast], before + 10)
        assert fast.result() == "done" and stage.now() - before < 0.3
        stage.wait([], stage.now() + 0.05)
        stage.wait([slow], stage.now() - 5)
        assert not slow.done()
        stage.wait([slow], stage.now() + 10)
        assert slow.done()


def test_the_clock_is_the_time_of_day_and_never_goes_back() -> None:
    with ThreadScheduler(1) as stage:
        moments = [stage.now() for _attempt in range(100)]
    assert moments == sorted(moments)
    assert abs(moments[0] - time.time()) < 5
