# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checkpoints as common programs lay them out: which is the newest whole one, what it lacks, what comes along."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import (
    checkpoint_layouts,
    checkpoint_store,
    checkpoint_table,
    checkpoints,
    host_preflight,
)
from ansible_collections.muster.training.tests.support.layout_parts import (
    ARCHIVE,
    SHARD,
    TABLE,
    Tree,
    build,
    trainer,
    zero,
)

INDEX = json.dumps({"weight_map": {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"}}).encode()


def bundle(number: int, name: str = "ckpt") -> Tree:
    """Return a checkpoint of TensorFlow, in the order in which its files get their names."""
    parts = {f"{name}-{number}.data-0000{part}-of-00002": b"12345678" for part in (0, 1)}
    return {**parts, f"{name}-{number}.index": TABLE}


CARD: Tree = {"runs/Nov27_host/events.out.tfevents.1": b"x" * 88, "README.md": b"---", "training.log": b"step 20"}
LIGHTNING = "lightning_logs/version_0/checkpoints"
WHOLE: dict[str, tuple[Tree, str, int | None, list[str]]] = {
    "transformers": ({**trainer(10), **trainer(20), **CARD}, "checkpoint-20", 20, []),
    "deepspeed": (
        {**zero(10), **zero(20), "latest": b"global_step20", "zero_to_fp32.py": b"# tool"},
        "global_step20",
        20,
        ["latest", "zero_to_fp32.py"],
    ),
    "megatron": (
        {
            "iter_0000010/mp_rank_00/model_optim_rng.pt": ARCHIVE,
            "iter_0000020/mp_rank_00/model_optim_rng.pt": ARCHIVE,
            "latest_checkpointed_iteration.txt": b"20",
        },
        "iter_0000020",
        20,
        ["latest_checkpointed_iteration.txt"],
    ),
    "mmengine": (
        {"iter_10.pth": ARCHIVE, "iter_20.pth": ARCHIVE, "last_checkpoint": b"/c/run-1/iter_20.pth"},
        "iter_20.pth",
        20,
        ["last_checkpoint"],
    ),
    "lightning": (
        {
            f"{LIGHTNING}/epoch=0-step=10.ckpt": ARCHIVE,
            f"{LIGHTNING}/epoch=1-step=20.ckpt": ARCHIVE,
            "lightning_logs/version_0/hparams.yaml": b"{}",
            "lightning_logs/version_0/metrics.csv": b"a,b",
        },
        f"{LIGHTNING}/epoch=1-step=20.ckpt",
        20,
        [],
    ),
    "dcp": (
        {
            "checkpoint/step-10/__0_0.distcp": b"x",
            "checkpoint/step-10/.metadata": b"x",
            "checkpoint/step-20/__0_0.distcp": b"x",
            "checkpoint/step-20/.metadata": b"x",
            "tb/events.out.tfevents.1": b"x",
        },
        "checkpoint/step-20",
        20,
        [],
    ),
    "orbax": (
        {"10/default/_METADATA": b"x", "10/_CHECKPOINT_METADATA": b"{}", "20/_CHECKPOINT_METADATA": b"{}"},
        "20",
        20,
        [],
    ),
    "accelerate": (
        {f"step_20/{name}": b"x" for name in ("pytorch_model.bin", "optimizer.bin", "random_states_0.pkl")},
        "step_20",
        20,
        [],
    ),
    "torchtune": (
        {
            "step_10/model.safetensors": SHARD,
            "step_10/config.json": b"{}",
            "step_10/recipe_state.pt": ARCHIVE,
            # The last one has no state.
            "step_20/model.safetensors": SHARD,
            "step_20/config.json": b"{}",
            "torchtune_config.yaml": b"epochs: 1",
        },
        "step_20",
        20,
        [],
    ),
    "fairseq": (
        {
            "checkpoint_1_10.pt": ARCHIVE,
            "checkpoint_1_20.pt": ARCHIVE,
            # What is best may be older than what is newest.
            "checkpoint_best.pt": ARCHIVE,
            "checkpoint.best_loss_2.31.pt": ARCHIVE,
        },
        "checkpoint_1_20.pt",
        20,
        [],
    ),
    "verl": (
        {
            "global_step_10/actor/model_world_size_2_rank_0.pt": ARCHIVE,
            "global_step_20/actor/model_world_size_2_rank_0.pt": ARCHIVE,
            "global_step_20/data.pt": ARCHIVE,
            "latest_checkpointed_iteration.txt": b"20",
        },
        "global_step_20",
        20,
        ["latest_checkpointed_iteration.txt"],
    ),
    "tensorflow": (
        {
            **bundle(10),
            **bundle(20),
            # As CheckpointManager writes it.
            "checkpoint": b'model_checkpoint_path: "ckpt-20"\nall_model_checkpoint_paths: "ckpt-10"\n'
            b'all_model_checkpoint_paths: "ckpt-20"\nall_model_checkpoint_timestamps: 1.5\n',
            "ckpt-30_temp/part-00000-of-00001.data-00000-of-00001": b"x",
        },
        "ckpt-20.index",
        None,
        ["checkpoint", "ckpt-20.data-00000-of-00002", "ckpt-20.data-00001-of-00002"],
    ),
    "safetensors": (
        {
            "epoch_1/model-1-of-2.safetensors": SHARD,
            "epoch_1/model-2-of-2.safetensors": SHARD,
            "epoch_1/model.safetensors.index.json": INDEX,
        },
        "epoch_1",
        None,
        [],
    ),
}


def test_every_layout_is_tried() -> None:
    assert set(WHOLE) == set(checkpoint_table.LAYOUTS)


@pytest.mark.parametrize("below", ["", "out/", "my runs é/"])
@pytest.mark.parametrize("layout", WHOLE)
def test_the_newest_whole_one_is_found_with_what_comes_along(tmp_path: pathlib.Path, layout: str, below: str) -> None:
    """Whatever was written last beside it, and also where the program has a folder of its own."""
    tree, name, step, beside = WHOLE[layout]
    build(tmp_path, {below + path: content for path, content in tree.items()})
    for form in ("auto", layout):
        newest = checkpoints.list_complete(tmp_path, form)[0]
        assert (newest.layout, newest.name, newest.step) == (layout, below + name, step)
        assert checkpoint_layouts.list_beside(tmp_path, newest) == [below + path for path in beside]
    line = {"checkpoint_step": 1, "path": str(tmp_path / below / name)}
    assert checkpoints.reported_name(tmp_path, line) == below + name
    assert checkpoint_layouts.find_tracker_problem(tmp_path / below) == ""


def test_names_with_blanks_are_names(tmp_path: pathlib.Path) -> None:
    """As Lightning's own name for a monitored figure has them, and folders of users."""
    files = {
        f"{LIGHTNING}/epoch=0 val loss=1.25 step=10.ckpt": ARCHIVE,
        f"{LIGHTNING}/epoch=1 val loss=0.5 step=20.ckpt": ARCHIVE,
    }
    build(tmp_path, {**files, "step 30/.metadata": b"x", "step 30/__0_0.distcp": b"x"})
    found = [(item.layout, item.name, item.step) for item in checkpoints.list_complete(tmp_path, "auto")]
    assert found[0] == ("dcp", "step 30", 30)
    lightning = checkpoints.list_complete(tmp_path, "lightning")
    assert [(item.name, item.step) for item in lightning] == [
        (f"{LIGHTNING}/epoch=1 val loss=0.5 step=20.ckpt", 20), (f"{LIGHTNING}/epoch=0 val loss=1.25 step=10.ckpt", 10),
    ]  # fmt: skip


HALF: dict[str, tuple[Tree, str, str]] = {
    "transformers without its state": (
        {**trainer(10), **trainer(20, **{"trainer_state.json": None})},
        "checkpoint-10",
        "checkpoint-20 is half saved: it has no trainer_state.json, which is written last",
    ),
    "the first one of transformers": (
        {"checkpoint-100/model.safetensors": SHARD},
        "",
        "checkpoint-100 is half saved: it has no trainer_state.json, which is written last",
    ),
    "a shard that is not there": (
        {**trainer(10), **trainer(20), "checkpoint-20/model.safetensors.index.json": INDEX},
        "checkpoint-10",
        "checkpoint-20 is half saved: model-1-of-2.safetensors, which model.safetensors.index.json names, is not there",
    ),
    "a shard without its end": (
        {**trainer(10), **trainer(20), "checkpoint-20/model.safetensors": SHARD[:-1]},
        "checkpoint-10",
        "checkpoint-20 is half saved: model.safetensors lacks its end",
    ),
    "DeepSpeed was killed while it saved": (
        {**zero(10), "latest": b"global_step10", **zero(20)},
        "global_step10",
        "",
    ),
    "DeepSpeed's first one": (
        zero(10),
        "",
        "global_step10 is not whole: latest, which is written last, is not there",
    ),
    "DeepSpeed with names of the program was killed while it saved": (
        {
            "epoch_1/mp_rank_00_model_states.pt": ARCHIVE,
            "latest": b"epoch_1",
            "epoch_2/mp_rank_00_model_states.pt": ARCHIVE,
        },
        "epoch_1",
        "",
    ),
    "Megatron was killed while it saved": (
        {
            "iter_0000010/a.pt": ARCHIVE,
            "latest_checkpointed_iteration.txt": b"10\n",
            "iter_0000020/a.pt": ARCHIVE,
        },
        "iter_0000010",
        "",
    ),
    "Lightning": (
        {f"{LIGHTNING}/epoch=0-step=10.ckpt": ARCHIVE, f"{LIGHTNING}/epoch=0-step=20.ckpt": ARCHIVE[:20]},
        f"{LIGHTNING}/epoch=0-step=10.ckpt",
        f"{LIGHTNING}/epoch=0-step=20.ckpt is half saved: epoch=0-step=20.ckpt lacks its end",
    ),
    "DCP": (
        {"step-1/.metadata": b"x", "step-1/__0_0.distcp": b"x", "step-2/__0_0.distcp": b"x"},
        "step-1",
        "step-2 is half saved: it has no .metadata, which is written last",
    ),
    "FSDP in a folder of transformers": (
        {**trainer(10), **trainer(20), "checkpoint-20/pytorch_model_fsdp_0/__0_0.distcp": b"x"},
        "checkpoint-10",
        "checkpoint-20 is half saved: it has no pytorch_model_fsdp_0/.metadata, which is written last",
    ),
    "Orbax": (
        {"10/_CHECKPOINT_METADATA": b"{}", "20.orbax-checkpoint-tmp-179/default/d/part": b"x"},
        "10",
        "20.orbax-checkpoint-tmp-179 is being written (20.orbax-checkpoint-tmp-179)",
    ),
    "torchtune": (
        {
            "step_10/model.safetensors": SHARD,
            "step_10/recipe_state.pt": ARCHIVE,
            "step_20/model.safetensors": SHARD,
            "step_20/recipe_state.pt": ARCHIVE[:30],
        },
        "step_10",
        "step_20 is half saved: recipe_state.pt lacks its end",
    ),
    "TensorFlow, whose index was cut": (
        {**bundle(1), "checkpoint": b'model_checkpoint_path: "ckpt-1"', **bundle(2), "ckpt-2.index": TABLE[:30]},
        "ckpt-1.index",
        "",
    ),
    "TensorFlow, of which a part is missing": (
        {**bundle(2), "ckpt-2.data-00000-of-00002": b"", "ckpt-9.data-00000-of-00001": b"x"},
        "ckpt-2.index",
        "",
    ),
    "verl was killed while it saved": (
        {
            "global_step_10/data.pt": ARCHIVE,
            "latest_checkpointed_iteration.txt": b"10",
            "global_step_20/data.pt": ARCHIVE,
        },
        "global_step_10",
        "",
    ),
    "fairseq": (
        {"checkpoint_1_10.pt": ARCHIVE, "checkpoint_1_20.pt": ARCHIVE[:20]},
        "checkpoint_1_10.pt",
        "checkpoint_1_20.pt is half saved: checkpoint_1_20.pt lacks its end",
    ),
    "accelerate": (
        {"checkpoint-5/optimizer.bin": b"x", "checkpoint-5/model.safetensors": SHARD},
        "",
        "checkpoint-5 is half saved: it has no random_states_*.pkl, which each rank writes last",
    ),
    "accelerate, of which another rank was faster": (
        {"checkpoint-5/optimizer.bin": b"x", "checkpoint-5/random_states_1.pkl": b"x"},
        "",
        "checkpoint-5 is half saved: it has no random_states_0.pkl, which is written last",
    ),
}


@pytest.mark.parametrize("case", HALF)
def test_half_saved_ones_are_passed_over_and_named(tmp_path: pathlib.Path, case: str) -> None:
    tree, newest, said = HALF[case]
    build(tmp_path, tree)
    complete = checkpoints.list_complete(tmp_path, "auto")
    assert (complete[0].name if complete else "") == newest
    assert checkpoints.describe_half_saved(tmp_path, "auto") == said
    told = checkpoint_layouts.hide_half_saved(tmp_path)
    assert told == ([said] if said and "orbax" not in said and "latest" not in said else []), (
        "by trackers they are not taken"
    )
    # What the program finds by name now is what counts here.
    assert [saved.name for saved in checkpoints.list_complete(tmp_path, "auto")] == [saved.name for saved in complete]


def test_a_whole_one_is_not_read_again_until_something_is_written(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(tmp_path, trainer(10))
    first = checkpoint_layouts.find(tmp_path)
    read: list[pathlib.Path] = []
    walk = checkpoint_layouts.list_files
    monkeypatch.setattr(checkpoint_layouts, "list_files", lambda place: [read.append(place), walk(place)][1])
    assert checkpoint_layouts.find(tmp_path) == first and read == []
    (tmp_path / "checkpoint-10" / "trainer_state.json").write_text("")
    (half,) = checkpoint_layouts.find(tmp_path)
    assert half.problem and read == [tmp_path / "checkpoint-10"]


@pytest.mark.parametrize(
    "tree",
    [CARD, {"lightning_logs/version_0/hparams.yaml": b"{}"}, {"latest": b"global_step1", "zero_to_fp32.py": b"#"}],
)
def test_events_cards_and_tools_are_no_checkpoint(tmp_path: pathlib.Path, tree: Tree) -> None:
    assert checkpoints.list_complete(build(tmp_path, tree), "auto") == []


def test_files_of_no_known_layout_count_by_their_names(tmp_path: pathlib.Path) -> None:
    build(tmp_path, {"step 10.pt": b"x", "step 20.pt": b"x", "step 30.pt.tmp": b"x", **CARD})
    assert [saved.name for saved in checkpoints.list_complete(tmp_path, "auto")] == ["step 20.pt", "step 10.pt"]
    asked = {saved.name for saved in checkpoints.list_complete(tmp_path, "files")}
    assert asked == {"step 20.pt", "step 10.pt", "training.log", "README.md", "runs"}, "as it was asked for"


def test_a_file_of_no_known_layout_that_lacks_its_end_does_not_count(tmp_path: pathlib.Path) -> None:
    build(tmp_path, {"ckpt-10.json": b"{}", "ckpt-20.json": b'{"step": 2', "m-10.pt": ARCHIVE, "m-20.pt": ARCHIVE[:20]})
    assert {saved.name for saved in checkpoints.list_complete(tmp_path, "auto")} == {"ckpt-10.json", "m-10.pt"}
    assert checkpoints.describe_half_saved(tmp_path, "auto") == "m-20.pt is half saved: m-20.pt lacks its end"


def test_two_layouts_in_one_folder_and_odd_names(tmp_path: pathlib.Path) -> None:
    """The newest whole one counts, and says of which layout it is; a step of 20 digits is a step."""
    big = "checkpoint-12345678901234567890"
    odd = {f"my run/{big}/model.safetensors": SHARD, f"my run/{big}/trainer_state.json": b"{}"}
    build(tmp_path, {**zero(10), "latest": b"global_step10", **odd})
    found = {saved.name: (saved.layout, saved.step) for saved in checkpoints.list_complete(tmp_path, "auto")}
    assert found == {
        "global_step10": ("deepspeed", 10),
        f"my run/{big}": ("transformers", 12345678901234567890),
    }
    assert [saved.name for saved in checkpoints.list_complete(tmp_path, "transformers")] == [f"my run/{big}"]


def test_what_the_program_reports_is_whole_in_a_layout_of_its_own(tmp_path: pathlib.Path) -> None:
    build(tmp_path, {"checkpoint-10/model.safetensors": SHARD})
    assert checkpoints.list_complete(tmp_path, "auto") == []
    assert [saved.step for saved in checkpoints.list_complete(tmp_path, "auto", "checkpoint-10")] == [10]


@pytest.mark.parametrize(
    ("name", "files", "layout", "step"),
    [
        ("epoch_3", ["mp_rank_00_model_states.pt"], "deepspeed", None),
        ("step-30", ["bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"], "deepspeed", 30),
        ("0.1234", ["layer_00-model_00-model_states.pt"], "deepspeed", None),
        ("pytorch_model", ["mp_rank_00_model_states.pt"], "", None),
        ("checkpoint_3", ["random_states_0.pkl"], "accelerate", None),
        ("epoch_3", ["random_states_0.pkl"], "accelerate", None),
        ("checkpoint-30", ["random_states_0.pkl"], "accelerate", 30),
        ("30", ["random_states_0.pkl"], "accelerate", 30),
        ("epoch-3", [".metadata"], "dcp", None),
        ("Epoch3", [".metadata"], "dcp", None),
        ("epoch-3-step-30", [".metadata"], "dcp", 30),
        ("epoch_12", ["model.safetensors.index.json"], "safetensors", None),
    ],
)
def test_a_number_that_counts_something_else_is_no_step(
    tmp_path: pathlib.Path, name: str, files: list[str], layout: str, step: int | None
) -> None:
    build(tmp_path, {f"{name}/{file}": ARCHIVE for file in files})
    found = checkpoint_layouts.find(tmp_path)
    assert [(saved.layout, saved.step) for saved in found] == ([(layout, step)] if layout else [])


@pytest.mark.parametrize("layout", [name for name in WHOLE if name not in ("orbax", "safetensors", "accelerate")])
def test_keep_removes_the_oldest_of_a_layout_without_a_report(tmp_path: pathlib.Path, layout: str) -> None:
    folder = build(tmp_path / "c", WHOLE[layout][0])
    pruner = checkpoints.Pruner(folder, "auto", 1, leads=True, metrics=tmp_path / "metrics.jsonl")
    removed: t.Any = pruner.step()
    assert len(removed) == 1 and "10" in removed[0]
    assert [saved.name for saved in checkpoints.list_complete(folder, "auto")] == [WHOLE[layout][1]]


def test_a_distributed_checkpoint_of_megatron_is_whole_with_its_metadata(tmp_path: pathlib.Path) -> None:
    """As ``dist_checkpointing.save`` writes it, in this order; the tracker comes last."""
    names = ("__0_0.distcp", "__1_0.distcp", ".metadata", "common.pt", "metadata.json")
    contents = dict(zip(names, (b"x", b"x", b"x", ARCHIVE, b"{}"), strict=True))
    build(
        tmp_path,
        {
            **{f"iter_0000020/{name}": content for name, content in contents.items()},
            "latest_checkpointed_iteration.txt": b"20",
            "iter_0000030/__0_0.distcp": b"x",
        },
    )
    newest, half = checkpoint_layouts.find(tmp_path, "megatron")
    assert (newest.name, newest.step, newest.problem, newest.is_current) == ("iter_0000020", 20, "", True)
    assert half.problem == "is half saved: it has no .metadata, which is written last"


@pytest.mark.parametrize("prefix", ["", "bf16_"])
def test_the_ranks_that_saved_a_part_each_are_counted(tmp_path: pathlib.Path, prefix: str) -> None:
    place = tmp_path / "global_step20"
    place.mkdir()
    (place / "mp_rank_00_model_states.pt").touch()
    assert checkpoint_layouts.count_ranks(place) is None
    for rank in range(4):
        (place / f"{prefix}zero_pp_rank_{rank}_mp_rank_00_optim_states.pt").touch()
        (place / f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt").touch()
    assert checkpoint_layouts.count_ranks(place) == 4
    wanted = {"folder": str(tmp_path), "format": "auto"}
    assert host_preflight.find_checkpoint(wanted, tmp_path)["world_size"] is None, "nothing of it is whole"
    assert checkpoint_layouts.count_ranks(tmp_path / "model.pt") is None


def test_files_beside_each_other_are_one_checkpoint(tmp_path: pathlib.Path) -> None:
    """Its size is that of all, all are removed and hidden together, and its program's name of it is theirs."""
    folder = build(tmp_path / "c", {**bundle(10), **bundle(20), "checkpoint": b'model_checkpoint_path: "ckpt-20"'})
    newest, older = checkpoints.list_complete(folder, "auto")
    assert (newest.name, checkpoints.call(newest), older.name) == ("ckpt-20.index", "ckpt-20", "ckpt-10.index")
    assert checkpoint_layouts.size_of(folder / newest.name) == 2 * 8 + len(TABLE)
    for path in ("ckpt-20", "ckpt-20.index"):
        line = {"checkpoint_step": 20, "path": str(folder / path)}
        assert checkpoints.reported_name(folder, line) == "ckpt-20.index"
    (folder / "ckpt-20.data-00001-of-00002").unlink()
    newest = checkpoint_layouts.find(folder)[0]
    assert newest.problem == "is half saved: it has 1 of 2 parts (ckpt-20.data-00000-of-00002)"
    build(folder, bundle(20))
    assert checkpoints.Pruner(folder, "auto", 1, leads=True, metrics=tmp_path / "m").step() == ["ckpt-10.index"]
    assert sorted(path.name for path in folder.iterdir()) == sorted(["checkpoint", *bundle(20)])


def test_the_number_of_a_save_is_no_step(tmp_path: pathlib.Path) -> None:
    """``tf.train.Checkpoint`` counts its saves; ``tf.compat.v1.train.Saver`` gets the step."""
    build(tmp_path, {**bundle(10), **bundle(30, "model.ckpt"), "faiss.index": b"x", "ckpt-40.index": TABLE})
    found = {saved.name: (saved.layout, saved.step, saved.problem) for saved in checkpoint_layouts.find(tmp_path)}
    assert found == {"ckpt-10.index": ("tensorflow", None, ""), "model.ckpt-30.index": ("tensorflow", 30, "")}


@pytest.mark.parametrize("suffix", ["", "-shard0"])
def test_a_torn_copy_that_the_program_takes_is_replaced_by_the_newest_whole_one(
    tmp_path: pathlib.Path, suffix: str
) -> None:
    """fairseq writes one file and copies it to checkpoint_last.pt, from which it resumes; without it begins anew."""
    last, newest = f"checkpoint_last{suffix}.pt", f"checkpoint_1_20{suffix}.pt"
    whole: Tree = {f"checkpoint_1_10{suffix}.pt": ARCHIVE, newest: ARCHIVE + b"20", f"checkpoint1{suffix}.pt": ARCHIVE}
    build(tmp_path, {**whole, f"checkpoint_best{suffix}.pt": ARCHIVE, last: ARCHIVE[:20]})
    (tmp_path / f"checkpoint1{suffix}.pt").unlink()
    told = checkpoint_layouts.hide_half_saved(tmp_path)
    assert told == [f"{last} is half saved: {last} lacks its end, and {newest} was copied to its name"]
    assert (tmp_path / last).read_bytes() == ARCHIVE + b"20" and (tmp_path / last).stat().st_nlink == 1
    found = checkpoints.list_complete(tmp_path, "auto")[0]
    assert (found.name, found.layout, found.is_current) == (last, "fairseq", True)
    checkpoint_store.set_aside(tmp_path, [last, newest])
    assert (tmp_path / last).read_bytes() == ARCHIVE


def test_the_best_is_never_removed_and_the_copy_counts_as_one(tmp_path: pathlib.Path) -> None:
    names = ("checkpoint1.pt", "checkpoint_2_20.pt", "checkpoint_best.pt", "checkpoint_2_30.pt", "checkpoint_last.pt")
    folder = build(tmp_path / "c", dict.fromkeys(names, ARCHIVE))
    pruner = checkpoints.Pruner(folder, "auto", 2, leads=True, metrics=tmp_path / "m")
    assert sorted(pruner.step()) == ["checkpoint1.pt", "checkpoint_2_20.pt"]
    assert {path.name for path in folder.iterdir()} == set(names[2:])


def test_names_that_many_programs_use_are_of_no_layout_alone(tmp_path: pathlib.Path) -> None:
    build(tmp_path, {"checkpoint10.pt": ARCHIVE, "a/checkpoint_last.pt": ARCHIVE, "global_step_10/model.pt": ARCHIVE})
    assert checkpoint_layouts.find(tmp_path) == []


def test_without_room_for_a_copy_nothing_of_it_stays(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(_source: pathlib.Path, target: pathlib.Path) -> None:
        target.write_bytes(b"x")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint_layouts.shutil, "copy2", fill)
    build(tmp_path, {"checkpoint_1_10.pt": ARCHIVE, "checkpoint_best.pt": ARCHIVE, "checkpoint_last.pt": ARCHIVE[:20]})
    (told,) = checkpoint_layouts.hide_half_saved(tmp_path)
    assert told == "checkpoint_last.pt is half saved: checkpoint_last.pt lacks its end"
    assert not [path.name for path in tmp_path.iterdir() if path.name.endswith(".copying")]


def test_what_was_removed_but_for_its_state_is_not_whole(tmp_path: pathlib.Path) -> None:
    """transformers removes old checkpoints file by file; a kill in between leaves what it writes last."""
    build(tmp_path, {**trainer(10, **{"model.safetensors": None}), "checkpoint-10/config.json": b"{}"})
    assert checkpoints.describe_only_half_saved(tmp_path, "auto") == "checkpoint-10 is half saved: it has no weights"
    build(tmp_path, {"checkpoint-10/pytorch_model_fsdp_0/__0_0.distcp": b"x"})
    build(tmp_path, {"checkpoint-10/pytorch_model_fsdp_0/.metadata": b"x"})
    assert checkpoints.describe_only_half_saved(tmp_path, "auto") == ""


@pytest.mark.parametrize("folder", ["checkpoint-10", "final"])
def test_shards_without_their_index_are_counted_by_their_names(tmp_path: pathlib.Path, folder: str) -> None:
    first, second = (f"{folder}/model-0000{number}-of-00002.safetensors" for number in (1, 2))
    build(tmp_path, {**trainer(10), "checkpoint-10/model.safetensors": SHARD, first: SHARD})
    (tmp_path / "checkpoint-10" / "model.safetensors").unlink()
    if folder == "final":
        (tmp_path / "checkpoint-10").rename(tmp_path / ".checkpoint-10")
    (saved,) = checkpoints.list_saved(tmp_path, "auto")
    assert (saved.name, saved.problem) == (folder, "is half saved: it has 1 of 2 parts (model)")
    build(tmp_path, {second: SHARD})
    assert [saved.problem for saved in checkpoints.list_saved(tmp_path, "auto")] == [""]


@pytest.mark.parametrize("name", ["checkpoint_tmp", "tmp.pth.tar", "tmp-checkpoint-30/model.bin", "ckpt-1_temp/part"])
def test_what_is_renamed_when_it_is_whole_is_passed_over(tmp_path: pathlib.Path, name: str) -> None:
    build(tmp_path, {"model_10.pth": ARCHIVE, name: b"x"})
    assert [saved.name for saved in checkpoints.list_complete(tmp_path, "auto")] == ["model_10.pth"]
    top = name.partition("/")[0]
    assert top in [saved.name for saved in checkpoints.list_complete(tmp_path, "auto", reported=top)]


@pytest.mark.parametrize("name", ["result.json", "params.pkl", "params.txt", "trainer.pkl", "experiment_state-1.json"])
def test_what_a_tuner_writes_beside_checkpoints_is_none(tmp_path: pathlib.Path, name: str) -> None:
    build(tmp_path, {"checkpoint_000001/model.pt": ARCHIVE, name: b"{}"})
    assert [saved.name for saved in checkpoints.list_complete(tmp_path, "auto")] == ["checkpoint_000001"]
