# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Following a run: what nodes report becomes files and a story, and each kind of end its outcome.

The watch is scripted, so that losses and restarts come in the order a test wants; the runner's tests use the real one.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import pathlib
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import drill as drills
from ansible_collections.muster.training.plugins.module_utils._model import stall
from ansible_collections.muster.training.plugins.module_utils._model.errors import (
    EmptiedError,
    MusterError,
    NodeError,
    StoppedNodeError,
    UnreachableError,
)
from ansible_collections.muster.training.plugins.module_utils._model.job import Job, parse_job, to_yaml_names
from ansible_collections.muster.training.plugins.module_utils._model.node_report import UnitEnd, UnitReport
from ansible_collections.muster.training.plugins.module_utils._node import files
from ansible_collections.muster.training.plugins.module_utils._secrets import scrubber
from ansible_collections.muster.training.plugins.plugin_utils._hosts import log_follow
from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import NodeClient
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import run_record
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import outcome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.follower import (
    Follower,
    RunOutcome,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.hosts import (
    follower as hosts_follower,
)
from ansible_collections.muster.training.tests.support.node_lab import read_lines

Dict = dict[str, t.Any]
T0 = 1_700_000_000.0


def unit(alive: bool = True, exit_code: int | None = None, cause: str = "", at: float = T0) -> Dict:
    ending = None if exit_code is None else {"at": at, "exit_code": exit_code, "cause": cause}
    return {"agent": {"alive": alive and exit_code is None, "exit": ending}}


def news(node: str, units: Dict | None = None, asked_at: float = 1e9, **text: t.Any) -> log_follow.NodeUpdate:
    """Return an answer of a node; streams are given as text or as a list of objects."""
    streams = {
        key: value if isinstance(value, str) else "".join(json.dumps(item) + "\n" for item in value)
        for key, value in text.items()
    }
    said = {name: UnitReport.from_dict(value) for name, value in (unit() if units is None else units).items()}
    return log_follow.NodeUpdate(node, streams, said, {"events": 1}, asked_at)


def lost(node: str) -> log_follow.NodeUpdate:
    return log_follow.NodeUpdate(node, {}, {}, {}, 1e9, UnreachableError(node, "timed out"))


def started(node: str, rank: int, attempt: int = 1, at: float = T0) -> Dict:
    return {"kind": "worker_started", "at": at, "node": node, "rank": rank, "attempt": attempt, "world_size": 2}


def ended(node: str, rank: int, code: int, attempt: int = 1, at: float = T0 + 9) -> Dict:
    return {"kind": "worker_exit", "at": at, "node": node, "rank": rank, "attempt": attempt, "exit_code": code}


class World:
    """One run of two nodes whose watch says what a test has written."""

    def __init__(self, folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.said, self.shown = folder, list[str](), list[t.Mapping[str, t.Any]]()
        self.restarted: list[str] = []
        self.killed: list[Dict] = []
        self.saved = 0
        self.problem: MusterError | None = None
        self.kill_answer: Dict = {"killed": [7], "at": T0 + 5}
        self.script: list[log_follow.NodeUpdate | None] = []
        self.batch = 0.0
        monkeypatch.setattr(log_follow, "LogFollow", self._watch)

    def _watch(self, remotes: t.Any, run_id: str, offsets: t.Any, batch_s: float) -> World:
        self.batch = batch_s
        return self

    def updates(self, idle_s: float) -> t.Iterator[log_follow.NodeUpdate | None]:
        yield from self.script
        raise AssertionError("the run was not ended by what the nodes reported")

    def close(self) -> None:
        self.script = []

    def say(self, line: str) -> None:
        self.said.append(line)

    def show(self, values: t.Mapping[str, t.Any]) -> None:
        self.shown.append(values)

    def restart(self, remote: NodeClient) -> None:
        self.restarted.append(remote.name)
        if self.problem:
            raise self.problem

    def save(self, follower: Follower) -> None:
        self.saved += 1

    def follower(self, drill: drills.Drill | None = None, **job: t.Any) -> hosts_follower.HostsFollower:
        nodes = [Killable(name, self) for name in "ab"]
        return hosts_follower.HostsFollower(
            made(**job), "x-1", self.folder, nodes, self, self.restart, self.save, drill
        )

    def run(self, *script: log_follow.NodeUpdate | None, drill: drills.Drill | None = None, **job: t.Any) -> RunOutcome:
        self.script = list(script)
        return self.follower(drill, **job).run()


class Killable(NodeClient):
    """A node that tells the world what a drill kills on it."""

    def __init__(self, name: str, world: World) -> None:
        super().__init__(name, lambda command, data: (0, "", ""))
        self.world = world

    def call(self, op: str, **values: t.Any) -> Dict:
        self.world.killed.append({"op": op, "node": self.name, **values})
        return self.world.kill_answer


def made(**changes: t.Any) -> Job:
    return parse_job({"name": "x", "nodes": 2, "script": "/t.py", **changes})


@pytest.fixture
def world(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(scrubber, "_registry", scrubber._Registry())
    monkeypatch.setattr(log_follow, "now", lambda: T0 + 100)
    return World(tmp_path, monkeypatch)


def test_a_run_succeeds_when_every_node_has_ended_well(world: World) -> None:
    both = [
        news("a", events=[started("a", 0)]),
        news("b", events=[started("b", 1)]),
        None,
        news("a", unit(exit_code=0)),
    ]
    outcome = world.run(*both, news("b", unit(exit_code=0)))
    assert (outcome.outcome, outcome.exit_code, outcome.cause) == ("succeeded", 0, "succeeded")
    assert [values["ranks"] for values in world.shown] == [1, 2, 2, 2] and world.saved >= 1
    assert [line["kind"] for line in read_lines(world.folder / "events.jsonl")] == ["worker_started"] * 2
    kept = {"events": (world.folder / "events.jsonl").stat().st_size, "metrics": 0}
    offsets = {"a": {"events": 1}, "b": {"events": 1}, "": kept}
    assert json.loads((world.folder / "offsets.json").read_text()) == offsets


def test_mpi_has_ended_with_its_first_node(world: World) -> None:
    assert world.run(news("b"), news("a", unit(exit_code=0)), launcher="mpi").outcome == "succeeded"


@pytest.mark.parametrize(
    ("cause", "code", "outcome", "detail"),
    [
        ("crash", 1, ("failed", 9), "a rank on b exited with code 9 and restart.max_crashes (3) is exceeded"),
        ("timeout", 124, ("failed", 124), "timeout_s (None s) has passed before the first step"),
        (
            "node_lost",
            137,
            ("lost", 137),
            "b was lost, and restart.max_lost_nodes (3) is used up: the gang did not come back",
        ),
        ("rendezvous_unreachable", 111, ("lost", 111), "b could not reach the rendezvous store"),
        ("odd", 4, ("failed", 4), "b: odd (exit code 4)"),
    ],
)
def test_how_a_run_ends_badly(world: World, cause: str, code: int, outcome: tuple[str, int], detail: str) -> None:
    failing = [started("a", 0), started("b", 1), ended("b", 1, 9), ended("a", 0, 143)]
    found = world.run(news("a", events=failing), news("a", unit(exit_code=code, cause=cause)))
    assert (found.outcome, found.exit_code, found.detail, found.node) == (*outcome, detail, "b")


def test_a_full_disk_is_of_the_node_that_ended_the_run_for_it(world: World) -> None:
    """Its launcher's end fails ranks elsewhere, which may be known before."""
    said = "no space left on a: no restart frees any"
    follower = world.follower()
    full = {**unit(exit_code=3, cause="disk_full", at=T0 + 20)["agent"]["exit"], "detail": said}
    ends = {"a": full, "b": {"at": T0 + 10, "exit_code": 1, "cause": "crash"}}
    follower.units = {node: {"agent": UnitReport.from_dict({"exit": end})} for node, end in ends.items()}
    assert follower._outcome() == RunOutcome("failed", 3, "disk_full", said, "a")


def test_a_fatal_exit_code_is_that_of_the_node_that_says_so(world: World) -> None:
    """Rank 1 on b ended first, with another code of its own."""
    failing = [started("a", 0), started("b", 1), ended("b", 1, 4), ended("a", 0, 3)]
    found = world.run(news("a", events=failing), news("a", unit(exit_code=3, cause="fatal_exit_code")))
    detail = "a rank on a exited with code 3, which restart.fatal_exit_codes names"
    assert (found.outcome, found.exit_code, found.detail, found.node) == ("failed", 3, detail, "a")


@pytest.mark.parametrize(
    ("job", "rule"),
    [
        ({"launcher": "command", "script": None, "command": ["sleep", "1"]}, "the launcher 'command' starts it once"),
        ({"restart": {"on_lost_node": "fail"}}, "restart.on_lost_node is fail"),
    ],
)
def test_the_rule_that_ends_a_run_with_a_lost_node_is_named(world: World, job: Dict, rule: str) -> None:
    found = world.run(news("b", unit(alive=False)), **job)
    assert (found.outcome, found.detail) == ("lost", f"b was lost, and {rule}")


def test_a_run_that_another_controller_has_taken_over_is_left_to_it(world: World) -> None:
    files.write_json(world.folder / "claim.json", {"owner": "mine", "controller": "here"})
    mine = dataclasses.replace(news("a"), holder={"owner": "mine", "controller": "here"})
    taken = dataclasses.replace(news("b"), holder={"owner": "hers", "controller": "her laptop"})
    with pytest.raises(MusterError, match="run x-1 was taken over by her laptop, which follows it now"):
        world.run(mine, taken)


def test_a_command_is_not_said_to_have_been_started_again(world: World) -> None:
    failing = [started("a", 0), started("b", 1), ended("b", 1, 9), ended("a", 0, 143)]
    end = unit(exit_code=1, cause="crash")
    job: Dict = {"launcher": "command", "script": None, "command": ["true"], "restart": {"max_crashes": 3}}
    found = world.run(news("a", events=failing), news("a", end), **job)
    assert found.detail == "a rank on b exited with code 9 and the launcher 'command' starts it once"


def test_a_run_that_somebody_stopped_is_cancelled_whatever_ended_after(world: World) -> None:
    later = unit(exit_code=1, cause="crash", at=T0 + 1)
    found = world.run(
        news("a", {**unit(), "store": unit()["agent"]}),
        news("b", unit(exit_code=143, cause="cancelled")),
        news("a", later),
    )
    assert (found.outcome, found.exit_code, found.detail) == ("cancelled", 143, "stopped on b")


def test_a_node_that_is_silent_for_a_while_is_no_end(world: World) -> None:
    good = [news("a", unit(exit_code=0)), news("b", unit(exit_code=0))]
    told = log_follow.NodeUpdate("b", {}, {}, {}, 1e9, NodeError("b", "disk full"))
    assert world.run(lost("b"), lost("b"), news("b"), told, *good).outcome == "succeeded"
    assert [line["kind"] for line in read_lines(world.folder / "events.jsonl")] == ["node_silent", "node_back"] * 2
    first = next(
        line for line in world.said if line.startswith("b does not answer: b: timed out; its last answer was ")
    )
    assert first.endswith("s ago. At 600 s (restart.wait_s) the run ends as lost; the same command starts it again"), (
        first
    )
    assert world.said.count("b answers again") == 2


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ("fail", "At 10 s (restart.on_lost_node: fail) the run ends as lost; the same command starts it again"),
        ("replace", "At 10 s (restart.on_lost_node: replace) the run ends as lost; heal then replaces the node"),
    ],
)
def test_what_comes_after_a_silence_is_said(world: World, action: str, words: str) -> None:
    world.run(lost("b"), news("b", unit(exit_code=0)), news("a", unit(exit_code=0)), restart={"on_lost_node": action})
    assert [line for line in world.said if line.endswith(words)], world.said


def test_a_cancelled_run_names_all_its_hosts(world: World) -> None:
    """Also where a controller that did not follow it reads its end."""
    follower = world.follower()
    for node in "ba":
        follower._take(news(node, unit(exit_code=143, cause="cancelled")))
    found = follower._outcome()
    assert found is not None and found.detail == "stopped on a, b"
    # Where the first one is heard before the other, that one is named once it is stopped.
    early = world.follower()
    early._take(news("b", unit(exit_code=143, cause="cancelled")))
    found = early._outcome()
    assert found is not None and found.detail == "stopped on b"
    early._take(news("a", unit(exit_code=143, cause="cancelled")))
    assert early.name_stopped(found).detail == "stopped on a, b"


def test_ranks_that_begin_at_different_steps_end_the_run_with_the_first_step(world: World) -> None:
    def start(gang: str, at: float) -> list[Dict]:
        return [{**started(node, rank, at=at), "gang": gang} for rank, node in enumerate("ab")]

    def steps(first: int, at: float) -> list[Dict]:
        return [{"at": at + number, "step": first + number, "printed": True} for number in range(3)]

    one, two = start("1/x", T0), start("1/y", T0 + 50)
    seen = [{"kind": "checkpoints_seen", "at": T0, "node": node, "gang": "1/y", "detail": name, "folder": "/c"}
            for node, name in (("a", "c_2.pt"), ("b", None))]  # fmt: skip
    found = world.run(
        news("a", events=one[:1], metrics=steps(1, T0 + 1)),
        news("b", events=one[1:], metrics=steps(1, T0 + 1)),
        news("a", events=[seen[0], two[0]], metrics=steps(21, T0 + 51)),
        news("b", events=[seen[1], two[1]], metrics=steps(1, T0 + 51)[:1]),
    )
    words = "a began at step 21, b at step 1: b has no checkpoint in /c, a has c_2.pt"
    assert (found.outcome, found.cause, found.detail, found.node) == ("failed", "uneven_resume", words, "b")


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_ranks_that_resume_from_different_steps_end_the_run_before_a_step(world: World, order: str) -> None:
    """Rank 0 alone prints steps; the record says of no rank's checkpoint that the attempt resumed from it."""
    steps = {"a": 60, "b": 80}
    begun = [{**started(node, rank), "gang": "1/x"} for rank, node in enumerate("ab")]
    again = [{**started(node, rank, 2, at=T0 + 50), "gang": "1/y"} for rank, node in enumerate("ab")]
    told = [{"at": T0 + 1, "step": 1, "printed": True}, {"at": T0 + 2, "checkpoint_step": 60, "printed": True}]
    resumes = {node: [{"at": T0 + 51, "resumed_from_step": steps[node], "printed": True}] for node in order}
    world.script = [
        news("a", events=[begun[0], again[0]], metrics=told),
        news("b", events=[begun[1], again[1]]),
        *(news(node, metrics=lines) for node, lines in resumes.items()),
    ]
    follower = world.follower()
    found, words = follower.run(), "b resumed from step 80, a from step 60"
    assert (found.outcome, found.cause, found.detail, found.node) == ("failed", "uneven_resume", words, "a")
    # What comes while it is stopped.
    follower.take_text("a", "metrics", json.dumps({"at": T0 + 52, "step": 61, "printed": True}) + "\n")
    new = run_record.new_record("x-1", to_yaml_names(follower.job), T0)
    record = outcome.record_end(follower, found, new, {})
    attempt = record.attempts[1]
    assert (attempt.n, attempt.resumed, attempt.resumed_from_step, attempt.first_step) == (2, False, None, 61)
    assert record.problems == (f"attempt 2 did not resume as one gang: {words}",)


def test_what_nodes_copied_is_said(world: World) -> None:
    copied = {"kind": "checkpoint_copied", "at": T0, "node": "b", "detail": "c_2.pt", "source": "a", "bytes": 4_100_000}
    refused = {"kind": "checkpoints_not_compared", "at": T0, "node": "b", "detail": "a at 10.0.0.1:16001: timed out"}
    events = [{**copied, "seconds": 0.12}, refused]
    world.run(news("b", unit(exit_code=0), events=events), news("a", unit(exit_code=0)))
    assert "b: copied checkpoint c_2.pt from a (4.1 MB in 0.1 s)" in world.said
    assert (
        "warning: b: checkpoints of other nodes would not be copied here: a at 10.0.0.1:16001: timed out" in world.said
    )


@pytest.mark.parametrize("resumed", [True, False])
def test_a_drill_says_its_proof_or_ends_when_the_run_stands(
    world: World, monkeypatch: pytest.MonkeyPatch, resumed: bool
) -> None:
    from ansible_collections.muster.training.plugins.plugin_utils._report.data import drills as judged

    proof = {"resumed": resumed, "seconds_to_resume": 2.5, "world_size": 2}
    monkeypatch.setattr(judged, "judge_drill", lambda _folder, _at: proof)
    follower = world.follower(drills.Drill(node="b", at_step=5))
    follower.drilled_at = T0 + 9
    for rank, node in enumerate("ab"):
        follower._take(news(node, events=[started(node, rank, at=T0), started(node, rank, attempt=2, at=T0 + 20)]))
    follower._take(news("a", metrics=[{"at": T0 + 21, "step": 6}, {"at": T0 + 22, "step": 7}]))
    follower._report()
    assert ("drill: resumed in 2.5 s with 2 ranks, proven; the run continues to its end" in world.said) is resumed
    assert follower._rule_outcome() is None
    follower.stalled_s = 60.0
    found = follower._rule_outcome()
    assert (found is None) is resumed
    if found:
        assert (
            found.cause == "stalled"
            and "stands since the drill, which proved nothing: no step for 1 min" in found.detail
        )


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let five seconds pass whenever somebody looks."""
    times = itertools.count(0.0, 5.0)
    monkeypatch.setattr(hosts_follower, "time", types.SimpleNamespace(monotonic=lambda: next(times)))


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    ("restart", "patience"), [({"wait_s": 100}, 100), ({"on_lost_node": "fail", "wait_s": 100}, 10)]
)
def test_a_node_that_stays_silent_is_lost(world: World, restart: Dict, patience: int) -> None:
    found = world.run(news("a"), lost("b"), *[None] * 60, restart=restart)
    assert (found.outcome, found.cause, found.node) == ("lost", "node_lost", "b")
    assert found.detail == f"b did not answer for {patience} s"


@pytest.mark.usefixtures("clock")
def test_when_no_node_answers_nothing_is_known_of_the_run(world: World) -> None:
    with pytest.raises(MusterError, match="none of the 2 nodes answered for 100 s. The job may still be running"):
        world.run(lost("a"), lost("b"), *[None] * 60, restart={"wait_s": 100})


@pytest.mark.parametrize("budget", [1, 3])
def test_units_whose_supervisor_is_gone_are_started_again(world: World, budget: int) -> None:
    gone = {**unit(alive=False), "store": {"alive": False, "exit": None}}
    # The answer that was asked for before the restart describes the time before it.
    old = news("a", unit(alive=False), asked_at=0.0)
    good = [news("a", unit(exit_code=0)), news("b", unit(exit_code=0))]
    assert world.run(news("a", gone), old, *good, restart={"max_lost_nodes": budget}).outcome == "succeeded"
    assert world.restarted == ["a"] and "a: not running: agent, store; starting again" in world.said
    assert read_lines(world.folder / "events.jsonl")[0]["detail"] == "not running: agent, store"


@pytest.mark.parametrize(
    "agent",
    [
        # It has written its end, and its process is not gone yet.
        {"alive": True, "exit": {"at": T0, "exit_code": 143, "cause": "cancelled"}, "stopping": True},
        {"alive": True, "exit": {"at": T0, "exit_code": 143, "cause": "cancelled"}},
        # It was killed before it could write one.
        {"alive": False, "exit": None, "stopping": True},
    ],
)
def test_a_node_that_a_cancel_stops_is_not_started_again(world: World, agent: Dict) -> None:
    found = world.run(news("b"), news("a", {"agent": agent}), restart={"max_lost_nodes": 2})
    assert (found.outcome, found.cause, found.detail) == ("cancelled", "cancelled", "stopped on a")
    assert world.restarted == [] and not [line for line in world.said if "starting again" in line]


def test_what_a_cancel_stops_before_its_agent_has_ended_is_not_started_again(world: World) -> None:
    """Its ranks may save for a while, and the store is gone."""
    units = {"agent": {"alive": True, "exit": None, "stopping": True}, "store": {"alive": False, "exit": None}}
    cancelled = news("a", unit(exit_code=143, cause="cancelled"))
    assert world.run(news("b"), news("a", units), cancelled).outcome == "cancelled"
    assert world.restarted == []


def test_a_node_that_was_stopped_between_the_look_and_the_start_is_left(world: World) -> None:
    world.problem = StoppedNodeError("b", "run x-1 was stopped on it")
    found = world.run(news("b", unit(alive=False)), news("b", unit(exit_code=143, cause="cancelled")))
    assert found.outcome == "cancelled" and world.restarted == ["b"]
    assert "b: the run was stopped there meanwhile; it is not started again" in world.said


def test_a_restart_that_finds_an_emptied_machine_ends_the_run_at_once(world: World) -> None:
    """The agent was seen to be gone before its folder was: to start it there again makes nothing whole."""
    world.problem = EmptiedError("b", "nothing of run x-1 is left on it")
    found = world.run(news("b", unit(alive=False)), restart={"max_lost_nodes": 2})
    assert found.outcome == "lost" and "b answers, but nothing of the run is left on it" in found.detail
    assert world.restarted == ["b"] and "could not be started again" not in str(world.said)


def test_a_restart_that_fails_is_told_and_tried_within_the_budget(world: World) -> None:
    world.problem = NodeError("b", "disk full")
    gone = news("b", unit(alive=False))
    found = world.run(gone, gone, gone, restart={"max_lost_nodes": 2})
    assert (found.outcome, found.detail) == (
        "lost",
        "b was lost, and restart.max_lost_nodes (2) is used up: it could not be started again: b: disk full",
    )
    assert world.restarted == ["b", "b"] and "b: the run could not be started again: b: disk full" in world.said


def test_a_store_that_ended_beside_its_agent_is_started_again_within_the_budget(world: World) -> None:
    """Its start found the port taken; the agents train on, and the run is lost by that and not cancelled."""
    world.problem = NodeError("a", "cannot listen on 10.0.0.1:2: Address already in use")
    ended_store = {**unit(), "store": unit(exit_code=98, cause="port_taken")["agent"]}
    gone = {**unit(), "store": {"alive": False, "exit": None}}
    found = world.run(news("a", gone), news("b"), *[news("a", ended_store)] * 2, restart={"max_lost_nodes": 2})
    why = "it could not be started again: a: cannot listen on 10.0.0.1:2: Address already in use"
    assert (found.outcome, found.cause) == ("lost", "node_lost") and world.restarted == ["a", "a"]
    assert found.detail == f"a was lost, and restart.max_lost_nodes (2) is used up: {why}"
    world.problem, world.restarted = None, []
    good = [news("a", {**unit(exit_code=0), "store": ended_store["store"]}), news("b", unit(exit_code=0))]
    assert world.run(news("a", ended_store), news("a"), *good).outcome == "succeeded" and world.restarted == ["a"]


@pytest.mark.parametrize(
    "job", [{"restart": {"on_lost_node": "fail"}}, {"launcher": "command", "script": None, "command": ["x"]}]
)
def test_a_supervisor_that_is_gone_ends_what_is_not_started_again(world: World, job: Dict) -> None:
    found = world.run(news("a"), news("b", unit(alive=False)), **job)
    assert found.outcome == "lost" and world.restarted == []


def test_crashes_beyond_the_budget_end_a_run_that_torchrun_would_repeat(world: World) -> None:
    crashing = [
        line for n in (1, 2) for line in (started("a", 0, n, T0 + 10 * n), ended("a", 0, 9, n, T0 + 10 * n + 5))
    ]
    found = world.run(news("a", events=crashing[:2]), news("a", events=crashing[2:]), restart={"max_crashes": 1})
    assert (found.outcome, found.exit_code, found.cause) == ("failed", 9, "crash")


def test_text_goes_to_its_files_without_secrets(world: World) -> None:
    scrubber.remember("geheim-42")
    lines = [{"at": T0 + 1, "step": 3, "loss": 0.5}]
    first = news("a", log="token geheim-42\n", metrics=lines, usage=[{"cpu_percent": 1}], events=[started("a", 0)])
    world.run(first, news("b", log="other\n"), news("a", unit(exit_code=0), log="end\n"), news("b", unit(exit_code=0)))
    assert (world.folder / "logs" / "a.log").read_text() == "token ********\nend\n"
    assert (world.folder / "logs" / "b.log").read_text() == "other\n"
    assert read_lines(world.folder / "metrics.jsonl") == lines and read_lines(world.folder / "usage.jsonl") == [
        {"cpu_percent": 1}
    ]
    assert world.shown[-1]["step"] == 3 and world.shown[-1]["loss"] == 0.5


def test_printed_steps_count_once_however_many_nodes_print_them(world: World) -> None:
    """The nodes parse their own logs; all ranks may print, and a program's own metrics are kept as they are."""
    both = [{"at": T0 + n, "step": n, "loss": 2.5, "printed": True} for n in (1, 2, 3)]
    text = "".join(files.json_line(line) for line in both)
    own = {"at": T0 + 3, "step": 3, "lr": 0.1}
    world.run(
        news("a", events=[started("a", 0), started("b", 1)], metrics=text + text[-1:] + files.json_line(both[-1])),
        news("b", metrics=text),
        news("a", unit(exit_code=0), metrics=[own]),
        news("b", unit(exit_code=0)),
        metrics={"step_pattern": "(?P<step>[0-9]+)"},
    )
    found = read_lines(world.folder / "metrics.jsonl")
    assert [line["step"] for line in found] == [1, 2, 3, 3] and found[-1] == own
    assert not any("printed" in line for line in found)


def test_the_last_lines_are_read_before_a_run_has_ended(world: World) -> None:
    behind = dataclasses.replace(news("a", unit(exit_code=1, cause="crash"), log="noise\n"), behind=9)
    last = news("a", unit(exit_code=1, cause="crash"), log="ValueError: the real reason\n")
    outcome = world.run(news("b"), behind, None, last)
    assert outcome.outcome == "failed"
    assert "the real reason" in (world.folder / "logs" / "a.log").read_text()


def test_a_run_is_followed_on_from_its_folder(world: World) -> None:
    (world.folder / "events.jsonl").write_text(json.dumps(started("a", 0)) + "\n" + '{"torn')
    (world.folder / "metrics.jsonl").write_text(json.dumps({"at": T0 + 1, "step": 8}) + "\n")
    (world.folder / "offsets.json").write_text('{"a": {"events": 77}}')
    follower = world.follower()
    assert (
        follower.offsets == {"a": {"events": 77}} and follower.state()["step"] == 8 and follower.state()["ranks"] == 1
    )


@pytest.mark.parametrize(
    ("code", "alive", "seen"), [(None, True, True), (0, True, True), (1, True, False), (0, False, False)]
)
def test_a_run_can_stand_when_a_node_has_ended_well(world: World, code: int | None, alive: bool, seen: bool) -> None:
    follower = world.follower()
    ended = UnitReport(end=UnitEnd("ended", exit_code=code)) if code is not None else UnitReport(alive=True)
    follower.units = {
        "a": {"agent": UnitReport(alive=alive, end=None if alive else UnitEnd("ended", exit_code=0))},
        "b": {"agent": ended},
    }
    assert follower._is_seen() is seen


def test_only_while_a_rank_could_make_a_step_the_run_can_stand(world: World) -> None:
    """Not while agents close down after the last rank, nor before the ranks of a run that is continued begin."""
    follower, seen = world.follower(), list[bool]()
    steps: list[list[Dict]] = [
        [],
        [started("a", 0), started("b", 1)],
        [ended("a", 0, 0)],
        [ended("b", 1, 0)],
        [{"kind": "submitted", "at": T0 + 20, "attempt": 2, "nodes": []}],
        [started("a", 0, attempt=2, at=T0 + 30)],
    ]
    for events in steps:
        follower._take(news("a", events=events))
        seen.append(stall.has_ranks_at_work(follower.story.attempts, follower.story.base))
    assert seen == [True, True, True, False, False, True]


@pytest.mark.parametrize("left", [0, 1, 40, -1, None])
def test_events_that_are_cut_are_read_again(world: World, left: int | None) -> None:
    """The disk lost the end of a file that had been read: the offsets do not hold for it."""
    lines = "".join(json.dumps(started(node, rank)) + "\n" for rank, node in enumerate("ab"))
    (world.folder / "events.jsonl").write_text(lines[:left])
    kept = {"": {"events": len(lines), "metrics": 0}}
    (world.folder / "offsets.json").write_text(json.dumps({"a": {"events": 77, "log": 5}, **kept}))
    follower = world.follower()
    assert follower.offsets == {"a": {"events": 77 if left is None else 0, "log": 5}}
    assert ("was cut: reading it again" in " ".join(world.said)) is (left is not None)
    follower.take_text("a", "events", lines)
    assert follower.state()["ranks"] == 2
    text = (world.folder / "events.jsonl").read_text()
    assert [line["rank"] for line in files.parse_json_lines(text)] == [0, 1]


def test_a_drill_kills_when_its_step_is_seen_and_only_once(world: World) -> None:
    steps = [
        news("a", events=[started("a", 0), started("b", 1)]),
        *(news("a", metrics=[{"at": T0 + n, "step": n}, {"at": T0 + n, "checkpoint_step": n}]) for n in (1, 2, 3)),
    ]
    drill = drills.Drill("worker", 1, "b", at_step=2)
    world.run(*steps, news("a", unit(exit_code=0)), news("b", unit(exit_code=0)), drill=drill)
    assert world.killed == [{"op": "kill", "node": "b", "run_id": "x-1", "target": "worker", "rank": 1}]
    fault = [line for line in read_lines(world.folder / "events.jsonl") if line["kind"] == "drill"]
    assert fault == [{"at": T0 + 5, "kind": "drill", "node": "b", "detail": "killed rank 1"}]
    assert "drill: killed rank 1 on b at step 2" in world.said and world.batch == 0.2


def stands(node: str, rank: int, operation: str | None, at: float = T0 + 9) -> Dict:
    return {"kind": "rank_stands", "at": at, "node": node, "rank": rank, "since": at - 5, "operation": operation}


HANGS = (
    news("a", events=[started("a", 0), stands("a", 0, "all_reduce")]),
    news("b", events=[started("b", 1), stands("b", 1, None)]),
)


def test_the_rank_that_a_gang_waits_for_is_killed_once_where_the_job_asks_for_it(world: World) -> None:
    again = [
        news("b", events=[ended("b", 1, 137, at=T0 + 20), started("b", 1, 2, T0 + 30)]),
        news("a", events=[ended("a", 0, 143, at=T0 + 21), started("a", 0, 2, T0 + 30)]),
    ]
    ends = [news(node, unit(exit_code=0)) for node in "ab"]
    found = world.run(*HANGS, None, None, *again, *ends, restart={"on_hang": "restart"})
    assert found.outcome == "succeeded"
    assert world.killed == [{"op": "kill", "node": "b", "run_id": "x-1", "target": "worker", "rank": 1}]
    (line,) = [line for line in read_lines(world.folder / "events.jsonl") if line["kind"] == "hang_ended"]
    assert (line["node"], line["rank"]) == ("b", 1) and "rank 1 on b stands" in line["detail"]
    assert "killed rank 1 on b, so that the gang starts again" in world.said


def test_a_drill_that_cuts_needs_no_checkpoint_and_is_no_fault(world: World) -> None:
    world.kill_answer = {"at": T0 + 5}
    steps = [
        news("a", events=[started("a", 0), started("b", 1)]),
        *(news("a", metrics=[{"at": T0 + n, "step": n}]) for n in (1, 2)),
    ]
    drill = drills.Drill("cut", None, "b", at_step=2, seconds=30)
    world.run(*steps, news("a", unit(exit_code=0)), news("b", unit(exit_code=0)), drill=drill)
    assert world.killed == [{"op": "cut", "node": "b", "seconds": 30}]
    (line,) = [line for line in read_lines(world.folder / "events.jsonl") if line["kind"] in ("cut", "drill")]
    assert line == {"at": T0 + 5, "kind": "cut", "node": "b", "detail": "off its network for 30 s"}
    assert "drill: cut b off its network for 30 s at step 2" in world.said


def test_a_drill_that_hits_nothing_is_tried_again(world: World) -> None:
    world.kill_answer = {"killed": []}
    saved = {"at": T0 + 1, "checkpoint_step": 5}
    steps = [news("a", events=[started("a", 0)]), news("a", metrics=[{"at": T0 + 1, "step": 5}, saved]), None]
    world.run(
        *steps,
        news("a", unit(exit_code=0)),
        news("b", unit(exit_code=0)),
        drill=drills.Drill("host", 0, "a", at_step=5),
    )
    assert len(world.killed) >= 2 and not [
        line for line in read_lines(world.folder / "events.jsonl") if line["kind"] == "drill"
    ]


FIRST_STEPS = [[started("a", 0), started("b", 1)], [{"at": T0 + 1, "step": 1, "loss": 3.0}]]
NEXT_STEPS = [[started("a", 0, 2, T0 + 20), started("b", 1, 2, T0 + 20)], [{"at": T0 + 21, "step": 1, "loss": 2.0}]]


def said_of_steps(world: World, *parts: list[list[Dict]]) -> list[str]:
    script = [update for events, metrics in parts for update in (news("a", events=events), news("a", metrics=metrics))]
    world.run(*script, news("a", unit(exit_code=0)), news("b", unit(exit_code=0)))
    return [line for line in world.said if "step 1" in line]


def test_a_restart_is_said_with_its_first_step(world: World) -> None:
    found = said_of_steps(world, FIRST_STEPS, NEXT_STEPS)
    assert found[-1] == "nodes 1/2 · b not heard from yet · ranks 2/2 · step 1 · loss 2.0000 · 79 s ago · restarts 1"


def test_the_first_attempt_is_said_with_its_first_step(world: World) -> None:
    said = ["nodes 1/2 · b not heard from yet · ranks 2/2 · step 1 · loss 3.0000 · 99 s ago"]
    assert said_of_steps(world, FIRST_STEPS) == said


@pytest.mark.parametrize("step", ["nan", "inf"])
def test_a_step_that_is_no_number_is_passed_over(world: World, step: str) -> None:
    pattern = {"step_pattern": r"step (?P<step>\S+)"}
    first = news("a", events=[started("a", 0)], log=f"step {step}\n")
    assert (
        world.run(first, news("a", unit(exit_code=0)), news("b", unit(exit_code=0)), metrics=pattern).outcome
        == "succeeded"
    )


def test_a_run_that_crashed_may_be_continued(world: World) -> None:
    earlier = [started("a", 0), started("b", 1), ended("a", 0, 9), {"kind": "ended", "at": T0 + 10, "detail": "failed"}]
    again = [{"kind": "submitted", "at": T0 + 20, "attempt": 2}]
    (world.folder / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [*earlier, *again]))
    now = [news("a", events=[started("a", 0, 2, T0 + 30)]), news("b", events=[started("b", 1, 2, T0 + 30)])]
    good = [news("a", unit(exit_code=0)), news("b", unit(exit_code=0))]
    assert world.run(*now, *good, restart={"max_crashes": 0}).outcome == "succeeded"


