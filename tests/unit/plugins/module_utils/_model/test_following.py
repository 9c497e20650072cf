# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was not read of a run, because it was not followed or another controller followed it, is said to be unknown."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._model.run_history import RunHistory


def test_what_a_run_did_under_another_controller_is_not_known() -> None:
    history = RunHistory()
    history.event({"kind": "submitted", "at": 10.0, "attempt": 1})
    history.event({"kind": "taken_over", "at": 20.0, "detail": "her (ab)"})
    assert history.following.describe_unread(history.attempts) == ""
    history.event({"kind": "worker_started", "at": 90.0, "attempt": 2, "rank": 0, "node": "a"})
    history.metric({"at": 91.0, "step": 81})
    assert history.losses() == (None, None)
    assert history.following.describe_unread(history.attempts).startswith("her (ab) followed it in between")


def test_an_attempt_that_ended_while_it_was_followed_is_read() -> None:
    history = RunHistory()
    for attempt, at in ((1, 10.0), (2, 50.0)):
        history.event({"kind": "worker_started", "at": at, "attempt": attempt, "rank": 0, "node": "a"})
        history.metric({"at": at + 1, "step": 5 + attempt})
    assert history.following.unread_attempts(history.attempts) == [] and history.losses()[0] is not None
    history.event({"kind": "followed", "at": 40.0})
    assert history.following.unread_attempts(history.attempts) == [], "the next attempt began later"
    history.event({"kind": "followed", "at": 60.0})
    assert history.following.unread_attempts(history.attempts) == [1] and history.losses()[0] is None
