# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys: an intent before each call, another token after a lost answer, a refusal ends it."""

from __future__ import annotations

import itertools
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import ProviderError
from ansible_collections.muster.training.plugins.module_utils._model.lease import (
    OrderAccepted,
    OrderRefused,
    OrderResult,
    OrderUnsettled,
)
from ansible_collections.muster.training.plugins.plugin_utils._provision.create_key import (
    ATTEMPTS,
    KeyRequest,
    create_key,
)
from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger.ledger_session import LedgerSession
from ansible_collections.muster.training.tests.fakes.pool_world import Lines
from ansible_collections.muster.training.tests.fakes.sim_provider import SimProvider
from ansible_collections.muster.training.tests.fakes.virtual import InlineScheduler, VirtualClock

REQUEST = KeyRequest("lab", "key", "auth_key")


def run(*answers: tuple[OrderResult, str | None]) -> tuple[Lines, list[str], t.Callable[[], str]]:
    clock, lines, names = VirtualClock(), Lines(), list[str]()
    tokens = (f"{number:08x}" for number in itertools.count(1))
    given = iter(answers)

    def create(name: str) -> tuple[OrderResult, str | None]:
        assert lines.events[-1].event == "intent" and lines.events[-1].name == name
        names.append(name)
        return next(given)

    session = LedgerSession((), lines)
    account = SimProvider(clock, "tailscale")
    return (
        lines,
        names,
        lambda: create_key(REQUEST, account, create, session, InlineScheduler(clock), lambda _taken: next(tokens)),
    )


def test_a_lost_answer_leads_to_another_token() -> None:
    lines, names, call = run((OrderUnsettled("reset"), None), (OrderAccepted("k2"), "secret"))
    assert call() == "secret"
    assert names == ["lab-key-0-00000001", "lab-key-0-00000002"]
    assert [(item.event, item.token[-1]) for item in lines.events] == [
        ("intent", "1"),
        ("intent", "2"),
        ("created", "2"),
    ]


def test_a_refusal_is_recorded_and_ends_it() -> None:
    lines, names, call = run((OrderRefused("rule", "no such tag"), None))
    with pytest.raises(ProviderError, match="tailscale refused: no such tag"):
        call()
    assert len(names) == 1 and (lines.events[-1].event, lines.events[-1].settled) == ("failed", True)


def test_three_answers_without_a_key_are_an_error() -> None:
    _lines, names, call = run(*[(OrderUnsettled("reset"), None)] * ATTEMPTS)
    with pytest.raises(ProviderError, match="no usable answer 3 times"):
        call()
    assert len(names) == ATTEMPTS