def test_a_drill_on_a_node_that_is_away_waits_for_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(node: Killable, op: str, **values: t.Any) -> Dict:
        raise UnreachableError(node.name, "timed out")

    monkeypatch.setattr(Killable, "call", away)
    steps = [news("a", events=[started("a", 0)]), news("a", metrics=[{"at": T0 + 1, "step": 5}])]
    drill = drills.Drill("host", 0, "a", at_step=5)
    assert (
        world.run(*steps, news("a", unit(exit_code=0)), news("b", unit(exit_code=0)), drill=drill).outcome
        == "succeeded"
    )


def test_lines_that_were_kept_before_are_not_kept_twice(world: World) -> None:
    """A controller that was killed between a line and the note that it has it: the next one is told the line again."""
    follower = world.follower()
    old = '{"at": 1.0, "kind": "agent_started", "node": "a"}\n'
    follower.take_text("a", "events", old)
    again = world.follower()
    new = '{"at": 2.0, "kind": "agent_exit", "node": "a"}\n'
    again.take_text("a", "events", old + new)
    again.take_text("a", "events", new.replace("2.0", "3.0"))
    assert (world.folder / "events.jsonl").read_text() == old + new + new.replace("2.0", "3.0")


def test_a_drill_waits_for_the_first_checkpoint(world: World) -> None:
    """Killed before it, the job would begin again, which proves nothing."""
    steps = [news("a", metrics=[{"at": T0 + n, "step": n}]) for n in (1, 2, 3)]
    ends = [news("a", unit(exit_code=0)), news("b", unit(exit_code=0))]
    begun = news("a", events=[started("a", 0), started("b", 1)])
    drill = drills.Drill("worker", 1, "b", at_step=2)
    world.run(begun, *steps, *ends, drill=drill)
    assert world.killed == [] and sum("waiting for the first checkpoint" in line for line in world.said) == 1
    world.run(begun, *steps, None, *ends, drill=drill, checkpoints={"interval_steps": 2})
    assert len(world.killed) == 1


