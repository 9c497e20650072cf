# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# ruff: noqa: F401, F811  # fixtures are imported
"""Following a gang to its end: what is stopped, recorded and deleted then, and what an interrupt leaves running."""

from __future__ import annotations

import importlib
import json
import pathlib
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job, to_yaml_names
from ansible_collections.muster.training.plugins.module_utils._model.network_plan import NetworkPlan
from ansible_collections.muster.training.plugins.module_utils._node import files
from ansible_collections.muster.training.plugins.plugin_utils._hosts import gang
from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import NodeClient
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import run_record
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.follower import RunOutcome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.hosts import follow
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.hosts.follower import (
    HostsFollower,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.lease_guard import NoLeases
from ansible_collections.muster.training.tests.support.node_lab import eventually
from ansible_collections.muster.training.tests.support.run_world import RunWorld, Said
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._workflows.training_job.hosts.test_run import (
    gone,
    started_ranks,
    waiting,
    world,
)

Dict = dict[str, t.Any]
CRASH = RunOutcome("failed", 7, "crash", "a rank on b exited with code 7", "b")
JOB = parse_job({"name": "x", "nodes": 2, "script": "/t.py", "checkpoints": {"grace_s": 5}})


class Guard(NoLeases):
    """Deletes machines after the run's end; ``outcomes`` are the ends it was given."""

    def __init__(self) -> None:
        self.outcomes: list[str] = []

    def delete_due(self, result: Dict, outcome: str) -> Dict:
        self.outcomes.append(outcome)
        return {**result, "released": ["a"]}


class Followed:
    """A run of nodes a and b whose follower does ``turn`` and returns its outcome."""

    def __init__(self, folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.said, self.guard = folder, Said(), Guard()
        self.calls: list[tuple[t.Any, ...]] = []
        self.prepared: list[gang.GangMember] = []
        self.unstopped: Dict = {}
        self.turn: t.Callable[[HostsFollower], RunOutcome] = lambda _follower: CRASH
        files.write_json(folder / "claim.json", {"owner": "me"})

        def prepare(members: list[gang.GangMember], _trees: t.Any, claim: Dict, run_id: str, *, again: bool) -> None:
            assert again
            self.prepared += members
            self.calls.append(("prepare", [member.remote.name for member in members], claim, run_id))

        def start(members: list[gang.GangMember], run_id: str, *, again: bool) -> None:
            assert again
            self.calls.append(("start", [member.remote.name for member in members], run_id))

        def stop(remotes: list[NodeClient], run_id: str, within_s: float) -> tuple[Dict, Dict]:
            self.calls.append(("stop", [remote.name for remote in remotes], run_id, within_s))
            return {}, self.unstopped

        monkeypatch.setattr(gang, "prepare_gang", prepare)
        monkeypatch.setattr(gang, "start_gang", start)
        monkeypatch.setattr(gang, "stop_gang", stop)
        monkeypatch.setattr(HostsFollower, "run", lambda follower: self.turn(follower))

    def follow(self) -> Dict:
        remotes = [NodeClient(name, lambda _command, _data: (1, "", "no node is called")) for name in "ab"]
        meet = {"host": "127.0.0.1"}
        members = [gang.GangMember(remote, {}, {}, None, {}, {"x": 1}, 0, (), meet, meet) for remote in remotes]
        hosts = [types.SimpleNamespace(name=name, price_usd_per_hour=2.0, node={}) for name in "ab"]
        source = types.SimpleNamespace(placed=())
        plan: t.Any = types.SimpleNamespace(
            job=JOB,
            run_id="r-1",
            hosts=hosts,
            remotes=remotes,
            source=source,
            network=NetworkPlan(),
            bound=None,
            datasets=(),
        )
        request: t.Any = types.SimpleNamespace(progress=self.said, options={"cluster": "default"})
        record = run_record.new_record("r-1", to_yaml_names(JOB), 1.0, hosts=("a", "b"))
        return follow.follow_run(request, plan, members, self.folder, record, None, True, self.guard)


@pytest.fixture
def followed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Followed:
    return Followed(tmp_path, monkeypatch)


def test_after_the_end_the_gang_is_stopped_and_the_end_recorded(followed: Followed) -> None:
    (followed.folder / "logs").mkdir()
    (followed.folder / "logs" / "b.log").write_text("step 1\nValueError: too large\n")
    result = followed.follow()
    assert followed.calls == [("stop", ["a", "b"], "r-1", 25)], "ranks have their time to save"
    assert result["failed"] is True and result["changed"] is True
    assert result["msg"] == "run r-1 failed: a rank on b exited with code 7: ValueError: too large"
    record = json.loads((followed.folder / "run.json").read_text())
    assert (record["state"], record["outcome"], record["exit_code"], record["cause"]) == ("ended", "failed", 7, "crash")
    assert record["cost"]["usd"] > 0, "two hosts at 2 USD an hour"


def test_the_end_needs_no_file_of_the_collection_once_steps_are_made(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be replaced by another version while a run is followed."""
    loaded: list[str] = []
    monkeypatch.setattr(importlib, "import_module", lambda name, _package: loaded.append(name))
    follow._load_end.cache_clear()

    def turn(follower: HostsFollower) -> RunOutcome:
        follower._save(force=True)
        assert loaded == [], "the run that starts has the processors to itself"
        begun = {"kind": "worker_started", "node": "a", "rank": 0, "attempt": 1, "world_size": 2}
        follower.record_event(at=1_700_000_000.0, **begun)
        follower.story.metric({"at": 1_700_000_001.0, "step": 1})
        follower._save(force=True)
        follower._save(force=True)
        return CRASH

    followed.turn = turn
    followed.follow()
    assert loaded == ["..explain", "..stacks", "...._report.data.drills"]


def test_a_node_that_could_not_be_stopped_is_named_with_the_end(followed: Followed) -> None:
    followed.unstopped = {"b": MusterError("b: timed out")}
    followed.turn = lambda _follower: RunOutcome("lost", 1, "node_lost", "b did not answer for 50 s", "b")
    said = "a part of it may still run on b, which could not be asked to stop: cancel or the same command ends it"
    assert followed.follow()["msg"] == f"run r-1 lost: b did not answer for 50 s; {said}"


def test_machines_are_deleted_by_the_runs_own_outcome(followed: Followed) -> None:
    """A run whose launcher reports success without any rank has failed."""
    followed.turn = lambda _follower: RunOutcome("succeeded", 0, "succeeded", "all ranks exited with code 0")
    result = followed.follow()
    assert followed.guard.outcomes == ["failed"] and result["released"] == ["a"]
    assert json.loads((followed.folder / "run.json").read_text())["cause"] == "attendance"


def test_a_missing_agent_is_started_again_without_its_peers(followed: Followed) -> None:
    def turn(follower: HostsFollower) -> RunOutcome:
        follower.restart(follower.remotes["b"])
        return CRASH

    followed.turn = turn
    followed.follow()
    assert followed.calls[:2] == [("prepare", ["b"], {"owner": "me"}, "r-1"), ("start", ["b"], "r-1")]
    (member,) = followed.prepared
    assert (member.meet, member.reach, member.missing) == (None, None, {}), "its files are there from the first start"


def test_what_the_follower_saves_is_the_record_on_disk(followed: Followed) -> None:
    seen: list[Dict] = []

    def turn(follower: HostsFollower) -> RunOutcome:
        follower._save(force=True)
        seen.append(json.loads((followed.folder / "run.json").read_text()))
        return CRASH

    followed.turn = turn
    followed.follow()
    assert seen[0]["state"] == "starting" and seen[0]["outcome"] is None


def test_an_interrupt_stops_the_following_and_not_the_run(world: RunWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_follower: HostsFollower) -> t.NoReturn:
        raise KeyboardInterrupt

    job = world.job(*waiting(world))
    with monkeypatch.context() as patch:
        patch.setattr(HostsFollower, "run", interrupt)
        with pytest.raises(KeyboardInterrupt):
            world.play(job)
    eventually(lambda: started_ranks(world) == 2, "both ranks")
    (world.root / "gate").touch()
    found = world.play(job)
    assert (found["changed"], found["run"]["outcome"], started_ranks(world)) == (False, "succeeded", 2) and gone(world)


def test_a_run_that_saw_too_few_ranks_failed_whatever_its_exit_codes(world: RunWorld) -> None:
    # Nothing can be recorded on b, so that its rank runs and ends well but was never seen.
    (files.private_dir(world.lab.run("b", world.run_id)) / "events.jsonl").mkdir()
    found = world.play(world.job("true"))
    assert (found["run"]["outcome"], found["run"]["cause"], found["run"]["exit_code"]) == ("failed", "attendance", 1)
    assert "1 ranks with world size 2 were seen, 2 are required" in found["msg"] and gone(world)
