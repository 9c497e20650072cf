# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checkpoints as programs lay them out: their files, and what each of two nodes without a shared folder has of them."""

from __future__ import annotations

import json
import os
import pathlib
import typing as t

Tree = dict[str, bytes]
HEADER = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
SHARD = len(HEADER).to_bytes(8, "little") + HEADER + b"1234"
ARCHIVE = b"PK\x03\x04" + b"x" * 60 + b"PK\x05\x06" + b"\0" * 18


def build(folder: pathlib.Path, tree: Tree) -> pathlib.Path:
    """Write files in this order, a second apart."""
    for number, (name, content) in enumerate(tree.items()):
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        os.utime(place, (1000 + number, 1000 + number))
    return folder


def zero(step: int) -> Tree:
    """Return a checkpoint of DeepSpeed's ZeRO."""
    return {f"global_step{step}/{name}_states.pt": ARCHIVE for name in ("mp_rank_00_model", "zero_pp_rank_0_optim")}


def trainer(step: int, **changes: bytes | None) -> Tree:
    """Return a checkpoint of transformers' Trainer; a file for which None is given is not there."""
    files = {
        "model.safetensors": SHARD,
        "optimizer.pt": ARCHIVE,
        "rng_state_0.pth": ARCHIVE,
        "trainer_state.json": b"{}",
    }
    return {
        f"checkpoint-{step}/{name}": content for name, content in files.items() if changes.get(name, b"") is not None
    }


class Case(t.NamedTuple):
    """What the first and the second node write of a step, and what else the first one has then.

    Names of files are in the checkpoint, empty for a file itself, or ``../NAME`` beside it.

    :ivar name: of the checkpoint; {0} is the step. :ivar tracker: the file beside it, and what it says.
    :ivar alone: what is written where the first node alone saves, where that is something else.
    :ivar temporary: what its name has at its end until it is whole.
    :ivar gathered: what of the first node's is written when all have saved their parts, as a tracker is.
    """

    name: str
    first: Tree
    second: Tree
    tracker: tuple[str, str] = ("", "")
    alone: Tree | None = None
    gathered: tuple[str, ...] = ()
    temporary: str = ""

    def path(self, step: int, name: str) -> str:
        """Return the path of a file of a step in the folder of checkpoints."""
        return os.path.normpath(os.path.join(self.name, name).format(step))


INDEX = json.dumps({"weight_map": {"a": "model-1-of-1.safetensors"}}).encode()
_TRAINER: Tree = {"model.safetensors": SHARD, "optimizer.pt": ARCHIVE, "trainer_state.json": b"{}"}
_STATE: Tree = {"model.safetensors": SHARD, "optimizer.bin": ARCHIVE}
_HF: Tree = {"model-1-of-1.safetensors": SHARD, "model.safetensors.index.json": INDEX}
_TUNE: Tree = {"model.safetensors": SHARD, "config.json": b"{}", "recipe_state.pt": ARCHIVE}
_ORBAX: Tree = {"default/_METADATA": b"x", "_CHECKPOINT_METADATA": b"{}"}
TABLE = b"\0" * 40 + bytes.fromhex("57fb808b247547db")
_TENSORFLOW: Tree = {"../ckpt-{0}.data-00000-of-00001": b"x" * 90, "": TABLE}
CASES: dict[str, Case] = {
    "transformers": Case(
        "checkpoint-{0}", {**_TRAINER, "rng_state_0.pth": ARCHIVE}, {**_TRAINER, "rng_state_1.pth": ARCHIVE}
    ),
    "deepspeed": Case(
        "global_step{0}",
        {"mp_rank_00_model_states.pt": ARCHIVE, "zero_pp_rank_0_mp_rank_00_optim_states.pt": ARCHIVE},
        {"zero_pp_rank_1_mp_rank_00_optim_states.pt": ARCHIVE},
        ("latest", "global_step{0}"),
        {"mp_rank_00_model_states.pt": ARCHIVE},
    ),
    "megatron": Case(
        "iter_{0:07d}",
        {"mp_rank_00/model_optim_rng.pt": ARCHIVE},
        {"mp_rank_01/model_optim_rng.pt": ARCHIVE},
        ("latest_checkpointed_iteration.txt", "{0}"),
    ),
    "mmengine": Case("iter_{0}.pth", {"": ARCHIVE}, {"": ARCHIVE}, ("last_checkpoint", "/c/iter_{0}.pth")),
    "lightning": Case("lightning_logs/version_0/checkpoints/epoch=0-step={0}.ckpt", {"": ARCHIVE}, {"": ARCHIVE}),
    "dcp": Case(
        "checkpoint/step-{0}",
        {"__0_0.distcp": ARCHIVE, ".metadata": b"x"},
        {"__1_0.distcp": ARCHIVE},
        gathered=(".metadata",),
    ),
    "orbax": Case("{0}", _ORBAX, _ORBAX, temporary=".orbax-checkpoint-tmp-1"),
    "accelerate": Case("step_{0}", {**_STATE, "random_states_0.pkl": b"x"}, {**_STATE, "random_states_1.pkl": b"x"}),
    "torchtune": Case("step_{0}", _TUNE, _TUNE),
    "fairseq": Case("checkpoint_1_{0}.pt", {"": ARCHIVE}, {"": ARCHIVE}),
    "verl": Case(
        "global_step_{0}",
        {"actor/model_world_size_2_rank_0.pt": ARCHIVE, "data.pt": ARCHIVE},
        {"actor/model_world_size_2_rank_1.pt": ARCHIVE},
        ("latest_checkpointed_iteration.txt", "{0}"),
        {"actor/huggingface/model.safetensors": SHARD, "data.pt": ARCHIVE},
    ),
    "tensorflow": Case(
        "ckpt-{0}.index", _TENSORFLOW, _TENSORFLOW, ("checkpoint", 'model_checkpoint_path: "ckpt-{0}"\n')
    ),
    "safetensors": Case("epoch_{0}", _HF, _HF),
}


def save_step(folder: pathlib.Path, case: Case, step: int, tree: Tree, *, tracks: bool) -> None:
    """Write what a node has of a step, a second apart from other steps."""
    place = folder / case.name.format(step)
    written = {folder / case.path(step, name): content for name, content in tree.items()}
    if tracks and case.tracker[0]:
        written[place.with_name(case.tracker[0])] = case.tracker[1].format(step).encode()
    for number, (path, content) in enumerate(written.items()):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        os.utime(path, (1000 + step, 1000 + step + number / 10))
