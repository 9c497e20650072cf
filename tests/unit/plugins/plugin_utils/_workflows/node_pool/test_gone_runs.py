# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs of killed controllers whose machines are proved gone."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.ledger import Lease, LedgerEvent, fold_events
from ansible_collections.muster.training.plugins.module_utils._model.timestamps import format_time
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool.gone_runs import end_gone_runs
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job_info import read
from ansible_collections.muster.training.tests.support.recorded_runs import place

NAMES = ("lab-h100-0-0000000a", "lab-h100-1-0000000b")
LATER = 4e9


def events(*kinds: str) -> list[LedgerEvent]:
    """Return the events of the two machines; the last kind is that of their end."""
    own = {"schema": 1, "cluster": "lab", "resource": "instance", "provider": "lambda", "account": "a", "pool": "h100"}
    return [
        LedgerEvent.from_dict(
            {
                **own,
                "name": name,
                "token": name[-8:],
                "at": format_time(LATER + index),
                "event": kind,
                "id": f"i-{name}",
            }
        )
        for name, last in zip(NAMES, kinds, strict=True)
        for index, kind in enumerate(("joined", last))
    ]


def leases(*kinds: str) -> tuple[Lease, ...]:
    return tuple(fold_events(events(*kinds)).values())


@pytest.fixture
def home(tmp_path: pathlib.Path) -> StateHome:
    return StateHome({"path": str(tmp_path)}, "lab")


@pytest.mark.parametrize(
    ("kinds", "values", "is_over"),
    [
        (("verified", "verified"), {}, True),
        (("verified", "joined"), {}, False),
        (("verified", "deleted"), {}, False),
        (("verified", "verified"), {"hosts": [*NAMES, "own"]}, False),
        (("verified", "verified"), {"hosts": ["a", "b"], "leases": {"a": "0000000a", "b": "0000000b"}}, True),
        (("verified", "verified"), {"backend": "kubernetes"}, False),
        (("verified", "verified"), {"state": "ended", "outcome": "succeeded"}, False),
    ],
)
def test_a_run_is_over_where_all_its_machines_are_proved_gone(
    home: StateHome, kinds: tuple[str, ...], values: dict[str, t.Any], is_over: bool
) -> None:
    place(home, "r-1", 0, **{"state": "running", "hosts": list(NAMES), **values})
    assert list(end_gone_runs(home, leases(*kinds))) == (["r-1"] if is_over else [])


def test_status_says_what_is_known(home: StateHome) -> None:
    place(home, "r-1", 0, state="running", hosts=list(NAMES))
    (home.folder / "ledger.jsonl").write_text("".join(item.line() for item in events("verified", "verified")))
    with home.lock("r-1"):
        assert "running" in read.read_runs(home, None)["table"][1], "its follower is alive"
    before = {path: path.read_bytes() for path in home.folder.rglob("*") if path.is_file()}
    assert "running" in read.read_runs(home, None, is_check=True)["table"][1]
    assert {path: path.read_bytes() for path in home.folder.rglob("*") if path.is_file()} == before
    found = t.cast("dict[str, t.Any]", read.read_runs(home, None))
    (run,) = found["runs"]
    assert (run["state"], run["outcome"], run["cause"]) == ("ended", "lost", "node_lost")
    assert f"{', '.join(NAMES)} were terminated and are proved gone at 2096-" in run["detail"]
    assert "lost" in found["table"][1] and json.loads((home.run_folder("r-1") / "run.json").read_text())["ended_at"]
