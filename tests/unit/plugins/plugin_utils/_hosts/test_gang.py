# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gang on two real nodes: all are prepared before any starts, and a failure of one leaves nothing on the others."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import shutil
import sys
import threading
import typing as t
import uuid

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import job_checkpoints
from ansible_collections.muster.training.plugins.module_utils._model.errors import (
    EmptiedError,
    MusterError,
    NodeError,
    StoppedNodeError,
    UnreachableError,
)
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.module_utils._node import files as node_files
from ansible_collections.muster.training.plugins.module_utils._node import host_units, shared_folder
from ansible_collections.muster.training.plugins.module_utils._secrets import scrubber
from ansible_collections.muster.training.plugins.plugin_utils._hosts import file_sync, gang
from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import NodeClient
from ansible_collections.muster.training.tests.support.node_lab import (
    NodeLab,
    NodeShell,
    eventually,
    free_port,
    unit_exit,
)

RUN = f"r-{uuid.uuid4().hex[:8]}"
CLAIM = {"owner": "me", "controller": "here"}
Dict = dict[str, t.Any]


@pytest.fixture
def lab(tmp_path: pathlib.Path) -> t.Iterator[NodeLab]:
    lab = NodeLab(tmp_path)
    yield lab
    lab.close()


def member(lab: NodeLab, name: str, *argv: str, **changes: t.Any) -> gang.GangMember:
    spec = lab.spec(name, RUN, argv or ["sleep", "60"])
    values: Dict = {"files": {}, "store": None, "secrets": {}, "missing": {}, "free_bytes": 1 << 30, "write": ()}
    return gang.GangMember(**{"remote": lab.installed(name, owner="me"), "spec": spec, **values, **changes})


def names(lab: NodeLab, name: str) -> list[str]:
    """Return what is in a node's run folder beside the folder's own name."""
    run = lab.run(name, RUN)
    return sorted(path.name for path in run.iterdir() if path.name != "folder.json") if run.exists() else []


def test_both_are_prepared_and_started_with_what_they_need(lab: NodeLab, tmp_path: pathlib.Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "t.py").write_text("print('from the tree')\n")
    placed = [gang.PlacedTree(file_sync.read_tree(code, "o"), "code", False)]
    missing = dict.fromkeys((file.sha256 for file in placed[0].tree.files), 0)
    where: Dict = {"host": "127.0.0.1", "port": free_port(), "seconds": 30}
    files = {"script.sh": "cat {program}/run.py", "plain": "{other}"}
    secrets = gang.secret_payload({"TOKEN": "geheim-42"}, {"CERT": b"\x00geheim"})
    common: Dict = {"files": files, "secrets": secrets, "missing": missing}
    argv = (sys.executable, "-c", "print(open('{program}/run.py').read()[:6]); exec(open('code/t.py').read())")
    a = member(lab, "a", *argv, **common, meet={**where, "peers": 1})
    b = member(lab, "b", *argv, **common, reach=where)
    gang.prepare_gang([a, b], placed, CLAIM, RUN)
    for name in "ab":
        run = lab.run(name, RUN)
        assert (
            run / "script.sh"
        ).read_text() == f"cat {lab.state(name)}/agent/{pathlib.Path(str(a.remote.program)).name}/run.py"
        assert (run / "plain").read_text() == "{other}" and node_files.read_json(run / "claim.json") == CLAIM
        assert (run / "secrets" / "CERT").read_bytes() == b"\x00geheim" and lab.left() == {}
    assert gang.start_gang([a, b], RUN) == ["a", "b"]
    for name in "ab":
        assert unit_exit(lab.run(name, RUN))["exit_code"] == 0
        assert (lab.run(name, RUN) / "units" / "agent" / "log").read_text() == "import\nfrom the tree\n"
        assert "geheim" not in (lab.run(name, RUN) / "units" / "agent" / "spec.json").read_text()
    eventually(lambda: lab.left() == {}, "the supervisors' end")
    answers, errors = gang.stop_gang([a.remote, b.remote], RUN, 5)
    assert errors == {} and [answers[name]["left"] for name in "ab"] == [[], []]
    assert not [name for name in "ab" if {"claim.json", "secrets"} & set(names(lab, name))]


