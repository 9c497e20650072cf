# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job for each preset beside ``pytorch_ddp``: its program of ``examples``, small, with its real library on CPUs.

The same jobs run on hosts (tests/e2e) and in pods (tests/lab). The demo and its drills run ``pytorch_ddp``.
"""

from __future__ import annotations

import dataclasses
import pathlib
import subprocess
import typing as t

ROOT = pathlib.Path(__file__).parents[2]
INTERVAL = 5
LAST = 40
AT_STEP = 12
_MODEL = pathlib.Path(__file__).with_name("tiny_model.py")
_MODEL_S = 120


@dataclasses.dataclass(frozen=True, slots=True)
class Preset:
    """A preset of the collection and the program of ``examples`` that it is for.

    ``saving`` is the program's option for the steps between two checkpoints. ``values``: what its job needs besides.
    """

    name: str
    script: str
    args: tuple[str, ...] = ()
    folder: str = "presets"
    saving: str = "--save-every"
    env: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    has_model: bool = False
    values: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)

    @property
    def ranks(self) -> int:
        """Return how many ranks its job has over two nodes."""
        return 2 * int(self.values.get("processes_per_node", 1))


_TEXT = "{run_dir}/data/text/LICENSE"
PRESETS = (
    Preset(
        "pytorch_fsdp",
        "train.py",
        ("--data", _TEXT, "--batch-size", "32"),
        folder="fsdp",
        saving="--checkpoint-every",
    ),
    Preset("accelerate", "accelerate_train.py"),
    Preset("deepspeed_zero3", "deepspeed_train.py", ("{deepspeed_config}",)),
    Preset(
        "huggingface_finetune",
        "finetune_train.py",
        ("--model", "{run_dir}/data/model", "--text", _TEXT),
        env={"HF_HUB_OFFLINE": "1"},
        has_model=True,
    ),
    Preset(
        "megatron",
        "megatron_train.py",
        values={"processes_per_node": 2, "parallel": {"tensor": 2, "micro_batch": 2, "global_batch": 8}},
    ),
    Preset("mpi4py", "mpi_train.py"),
)


def job(preset: Preset, checkpoints: str, model: pathlib.Path | None, **values: t.Any) -> dict[str, t.Any]:
    """Return the preset's job over two nodes; ``checkpoints`` is a folder that both share."""
    datasets = [{"name": "text", "path": str(ROOT / "LICENSE")}]
    datasets += [{"name": "model", "path": str(model)}] if model else []
    env = {"OMP_NUM_THREADS": "1", **preset.env, **values.pop("env", {})}
    return {
        "name": "preset",
        "nodes": 2,
        "template": preset.name,
        "code": {"ref": str(ROOT / "examples" / preset.folder)},
        "script": preset.script,
        "args": [*preset.args, "--steps", str(LAST), preset.saving, str(INTERVAL), "--step-time-min", "0.1"],
        "datasets": datasets,
        "env": env,
        "checkpoints": {"path": checkpoints, "interval_steps": INTERVAL, "grace_s": 5},
        **preset.values,
        **values,
    }


def make_model(python: str, folder: pathlib.Path) -> pathlib.Path:
    """Write the small model into ``folder`` with an interpreter that has transformers, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [python, str(_MODEL), str(folder)], capture_output=True, text=True, timeout=_MODEL_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


def assert_resumed(record: t.Mapping[str, t.Any], metrics: t.Sequence[t.Mapping[str, t.Any]], ranks: int = 2) -> None:
    """Assert that all ranks came back from a checkpoint, every step was made, and the loss went on falling."""
    assert (record["outcome"], record["world_size"]) == ("succeeded", {"asked": ranks, "seen": ranks}), record["detail"]
    drill = record["drill"]
    assert drill["resumed"] is True and drill["world_size"] == ranks and drill["steps_lost"] <= INTERVAL, drill
    assert len(record["attempts"]) == 2 and record["attempts"][1]["resumed_from_step"] >= AT_STEP - INTERVAL
    # The library's own count, not the launcher's: a rank may train alone among others.
    assert [line["world_size"] for line in metrics if "world_size" in line] == [ranks, ranks]
    if record["job"]["template"] == "deepspeed_zero3":
        assert [line["stage"] for line in metrics if "stage" in line] == [3, 3]
    losses = {line["step"]: float(line["loss"]) for line in metrics if "loss" in line}
    assert sorted(losses) == list(range(1, LAST + 1))
    assert sum(losses[step] for step in range(LAST - 9, LAST + 1)) < sum(losses[step] for step in range(1, 11))
