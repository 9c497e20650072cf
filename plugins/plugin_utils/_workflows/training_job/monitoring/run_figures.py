# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The metrics of a run, from its record and its history. Their number has a limit, whatever the run's size."""

from __future__ import annotations

import statistics
import typing as t

from .....module_utils._model.account import useful_share
from .....module_utils._model.quantity import parse_finite
from .....module_utils._model.run_history import RunHistory
from .....module_utils._model.run_record import RunAttempt, RunRecord
from ...._services.monitoring.prometheus import Sample

# So many ranks and nodes have series of their own; the figures over all of them are of all.
LISTED: t.Final = 64
PREFIX: t.Final = "muster_run_"
# What follows it: one series of each a run, and those of ranks and nodes.
FIGURES: t.Final = (
    *(
        "active",
        "stalled",
        "attempt",
        "restarts",
        "nodes_asked",
        "nodes_seen",
        "ranks_asked",
        "ranks_seen",
        "info",
        "gpus_asked",
    ),
    *("step", "loss", "loss_is_nan", "tokens_per_second", "samples_per_second", "step_seconds", "step_age_seconds"),
    *("step_seconds_median", "step_seconds_slowest", "slowest_rank", "checkpoint_step", "checkpoint_age_seconds"),
    *("usd", "usd_per_hour", "useful_ratio"),
)
LISTED_FIGURES: t.Final = ("rank_step_seconds", "node")
Line = t.Mapping[str, t.Any]


class RankPaces:
    """The seconds that a step takes each rank, by the lines that it reports itself."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[float, int]] = {}
        self.seconds: dict[int, float] = {}

    def take(self, line: Line) -> bool:
        """Take in one line of metrics.jsonl; return whether it says more than that another rank made a step, too."""
        rank, step, at = line.get("rank"), line.get("step"), parse_finite(line.get("at"))
        if not isinstance(rank, int) or not isinstance(step, int) or at is None:
            return True
        self._note(rank, step, at)
        return rank == min(self._last) or "checkpoint_step" in line or "resumed_from_step" in line

    def _note(self, rank: int, step: int, at: float) -> None:
        before = self._last.get(rank)
        self._last[rank] = at, step
        if before is None or step < before[1]:
            # A new attempt.
            self.seconds.pop(rank, None)
        elif step > before[1] and at > before[0]:
            self.seconds[rank] = (at - before[0]) / (step - before[1])


def read_samples(
    record: RunRecord, history: RunHistory, paces: RankPaces, now: float, report: str = ""
) -> list[Sample]:
    """Return what is known of a run at a time (Unix seconds); what is unknown has no sample.

    :param report: the address of its report, empty where that is not served.
    """
    own = {"run": record.run_id, "name": str(record.job.get("name") or "")}
    figures: dict[str, float | None] = {
        "active": float(not record.is_ended),
        "attempt": _whole(record.attempts[-1].n if record.attempts else None),
        "restarts": _whole(record.restarts),
        "nodes_asked": _whole(record.job.get("nodes")),
        "gpus_asked": _count_gpus(record),
        "nodes_seen": _whole(len(record.attempts[-1].nodes) or None) if record.attempts else None,
        "ranks_asked": _whole(record.world_size.asked),
        "ranks_seen": _whole(record.world_size.seen),
        "usd": record.cost.usd,
        "useful_ratio": useful_share(record.account.seconds) if record.account else None,
        **_step_figures(history, now, record.is_ended),
        **_checkpoint_figures(history, now),
        **_pace_figures(paces),
    }
    samples = [Sample(f"{PREFIX}{key}", value, own) for key, value in figures.items() if value is not None]
    samples.append(Sample(f"{PREFIX}info", 1.0, {**own, **_words(record, report)}))
    listed = sorted(paces.seconds.items())[:LISTED]
    samples += [Sample(f"{PREFIX}rank_step_seconds", value, {**own, "rank": str(rank)}) for rank, value in listed]
    newest = record.attempts[-1] if record.attempts and not record.is_ended else None
    return samples + (_node_samples(own, newest) if newest else [])


def _words(record: RunRecord, report: str) -> dict[str, str]:
    """Return what is known of a run besides numbers; few values each."""
    lane = (record.fabric or {}).get("lane") or (record.derived or {}).get("lane")
    words = {
        "backend": record.backend,
        "engine": record.engine,
        "launcher": record.launcher,
        "user": record.submitted_by,
        "namespace": record.backend_ref.namespace if record.backend_ref else None,
        "lane": lane,
        "transport": record.transport_seen,
        "outcome": record.outcome,
        "report": report,
    }
    return {key: str(value) for key, value in words.items() if value}


def _step_figures(history: RunHistory, now: float, ended: bool) -> dict[str, float | None]:
    last, newest = history.last, history.attempts[-1] if history.attempts else None
    pace = history.pace_meter.read()
    since = None if newest is None else max(0.0, now - (newest.last_step_at or newest.started_at))
    return {
        "step": last.get("step"),
        "loss": last.get("loss"),
        "loss_is_nan": float(history.nan_since is not None) if "loss" in last or history.nan_since else None,
        "tokens_per_second": last.get("tokens_per_s"),
        "samples_per_second": last.get("samples_per_s"),
        "step_seconds": pace.step_s if pace else None,
        "step_age_seconds": since,
        "stalled": None if since is None else float(not ended and history.judge_movement(since) == "stalled"),
    }


def _checkpoint_figures(history: RunHistory, now: float) -> dict[str, float | None]:
    saved, at = history.checkpoint, history.checkpoint_at
    return {
        "checkpoint_step": _whole(saved[0]) if saved else None,
        "checkpoint_age_seconds": max(0.0, now - at) if saved and at is not None else None,
    }


def _pace_figures(paces: RankPaces) -> dict[str, float | None]:
    if not paces.seconds:
        return {}
    slowest = max(paces.seconds, key=lambda rank: paces.seconds[rank])
    return {
        "step_seconds_median": statistics.median(paces.seconds.values()),
        "step_seconds_slowest": paces.seconds[slowest],
        "slowest_rank": float(slowest),
    }


def _node_samples(own: t.Mapping[str, str], attempt: RunAttempt) -> list[Sample]:
    """Return the nodes of an attempt, by which metrics of machines are told to belong to the run, and their prices."""
    prices = [node.price_usd_per_hour for node in attempt.nodes]
    known = [price for price in prices if price is not None]
    samples = [Sample(f"{PREFIX}node", 1.0, {**own, "node": node.id}) for node in attempt.nodes[:LISTED]]
    if known and len(known) == len(prices):
        samples.append(Sample(f"{PREFIX}usd_per_hour", sum(known), own))
    return samples


def _count_gpus(record: RunRecord) -> float | None:
    nodes, gpus = parse_finite(record.job.get("nodes")), parse_finite(record.job.get("gpus_per_node"))
    return None if nodes is None or gpus is None else nodes * gpus


def _whole(value: t.Any) -> float | None:
    return parse_finite(value)
