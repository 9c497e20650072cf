# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked of a cluster about a run that ended; what is listened to is in test_cluster_follow.py."""

from __future__ import annotations

import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._run.cluster_sources import Sources

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
    assert Sources(client, plan, {"kind": kind}).deadline_passed() is late
    assert asked in ([], [("batch/v1/Job", "r-node-0", "n")])