@pytest.mark.parametrize("stopped", [False, True])
def test_a_gang_of_which_one_rank_failed_and_others_succeeded_cannot_start_again(world: World, stopped: bool) -> None:
    """Its agents run on: torchrun waits at its exit. A rank that was stopped, and had saved, begins again."""
    good = {**ended("a", 0, 0), "stopped": stopped}
    lines = [started("a", 0), started("b", 1), good, ended("b", 1, 3)]
    more = [news("a", unit(exit_code=0)), news("b", unit(exit_code=0))] if stopped else []
    outcome = world.run(news("a", events=lines), news("b"), *more)
    if stopped:
        assert "others succeeded" not in outcome.detail
    else:
        assert (outcome.outcome, outcome.exit_code, outcome.cause, outcome.node) == ("failed", 3, "crash", "b")
        assert outcome.detail == "a rank on b exited with code 3 and others succeeded"


def test_a_node_that_is_lost_after_another_was_done_ends_the_run(world: World) -> None:
    lines = [started("a", 0), started("b", 1), ended("a", 0, 0)]
    killed = {"kind": "agent_restart", "at": T0 + 12, "node": "b", "detail": "node_lost", "exit_code": 137}
    found = world.run(news("a", events=lines), news("b", events=[killed]))
    assert (found.outcome, found.cause, found.node) == ("lost", "node_lost", "b")
    assert found.detail == "b was lost after the ranks of a had ended with exit code 0: the gang cannot start again"


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    ("then", "said"),
    [
        ([news("b", unit(alive=False))], "b lost its launcher after that"),
        ([lost("b"), news("b", {})], "b lost its launcher after that"),
        ([lost("b"), *[None] * 9], "b has not answered since"),
    ],
)
def test_a_node_that_is_lost_after_all_ranks_had_ended_well_ends_no_run_as_lost(
    world: World, then: list[log_follow.NodeUpdate | None], said: str
) -> None:
    """It was restarted before its launcher had written its end: what its ranks had said is known."""
    lines = [started("a", 0), started("b", 1), ended("a", 0, 0), ended("b", 1, 0)]
    done = news("a", unit(exit_code=0, cause="succeeded"))
    found = world.run(news("a", events=lines), news("b"), done, *then, restart={"wait_s": 10})
    assert (found.outcome, found.exit_code, found.cause) == ("succeeded", 0, "succeeded")
    assert found.detail == f"all ranks exited with code 0; {said}"
    assert world.restarted == []


