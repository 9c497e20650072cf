# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Times that a cluster wrote, by this controller's clock."""

from __future__ import annotations

import time

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.run_history import RunHistory
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes.timestamps import (
    admission_time,
    cluster_date,
    cluster_time,
    local_time,
)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_000_000.0)


def stamp(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def test_what_is_recent_or_has_no_time_is_now() -> None:
    for text in (stamp(999_990), stamp(1_000_500), "", None, "soon"):
        assert local_time(text, None) == 1_000_000.0


def test_what_is_recent_is_dated_where_the_clocks_can_be_compared() -> None:
    assert local_time(stamp(999_978), 1_000_000.0) == 999_978.0, "a run that ended before it was followed again"
    assert local_time(stamp(1_000_500), 1_000_000.0) == 1_000_000.0, "nothing is later than now"


def test_what_is_older_is_dated_by_the_difference_of_the_clocks() -> None:
    assert local_time(stamp(999_000), None) == 999_000.0
    assert local_time(stamp(999_000), 1_000_100.0) == 998_900.0, "the server's clock is ahead"


def test_a_run_has_its_place_since_it_was_admitted_or_came_back() -> None:
    story = RunHistory()
    assert admission_time(story, 100.0) == 100.0
    story.event({"kind": "set_back", "cause": "preempted", "at": 200.0})
    assert admission_time(story, 100.0) is None, "it waits"
    story.event({"kind": "worker_started", "attempt": 1, "rank": 0, "node": "a", "at": 300.0, "gang": "1/b"})
    assert admission_time(story, 100.0) == 300.0


def test_what_is_compared_with_the_ranks_events_is_of_the_clusters_clock() -> None:
    """The controller's may be hours off, and its difference unknown; the nodes date what their ranks do."""
    assert cluster_time(1_000_000.0, 992_800.0) == 992_800.0
    assert cluster_time(1_000_000.0, 999_999.0) == cluster_time(1_000_000.0, None) == 1_000_000.0
    for server in (992_800.0, None):
        assert cluster_date(stamp(992_000), 1_000_000.0, server) == 992_000.999
    assert cluster_date(None, 1_000_000.0, 992_800.0) == 992_800.0
