# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading runs back: lists and live state, with and without the nodes."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import (
    InputError,
    RefusedError,
    UnreachableError,
)
from ansible_collections.muster.training.plugins.module_utils._node import files
from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import NodeClient
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.progress import Progress
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome, load_record
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.load import load_recorded_job
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job_info import (
    read as training_job_info,
)
from ansible_collections.muster.training.tests.support.recorded_runs import Node, connect, place

Dict = dict[str, t.Any]
ROOT = pathlib.Path(__file__).parents[6]


def test_runs_are_listed_with_the_newest_first(home: StateHome) -> None:
    place(home, "old-1", 100, state="ended", outcome="failed", exit_code=3)
    place(home, "new-1", 0, attempts=[{"n": 1}, {"n": 2}, {"n": 3}])
    found = training_job_info.read_runs(home, None)
    assert [item["run_id"] for item in found["runs"]] == ["new-1", "old-1"] and found["changed"] is False
    first, second = found["summary"]
    assert (first["name"], first["restarts"], first["world_size"]["asked"]) == ("new", 2, 1)
    assert (second["outcome"], second["exit_code"], second["restarts"]) == ("failed", 3, 0)
    place(home, "lost-1", 0, attempts=[{"n": 2}])
    assert training_job_info.read_runs(home, "lost-1")["summary"][0]["restarts"] == 1, (
        "no rank of the first one started"
    )
    assert [item["run_id"] for item in training_job_info.read_runs(home, "old-1")["runs"]] == ["old-1"]
    empty = training_job_info.read_runs(StateHome({"path": str(home.root)}, "empty"), None)
    assert empty["runs"] == [] and empty["table"] == [f"no run is recorded in {home.root}/empty"]


def test_a_record_that_cannot_be_read_hides_no_other(home: StateHome) -> None:
    place(home, "old-1", 100)
    for name, text in (("later-1", '{"schema": 2}'), ("torn-1", '{"schema": ')):
        place(home, name, 0)
        (home.run_folder(name) / "run.json").write_text(text)
    found = training_job_info.read_runs(home, None)
    assert [item["run_id"] for item in found["runs"]] == ["old-1"]
    assert sorted(line.partition(": ")[0] for line in found["table"][2:]) == [
        "later-1 is not shown",
        "torn-1 is not shown",
    ]
    assert "(schema 2, this one reads 1)" in str(found["table"])
    with pytest.raises(RefusedError, match="newer version"):
        training_job_info.read_runs(home, "later-1")


def test_a_run_that_is_not_there_is_answered_with_those_that_are(home: StateHome) -> None:
    with pytest.raises(RefusedError, match="run x-1 does not exist in .*/lab. The newest runs are: none$"):
        training_job_info.read_runs(home, "x-1")
    place(home, "new-1", 0)
    with pytest.raises(RefusedError, match="The newest runs are: new-1$"):
        training_job_info.read_runs(home, "x-1")


def test_live_is_what_known_nodes_say_now(home: StateHome) -> None:
    place(home, "run-1", 0, state="running", hosts=["a", "b", "gone"])
    place(home, "done-1", 9, state="ended", hosts=["a"])
    answers: dict[str, Dict] = {
        "a": {"info": {"units": {"agent": {"alive": True}}}},
        "b": {"info": UnreachableError("b", "timed out")},
    }
    running, done = training_job_info.read_runs(home, None, training_job_info.LiveSource(connect(answers), {"a", "b"}))[
        "runs"
    ]
    found = {"units": {"a": {"agent": {"alive": True}}}, "unreachable": {"b": "b: timed out"}}
    assert running["live"] == {**found, "unasked": ["gone"]}
    shown = training_job_info.read_runs(home, "run-1", training_job_info.LiveSource(connect(answers), {"a", "b"}))
    assert "no answer from b; not asked, as the inventory lacks them: gone" in str(shown["table"])
    assert done["live"] is None