@pytest.mark.usefixtures("clock")
def test_a_launcher_that_is_still_there_after_a_node_was_lost_is_waited_for(world: World) -> None:
    """It stores checkpoints; of a node whose rank has not said its end nothing is known."""
    lines = [started("a", 0), started("b", 1), ended("a", 0, 0), ended("b", 1, 0)]
    with pytest.raises(AssertionError, match="was not ended"):
        world.run(news("a", events=lines), news("b", unit(alive=False)))
    again = [{**line, "attempt": 2, "at": line["at"] + 20} for line in lines[:3]]
    found = world.run(news("a", events=again), news("b"), lost("b"), *[None] * 9, restart={"wait_s": 10})
    assert (found.outcome, found.detail) == ("lost", "b did not answer for 10 s")


def test_a_run_that_nobody_followed_has_ended_well_though_a_node_was_restarted_at_its_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [started("a", 0), started("b", 1), ended("a", 0, 0), ended("b", 1, 0)]
    told = {"a": news("a", unit(exit_code=0, cause="succeeded"), events=lines), "b": news("b", unit(alive=False))}
    monkeypatch.setattr(log_follow, "read_new", lambda remote, run_id, offsets: [told[remote.name]])
    follower = world.follower()
    found = follower.catch_up()
    assert found is not None and found.outcome == "succeeded" and follower.ended_at() == T0 + 9


