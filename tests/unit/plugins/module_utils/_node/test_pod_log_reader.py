# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Logs that earlier attempts kept are printed."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.tests.unit.plugins.module_utils._node.pod_lab import PodLab, recorded


@pytest.fixture
def lab(tmp_path: pathlib.Path) -> t.Iterator[PodLab]:
    found = PodLab(tmp_path)
    yield found
    found.close()


def test_what_an_attempt_kept_is_printed_by_another_pod(lab: PodLab, tmp_path: pathlib.Path) -> None:
    """Its own words and what it recorded, so that the story is whole without its container's log."""
    kept = str(tmp_path / "shared" / "logs")
    first = lab.run(lab.spec(0, recorded("sh", "-c", "echo hello; exit 3"), keep_logs=kept, attempt=2))
    end = lab.run(lab.spec(0, [], mode="kept", keep_logs=kept))
    assert (first.code, end.code, end.text.strip()) == (3, 0, "")
    assert [mark["data"] for mark in end.marks if mark["stream"] == "kept" and mark["attempt"] == 2] == ["hello"]
    assert [mark for mark in end.marks if mark["stream"] != "kept"] == first.marks
    assert lab.run(lab.spec(0, [], mode="kept", keep_logs=str(tmp_path / "none"))).code == 0


def logs(kept: pathlib.Path) -> str:
    """Return what the pods of a run kept of their logs."""
    return "".join(place.read_text() for place in sorted(kept.glob("logs/*/*.log")))
