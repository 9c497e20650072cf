# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The metrics of a run: what is unknown has none, and their number has a limit."""

from __future__ import annotations

import typing as t

from ansible_collections.muster.training.plugins.module_utils._model.run_history import RunHistory
from ansible_collections.muster.training.plugins.module_utils._model.run_record import RunRecord
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.monitoring.run_figures import (
    FIGURES,
    LISTED,
    LISTED_FIGURES,
    RankPaces,
    read_samples,
)

Dict = dict[str, t.Any]
T0 = 1_700_000_000.0
ABOUT: Dict = {"schema": 1, "run_id": "r-1", "job": {"name": "llm", "nodes": 2, "gpus_per_node": 4}, "state": "running",
               "submitted_at": "2026-01-01T00:00:00Z"}  # fmt: skip
SPENT = {"at": "2026-11-20T10:00:00+00:00", "seconds": {"useful": 30.0, "start": 10.0}}


def record(**values: t.Any) -> RunRecord:
    return RunRecord.from_dict({**ABOUT, **values})


def read(about: RunRecord, lines: t.Sequence[Dict] = (), now: float = T0 + 100) -> dict[str, float]:
    history, paces = RunHistory(), RankPaces()
    history.event({"at": T0, "kind": "worker_started", "rank": 0, "node": "a", "attempt": 1, "world_size": 2})
    for line in lines:
        if paces.take(line):
            history.metric(line)
    return {
        f"{sample.name.removeprefix('muster_run_')}{sample.labels.get('rank') or sample.labels.get('node') or ''}": sample.value
        for sample in read_samples(about, history, paces, now)
    }


def test_what_is_unknown_has_no_sample() -> None:
    found = read(record())
    assert found == {
        "active": 1.0,
        "nodes_asked": 2.0,
        "gpus_asked": 8.0,
        "step_age_seconds": 100.0,
        "stalled": 0.0,
        "info": 1.0,
    }
    assert "usd" not in found and "loss" not in found and "checkpoint_age_seconds" not in found


def test_a_run_that_trains() -> None:
    attempt = {"n": 2, "nodes": [{"id": "a", "price_usd_per_hour": 2.5}, {"id": "b", "price_usd_per_hour": 1.5}]}
    about = record(
        attempts=[attempt], restarts=1, world_size={"asked": 2, "seen": 2}, cost={"usd": 0.75}, account=SPENT
    )
    lines = [
        {"at": T0 + step * 2, "step": step, "rank": rank, "loss": 1 / step, "tokens_per_s": 100.0, "samples_per_s": 4}
        for step in range(1, 11)
        for rank in (0, 1)
    ]
    found = read(about, [*lines, {"at": T0 + 21, "checkpoint_step": 10, "path": "/c/10"}], T0 + 81)
    for name, value in {
        "attempt": 2.0, "restarts": 1.0, "nodes_seen": 2.0, "ranks_seen": 2.0, "usd": 0.75, "usd_per_hour": 4.0, "useful_ratio": 0.75,
        "step": 10.0, "loss": 0.1, "loss_is_nan": 0.0, "tokens_per_second": 100.0, "samples_per_second": 4.0,
        "step_seconds": 2.0, "step_age_seconds": 61.0, "checkpoint_step": 10.0, "checkpoint_age_seconds": 60.0,
        "rank_step_seconds0": 2.0, "rank_step_seconds1": 2.0, "nodea": 1.0, "nodeb": 1.0,
    }.items():  # fmt: skip
        assert found[name] == value, name


def test_a_run_that_stands_and_one_whose_loss_is_no_number() -> None:
    lines = [{"at": T0 + step, "step": step, "loss": float("nan") if step > 5 else 1.0} for step in range(1, 11)]
    assert read(record(), lines, T0 + 20)["stalled"] == 0.0
    found = read(record(), lines, T0 + 2000)
    assert found["stalled"] == 1.0 and found["loss_is_nan"] == 1.0
    ended = read(record(state="ended", outcome="failed"), lines, T0 + 2000)
    assert (ended["active"], ended["stalled"]) == (0.0, 0.0)


def test_a_straggler_is_named_by_its_own_reports() -> None:
    lines = [
        {"at": T0 + step * (3 if rank == 5 else 1), "step": step, "rank": rank} for rank in range(8) for step in (1, 2)
    ]
    found = read(record(), lines)
    assert (found["slowest_rank"], found["step_seconds_slowest"], found["step_seconds_median"]) == (5.0, 3.0, 1.0)


def test_a_rank_that_begins_anew_has_no_pace_of_before() -> None:
    paces = RankPaces()
    for at, step in ((1.0, 10), (2.0, 11), (60.0, 5)):
        paces.take({"at": at, "step": step, "rank": 0})
    assert paces.seconds == {}
    for line in (
        {"at": 61.0, "step": 6, "rank": 0},
        {"at": 61.0, "step": 7, "rank": 0},
        {"at": None, "step": 8, "rank": 0},
    ):
        paces.take(line)
    assert paces.seconds == {0: 1.0}


def test_prices_that_are_not_all_known_make_no_sum() -> None:
    nodes = [{"id": "a", "price_usd_per_hour": 2.5}, {"id": "b"}]
    assert "usd_per_hour" not in read(record(attempts=[{"n": 1, "nodes": nodes}]))


def test_the_number_of_series_has_a_limit() -> None:
    """A run of 4096 ranks on 512 nodes; 1,000 runs of 8 ranks have 32,000 series."""
    nodes = [{"id": f"n{number}", "price_usd_per_hour": 1} for number in range(512)]
    about = record(attempts=[{"n": 1, "nodes": nodes}], restarts=0, world_size={"asked": 4096, "seen": 4096},
                   cost={"usd": 1}, account=SPENT)  # fmt: skip
    lines = [
        {"at": T0 + step, "step": step, "rank": rank, "loss": 1, "tokens_per_s": 1, "samples_per_s": 1}
        for step in (1, 2)
        for rank in range(4096)
    ]
    found = read(about, [*lines, {"at": T0 + 3, "checkpoint_step": 2}])
    assert set(FIGURES) <= {*found} and all(any(item.startswith(name) for item in found) for name in LISTED_FIGURES)
    assert len(FIGURES) == 25
    listed = [name for name in found if name.startswith(("rank_step", "node"))]
    assert len(found) == 25 + 2 * LISTED and len(listed) == 2 * LISTED + 2
    small = record(attempts=[{"n": 1, "nodes": nodes[:1]}])
    assert 1000 * len(read(small, [line for line in lines if line["rank"] < 8])) <= 32_000
