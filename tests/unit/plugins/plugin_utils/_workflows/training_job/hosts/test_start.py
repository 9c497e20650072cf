# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# ruff: noqa: F401, F811  # fixtures are imported
"""Starting a gang: the record it begins with, which members are started, and what a failed start leaves."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import shutil
import sys
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job, to_yaml_names
from ansible_collections.muster.training.plugins.module_utils._model.network_plan import NetworkPlan
from ansible_collections.muster.training.plugins.module_utils._model.node import Node
from ansible_collections.muster.training.plugins.module_utils._model.node_report import (
    LiveRun,
    NodeReport,
    SeenCheckpoint,
)
from ansible_collections.muster.training.plugins.module_utils._model.run_record import RunRecord, WorldSize
from ansible_collections.muster.training.plugins.module_utils._node import files
from ansible_collections.muster.training.plugins.plugin_utils._hosts import gang
from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import NodeClient
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import run_record
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.request import RunRequest
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.hosts import follow, start
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.hosts.plan import TrainingHost
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.hosts.state import HostsPlan
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.lease_guard import NoLeases
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.source import CodeSource
from ansible_collections.muster.training.tests.support.node_lab import eventually
from ansible_collections.muster.training.tests.support.run_world import RunWorld, Said
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._workflows.training_job.hosts.test_run import (
    failing_until_mended,
    gone,
    world,
)

Dict = dict[str, t.Any]
ALIVE: Dict = {"alive": True, "exit": None, "generation": 3}
LOST: Dict = {"alive": False, "exit": None, "generation": 3}
VERDICT: Dict = {"island": "i", "outcome": "pass", "lane": "tcp", "table": []}


def silent(_command: str, _data: bytes) -> tuple[int, str, str]:
    raise AssertionError("no node is called")


def make_plan(launcher: str = "torchrun", verdict: t.Any = None, **agents: Dict) -> HostsPlan:
    program: Dict = {"command": ["true"]} if launcher == "command" else {"script": "/t.py"}
    job = parse_job({"name": "x", "nodes": 2, "launcher": launcher, **program})
    training = {"version": "3.12.1", "packages": {"torch": "2.9"}}
    reports = {
        name: NodeReport.from_dict(
            {"units": {"agent": agents[name]} if name in agents else {}, "training": training, "kernel": "6.1"}
        )
        for name in "ab"
    }
    hosts = [
        TrainingHost(name, f"127.0.0.{index}", "python3", 2.0, "ssh", {}, Node(name))
        for index, name in enumerate("ab", 1)
    ]
    numbers = ("effective_batch", "learning_rate_advice", "price_usd_per_hour", "predicted_allreduce_s", "checkpoints")
    derived = {"world_size": 2, **dict.fromkeys(numbers)}
    remotes = [NodeClient(name, silent, program=f"/agent/{name}") for name in "ab"]
    planned = NetworkPlan((verdict,) if verdict else ())
    return HostsPlan(job, "r-1", hosts, CodeSource((), "ab", "c0ffee"), remotes, reports, [], derived, planned)


def make_record(plan: HostsPlan, **changes: t.Any) -> RunRecord:
    return run_record.new_record("r-1", to_yaml_names(plan.job), 1.0, **{"generation": 3, **changes})


class Gang:
    """Takes the place of the nodes' answers: ``calls`` are what was asked of which nodes."""

    def __init__(self, root: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home, self.said = StateHome({"path": str(root)}, "lab"), Said()
        self.folder = self.home.run_folder("r-1")
        self.calls: list[tuple[t.Any, ...]] = []
        self.members: list[Dict] = []
        self.attempts: list[int] = []
        self.problem: MusterError | None = None
        monkeypatch.setattr(gang, "stop_gang", lambda remotes, *_rest: self.note("stop", remotes))
        monkeypatch.setattr(gang, "take_over_run", lambda remotes, *_rest: self.note("take over", remotes))
        monkeypatch.setattr(gang, "prepare_gang", self.prepare)
        monkeypatch.setattr(gang, "start_gang", self.start)
        monkeypatch.setattr(start, "_build_members", self.build)
        monkeypatch.setattr(start.lease_guard, "bind_run", lambda *_args: NoLeases())

    def note(self, word: str, remotes: t.Iterable[NodeClient], *more: t.Any) -> None:
        self.calls.append((word, "".join(remote.name for remote in remotes), *more))

    def build(self, _home: StateHome, plan: HostsPlan, attempt: int, _resolved: t.Any) -> list[gang.GangMember]:
        self.attempts.append(attempt)
        meet = {"host": "127.0.0.1"}
        return [gang.GangMember(remote, {}, {}, None, {}, {}, 0, (), meet, meet) for remote in plan.remotes]

    def prepare(self, members: list[gang.GangMember], *_rest: t.Any, fresh: bool, proof: Dict, say: object) -> None:
        assert proof["name"].startswith(".muster-shared-")
        self.note("prepare", [member.remote for member in members], fresh)
        self.members = [{"meet": member.meet, "reach": member.reach} for member in members]
        if self.problem:
            raise self.problem

    def start(self, members: list[gang.GangMember], _run_id: str, fresh: bool) -> list[str]:
        self.note("start", [member.remote for member in members], fresh)
        return [member.remote.name for member in members]

    def request(self, **options: t.Any) -> RunRequest:
        given = {"wait": False, "cluster": "default", "take_over": False, **options}
        variables: Dict = {"a": {"inventory_file": "/i.yml"}, "b": {}}
        return RunRequest(
            *(given, ["a", "b"], variables, self.home.folder, False, lambda _names: [], self.said),
            command_line=("-e", "@/job.yml"),
        )

    def play(self, plan: HostsPlan, before: RunRecord | None = None, **options: t.Any) -> Dict:
        return start.start_or_join(self.request(**options), self.home, plan, before, ({}, {}), None)

    def events(self) -> list[str]:
        place = self.folder / "events.jsonl"
        return [json.loads(line)["kind"] for line in place.read_text().splitlines()] if place.exists() else []


@pytest.fixture
def nodes(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Gang:
    return Gang(tmp_path, monkeypatch)


def test_a_new_run_starts_on_all_nodes(nodes: Gang) -> None:
    result = nodes.play(make_plan(verdict=VERDICT))
    assert nodes.calls == [("prepare", "ab", True), ("start", "ab", True)] and nodes.attempts == [1]
    assert result["changed"] is True and result["run"]["state"] == "starting"
    assert nodes.events() == ["submitted", "started", "versions", "versions"]
    begun = json.loads((nodes.folder / "events.jsonl").read_text().splitlines()[0])["nodes"]
    assert begun == [{"id": name, "token": None, "price_usd_per_hour": 2.0} for name in "ab"]
    assert files.read_json(nodes.folder / "run.json") == json.loads(json.dumps(result["run"]))
    assert files.read_json(nodes.folder / "fabric.json") == {"schema": 1, "islands": [VERDICT]}
    assert files.read_json(nodes.home.folder / "agents.json") == {"a": "/agent/a", "b": "/agent/b"}


def test_a_run_on_all_nodes_is_joined_and_not_started(nodes: Gang) -> None:
    plan = make_plan(a=ALIVE, b=ALIVE)
    result = nodes.play(plan, make_record(plan))
    assert nodes.calls == [] and nodes.events() == [] and nodes.attempts == [3]
    assert result["changed"] is False and result["run"]["state"] == "running"
    assert "already running" in nodes.said.lines[0]
    nodes.play(plan, make_record(plan), take_over=True)
    assert nodes.calls == [("take over", "ab")]


def test_only_the_missing_node_of_a_running_gang_is_started(nodes: Gang) -> None:
    plan = make_plan(a=ALIVE, b=LOST)
    assert nodes.play(plan, make_record(plan))["changed"] is True
    assert nodes.calls == [("prepare", "b", False), ("start", "b", False)] and nodes.events()[0] == "started"
    assert nodes.members == [{"meet": None, "reach": None}], "its peers no longer wait for it"
    assert "b: not running: agent; starting again" in nodes.said.lines


def test_under_mpirun_a_gang_without_one_part_is_started_as_a_whole(nodes: Gang) -> None:
    """Its parts share keys that are not stored."""
    plan = make_plan("mpi", a=ALIVE, b=LOST)
    assert nodes.play(plan, make_record(plan))["run"]["state"] == "starting"
    assert nodes.calls == [("stop", "ab"), ("prepare", "ab", False), ("start", "ab", False)]
    assert nodes.attempts == [4]


def test_what_is_left_of_a_lost_run_is_stopped_before_it_begins_anew(nodes: Gang) -> None:
    """The node was cut off when the run ended as lost: its launcher waits there for a gang that is gone."""
    plan = make_plan(b=ALIVE)
    before = run_record.end_record(make_record(plan), 2.0, outcome="lost")
    assert nodes.play(plan, before)["run"]["state"] == "starting"
    assert nodes.calls == [("stop", "b"), ("prepare", "ab", False), ("start", "ab", False)]
    assert nodes.attempts == [4] and "a part of the start that has ended still runs on b" in nodes.said.lines[1]
    later = make_plan(a={**ALIVE, "generation": 4}, b={**ALIVE, "generation": 4})
    nodes.calls.clear()
    nodes.play(later, before)
    assert nodes.calls == [], "another controller has begun it since"


def test_an_end_that_was_not_recorded_starts_nothing(nodes: Gang, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read, also by a start that does not wait: there is nothing to wait for."""
    monkeypatch.setattr(follow, "follow_run", lambda *_unused, changed, **_more: {"changed": changed, "read": True})
    end = {"alive": False, "exit": {"generation": 3, "cause": "succeeded"}, "generation": 3}
    plan = make_plan(a=end, b=end)
    assert nodes.play(plan, make_record(plan)) == {"changed": False, "read": True} and nodes.calls == []


def test_a_failed_first_start_leaves_no_folder(nodes: Gang) -> None:
    nodes.problem = MusterError("b: no", "Do this")
    with pytest.raises(MusterError, match="b: no"):
        nodes.play(make_plan(verdict=VERDICT))
    assert not nodes.folder.exists() and not (nodes.home.folder / "agents.json").exists()


def test_a_failed_later_start_leaves_the_former_end(nodes: Gang) -> None:
    nodes.problem, plan = MusterError("b: no", "Do this"), make_plan()
    before = run_record.end_record(make_record(plan), 2.0, outcome="failed", exit_code=7)
    with pytest.raises(MusterError, match="b: no"):
        nodes.play(plan, before)
    assert files.read_json(nodes.folder / "run.json") == json.loads(json.dumps(before.to_dict()))


@pytest.mark.parametrize(
    ("agents", "known", "running", "expected"),
    [
        ({}, None, False, 1),
        ({}, 3, False, 4),
        ({"a": LOST}, None, False, 4),
        ({"a": LOST}, 5, False, 6),
        ({"a": ALIVE}, 1, True, 3),
    ],
)
def test_the_first_attempt_has_a_number_that_was_not_used(
    agents: Dict, known: int | None, running: bool, expected: int
) -> None:
    plan = make_plan(**agents)
    before = make_record(plan, generation=known) if known else None
    assert start._first_attempt(plan, before, running) == expected


def test_a_run_that_continues_keeps_when_it_was_submitted(nodes: Gang) -> None:
    plan = make_plan(verdict=VERDICT)
    former = make_record(plan, world_size=WorldSize(4, 3))
    before = run_record.end_record(former, 2.0, outcome="failed", exit_code=7, cause="crash")
    record = start._open_record(plan, before, 4, running=False, request=nodes.request())
    assert (record.state, record.outcome, record.exit_code, record.cause) == ("starting", None, None, None)
    assert record.submitted_at == before.submitted_at and record.world_size == WorldSize(2, 3)
    assert record.generation == 4 and record.hosts == ("a", "b")
    assert (record.inventory, record.command_line) == ("/i.yml", ("-e", "@/job.yml"))
    assert record.versions == {"python": "3.12.1", "kernel": "6.1", "torch": "2.9", "commit": "c0ffee"}
    assert record.fabric == {"island": "i", "outcome": "pass", "lane": "tcp"}
    assert start._open_record(plan, before, 4, running=True, request=nodes.request()).state == "running"


def test_the_first_line_has_what_is_known_of_the_run() -> None:
    said, plan = Said(), make_plan()
    start._announce(said, plan, False)
    known = {
        "effective_batch": 64,
        "learning_rate_advice": 0.002,
        "price_usd_per_hour": 4,
        "predicted_allreduce_s": 0.5,
        "checkpoints": "checkpoints per node",
        "lane": "loopback",
    }
    plan.derived.update(known)
    start._announce(said, plan, False)
    first = "run r-1: 2 nodes × 1 = world size 2"
    rest = "effective batch 64 · linear scaling suggests learning rate 0.002 · $4.00 an hour"
    assert said.lines == [
        first,
        f"{first} · {rest} · 0.5 s per all-reduce of all gradients · 2 nodes on 1 machine · checkpoints per node",
    ]


def test_other_runs_on_the_same_hosts_are_named() -> None:
    said, plan = Said(), make_plan()
    other, mine = (LiveRun(name) for name in ("long-1", plan.run_id))
    reports = {name: dataclasses.replace(report, live_runs=(other, mine)) for name, report in plan.reports.items()}
    plan = dataclasses.replace(plan, reports=reports)
    start._announce(said, plan, False)
    names = ", ".join(host.name for host in plan.hosts)
    assert said.lines[1:] == [f"warning: long-1 is running here too ({names})"]
    start._announce(said, plan, True)
    assert len(said.lines) == 3, "of a run that is only joined nothing is new"


def test_a_node_that_cannot_start_leaves_nothing_anywhere(world: RunWorld) -> None:
    blocked = files.private_dir(world.lab.run("b", world.run_id)) / "units"
    blocked.write_text("in the way")
    with pytest.raises(MusterError, match="^b: "):
        world.play(world.job("sleep", "60"))
    assert gone(world) and world.lab.left() == {} and not world.folder().exists()
    assert not world.lab.run("a", world.run_id).exists() or list(world.lab.run("a", world.run_id).iterdir()) == []
    # A run that had been there keeps its record.
    blocked.unlink(missing_ok=True)
    assert world.play(world.job("false"))["run"]["outcome"] == "failed"
    failed = json.loads((world.folder() / "run.json").read_text())
    shutil.rmtree(world.lab.run("b", world.run_id) / "units")
    (world.lab.run("b", world.run_id) / "units").write_text("in the way")
    with pytest.raises(MusterError, match="^b: "):
        world.play(world.job("sleep", "60"))
    assert json.loads((world.folder() / "run.json").read_text()) == failed and gone(world)


def test_a_run_continues_on_a_new_machine_of_the_old_name(world: RunWorld) -> None:
    job = world.job("sh", "-c", failing_until_mended(world))
    world.play(job)
    shutil.rmtree(world.lab.state("b"))
    (world.root / "mended").touch()
    world.play(job, wait=False)
    eventually(lambda: (world.lab.run("b", world.run_id) / "units" / "agent" / "exit.json").exists(), "the end on b")
    found = world.play(job)
    assert (found["run"]["outcome"], found["run"]["world_size"]["seen"]) == ("succeeded", 2)


ANY = "continues from the checkpoint of step 30, or the newest one that is left"
OTHER = "continues from the newest checkpoint that is left, ckpt-20.pt on b (it reported step 30 last)"
NONE = (
    "no node has a checkpoint in /c (it reported step 30 last): it begins at its first step, unless its program finds "
)
STORED = "continues from the newest checkpoint in its bucket (it reported step 30 last): no node has one"


@pytest.mark.parametrize(
    ("outcome", "differs", "seen", "checkpoints", "words"),
    [
        ("failed", [], ["ckpt-30.pt", None], {}, "has failed, and continues from the checkpoint of step 30"),
        ("lost", [], [None, "ckpt_it000030"], {}, "was lost, and continues from the checkpoint of step 30"),
        ("failed", [], ["latest.pt", "rank-1"], {}, "has failed, and continues from the checkpoint of step 30"),
        ("cancelled", [], [None, "ckpt-20.pt"], {}, f"was cancelled, and {OTHER}"),
        ("cancelled", [], ["latest.pt", None], {}, f"was cancelled, and {ANY}"),
        ("lost", [], [], {}, f"was lost, and {ANY}"),
        ("failed", [], [None, None], {}, f"has failed, and {NONE}one elsewhere"),
        ("failed", [], [None, None], {"binding": "s3"}, f"has failed, and {STORED}"),
        ("failed", [], [], {"resume": "never"}, "has failed, and begins at its first step (checkpoints.resume: never)"),
        (
            "failed",
            ["checkpoints.path (a, b)"],
            [],
            {},
            "has failed, and begins in another folder for checkpoints, with",
        ),
    ],
)
def test_what_a_run_continues_from_is_said_as_far_as_it_is_known(
    outcome: str, differs: list[str], seen: list[str | None], checkpoints: Dict, words: str
) -> None:
    job = parse_job({"name": "x", "nodes": 2, "script": "/t.py", "checkpoints": checkpoints})
    made = run_record.new_record("x-1", to_yaml_names(parse_job({"name": "x", "nodes": 2, "script": "/t.py"})), 1000.0)
    value = {**made.to_dict(), "outcome": outcome, "checkpoint": {"step": 30, "path": None}}
    found = {node: SeenCheckpoint("/c", name) for node, name in zip("ab", seen, strict=False)}
    said = start._describe_continuation(RunRecord.from_dict(value), differs, job, found)
    assert said == f"run x-1 {words}" + (" another job: checkpoints.path (a, b)" if differs else "")


def test_what_is_left_of_a_run_is_looked_for_when_it_is_stopped_and_when_it_continues(world: RunWorld) -> None:
    """Node b has a copy of step 20, and the step that was reported last is nowhere."""
    saved = world.lab.run("b", world.run_id) / "checkpoints"
    reports = (
        "import json, os, time; place = open(os.environ['MUSTER_METRICS_FILE'], 'a', buffering=1); "
        "print(json.dumps({'at': time.time(), 'checkpoint_step': 40}), file=place); time.sleep(60)"
    )
    world.play(world.job(sys.executable, "-c", reports), wait=False)
    metrics = world.lab.run("a", world.run_id) / "metrics.jsonl"
    eventually(lambda: metrics.exists() and "40" in metrics.read_text(), "the report")
    saved.mkdir(parents=True, exist_ok=True)
    (saved / "ckpt-20.pt").write_text("whole")
    world.play(None, state="cancelled")
    assert "; its newest checkpoint is ckpt-20.pt on b (it reported step 40 last). Cont" in world.said.lines[-1]
    world.play(world.job("true"))
    assert any(
        "continues from the newest checkpoint that is left, ckpt-20.pt on b" in line for line in world.said.lines
    )


@pytest.mark.parametrize(
    ("checkpoints", "step", "is_refused"),
    [
        ({}, 30, True),
        ({}, None, False),
        ({"resume": "never"}, 30, False),
        ({"resume": "required"}, 30, False),
        ({"binding": "bucket"}, 30, False),
    ],
)
def test_a_run_does_not_leave_its_checkpoints_behind_unasked(
    checkpoints: Dict, step: int | None, is_refused: bool
) -> None:
    plan = make_plan()
    checkpoint = None if step is None else {"step": step, "path": None}
    value = {**make_record(plan).to_dict(), "outcome": "failed", "checkpoint": checkpoint}
    job = parse_job({"name": "x", "nodes": 2, "script": "/t.py", "checkpoints": {"path": "/large", **checkpoints}})
    moved = dataclasses.replace(plan, job=job)
    if not is_refused:
        assert start.require_same_job(moved, RunRecord.from_dict(value))
        return
    with pytest.raises(RefusedError, match=r"r-1 has a checkpoint of step 30, and would begin without it") as refusal:
        start.require_same_job(moved, RunRecord.from_dict(value))
    assert "set checkpoints.resume: required, or set checkpoints.resume: never" in str(refusal.value)