def test_a_rendezvous_that_is_over_is_no_cause_where_another_is_known(world: World) -> None:
    """A launcher that waits for others ends with them; who closed the rendezvous may be known later."""
    closed, late = (unit(exit_code=1, cause=f"rendezvous_{why}") for why in ("closed", "timeout"))
    crash = unit(exit_code=7, cause="crash", at=T0 + 30)
    begun = [started("a", 0), started("b", 1)]
    failed = [*begun, ended("b", 1, 7), {**ended("a", 0, 143), "stopped": True}]
    found = world.run(news("a", closed, events=begun), news("b"), news("b", crash))
    assert (found.outcome, found.exit_code, found.cause, found.node) == ("failed", 7, "crash", "b")
    found = world.run(news("a", late, events=failed), news("b"))
    words = "a rank on b exited with code 7, and the gang did not form again within restart.wait_s (600 s)"
    assert (found.outcome, found.exit_code, found.detail, found.node) == ("failed", 7, words, "b")
    # The others are heard first.
    found = world.run(
        news("b", late, events=[begun[1], ended("b", 1, 3)]), news("a", events=[begun[0], ended("a", 0, 0)])
    )
    assert (found.cause, found.detail) == ("crash", "a rank on b exited with code 3 and others succeeded")


def test_a_gang_that_waits_in_vain_for_a_silent_node_has_lost_it(world: World) -> None:
    late = unit(exit_code=1, cause="rendezvous_timeout")
    found = world.run(news("a", events=[started("a", 0), started("b", 1)]), lost("b"), news("a", late))
    words = "b was lost, and the gang did not form again within restart.wait_s (600 s)"
    assert (found.outcome, found.cause, found.node, found.detail) == ("lost", "node_lost", "b", words)