def test_a_gang_that_runs_is_not_started_again(lab: NodeLab) -> None:
    both = [member(lab, "a"), member(lab, "b")]
    gang.prepare_gang(both, [], CLAIM, RUN)
    assert (
        gang.start_gang(both[:1], RUN) == ["a"]
        and gang.start_gang(both, RUN) == ["b"]
        and gang.start_gang(both, RUN) == []
    )
    gang.undo_start([item.remote for item in both], RUN, fresh=False)
    assert lab.left() == {}


def test_a_run_is_not_started_again_on_a_node_that_was_emptied(lab: NodeLab) -> None:
    """Of one whose run folder alone is gone it is: what other nodes have of its checkpoints comes back."""
    one = member(lab, "a")
    gang.prepare_gang([one], [], CLAIM, RUN, again=True)
    shutil.rmtree(lab.run("a", RUN))
    gang.prepare_gang([one], [], CLAIM, RUN, again=True)
    shutil.rmtree(lab.run("a", RUN))
    shutil.rmtree(str(one.remote.program))
    with pytest.raises(EmptiedError, match="nothing of run"):
        gang.prepare_gang([one], [], CLAIM, RUN, again=True)
    assert names(lab, "a") == []


def test_a_node_is_not_started_again_once_the_run_was_stopped_on_it(lab: NodeLab) -> None:
    """A follower may have seen it gone just before; the same command starts it anew."""
    one = member(lab, "a")
    gang.prepare_gang([one], [], CLAIM, RUN)
    assert gang.start_gang([one], RUN) == ["a"]
    gang.stop_gang([one.remote], RUN, 5)
    for again in (
        lambda: gang.prepare_gang([one], [], CLAIM, RUN, again=True),
        lambda: gang.start_gang([one], RUN, again=True),
    ):
        with pytest.raises(StoppedNodeError, match=f"^a: run {RUN} was stopped on it$"):
            again()
    assert lab.left() == {}
    gang.prepare_gang([one], [], CLAIM, RUN)
    assert gang.start_gang([one], RUN) == ["a"]
    gang.undo_start([one.remote], RUN, fresh=False)


def test_a_node_that_cannot_be_prepared_gives_all_up_and_is_named(lab: NodeLab) -> None:
    (lab.root / "file").touch()
    secrets = gang.secret_payload({"TOKEN": "geheim-42"}, {})
    a, b = member(lab, "a", secrets=secrets), member(lab, "b", write=(f"{lab.root}/file/ckpt",))
    with pytest.raises(NodeError, match=f"^b: {lab.root}/file/ckpt cannot be written: Not a directory$"):
        gang.prepare_gang([a, b], [], CLAIM, RUN)
    assert [names(lab, name) for name in "ab"] == [[], []] and lab.left() == {}