def test_asking_for_a_run_that_lives_renews_the_leases_of_its_rented_machines(home: StateHome) -> None:
    place(home, "run-1", 0, state="running", hosts=["a", "b", "c"])
    alive = {"info": {"units": {"agent": {"alive": True}}}}
    asked: list[str] = []

    def found(names: t.Sequence[str]) -> list[NodeClient]:
        nodes: list[NodeClient] = [Node(name, alive if name != "c" else {"info": {"units": {}}}) for name in names]
        for node in nodes:
            node.shell = lambda command, _data, name=node.name: (asked.append(f"{name} {command}"), (0, "", ""))[1]
        return nodes

    rented, owned = {"muster_node": {"ownership": "rented"}}, {"muster_node": {"ownership": "owned"}}
    hostvars = {"a": rented, "b": owned, "c": rented}
    (run,) = training_job_info.read_runs(home, None, training_job_info.LiveSource(found, set(hostvars), hostvars))[
        "runs"
    ]
    assert run["live"]["leases"] == {"a": "renewed"}, "neither an owned machine nor one where nothing runs"
    assert [line.split()[0] for line in asked] == ["a"] and "muster-lease" in asked[0]


def test_a_run_in_pods_is_asked_of_its_cluster(home: StateHome) -> None:
    ref = {"api_version": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "far-1", "namespace": "team"}
    place(home, "far-1", 0, backend="kubernetes", backend_ref=ref)
    place(home, "done-1", 10, backend="kubernetes", state="ended")
    asked: list[str] = []

    def ask(record: t.Mapping[str, t.Any]) -> Dict:
        asked.append(record["run_id"])
        return {"phase": "done", "detail": "JobSet team/far-1: all jobs are done"}

    found = training_job_info.read_runs(home, None, training_job_info.LiveSource(connect({}), (), None, ask))
    assert asked == ["far-1"] and found["runs"][0]["live"]["phase"] == "done"
    assert [item.get("live") for item in found["summary"]] == ["JobSet team/far-1: all jobs are done", None]


@pytest.mark.parametrize("followed", [False, True])
def test_a_run_in_pods_that_nobody_follows_is_running_and_its_steps_are_not_known(
    home: StateHome, followed: bool
) -> None:
    ref = {"api_version": "batch/v1", "kind": "Job", "name": "far-1", "namespace": "team"}
    place(home, "far-1", 0, backend="kubernetes", backend_ref=ref, state="starting")
    count = json.loads((home.run_folder("far-1") / "run.json").read_text())["job"]["nodes"]
    held = home.lock("far-1", 0.0) if followed else None
    for running, state in ((count - 1, "starting"), (count, "starting" if followed else "running")):
        answer = {"phase": "waiting", "detail": "Job team/far-1: 2 active", "running": running}
        source = training_job_info.LiveSource(connect({}), (), None, lambda _record, found=answer: found)
        (record,) = t.cast(t.Any, training_job_info.read_runs(home, None, source)["runs"])
        assert record["state"] == state
        assert ("run train with muster_run_id=far-1" in record["live"]["detail"]) is (state == "running")
    if held:
        held.close()


@pytest.mark.parametrize("followed", [False, True])
def test_a_run_in_pods_says_who_hangs_where_its_follower_keeps_that_up_to_date(home: StateHome, followed: bool) -> None:
    ref = {"api_version": "batch/v1", "kind": "Job", "name": "far-1", "namespace": "team"}
    place(home, "far-1", 0, backend="kubernetes", backend_ref=ref, state="running")
    folder = home.run_folder("far-1")
    nodes = json.loads((folder / "run.json").read_text())["job"]["nodes"]
    frame = {"path": "/x/train.py", "line": 7, "name": "main"}
    for rank, operation in enumerate(("all_reduce", None)):
        about = {"at": 1000.0, "rank": rank, "node": f"node-{rank}", "attempt": 1}
        started = {**about, "kind": "worker_started", "gang": "g", "world_size": 2, "pid": 1}
        stands = {**about, "kind": "rank_stands", "since": 1010.0, "operation": operation, "place": frame}
        for line in (started, stands):
            files.append_json(folder / "events.jsonl", line)
    held = home.lock("far-1", 0.0) if followed else None
    answer = {"phase": "running", "detail": "Job team/far-1: 2 active", "running": nodes}
    source = training_job_info.LiveSource(connect({}), (), None, lambda _record: answer)
    found = t.cast(t.Any, training_job_info.read_runs(home, None, source, now=1030.0))
    said = (
        "hangs for 20 s: rank 1 on node-1 stands at train.py:7 (main); rank 0 waits in all_reduce at train.py:7 (main)"
    )
    assert found["runs"][0]["live"].get("stalled") == (said if followed else None)
    assert (said in found["table"][-1]) is followed
    if held:
        held.close()