def test_a_rank_that_left_before_the_others_failed_is_known(world: World) -> None:
    lines = [started("a", 0), started("b", 1), ended("b", 1, 0, at=T0 + 7), ended("a", 0, 1, at=T0 + 8)]
    found = world.run(news("a", events=lines, metrics=[{"at": T0 + 6, "step": 49}]), news("b"))
    assert (found.detail, found.node) == ("a rank on a exited with code 1 and others succeeded", "a")
    assert found.left == "rank 1 on b ended with exit code 0 at step 49 while the others went on"


def test_a_time_limit_says_how_long_it_was_and_where_the_run_stood(world: World) -> None:
    over = unit(exit_code=124, cause="timeout")
    stop = "W1128 agent/server/api.py:752] Received 15 death signal, shutting down workers\nSignalException: got signal: 15\n"
    text = f"loading the tokenizer\n\n{stop}"
    outcome = world.run(news("a", over, events=[started("a", 0)], log=text), news("b", over), timeout_s=60)
    assert outcome.detail == (
        "timeout_s (60 s) has passed before the first step; last line of a: loading the tokenizer"
    )


def test_the_errors_of_a_nodes_ranks_are_kept_the_first_one_last(world: World) -> None:
    follower = world.follower()
    follower.record_event("worker_started", T0, rank=0, node="a", attempt=1)
    world.kill_answer = {
        "files": [
            {"text": "ValueError: first", "modified_at": T0 + 5},
            {"text": "RuntimeError: the peer is gone", "modified_at": T0 + 6},
            {"text": "KeyError: of an earlier start", "modified_at": T0 - 50},
        ]
    }
    follower.keep_errors("a")
    kept = (world.folder / "logs" / "a.err").read_text()
    assert kept == "RuntimeError: the peer is gone\nValueError: first"
    follower.keep_errors(None)
    follower.keep_errors("of-another-run")
    assert [item["op"] for item in world.killed] == ["read"]


