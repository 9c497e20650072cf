# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How much is listened to, and what is asked of a cluster about a run that ended."""

from __future__ import annotations

import time
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import watches
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes.watches import (
    ClusterWatches,
)

Dict = dict[str, t.Any]


@pytest.mark.parametrize(
    ("kind", "timeout_s", "condition", "late"),
    [
        ("JobSet", 5, ("Failed", "DeadlineExceeded"), True),
        ("TrainJob", 5, ("Failed", "DeadlineExceeded"), True),
        ("JobSet", 5, ("Failed", "BackoffLimitExceeded"), False),
        ("JobSet", 5, None, False),
        ("JobSet", None, ("Failed", "DeadlineExceeded"), False),
        ("MPIJob", 5, ("Failed", "DeadlineExceeded"), False),
    ],
)
def test_the_gangs_own_job_tells_whether_its_time_was_over(
    kind: str, timeout_s: int | None, condition: tuple[str, str] | None, late: bool
) -> None:
    asked: list[t.Any] = []

    def get(*about: t.Any) -> Dict | None:
        asked.append(about)
        said = [{"type": condition[0], "reason": condition[1], "status": "True"}] if condition else []
        return {"status": {"conditions": said}} if condition else None

    plan: t.Any = types.SimpleNamespace(name="r", namespace="n", job=types.SimpleNamespace(timeout_s=timeout_s))
    client: t.Any = types.SimpleNamespace(get=get)
    assert ClusterWatches(client, plan, {"kind": kind}).deadline_passed() is late
    assert asked in ([], [("batch/v1/Job", "r-node-0", "n")])


class _Stream(list[bytes]):
    """A log, or a watch, that is there from the beginning."""

    position = ("2026-11-21T10:00:00Z", 1)
    closed, is_whole = False, True

    def close(self) -> None:
        self.closed = True


def listening(lines: int, monkeypatch: pytest.MonkeyPatch) -> tuple[ClusterWatches, list[_Stream]]:
    """Sources with room for ten lines that nobody takes."""
    monkeypatch.setattr(watches, "_LINE_BUDGET", 10 * (1 + watches._LINE_COST))
    made: list[_Stream] = []

    def log(*_about: t.Any, **_more: t.Any) -> _Stream:
        made.append(_Stream([b"x"] * lines))
        return made[-1]

    plan: t.Any = types.SimpleNamespace(name="r", namespace="n", run_id="r", queue=None)
    client: t.Any = types.SimpleNamespace(stream_log=log, watch=lambda *_a, **_k: _Stream([b"news"]))
    sources = ClusterWatches(client, plan, {"metadata": {"name": "r"}})
    for uid in "abc":
        sources.follow_log({"metadata": {"name": uid, "namespace": "n", "uid": uid}}, None)
    return sources, made


def until(holds: t.Callable[[], bool]) -> None:
    """Wait for what another thread does at once."""
    for _ in range(1000):
        if holds():
            return
        time.sleep(0.005)
    raise AssertionError("it never did")


def test_logs_wait_for_room_and_watches_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    sources, _ = listening(1000, monkeypatch)
    until(lambda: sources.heard.qsize() == 10)
    sources.start()
    until(lambda: sources.heard.qsize() == 13)
    heard = [t.cast("tuple[str, t.Any]", sources.next_item(5.0))[0] for _ in range(13)]
    assert heard == ["line"] * 10 + ["main", "pod", "event"]
    # What is taken out makes room, until all has been told.
    rest = [t.cast("tuple[str, t.Any]", sources.next_item(5.0))[0] for _ in range(3000 - 10 + 3)]
    assert rest.count("line") == 2990 and rest.count("end") == 3
    until(lambda: not sources.is_reading())


def test_who_waits_for_room_ends_with_the_listening(monkeypatch: pytest.MonkeyPatch) -> None:
    sources, made = listening(1000, monkeypatch)
    until(lambda: sources.heard.qsize() == 10)
    sources.close()
    until(lambda: not sources.is_reading())
    assert all(stream.closed for stream in made) and sources.heard.qsize() <= 10
    assert sources.next_item(0.0) is not None