def test_only_the_newest_runs_and_what_a_query_selects_of_them(home: StateHome) -> None:
    for age in range(4):
        place(home, f"run-{age}", age * 100, state="ended", outcome="failed" if age % 2 else "succeeded")
    found = training_job_info.read_runs(home, None, None, 3, "runs[?outcome=='failed'].run_id")
    assert [item["run_id"] for item in t.cast("list[Dict]", found["runs"])] == ["run-0", "run-1", "run-2"]
    assert found["selected"] == ["run-1"]
    table = t.cast("list[str]", found["table"])
    assert table[-1] == "1 older runs are not shown" and len(table) == 5


@pytest.mark.parametrize(
    ("agents", "said"),
    [
        (({"alive": True}, {"alive": True}), None),
        (
            ({"alive": False, "exit": {"cause": "succeeded", "exit_code": 0, "at": 99_000.0}}, {"alive": True}),
            "a ended with exit code 0, b still runs",
        ),
        (({"alive": False, "exit": {"cause": "succeeded", "at": 99_990.0}}, {"alive": True}), None),
        (
            ({"alive": True}, {"alive": False, "exit": None}),
            "nothing of the run runs on b: the train playbook starts it again",
        ),
        (
            ({"alive": True}, {"alive": False, "exit": None, "left": 2}),
            "processes of the run run without their supervisor on b (2): the train playbook ends them and starts it again",
        ),
    ],
)
def test_a_gang_of_which_a_part_runs(
    home: StateHome, monkeypatch: pytest.MonkeyPatch, agents: tuple[Dict, Dict], said: str | None
) -> None:
    """A command whose first node has ended waits on the second one; one whose processes were killed needs a start."""
    monkeypatch.setattr(training_job_info, "_refresh", lambda _home, record, _remotes, _live: record)
    answers: dict[str, Dict] = {
        name: {"info": {"units": {"agent": agent}}} for name, agent in zip("ab", agents, strict=True)
    }
    source = training_job_info.LiveSource(
        connect(answers), {"a", "b"}, {"a": {}, "b": {}}, progress=t.cast(Progress, object())
    )
    place(home, "cmd-1", 0, state="running", hosts=["a", "b"])
    (found,) = training_job_info.read_runs(home, None, source, now=100_000.0)["summary"]
    assert found.get("stalled") == said


