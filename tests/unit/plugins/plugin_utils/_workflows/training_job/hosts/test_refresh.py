# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of a run that nobody follows, brought up to date; tests/e2e/test_unfollowed_runs.py does it with hosts."""

from __future__ import annotations

import dataclasses
import datetime
import json
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job, to_yaml_names
from ansible_collections.muster.training.plugins.module_utils._model.run_history import RunHistory, fold
from ansible_collections.muster.training.plugins.module_utils._model.run_record import RunRecord
from ansible_collections.muster.training.plugins.module_utils._node import files
from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import NodeClient
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import run_record
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.hosts.refresh import (
    refresh_record,
    wait_for_follower,
)
from ansible_collections.muster.training.tests.support.run_world import Said

T0 = 1_700_000_000.0


class Silent:
    """A progress that shows nothing."""

    def say(self, line: str) -> None:
        del line

    def show(self, values: t.Mapping[str, t.Any]) -> None:
        del values


class Node(NodeClient):
    """A host whose agent ended, or has not, and that says so once."""

    def __init__(self, name: str, rank: int, code: int | None, generation: int = 1, holder: str = "") -> None:
        self.holder = {"owner": holder, "controller": f"{holder}@here"} if holder else {}
        super().__init__(name, lambda command, data: (0, "", ""))
        common = {"node": name, "rank": rank, "attempt": 1, "world_size": 2}
        self.events = [{"kind": "worker_started", "at": T0 + 1, **common}]
        ending = None
        if code is not None:
            self.events.append({"kind": "worker_exit", "at": T0 + 9, "exit_code": code, **common})
            ending = {"at": T0 + 10 + rank, "exit_code": code, "cause": "crash" if code else "succeeded"}
        self.units = {"agent": {"alive": ending is None, "exit": ending, "generation": generation}}
        self.stops = 0

    def call(self, op: str, **values: t.Any) -> dict[str, t.Any]:
        if op == "stop":
            self.stops += 1
            return {"stopped": False}
        if op == "read":
            return {"files": []}
        text = "" if values["offsets"] else "".join(json.dumps(line) + "\n" for line in self.events)
        answer = {"text": {"events": text} if text else {}, "offsets": {"events": 1}, "units": self.units}
        return {**answer, "digest": "d", "holder": self.holder}


@pytest.fixture
def home(tmp_path: pathlib.Path) -> StateHome:
    return StateHome({"path": str(tmp_path)}, "lab")


def recorded(home: StateHome) -> RunRecord:
    job = to_yaml_names(parse_job({"name": "x", "nodes": 2, "script": "/t.py"}))
    record = run_record.new_record("x-1", job, T0, hosts=("a", "b"), generation=1)
    run_record.write_record(files.private_dir(home.run_folder("x-1")), record)
    return record


@pytest.mark.parametrize(
    ("codes", "outcome", "exit_code"), [((0, 0), "succeeded", 0), ((0, 3), "failed", 3), ((0, None), None, None)]
)
def test_a_run_ends_when_all_its_hosts_say_so(
    home: StateHome, codes: tuple[int | None, ...], outcome: str | None, exit_code: int | None
) -> None:
    nodes = [Node(name, rank, code) for rank, (name, code) in enumerate(zip("ab", codes, strict=True))]
    found = refresh_record(home, recorded(home), nodes, {"a": {}, "b": {}}, Silent())
    assert (found.outcome, found.exit_code) == (outcome, exit_code)
    assert found.is_ended is (outcome is not None) and found.world_size.seen == 2
    assert found.ended_at == (run_record.format_time(T0 + 11) if outcome else None)
    assert [node.stops for node in nodes] == [int(found.is_ended)] * 2
    again = refresh_record(home, found, nodes, {}, Silent())
    kinds = [json.loads(line)["kind"] for line in (home.run_folder("x-1") / "events.jsonl").read_text().splitlines()]
    assert again == found or not found.is_ended
    assert kinds.count("worker_started") == 2 and kinds.count("ended") == int(found.is_ended)


def test_the_end_of_some_hosts_or_of_an_earlier_start_is_not_the_run_s(home: StateHome) -> None:
    record = recorded(home)
    assert not refresh_record(home, record, [Node("a", 0, 0)], {}, Silent()).is_ended
    old = [Node("a", 0, 0, generation=0), Node("b", 1, 0, generation=0)]
    assert not refresh_record(home, record, old, {}, Silent()).is_ended


def test_a_run_that_is_followed_is_left_to_its_follower(home: StateHome) -> None:
    record = recorded(home)
    nodes = [Node("a", 0, 0), Node("b", 1, 0)]
    with home.lock("x-1"):
        assert refresh_record(home, record, nodes, {}, Silent()) == record
        assert wait_for_follower(home, record, 0.2) == record
    assert wait_for_follower(home, record, 30.0) == record, "nobody follows it"


def test_a_run_of_another_version_is_left_as_it_is_recorded(home: StateHome) -> None:
    """Its job has an option that this version does not know: it can be listed and cancelled all the same."""
    record = recorded(home)
    later = dataclasses.replace(record, job={**record.job, "placement": {**record.job["placement"], "orbit": "low"}})
    run_record.write_record(home.run_folder("x-1"), later)
    said = Said()
    nodes = [Node("a", 0, 0), Node("b", 1, 0)]
    assert refresh_record(home, later, nodes, {}, t.cast(t.Any, said)) == later
    (line,) = said.lines
    assert "run x-1 was recorded by another version of the collection (job.placement.orbit: is not an option" in line
    assert [node.stops for node in nodes] == [0, 0]


def test_a_run_that_another_controller_holds_is_said_to_be_its_and_costs_nothing_more_here(home: StateHome) -> None:
    """It is ended by the words of its nodes, also where that one has started it again since: then it ended before."""
    record = dataclasses.replace(recorded(home), submitted_at="2026-11-01T00:00:00.000+00:00")
    folder = home.run_folder("x-1")
    run_record.write_record(folder, record)
    files.write_json(folder / "claim.json", {"owner": "mine", "controller": "me@here"})
    hostvars = {name: {"muster_price_usd_per_hour": 2.0} for name in "ab"}
    there = [Node("a", 0, None, holder="other"), Node("b", 1, None, holder="other")]
    found = refresh_record(home, record, there, hostvars, Silent())
    assert found.taken_over is not None and found.taken_over["by"] == "other@here" and not found.is_ended
    later = run_record.update_record(found, _story(folder), {"a": 2.0, "b": 2.0}, 2e9)
    until = run_record.update_record(found, _story(folder), {"a": 2.0, "b": 2.0}, _at(found.taken_over["at"]))
    assert later.cost.usd == until.cost.usd and all(node.until == found.taken_over["at"] for node in later.held)
    again = [Node("a", 0, None, generation=2), Node("b", 1, None, generation=2)]
    ended = refresh_record(home, found, again, hostvars, Silent())
    assert (ended.outcome, ended.cause, ended.ended_at) == ("cancelled", "taken_over", found.taken_over["at"])
    assert ended.detail == "other@here took the run over and started it again: how it goes is recorded there"
    assert [node.stops for node in (*there, *again)] == [0, 0, 0, 0]


def _at(stamp: str) -> float:
    return datetime.datetime.fromisoformat(stamp).timestamp()


def _story(folder: pathlib.Path) -> RunHistory:
    return fold(files.parse_json_lines(files.read_text(folder / "events.jsonl")), ())
