# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The exit code of a pod, from those of its launcher and of its ranks."""

from __future__ import annotations

import time

import pytest

from ansible_collections.muster.training.plugins.module_utils._node.pod_exit import STOPPED, ExitCode


@pytest.mark.parametrize(
    ("failed", "launcher", "is_stopped", "code"),
    [
        ((), 0, False, 0),
        ((), 1, False, 1),
        ((3, 4), 1, False, 3),
        # The launcher has started the failed rank again.
        ((3,), 0, False, 0),
        ((), 0, True, STOPPED),
        ((3,), 1, True, 3),
        ((3, 42), 1, False, 42),
        ((3, 42), 1, True, 42),
    ],
)
def test_the_first_failed_rank_decides_but_for_a_fatal_one(
    monkeypatch: pytest.MonkeyPatch, failed: tuple[int, ...], launcher: int, is_stopped: bool, code: int
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    ends = ExitCode([42], 2)
    assert [ends.add_failure(item) for item in failed] == [item == 42 for item in failed]
    assert ends.choose(launcher, is_stopped=is_stopped) == code
    # A node that failed because of another one exits after it.
    assert bool(waits) is (code not in (0, 42) and not is_stopped)


def test_nothing_is_waited_for_where_no_code_is_fatal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", pytest.fail)
    assert ExitCode([], 2).choose(1, is_stopped=False) == ExitCode([42], 1).choose(1, is_stopped=False) == 1