def test_a_notice_ends_the_run_so_that_it_saves_now(world: World) -> None:
    mine = world.follower()
    with (world.folder / "events.jsonl").open("a") as events:
        events.write(json.dumps({"at": T0, "kind": "notice", "node": "b", "detail": "EC2 will terminate it"}) + "\n")
    world.script = [None, None]
    outcome = mine.run()
    assert (outcome.outcome, outcome.exit_code, outcome.cause, outcome.node) == ("lost", 143, "preempted", "b")
    assert outcome.detail == "b will be taken away: EC2 will terminate it" and outcome.detail in world.said


def test_the_error_of_a_failed_attempt_is_kept_though_the_launcher_began_the_next_one(world: World) -> None:
    """It starts the gang again by itself, and on a busy machine the follower hears of the failure after that."""
    follower = world.follower()
    for at, kind, values in (
        (T0, "worker_started", {"attempt": 1}),
        (T0 + 5, "worker_exit", {"attempt": 1, "exit_code": 1}),
        (T0 + 9, "worker_started", {"attempt": 2}),
        (T0 + 10, "worker_exit", {"attempt": 2, "exit_code": 143}),
    ):
        follower.record_event(kind, at, rank=0, node="a", **values)
    world.kill_answer = {
        "files": [{"text": "", "modified_at": T0 + 10}, {"text": "ValueError: the reason", "modified_at": T0 + 5}]
    }
    follower.keep_errors("a")
    assert (world.folder / "logs" / "a.err").read_text().rstrip().endswith("ValueError: the reason")
