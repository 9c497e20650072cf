# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which runs are removed, on which nodes, and that a run that works or belongs to others stays."""

from __future__ import annotations

import hashlib
import os
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, UnreachableError
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job, to_yaml_names
from ansible_collections.muster.training.plugins.module_utils._model.run_history import fold
from ansible_collections.muster.training.plugins.module_utils._node import files
from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import NodeClient
from ansible_collections.muster.training.plugins.plugin_utils._workflows import training_job_prune as prune
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import run_record
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import (
    StateHome,
    load_record,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job_fetch import copies as run_copies
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job_info.read import read_runs
from ansible_collections.muster.training.plugins.plugin_utils._workflows.usage_info import read_usage

NOW = 1_000_000.0


class Node(NodeClient):
    def __init__(self, name: str, runs: list[dict[str, t.Any]] | None) -> None:
        super().__init__(name, lambda command, data: (0, "", ""))
        self.runs = runs
        self.cleaned: list[str] = []
        self.places: dict[str, t.Any] = {}

    def call(self, op: str, **values: t.Any) -> dict[str, t.Any]:
        if self.runs is None:
            raise UnreachableError(self.name, "no answer")
        if values["step"] == "disk":
            self.places = values["places"]
            return {"runs": self.runs, "environments": 5, "blobs": 7}
        self.cleaned = values["runs"]
        return {"removed": values["runs"], "freed": 11}


@pytest.fixture
def home(tmp_path: pathlib.Path) -> StateHome:
    home = StateHome({"path": str(tmp_path)}, "lab")
    home.owner(create=True)
    job = to_yaml_names(parse_job({"name": "net", "script": "/t.py"}))
    for age, state in enumerate(["running", "ended", "ended", "ended"]):
        folder = files.private_dir(home.run_folder(f"run-{age}"))
        ended = run_record.format_time(NOW - age * 86400) if state == "ended" else None
        record = run_record.new_record(f"run-{age}", job, NOW - 10 * 86400).to_dict()
        files.write_json(folder / "run.json", {**record, "state": state, "ended_at": ended})
        os.utime(folder / "run.json", (NOW - age, NOW - age))
    return home


def run(home: StateHome, nodes: list[Node], **values: t.Any) -> dict[str, t.Any]:
    options: dict[str, t.Any] = {"keep": 0, "older_than_days": 0, "run_ids": (), "controller": False, "check": False}
    wanted = prune.PruneRequest(**{**options, "unfetched": False, **values})
    return prune.prune_runs(home, ["x"], lambda _names: nodes, wanted, NOW)


def entry(home: StateHome, run_id: str, **values: t.Any) -> dict[str, t.Any]:
    return {"run_id": run_id, "bytes": 1000, "alive": False, "owner": home.owner(create=False)["owner"], **values}


def test_only_own_runs_that_have_ended_are_removed(home: StateHome) -> None:
    own = [entry(home, f"run-{age}") for age in range(4)]
    foreign = [entry(home, "run-1", owner="other"), entry(home, "run-2", alive=True), entry(home, "else-9")]
    nodes = [Node("a", own), Node("b", foreign), Node("c", None)]
    would = run(home, nodes, check=True)
    assert would["freed_bytes"] == {"a": 3000, "b": 0} and nodes[0].cleaned == []
    result = run(home, nodes)
    assert nodes[0].cleaned == ["run-1", "run-2", "run-3"] and nodes[1].cleaned == []
    assert result["problems"] == {"c": "c: no answer"} and result["runs"] == ["run-1", "run-2", "run-3"]
    assert result["table"][1].startswith("a: 3 of 4 runs, 0.0 MB of 0.0 MB freed")
    assert home.run_folder("run-1").exists(), "the controller keeps its records"


def test_the_newest_and_the_young_stay(home: StateHome) -> None:
    assert sorted(prune.choose_runs(home, 2, 0, [], NOW)) == ["run-2", "run-3"]
    assert sorted(prune.choose_runs(home, 0, 2.5, [], NOW)) == ["run-3"]
    assert sorted(prune.choose_runs(home, 20, 9, ["run-1"], NOW)) == ["run-1"]
    with pytest.raises(InputError, match="run run-0 has not ended"):
        prune.choose_runs(home, 0, 0, ["run-0"], NOW)
    with pytest.raises(InputError, match="run nope does not exist"):
        prune.choose_runs(home, 0, 0, ["nope"], NOW)


def test_the_folders_of_the_controller(home: StateHome) -> None:
    for age in range(4):
        for name in ("logs/a.log", "metrics.jsonl", "report/report.html", "events.jsonl"):
            place = home.run_folder(f"run-{age}") / name
            files.private_dir(place.parent)
            place.write_text("{}\n")
    order, before = [folder.name for folder in home.runs()], tree(home)
    would = run(home, [], controller=True, check=True)
    assert would["freed_bytes"]["controller"] >= 9 * 512 and tree(home) == before
    result = run(home, [], controller=True)
    assert result["freed_bytes"] == would["freed_bytes"] and result["runs"] == ["run-1", "run-2", "run-3"]
    assert tree(home)[:4] == before[:4], "what has not ended keeps all"
    record = ["events.jsonl", "lock", "run.json"]
    assert [sorted(place.name for place in home.run_folder(f"run-{age}").iterdir()) for age in (1, 2, 3)] == [
        record
    ] * 3
    assert [folder.name for folder in home.runs()] == order, "the newest is the newest still"
    again = run(home, [], controller=True)
    assert (again["changed"], again["runs"], again["freed_bytes"]["controller"]) == (False, [], 0)


def tree(home: StateHome) -> list[str]:
    places = home.folder.glob("runs/**/*")
    return sorted(str(place.relative_to(home.folder)) for place in places if place.is_file() and place.name != "lock")


def test_a_pruned_run_is_still_known(home: StateHome) -> None:
    """By usage, status and train; a run of the same name does not begin anew."""
    stay = {"id": "a", "from": "1970-01-02T00:00:00+00:00", "to": "1970-01-02T02:00:00+00:00"}
    change_record(home, "run-1", outcome="succeeded", held=[{**stay, "price_usd_per_hour": 2.0}], hosts=["a"])
    before: t.Any = read_usage(home, ["job"], None, None, NOW)
    run(home, [Node("a", [entry(home, "run-1")])], controller=True)
    assert read_usage(home, ["job"], None, None, NOW) == before and before["total"]["usd"] == 4.0
    record = load_record(home.run_folder("run-1"))
    assert record is not None and (record.outcome, str(record.pruned_at)[:10]) == ("succeeded", "1970-01-12")
    listed: t.Any = read_runs(home, "run-1")
    assert "its logs and metrics were removed by prune on 1970-01-12" in listed["table"][1]
    assert run_record.reopen_record(record, "starting", record.job).pruned_at is None
    copies = run_copies.read_copies(home.run_folder("run-1"))
    said = "removed by prune from a, the controller on 1970-01-12"
    assert run_copies.describe_removal(copies, record.pruned_at) == said


def test_a_pruned_run_that_is_continued_names_no_logs_that_are_gone(home: StateHome) -> None:
    """The log of its new attempt is at the place of the former one's."""
    folder = home.run_folder("run-1")
    start = {"kind": "worker_started", "rank": 0, "node": "a", "world_size": 1}
    files.append_json(folder / "events.jsonl", {**start, "at": NOW - 9 * 86400, "attempt": 1, "gang": "g"})
    change_record(home, "run-1", attempts=[{"n": 1, "logs": ["logs/a.log"]}])
    run(home, [], controller=True)
    pruned = load_record(folder)
    assert pruned is not None and [item.logs for item in pruned.attempts] == [()]
    files.append_json(folder / "events.jsonl", {"at": NOW + 5, "kind": "submitted", "attempt": 2})
    files.append_json(folder / "events.jsonl", {**start, "at": NOW + 9, "attempt": 2, "gang": "h"})
    story = fold(files.parse_json_lines(files.read_text(folder / "events.jsonl")), [])
    again = run_record.reopen_record(pruned, "running", pruned.job)
    found = run_record.update_record(again, story, {}, NOW + 10)
    assert [(item.n, item.logs) for item in found.attempts] == [(1, ()), (2, ("logs/a.log",))]


def test_what_a_node_has_of_a_pruned_run_is_removed_later(home: StateHome) -> None:
    run(home, [], controller=True)
    node = Node("a", [entry(home, "run-2")])
    result = run(home, [node])
    assert (result["runs"], node.cleaned) == (["run-2"], ["run-2"])
    change_record(home, "run-1", pruned_at=None)
    assert sorted(prune.choose_runs(home, 2, 0, [], NOW)) == ["run-2", "run-3"], "pruned ones are none of the newest"


def test_a_host_that_was_not_pruned_is_a_failure_that_names_it(home: StateHome) -> None:
    nodes = [Node("a", [entry(home, "run-1")]), Node("c", None)]
    result = run(home, nodes)
    assert result["failed"] and nodes[0].cleaned == ["run-1"] and result["freed_bytes"] == {"a": 11}
    assert result["msg"] == "1 of 2 hosts were not pruned: c: no answer. Mend them and prune again"
    assert run(home, nodes, check=True)["failed"] and "failed" not in run(home, nodes[:1])


def change_record(home: StateHome, run_id: str, **values: t.Any) -> None:
    place = home.run_folder(run_id) / "run.json"
    stat, record = place.stat(), files.read_json(place)
    files.write_json(place, {**record, **values})
    os.utime(place, (stat.st_atime, stat.st_mtime))


def job_with(home: StateHome, run_id: str, **checkpoints: t.Any) -> dict[str, t.Any]:
    job = files.read_json(home.run_folder(run_id) / "run.json")["job"]
    return {**job, "checkpoints": {**job["checkpoints"], **checkpoints}}


def test_each_run_is_named_and_where_its_checkpoints_stay(home: StateHome) -> None:
    change_record(home, "run-2", job=job_with(home, "run-2", path="/mnt/shared"))
    table = run(home, [Node("a", [entry(home, "run-1"), entry(home, "run-2")])], check=True)["table"]
    assert table[2:] == [
        "run-1: would be removed from a (0.0 MB)",
        "run-2: would be removed from a (0.0 MB); /mnt/shared/run-2 is left as it is",
    ]


def test_runs_of_which_nothing_is_left_are_not_listed_again(home: StateHome) -> None:
    """Those that hosts lost long ago would be in each answer: the controller keeps their records."""
    again = run(home, [Node("a", [])])
    assert again["runs"] == [] and again["table"][0].startswith("0 runs chosen") and len(again["table"]) == 3
    assert again["table"][2].startswith("nothing to remove: the newest ") and "checkpoints.keep" in again["table"][2]
    assert not again["changed"]
    asked = run(home, [Node("a", [])], run_ids=("run-3",))
    assert asked["runs"] == ["run-3"] and asked["table"][2:] == ["run-3: on no node"], "it was asked for by name"


SAVED = {"name": "ckpt_300.pt", "bytes": 4_000_000, "saved_at": int((NOW - 500) * 1e9)}


@pytest.mark.parametrize("controller", [False, True])
def test_the_only_copy_of_a_checkpoint_stays_and_is_named(home: StateHome, controller: bool) -> None:
    change_record(home, "run-1", checkpoint={"step": 300, "path": None})
    node = Node("a", [entry(home, "run-1", checkpoints=[SAVED]), entry(home, "run-2", checkpoints=[])])
    result = run(home, [node], controller=controller)
    assert node.cleaned == ["run-2"] and home.run_folder("run-1").exists()
    assert result["kept"].keys() == {"run-1"} and "run-1" not in result["runs"]
    said = "it has a checkpoint that was not fetched: ckpt_300.pt (4.0 MB) on a. Fetch it (muster.training.fetch"
    assert said in result["table"][-1] and "muster_prune_unfetched=true" in result["table"][-1]
    result = run(home, [node], controller=controller, unfetched=True)
    assert "run-1" in node.cleaned and (home.run_folder("run-1") / "run.json").exists()
    assert any(
        "run-1: removed from a" in line and "with the checkpoint ckpt_300.pt" in line for line in result["table"]
    )


WEIGHTS = hashlib.sha256(b"weights").hexdigest()


def test_a_fetched_checkpoint_goes_unless_its_copy_goes_too(home: StateHome, tmp_path: pathlib.Path) -> None:
    node, folder = Node("a", [entry(home, "run-1", checkpoints=[SAVED])]), home.run_folder("run-1")
    dest = tmp_path / "mine"
    for place in (dest, folder / "files"):
        place.mkdir()
        (place / "ckpt_300.pt").write_text("weights")
    run_copies.note_fetch(folder, dest, {"ckpt_300.pt": WEIGHTS}, NOW - 600)
    assert "run-1" in run(home, [node], check=True)["kept"], "fetched before it was saved: an older one of that name"
    run_copies.note_fetch(folder, folder / "files", {"ckpt_300.pt": WEIGHTS}, NOW - 100)
    assert run(home, [node], check=True)["kept"] == {}
    assert "run-1" in run(home, [node], controller=True, check=True)["kept"], "the copy is in the folder that goes"
    run_copies.note_fetch(folder, dest, {"ckpt_300.pt": WEIGHTS}, NOW - 100)
    assert run(home, [node], controller=True, check=True)["kept"] == {}
    (dest / "ckpt_300.pt").unlink()
    (folder / "files" / "ckpt_300.pt").unlink()
    assert "run-1" in run(home, [node], check=True)["kept"], "the copy is no longer there"


def saved(step: int, rank: str = "", **values: t.Any) -> dict[str, t.Any]:
    return {**SAVED, "name": f"ckpt-{step}{rank}.pt", "saved_at": int((NOW - 1000 + step) * 1e9), **values}


def fetched(home: StateHome, dest: pathlib.Path, names: t.Sequence[str], nodes: t.Sequence[str]) -> None:
    dest.mkdir(exist_ok=True)
    for name in names:
        (dest / name).write_text("weights")
    run_copies.note_fetch(home.run_folder("run-1"), dest, dict.fromkeys(names, WEIGHTS), NOW - 100, nodes)


def test_a_copy_of_an_older_step_needs_no_fetch(home: StateHome, tmp_path: pathlib.Path) -> None:
    """Node a saved it, and node b has an earlier copy of what a saved; a newer one holds the run."""
    fetched(home, tmp_path / "mine", ["ckpt-300.pt"], ["a"])
    a, b = [saved(300), saved(280)], [saved(240, own=False)]
    pair = [Node("a", [entry(home, "run-1", checkpoints=a)]), Node("b", [entry(home, "run-1", checkpoints=b)])]
    assert run(home, pair, check=True)["kept"] == {}
    pair[1].runs = [entry(home, "run-1", checkpoints=[saved(320, own=False)])]
    assert "ckpt-320.pt (4.0 MB) on b. Fetch" in run(home, pair, check=True)["kept"]["run-1"]
    pair[0].runs, pair[1].runs = [], [entry(home, "run-1", checkpoints=[saved(320), *b])]
    assert "ckpt-320.pt (4.0 MB) on b. Fetch" in run(home, pair, check=True)["kept"]["run-1"]


def test_the_newest_step_of_all_ranks_is_what_must_have_been_fetched(home: StateHome, tmp_path: pathlib.Path) -> None:
    """Not the newest of each node: rank 1 has saved one more step."""
    a = [saved(60, ".rank0"), saved(40, ".rank0")]
    b = [saved(80, ".rank1"), saved(60, ".rank1"), saved(40, ".rank1")]
    pair = [Node("a", [entry(home, "run-1", checkpoints=a)]), Node("b", [entry(home, "run-1", checkpoints=b)])]
    fetched(home, tmp_path / "mixed", ["ckpt-60.rank0.pt", "ckpt-80.rank1.pt"], ["a", "b"])
    assert "not fetched: ckpt-60.rank1.pt (4.0 MB) on b" in run(home, pair, check=True)["kept"]["run-1"]
    fetched(home, tmp_path / "whole", ["ckpt-60.rank0.pt", "ckpt-60.rank1.pt"], ["a", "b"])
    assert run(home, pair, check=True)["kept"] == {}
    pair[0].runs = [entry(home, "run-1", checkpoints=[saved(100, ".rank0")])]
    kept = run(home, pair, check=True)["kept"]["run-1"]
    assert "no step has a part of every rank" in kept and "a: ckpt-100.rank0.pt, b: ckpt-80.rank1.pt" in kept


def test_a_part_of_a_node_that_was_not_asked_was_not_fetched(home: StateHome, tmp_path: pathlib.Path) -> None:
    pair = [Node(name, [entry(home, "run-1", checkpoints=[saved(60)])]) for name in "ab"]
    fetched(home, tmp_path / "half", ["ckpt-60.pt"], ["a"])
    assert "not fetched: ckpt-60.pt (4.0 MB) on b" in run(home, pair, check=True)["kept"]["run-1"]
    fetched(home, tmp_path / "half", ["ckpt-60.pt"], ["a", "b"])
    assert run(home, pair, check=True)["kept"] == {}


def test_the_last_fetched_files_on_the_controller_stay(home: StateHome) -> None:
    own = home.run_folder("run-2") / "files"
    own.mkdir()
    (own / "model.pt").write_text("weights")
    assert "what was fetched of it is in" in run(home, [], controller=True)["kept"]["run-2"] and own.exists()
    run(home, [], controller=True, unfetched=True)
    assert not own.exists()


def test_a_checkpoint_in_the_bucket_is_a_copy(home: StateHome) -> None:
    node, folder = Node("a", [entry(home, "run-1", checkpoints=[SAVED])]), home.run_folder("run-1")
    line = {"at": NOW, "kind": "checkpoint_stored", "node": "a", "detail": "ckpt_300.pt"}
    files.append_json(folder / "events.jsonl", line)
    assert "run-1" in run(home, [node], check=True)["kept"]
    change_record(home, "run-1", job=job_with(home, "run-1", binding="models"))
    assert run(home, [node], check=True)["kept"] == {}
    files.append_json(folder / "events.jsonl", {**line, "detail": "ckpt_400.pt"})
    node.runs = [entry(home, "run-1", checkpoints=[{**SAVED, "name": "ckpt_500.pt"}])]
    assert "run-1" in run(home, [node], check=True)["kept"]


def test_a_reported_checkpoint_of_unknown_place_is_not_lost(home: StateHome) -> None:
    change_record(home, "run-1", checkpoint={"step": 300, "path": "out/300.pt"})
    node = Node("a", [entry(home, "run-1", checkpoints=[])])
    assert "reported the checkpoint of step 300" in run(home, [node], check=True)["kept"]["run-1"]
    assert node.places["run-1"] == {"folder": "checkpoints", "format": "auto", "reported": "out/300.pt"}
    change_record(home, "run-1", checkpoint={"step": 300, "path": "/data/300.pt"})
    assert run(home, [node], check=True)["kept"] == {}


def test_a_record_stays_where_a_node_of_the_run_is_silent(home: StateHome) -> None:
    change_record(home, "run-1", hosts=["a", "b"])
    result = run(home, [Node("a", []), Node("b", None)], controller=True, unfetched=True)
    assert "b did not answer" in result["kept"]["run-1"] and home.run_folder("run-1").exists()
    assert files.read_json(home.run_folder("run-2") / "run.json")["pruned_at"]
    assert not files.read_json(home.run_folder("run-1") / "run.json").get("pruned_at")


def test_what_was_removed_is_known_afterwards(home: StateHome) -> None:
    run(home, [Node("a", [entry(home, "run-1")]), Node("b", [])])
    copies = run_copies.read_copies(home.run_folder("run-1"))
    assert run_copies.describe_removal(copies) == "removed by prune from a on 1970-01-12"
    assert run_copies.read_copies(home.run_folder("run-2")).pruned == {}
