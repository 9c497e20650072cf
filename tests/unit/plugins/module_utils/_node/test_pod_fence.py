# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The single-writer guard: only the newest attempt of a run continues."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import (
    pod_fence,
)
from ansible_collections.muster.training.tests.support.node_lab import eventually
from ansible_collections.muster.training.tests.unit.plugins.module_utils._node.pod_lab import PodLab


@pytest.fixture
def lab(tmp_path: pathlib.Path) -> t.Iterator[PodLab]:
    found = PodLab(tmp_path)
    yield found
    found.close()


def started(lab: PodLab, rank: int = 0) -> None:
    eventually(lambda: (lab.run_dir(rank) / "up").exists(), "the program runs")


def test_an_attempt_that_was_given_up_ends_when_the_next_has_begun(lab: PodLab, tmp_path: pathlib.Path) -> None:
    """It does not save: the checkpoints are the next attempt's. A later submission counts anew and is newer."""
    kept = tmp_path / "shared" / ".muster" / "x-1"
    saves = "trap 'echo saved; exit 0' TERM; echo runs; while :; do sleep 0.1; done"
    old = lab.start(lab.spec(0, ["sh", "-c", saves], keep_logs=str(kept / "logs"), attempt=7, begun=100))
    eventually(lambda: (kept / "newest").is_file() and "runs" in logs(kept), "the first attempt")
    after = lab.run(lab.spec(0, ["true"], keep_logs=str(kept / "logs"), attempt=1, begun=200))
    assert after.code == 0, after.text
    end = lab.end(old)
    assert end.code == 143 and "saved" not in end.lines and "attempt 1 of the run has started" in end.text
    late = lab.run(lab.spec(0, ["echo", "runs"], keep_logs=str(kept / "logs"), attempt=8, begun=100))
    assert late.code == 69 and late.lines == []


def test_a_pod_that_a_new_machine_starts_again_does_not_join(lab: PodLab, tmp_path: pathlib.Path) -> None:
    """Its gang would wait for the ranks that are gone; another pod of the same attempt may start."""
    kept = str(tmp_path / "shared" / "logs")
    codes = [lab.run(lab.spec(0, ["echo", "runs"], keep_logs=kept), MUSTER_POD=pod).code for pod in ("a", "a", "b")]
    assert codes == [0, 69, 0]
    # An operator may make a pod of the same name again, which is another one: its uid tells.
    uids = [("c", "1"), ("c", "2"), ("c", "2")]
    ends = [lab.run(lab.spec(0, ["true"], keep_logs=kept), MUSTER_POD=pod, MUSTER_POD_UID=uid) for pod, uid in uids]
    assert [end.code for end in ends] == [0, 0, 69]


def test_a_torn_fence_is_none_and_one_that_cannot_be_written_is_told(tmp_path: pathlib.Path) -> None:
    for text in ("", "7", "7 x", "\xff\xff", "1 2 3"):
        (tmp_path / "newest").write_text(text, encoding="latin-1")
        assert pod_fence.read_newest(tmp_path / "newest") == (0, 0)
    (tmp_path / "file").write_text("")
    said: list[str] = []
    pod_fence.SingleWriterGuard(tmp_path / "file" / "newest", (1, 1), said.append)
    assert len(said) == 1 and "cannot be written" in said[0]


def logs(kept: pathlib.Path) -> str:
    """Return what the pods of a run kept of their logs."""
    return "".join(place.read_text() for place in sorted(kept.glob("logs/*/*.log")))
