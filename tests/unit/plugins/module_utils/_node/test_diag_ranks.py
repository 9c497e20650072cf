# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node's look at a running job: /proc of this very process, a RAS that answers, and texts of any kind."""

from __future__ import annotations

import os
import pathlib

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import diag_ranks


def test_a_run_of_which_nothing_is_there(tmp_path: pathlib.Path) -> None:
    found = diag_ranks.examine(tmp_path / "runs" / "none", {"window_s": 0})
    assert found["ranks"] == [] and found["units"] == {} and found["ras"] is None and found["disk"] is None


@pytest.mark.parametrize("line", [b"\xff\xfe", b"[]", b"1", b'{"kind": "worker_started", "rank": "x"}', b'{"rank": 1}'])
def test_damaged_events_are_passed_over(tmp_path: pathlib.Path, line: bytes) -> None:
    (tmp_path / "events.jsonl").write_bytes(line + b"\n")
    assert diag_ranks.examine(tmp_path, {"window_s": 0})["ranks"] == []


def test_a_number_that_another_process_got_is_no_rank(tmp_path: pathlib.Path) -> None:
    event = f'{{"kind": "worker_started", "rank": 0, "pid": {os.getpid()}, "at": 1.0}}\n'
    (tmp_path / "events.jsonl").write_text(event)
    (tmp_path / "units" / "agent").mkdir(parents=True)
    (tmp_path / "units" / "agent" / "spec.json").write_text('{"marker": "somebody else"}')
    assert [item["alive"] for item in diag_ranks.examine(tmp_path, {"window_s": 0})["ranks"]] == [False]


def test_values_of_variables_stay_on_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    assert diag_ranks._is_shown("NCCL_SOCKET_IFNAME") and diag_ranks._is_shown("RANK")
    for name in ("AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "WANDB_API_KEY", "MLFLOW_TRACKING_URI", "SSH_KEY", "PATH"):
        assert not diag_ranks._is_shown(name)
    found = diag_ranks._describe_process(os.getpid())
    assert found["state"] == "R" and found["threads"] >= 1 and found["limits"]["nofile"]
    assert "PATH" in found["environment"]["names"] and "PATH" not in found["environment"]["network"]


@pytest.mark.parametrize(
    ("visible", "ranks", "indices"),
    [
        (None, [(0, True), (1, True), (2, False)], [0, 1]),
        ("2,3", [(0, True), (1, True)], [2, 3]),
        # Each rank has one, as some launchers give it.
        ("3", [(2, True)], [3]),
        ("GPU-12ab", [(0, True)], [0, 1, 2, 3]),
        ("", [(0, True)], [0, 1, 2, 3]),
    ],
)
def test_the_gpus_are_those_of_the_ranks_that_run(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, ranks: list[tuple[int, bool]], indices: list[int]
) -> None:
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    monkeypatch.setattr(diag_ranks.processes, "environment_of", lambda _pid: environment)
    monkeypatch.setattr(diag_ranks.usage, "query_gpus", lambda _tool: [{"index": float(n)} for n in range(4)])
    found = diag_ranks._read_gpus([{"local_rank": local, "alive": alive, "pid": 1} for local, alive in ranks])
    assert [gpu["index"] for gpu in found] == indices
