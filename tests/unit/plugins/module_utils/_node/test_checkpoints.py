# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which checkpoints are complete, and that only complete ones beyond the kept ones are ever removed."""

from __future__ import annotations

import json
import os
import pathlib
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._node import checkpoint_room, checkpoints
from ansible_collections.muster.training.tests.support.node_lab import eventually


def save(folder: pathlib.Path, name: str, at: float, form: str = "files") -> pathlib.Path:
    """Make a checkpoint that became complete at a time."""
    path = folder / name
    folder.mkdir(exist_ok=True)
    if form == "dcp":
        path.mkdir()
        (path / "__0_0.distcp").write_bytes(b"x")
        mark = path / ".metadata"
    else:
        mark = path
    mark.write_bytes(b"x")
    os.utime(mark, (at, at))
    return path


def report(metrics: pathlib.Path, *paths: object) -> None:
    with metrics.open("a") as handle:
        for step, path in enumerate(paths):
            handle.write(json.dumps({"at": 1.0, "checkpoint_step": step, "path": str(path)}) + "\n")


def pruner(tmp_path: pathlib.Path, form: str, keep: int, leads: bool = True) -> checkpoints.Pruner:
    return checkpoints.Pruner(tmp_path / "c", form, keep, leads=leads, metrics=tmp_path / "metrics.jsonl")


def names(tmp_path: pathlib.Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "c").iterdir() if not path.name.startswith(".muster"))