def test_a_run_that_makes_no_steps_is_said_to_stand(home: StateHome, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run with steps of a tenth of a second stands after half a minute, one with steps of a minute does not."""
    monkeypatch.setattr(training_job_info, "_refresh", lambda _home, record, _remotes, _live: record)
    answers: dict[str, Dict] = {"a": {"info": {"units": {"agent": {"alive": True}}}}}
    source = training_job_info.LiveSource(connect(answers), {"a"}, {"a": {}}, progress=t.cast(Progress, object()))
    for run_id, step_s in (("fast-1", 0.1), ("slow-1", 60.0)):
        place(home, run_id, 0, state="running", hosts=["a"])
        folder = home.run_folder(run_id)
        start = {"kind": "worker_started", "rank": 0, "node": "a", "attempt": 1}
        began = 100_000.0 - 30 * step_s
        files.append_json(folder / "events.jsonl", {**start, "at": began - 1})
        for step in range(30):
            files.append_json(folder / "metrics.jsonl", {"at": began + step * step_s, "step": step})

    def summaries(now: float) -> Dict:
        found = training_job_info.read_runs(home, None, source, now=now)["summary"]
        return {item["run_id"]: item.get("stalled") for item in found}

    assert summaries(100_020.0) == {"fast-1": None, "slow-1": None}
    said = {"fast-1": "no step for 9 min, a step usually takes 0.1 s", "slow-1": None}
    assert summaries(100_540.0) == said
    answers["a"] = {"info": UnreachableError("a", "timed out")}
    assert summaries(100_540.0) == {"fast-1": None, "slow-1": None}, "what a silent host does is not known"


def test_a_run_in_pods_of_an_earlier_version_is_read_and_one_of_a_later_version_too(home: StateHome) -> None:
    """Its record is one that such a version wrote; keys and options that are not known yet stay where they are."""
    first = json.loads((ROOT / "tests" / "fixtures" / "run-kubernetes-0.1.0.json").read_text())
    later = {**first, "run_id": "net-2", "orbit": {"km": 400}, "job": {**first["job"], "orbit": "low"}}
    for values in (first, later):
        folder = home.run_folder(values["run_id"])
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps(values))
    found: Dict = training_job_info.read_runs(home, None)
    assert {item["run_id"]: item["outcome"] for item in found["summary"]} == {"net-1": "failed", "net-2": "failed"}
    assert len([line for line in found["table"] if line.startswith("net-")]) == 2
    assert next(item for item in found["runs"] if item["run_id"] == "net-2")["orbit"] == {"km": 400}
    records = {name: load_record(home.run_folder(name)) for name in ("net-1", "net-2")}
    old, new = records["net-1"], records["net-2"]
    assert old is not None and new is not None and old.backend_ref is not None
    assert (load_recorded_job(old).name, old.backend_ref.kind, old.release_outcome) == ("net", "JobSet", "failed")
    with pytest.raises(InputError, match=r"job\.orbit: is not an option"):
        load_recorded_job(new)


@pytest.mark.parametrize("state", ["running", "restarting"])
def test_a_run_in_pods_that_was_followed_says_how_old_its_step_is(home: StateHome, state: str) -> None:
    """Its follower was killed: the pods train all the same, and the step is of then."""
    ref = {"api_version": "batch/v1", "kind": "Job", "name": "far-1", "namespace": "team"}
    place(home, "far-1", 0, backend="kubernetes", backend_ref=ref, state=state, attempts=[{"n": 1, "last_step": 2}])
    nodes = json.loads((home.run_folder("far-1") / "run.json").read_text())["job"]["nodes"]

    def show(running: int, phase: str = "waiting") -> Dict:
        answer = {"phase": phase, "detail": "Job team/far-1: 2 active", "running": running}
        source = training_job_info.LiveSource(connect({}), (), None, lambda _record: answer)
        return t.cast(Dict, training_job_info.read_runs(home, None, source, now=1_000_540.0))

    said = "not followed from here for 9 min, and its step is as old: run train with muster_run_id=far-1 to follow it"
    whole, part = show(nodes), show(nodes - 1)
    assert whole["runs"][0]["state"] == "running" and whole["runs"][0]["live"]["detail"] == said
    assert whole["table"][-1].endswith(said) and " 2 " in whole["table"][-1]
    assert (
        part["runs"][0]["state"] == state and part["runs"][0]["live"]["detail"] == f"{said} (Job team/far-1: 2 active)"
    )
    assert show(0, "done")["runs"][0]["live"]["detail"] == "Job team/far-1: 2 active"
    held = home.lock("far-1", 0.0)
    assert show(nodes)["runs"][0]["live"]["detail"] == "Job team/far-1: 2 active", "its follower keeps it up to date"
    held.close()
