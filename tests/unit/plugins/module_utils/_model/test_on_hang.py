# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What follows a hang, by who is waited for and for how long."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.hang import Hang, Standing
from ansible_collections.muster.training.plugins.module_utils._model.job import Restart, parse_job
from ansible_collections.muster.training.plugins.module_utils._model.on_hang import decide
from ansible_collections.muster.training.plugins.module_utils._model.stop_on import require_follower

T0 = 1000.0
RUNNING = {0: "a", 1: "b"}
WAITED_FOR = Hang((Standing(1, "b", T0),), T0, "rank 1 on b sleeps; rank 0 waits in backward", is_certain=True)
PAUSE = Hang((Standing(1, "b", T0),), T0, "rank 1 on b sleeps", is_certain=False)
NO_ONE = Hang((), T0, "ranks wait in different operations", is_certain=True)


@pytest.mark.parametrize(
    ("rule", "found", "after_s", "used", "killed_s", "action"),
    [
        ("report", WAITED_FOR, 1e4, 0, None, "none"),
        ("restart", None, 1e4, 0, None, "none"),
        ("restart", PAUSE, 1e4, 0, None, "none"),
        ("restart", WAITED_FOR, 59.0, 0, None, "none"),
        ("restart", WAITED_FOR, 60.0, 0, None, "kill"),
        ("restart", NO_ONE, 60.0, 0, None, "kill"),
        ("restart", WAITED_FOR, 60.0, 3, None, "end"),
        ("restart", WAITED_FOR, 100.0, 1, 60.0, "none"),
        ("restart", WAITED_FOR, 120.0, 1, 60.0, "end"),
        ("stop", WAITED_FOR, 59.0, 0, None, "none"),
        ("stop", WAITED_FOR, 60.0, 0, None, "end"),
    ],
)
def test_decision(
    rule: str, found: Hang | None, after_s: float, used: int, killed_s: float | None, action: str
) -> None:
    killed_at = None if killed_s is None else T0 + killed_s
    got = decide(Restart(on_hang=rule, max_crashes=3), found, RUNNING, T0 + after_s, used, killed_at)
    assert got.action == action
    if action != "none":
        assert (got.rank, got.node) == ((0, "a") if found is NO_ONE else (1, "b"))
        assert "hangs for" in got.detail


def test_the_end_says_which_limit_was_reached() -> None:
    def say(rule: str, used: int, killed_at: float | None) -> str:
        return decide(Restart(on_hang=rule, max_crashes=2), WAITED_FOR, RUNNING, T0 + 200, used, killed_at).detail

    assert say("stop", 0, None).endswith("(job.restart.on_hang: stop)")
    assert say("restart", 2, None).endswith("restart.max_crashes (2) is used up")
    assert say("restart", 0, T0 + 60).endswith("it was killed and did not end within 60 s")


@pytest.mark.parametrize("rule", ["restart", "stop"])
def test_what_has_no_follower_is_refused(rule: str) -> None:
    job = parse_job({"name": "x", "script": "/t.py", "restart": {"on_hang": rule}})
    with pytest.raises(InputError, match=r"job\.restart\.on_hang: requires wait: true"):
        require_follower(job, wait=False)
    require_follower(job, wait=True)


def test_a_program_that_is_started_once_is_not_restarted() -> None:
    values: dict[str, t.Any] = {"name": "x", "launcher": "command", "command": ["sleep", "9"]}
    parse_job({**values, "restart": {"on_hang": "stop"}})
    with pytest.raises(InputError, match=r"job\.restart\.on_hang: restart has no effect"):
        parse_job({**values, "restart": {"on_hang": "restart"}})