def test_what_is_being_written_is_no_checkpoint(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "c"
    for at, name in enumerate(("a.pt", "b.pt", "d.pt.tmp", "e.part", ".hidden", "f.incomplete")):
        save(folder, name, 100.0 + at)
    (folder / "empty.pt").touch()
    (folder / "folder").mkdir()
    (folder / "latest").symlink_to("a.pt")
    assert [path.name for path in checkpoints.list_complete(folder, "files")] == ["b.pt", "a.pt"]
    (folder / "folder" / "model.pt").write_text("x")
    assert checkpoints.list_complete(folder, "files")[0].name == "folder"
    assert checkpoints.list_complete(tmp_path / "none", "files") == []


def test_a_distributed_checkpoint_is_complete_with_its_metadata(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "c"
    save(folder, "step-1", 100.0, "dcp")
    save(folder, "step-2", 200.0, "dcp")
    (save(folder, "step-3", 300.0, "dcp") / ".metadata").unlink()
    (save(folder, "step-4", 400.0, "dcp") / ".metadata").write_bytes(b"")
    save(folder, "plain.pt", 500.0)
    assert [path.name for path in checkpoints.list_complete(folder, "dcp")] == ["step-2", "step-1"]


def test_of_files_only_reported_ones_are_removed(tmp_path: pathlib.Path) -> None:
    made = [save(tmp_path / "c", f"step-{n}.pt", 100.0 + n) for n in range(5)]
    save(tmp_path / "c", "best.pt", 50.0)
    report(tmp_path / "metrics.jsonl", *made[:4], "/elsewhere/x.pt", tmp_path / "c", tmp_path / "c" / "..", "step-4.pt")
    pruned = pruner(tmp_path, "files", 2)
    assert sorted(pruned.step()) == ["step-0.pt", "step-1.pt", "step-2.pt"]
    assert names(tmp_path) == ["best.pt", "step-3.pt", "step-4.pt"]
    assert pruned.step() == [], "nothing new was reported"


@pytest.mark.parametrize(("keep", "steps"), [(1, (60, 80)), (3, (40, 60, 80))])
def test_files_of_several_ranks_are_one_checkpoint_and_two_stay(
    tmp_path: pathlib.Path, keep: int, steps: tuple[int, ...]
) -> None:
    """Another node may not have saved its part of step 80 yet: without step 60 here nothing would be whole."""
    saved = [
        save(tmp_path / "c", f"c-{step}.rank{rank}.pt", step + rank) for step in (20, 40, 60, 80) for rank in (0, 1)
    ]
    report(tmp_path / "metrics.jsonl", *saved)
    pruner(tmp_path, "files", keep).step()
    assert names(tmp_path) == [f"c-{step}.rank{rank}.pt" for step in steps for rank in (0, 1)]


def test_reports_of_an_earlier_attempt_on_another_node_count(tmp_path: pathlib.Path) -> None:
    """Its metrics are on that node; the names are beside the checkpoints."""
    for n in range(3):
        report(tmp_path / "metrics.jsonl", save(tmp_path / "c", f"step-{n}", 100.0 + n))
    assert pruner(tmp_path, "files", 3).step() == []
    (tmp_path / "metrics.jsonl").unlink()
    report(tmp_path / "metrics.jsonl", save(tmp_path / "c", "step-3", 200.0))
    assert pruner(tmp_path, "files", 1).step() == ["step-2", "step-1", "step-0"]
    assert names(tmp_path) == ["step-3"]


def test_a_reported_folder_goes_as_a_whole(tmp_path: pathlib.Path) -> None:
    for n in range(3):
        folder = tmp_path / "c" / f"step-{n}"
        folder.mkdir(parents=True)
        (folder / "model.pt").write_text("x")
        os.utime(folder, (100.0 + n, 100.0 + n))
        report(tmp_path / "metrics.jsonl", folder / "model.pt")
    assert pruner(tmp_path, "files", 1).step() == ["step-1", "step-0"]
    assert names(tmp_path) == ["step-2"]


def test_distributed_checkpoints_are_removed_by_the_node_that_leads(tmp_path: pathlib.Path) -> None:
    for n in range(4):
        save(tmp_path / "c", f"step-{n}", 100.0 + n, "dcp")
    (save(tmp_path / "c", "half", 500.0, "dcp") / ".metadata").unlink()
    assert pruner(tmp_path, "dcp", 2, leads=False).step() == []
    assert pruner(tmp_path, "dcp", 2).step() == ["step-1", "step-0"]
    assert names(tmp_path) == ["half", "step-2", "step-3"]


def test_what_was_saved_since_the_last_look_counts_when_the_program_has_ended(tmp_path: pathlib.Path) -> None:
    """A program that reports nothing is looked after every few seconds."""
    pruned = pruner(tmp_path, "dcp", 2)
    for n in range(4):
        save(tmp_path / "c", f"step-{n}", 100.0 + n, "dcp")
    assert pruned.step() == ["step-1", "step-0"]
    save(tmp_path / "c", "step-4", 200.0, "dcp")
    assert pruned.step() == []
    assert pruned.step(last=True) == ["step-2"]
    assert pruner(tmp_path, "dcp", 1, leads=False).step(last=True) == []


def test_that_from_which_the_program_resumed_stays_while_it_runs(tmp_path: pathlib.Path) -> None:
    """torchtune copies the model's settings from it into each checkpoint that it saves."""
    for n in range(4):
        save(tmp_path / "c", f"step-{n}", 100.0 + n, "dcp")
    checkpoints.note_resumed(tmp_path / "c", "step-0")
    pruned = pruner(tmp_path, "dcp", 2)
    assert pruned.step() == ["step-1"] and "step-0" in names(tmp_path)
    assert pruned.step(last=True) == ["step-0"]


@given(
    order=st.permutations(list(range(6))),
    torn=st.sets(st.integers(0, 5), max_size=5),
    keep=st.integers(1, 4),
    form=st.sampled_from(["files", "dcp"]),
)
def test_the_newest_complete_one_always_stays(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], torn: set[int], keep: int, form: str
) -> None:
    root = tmp_path_factory.mktemp("p")
    for name, at in enumerate(order):
        path = save(root / "c", f"s{name}", 100.0 + at, form)
        report(root / "metrics.jsonl", path)
        if at in torn:
            (path / ".metadata" if form == "dcp" else path).write_bytes(b"")
    before = [path.name for path in checkpoints.list_complete(root / "c", form)]
    pruner(root, form, keep).step()
    assert [path.name for path in checkpoints.list_complete(root / "c", form)] == before[:keep]
    gone = {f"s{name}" for name in range(6)} - {path.name for path in (root / "c").iterdir()}
    assert gone == set(before[keep:]), "what is not complete is left alone"


LINES: t.Any = st.dictionaries(
    st.sampled_from(["checkpoint_step", "path", "x"]), st.none() | st.integers() | st.text(max_size=8)
)


@given(lines=st.lists(LINES, max_size=5))
def test_any_report_is_read(tmp_path_factory: pytest.TempPathFactory, lines: list[dict[str, t.Any]]) -> None:
    root = tmp_path_factory.mktemp("p")
    save(root / "c", "kept", 1.0)
    save(root, "outside", 1.0)
    (root / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    pruner(root, "files", 1).step()
    assert (root / "c" / "kept").exists() and (root / "outside").exists()


@pytest.mark.parametrize("known", ["torn", "{}", "[1, null]"])
def test_a_damaged_list_of_reports_is_none(tmp_path: pathlib.Path, known: str) -> None:
    made = [save(tmp_path / "c", f"s{n}", 100.0 + n) for n in range(2)]
    (tmp_path / "c" / ".muster-saved.json").write_text(known)
    report(tmp_path / "metrics.jsonl", *made)
    assert pruner(tmp_path, "files", 1).step() == ["s0"]


def test_it_prunes_beside_the_program_and_says_what_it_removed(tmp_path: pathlib.Path) -> None:
    rules: dict[str, t.Any] = {"format": "files", "keep": 1, "shared": True}
    assert checkpoints.start_pruning(str(tmp_path / "c"), {**rules, "keep": None}, tmp_path, "n", first=True) is None
    thread = checkpoints.start_pruning(str(tmp_path / "c"), rules, tmp_path, "n", first=False)
    assert thread is not None
    report(tmp_path / "metrics.jsonl", *(save(tmp_path / "c", f"s{n}", 100.0 + n) for n in range(2)))
    eventually(lambda: names(tmp_path) == ["s1"], "the first is removed")
    report(tmp_path / "metrics.jsonl", save(tmp_path / "c", "s2", 200.0))
    thread.close()
    assert names(tmp_path) == ["s2"]
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [(event["kind"], event["detail"], event["node"]) for event in events] == [
        ("checkpoint_removed", "s0", "n"),
        ("checkpoint_removed", "s1", "n"),
    ]


def test_an_error_of_pruning_is_noted_once_and_it_goes_on(tmp_path: pathlib.Path) -> None:
    class Odd(checkpoints.Pruner):
        looks = 0

        def step(self, *, last: bool = False) -> list[str]:
            self.looks += 1
            raise TypeError("odd")

    odd = Odd(tmp_path / "c", "files", 1, leads=True, metrics=tmp_path / "metrics.jsonl")
    thread = checkpoints.PruningThread(odd, tmp_path / "events.jsonl", "n")
    eventually(lambda: odd.looks >= 2, "it looks again")
    thread.close()
    (event,) = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    said = "warning: n: old checkpoints are not removed (TypeError: odd)"
    assert checkpoint_room.describe(event) == said


@pytest.mark.parametrize(
    "path", ["step-3", "step-3/part", "model.ckpt-3", "last.ckpt", "checkpoint_last.pt", "5/default"]
)
def test_what_was_reported_has_a_name_where_its_folder_is_gone(tmp_path: pathlib.Path, path: str) -> None:
    folder = tmp_path / "gone"
    name = checkpoints.reported_name(folder, {"checkpoint_step": 3, "path": f"{folder}/{path}"})
    assert name == path.partition("/")[0]


@pytest.mark.parametrize("name", ["best.ckpt", "best-model.ckpt", "epoch=3-BEST.ckpt", "model_best.ckpt"])
def test_what_a_program_calls_its_best_one_stays(tmp_path: pathlib.Path, name: str) -> None:
    """It is older than the others, and the only one of its kind."""
    made = [
        save(tmp_path / "c", item, 100.0 + at) for at, item in enumerate((name, "a.ckpt", "asbestos.ckpt", "b.ckpt"))
    ]
    report(tmp_path / "metrics.jsonl", *made)
    assert sorted(pruner(tmp_path, "files", 1).step()) == ["a.ckpt", "asbestos.ckpt"]
    assert names(tmp_path) == sorted([name, "b.ckpt"])


@pytest.mark.parametrize(("best", "removed"), [(40, [10, 20]), (30, [10, 20]), (10, [20])])
def test_the_best_of_transformers_counts_as_one_of_those_that_are_kept(
    tmp_path: pathlib.Path, best: int, removed: list[int]
) -> None:
    folder = save_trainer(tmp_path, (10, 20, 30, 40), best)
    look = checkpoints.Pruner(folder, "auto", 2, leads=True, metrics=tmp_path / "metrics.jsonl")
    assert sorted(look.step(last=True)) == [f"checkpoint-{step}" for step in removed]


def test_the_checkpoint_that_transformers_loads_at_its_end_stays(tmp_path: pathlib.Path) -> None:
    folder = save_trainer(tmp_path, (10, 20, 30), 10)
    look = checkpoints.Pruner(folder, "auto", 1, leads=True, metrics=tmp_path / "metrics.jsonl")
    assert look.step(last=True) == ["checkpoint-20"]
    assert names(tmp_path) == ["checkpoint-10", "checkpoint-30"]
    # A state that is torn, or names none, protects none.
    (folder / "checkpoint-30" / "trainer_state.json").write_text('{"best_model_checkpoint": null}')
    assert look.step(last=True) == ["checkpoint-10"]


def save_trainer(tmp_path: pathlib.Path, steps: t.Sequence[int], best: int) -> pathlib.Path:
    folder = tmp_path / "c"
    for step in steps:
        place = folder / f"checkpoint-{step}"
        place.mkdir(parents=True)
        (place / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
        state = {"global_step": step, "best_model_checkpoint": str(folder / f"checkpoint-{best}")}
        (place / "trainer_state.json").write_text(json.dumps(state))
        for path in (*place.iterdir(), place):
            os.utime(path, (step, step))
    (tmp_path / "metrics.jsonl").touch()
    return folder
