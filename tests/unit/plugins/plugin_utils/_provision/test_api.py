# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real clock and threads: orders leave at the same time, waiting ends with the first answer. Measures time."""

from __future__ import annotations

import functools
import re
import threading
import time

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import TransportError
from ansible_collections.muster.training.plugins.module_utils._model.lease import Instance, OrderResult, ProviderTraits
from ansible_collections.muster.training.plugins.module_utils._model.offer import Candidate, Order
from ansible_collections.muster.training.plugins.plugin_utils._provision.api import (
    ThreadScheduler,
    await_answer,
    explain_failure,
)
from ansible_collections.muster.training.plugins.plugin_utils._provision.create import Terms, create_pool
from ansible_collections.muster.training.plugins.plugin_utils._provision.create_state import PoolRequest
from ansible_collections.muster.training.plugins.plugin_utils._provision.delete import delete_leases
from ansible_collections.muster.training.plugins.plugin_utils._provision.delete_state import DeleteRequest
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


def test_a_listing_that_never_ends_keeps_neither_the_deletion_nor_the_ledger() -> None:
    clock = VirtualClock(time.time())
    provider = SlowProvider(clock, offers=[h100()])
    hanging = threading.Event()
    provider.list_instances = lambda: hanging.wait() and ()  # type: ignore[method-assign,return-value]
    started = time.monotonic()
    with ThreadScheduler() as stage:
        request = DeleteRequest("lab", stage.now() + 0.5)
        proof = delete_leases(request, lambda _: True, {"lambda": provider}, LedgerSession([], Lines()), stage)
    assert time.monotonic() - started < 5.0
    assert not proof.clean and "no answer" in str(proof.billing)
    hanging.set()


def test_an_answer_is_awaited_until_its_time() -> None:
    with ThreadScheduler() as stage:
        hanging = threading.Event()
        with pytest.raises(TransportError, match="no complete answer in time"):
            await_answer(stage, stage.submit(hanging.wait), stage.now() + 0.1)
        hanging.set()
        assert await_answer(stage, stage.submit(lambda: 7), stage.now() + 10) == 7


def test_more_calls_than_threads_are_all_made() -> None:
    with ThreadScheduler(2) as stage:
        works = [stage.submit(functools.partial(lambda number: number, number)) for number in range(20)]
        assert [await_answer(stage, work, stage.now() + 10) for work in works] == list(range(20))


def test_a_failure_that_nobody_foresaw_is_one_line_without_its_values() -> None:
    def fail() -> None:
        raise KeyError("a secret key")

    with pytest.raises(KeyError) as caught:
        fail()
    assert re.fullmatch(r"the answer cannot be read \(KeyError at test_api\.py:\d+\)", explain_failure(caught.value))
    assert explain_failure(TransportError("GET /x: no answer", "Try later")) == "GET /x: no answer. Try later"


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