def test_a_checkpoint_folder_that_all_nodes_see_is_left_empty(lab: NodeLab, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "shared" / RUN
    both = [member(lab, name, shared=str(folder), write=(str(folder),)) for name in "ab"]
    gang.prepare_gang(both, [], CLAIM, RUN, proof=shared_folder.new_proof())
    assert [path.name[:15] for path in folder.iterdir()] == [".muster-shared-"]
    gang.start_gang(both, RUN)
    assert list(folder.iterdir()) == []
    gang.undo_start([item.remote for item in both], RUN, fresh=False)


def test_a_checkpoint_folder_of_each_nodes_own_is_refused(
    lab: NodeLab, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_checkpoints, "VISIBLE_S", 0.3)
    own = {name: str(tmp_path / f"disk-{name}" / RUN) for name in "ab"}
    both = [member(lab, name, shared=own[name], write=(own[name],)) for name in "ab"]
    with pytest.raises(NodeError, match=f"^b: does not see in {own['b']} what a wrote there .* one folder") as caught:
        gang.prepare_gang(both, [], CLAIM, RUN, fresh=True, proof=shared_folder.new_proof())
    for way in ("Mount one shared file system", "a folder on one in checkpoints.path", "checkpoints.shared: false"):
        assert way in caught.value.fix
    assert [names(lab, name) for name in "ab"] == [[], []] and lab.left() == {}
    assert list(pathlib.Path(own["a"]).iterdir()) == [] and not pathlib.Path(own["b"]).exists()


def test_a_node_that_joins_a_running_gang_is_not_asked_again(lab: NodeLab, tmp_path: pathlib.Path) -> None:
    both = [member(lab, name, shared=str(tmp_path / name)) for name in "ab"]
    joining = [gang.without_peers(item, both) for item in both]
    gang.prepare_gang(joining, [], CLAIM, RUN, proof=shared_folder.new_proof())
    gang.undo_start([item.remote for item in both], RUN, fresh=True)


def test_a_node_that_cannot_start_stops_the_others(lab: NodeLab) -> None:
    both = [member(lab, "a"), member(lab, "b")]
    gang.prepare_gang(both, [], CLAIM, RUN)
    (lab.run("b", RUN) / "units").write_text("in the way")
    with pytest.raises(NodeError, match="^b: cannot start the unit: "):
        gang.start_gang(both, RUN)
    assert lab.left() == {} and unit_exit(lab.run("a", RUN))["cause"] == "cancelled"
    assert [("claim.json" in names(lab, name)) for name in "ab"] == [False, False]


def test_a_node_that_does_not_answer_gives_the_others_up(lab: NodeLab) -> None:
    def cut(command: str, data: bytes) -> tuple[int, str, str]:
        raise UnreachableError("b", "timed out", "Check its address")

    a, b = member(lab, "a"), member(lab, "b")
    b.remote.shell = cut
    with pytest.raises(UnreachableError, match="^b: timed out. Check its address$"):
        gang.prepare_gang([a, b], [], CLAIM, RUN)
    assert names(lab, "a") == []
    answers, errors = gang.stop_gang([a.remote, b.remote], RUN, 1)
    assert list(answers) == ["a"] and isinstance(errors["b"], UnreachableError)


def test_a_run_of_another_controller_is_left_alone(lab: NodeLab) -> None:
    other = member(lab, "a")
    gang.prepare_gang([other], [], {"owner": "you", "controller": "there"}, RUN)
    gang.start_gang([other], RUN)
    mine = [
        gang.GangMember(**{**_fields(other), "remote": lab.remote("a", program=other.remote.program, owner="me")}),
        member(lab, "b"),
    ]
    with pytest.raises(MusterError, match=rf"^a: run {RUN} belongs to another controller \(there\)$"):
        gang.prepare_gang(mine, [], CLAIM, RUN)
    assert host_units.unit_status(lab.run("a", RUN) / "units" / "agent")["alive"] is True and names(lab, "b") == []


def _fields(item: gang.GangMember) -> Dict:
    return {field.name: getattr(item, field.name) for field in dataclasses.fields(item)}


def test_a_run_that_lives_is_taken_over_on_all_nodes(lab: NodeLab) -> None:
    both = [member(lab, "a"), member(lab, "b")]
    gang.prepare_gang(both, [], CLAIM, RUN)
    gang.start_gang(both, RUN)
    other = {"owner": "you", "controller": "there"}
    with pytest.raises(MusterError, match=rf"run {RUN} belongs to another controller \(here\)"):
        gang.take_over_run([item.remote for item in both], RUN, other)
    gang.take_over_run([item.remote for item in both], RUN, {**other, "take_over": True})
    assert [node_files.read_json(lab.run(name, RUN) / "claim.json") for name in "ab"] == [other, other]
    # Whoever held it before can no longer stop it.
    answers, errors = gang.stop_gang([item.remote for item in both], RUN, 5)
    assert answers == {} and set(errors) == {"a", "b"}


def test_a_node_without_the_agent_gets_it_first(lab: NodeLab) -> None:
    fresh = member(lab, "a", "true", remote=lab.remote("a"))
    gang.prepare_gang([fresh], [], CLAIM, RUN)
    assert fresh.remote.program == str(lab.state("a") / "agent" / pathlib.Path(str(fresh.remote.program)).name)
    assert pathlib.Path(str(fresh.remote.program), "run.py").exists()


def test_a_unit_has_every_field_that_the_supervisor_reads() -> None:
    job = parse_job(
        {"name": "x", "script": "/t.py", "restart": {"max_crashes": 2, "max_lost_nodes": 5, "fatal_exit_codes": [9]}}
    )
    spec = gang.unit_spec(job, "a", "/s/runs/r", "r", "agent", argv=["x"], policy="never", generation=1)
    assert set(spec) == set(host_units.UnitSpec.__annotations__) - {"manager"}, "this one is set on the node"
    assert (spec["folder"], spec["events"]) == ("/s/runs/r/units/agent", "/s/runs/r/events.jsonl")
    marks = {
        gang.unit_spec(job, "a", folder, "r", unit)["marker"]
        for folder in ("/s/runs/r", "/t/runs/r")
        for unit in ("agent", "store")
    }
    assert spec["marker"] in marks and len(marks) == 4
    assert (spec["max_crashes"], spec["max_lost"], spec["launcher_restarts"], spec["fatal_exit_codes"]) == (
        2,
        5,
        7,
        [9],
    )
    strict = parse_job({"name": "x", "script": "/t.py", "restart": {"on_lost_node": "fail"}})
    assert gang.unit_spec(strict, "a", "/s", "r", "agent")["max_lost"] == 0


def test_no_secrets_are_no_payload() -> None:
    assert gang.secret_payload({}, {}) == {}
    assert gang.secret_payload({"A": "1"}, {"F": b"\xff"}) == {"env": {"A": "1"}, "files": {"F": "/w=="}, "masks": []}
    for secret in ("geheim/42", "first line\nshort\n"):
        scrubber.remember(secret)
    payload = gang.secret_payload({"A": "geheim/42", "PLACE": "s3://data/names"}, {"F": b"first line\nshort\n"})
    masks = payload["masks"]
    assert {"geheim/42", "geheim%2F42", "first line", "first line\nshort"} <= {*masks}
    assert not {"short", "s3://data/names"} & {*masks}


class Slow(NodeShell):
    """A node whose files take long to arrive: their request is held until the other node has been asked to prepare."""

    def __init__(self, env: t.Mapping[str, str], other: threading.Event) -> None:
        super().__init__(env)
        self.other, self.overtaken = other, False

    def __call__(self, command: str, data: bytes) -> tuple[int, str, str]:
        if json.loads(data.splitlines()[-1])["op"] == "put":
            self.overtaken = self.other.wait(1.0)
        return super().__call__(command, data)


class Telling(NodeShell):
    """A node that tells when it is asked to prepare."""

    def __init__(self, env: t.Mapping[str, str], asked: threading.Event) -> None:
        super().__init__(env)
        self.asked = asked

    def __call__(self, command: str, data: bytes) -> tuple[int, str, str]:
        if json.loads(data.splitlines()[-1])["op"] == "prepare":
            self.asked.set()
        return super().__call__(command, data)


def test_no_node_waits_for_its_peers_before_all_files_have_arrived(lab: NodeLab, tmp_path: pathlib.Path) -> None:
    (tmp_path / "data").write_text("much of it")
    placed = [gang.PlacedTree(file_sync.read_tree(tmp_path / "data", "o"), "data", False)]
    missing = {placed[0].tree.files[0].sha256: 0}
    asked = threading.Event()
    slow = Slow(lab.env, asked)
    where: Dict = {"host": "127.0.0.1", "port": free_port(), "seconds": 30}
    a, b = member(lab, "a", missing=missing), member(lab, "b", missing=missing)
    a.remote.shell, b.remote.shell = Telling(lab.env, asked), slow
    both = [dataclasses.replace(a, meet={**where, "peers": 1}), dataclasses.replace(b, reach=where)]
    gang.prepare_gang(both, placed, CLAIM, RUN)
    assert slow.overtaken is False


def test_the_shell_is_all_that_a_node_needs() -> None:
    assert [field.name for field in dataclasses.fields(NodeClient)][:2] == ["name", "shell"]
