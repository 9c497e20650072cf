# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fine-tune a language model with LoRA: transformers' Trainer and peft; the job's preset is ``huggingface_finetune``.

``--model`` is a folder that ``save_pretrained`` wrote, or a name that the machines can fetch from a hub. The Trainer
saves the adapter, the optimizer and the random state of every rank.
"""

from __future__ import annotations

import time
import typing as t
from pathlib import Path

import progress
import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)


class Windows(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """The text in pieces of ``length`` tokens."""

    def __init__(self, tokens: list[int], length: int) -> None:
        self._pieces = torch.tensor(tokens[: len(tokens) // length * length]).view(-1, length)

    def __len__(self) -> int:
        """Return the number of pieces."""
        return len(self._pieces)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        """Return one piece, which is its own label."""
        return {"input_ids": self._pieces[index], "labels": self._pieces[index]}


class Progress(TrainerCallback):
    """Tells the run what the Trainer does."""

    def __init__(self, step_time_min: float) -> None:
        self._step_time_min = step_time_min
        self._started = time.monotonic()

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: t.Any) -> None:
        """Note the step from which the training continues."""
        if state.is_world_process_zero:
            progress.note(resumed_from_step=state.global_step, world_size=args.world_size)

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: t.Any) -> None:
        """Take the time."""
        self._started = time.monotonic()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: t.Any) -> None:
        """Keep the pace that was asked for."""
        progress.keep_pace(self._started, self._step_time_min)

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: t.Any) -> None:
        """Note a step's loss."""
        values = more.get("logs") or {}
        if state.is_world_process_zero and "loss" in values:
            progress.note(step=state.global_step, loss=float(values["loss"]))

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: t.Any) -> None:
        """Note a checkpoint that is complete."""
        if state.is_world_process_zero:
            progress.note(checkpoint_step=state.global_step, path=str(checkpoint(args.output_dir, state.global_step)))


def checkpoint(folder: str | None, step: int) -> Path:
    """Return where the Trainer keeps a step's checkpoint."""
    return Path(str(folder), f"checkpoint-{step}")


def newest(folder: Path) -> str | None:
    """Return the newest checkpoint that counts: the Trainer writes ``trainer_state.json`` after everything else."""
    found = [path.parent for path in folder.glob("checkpoint-*/trainer_state.json")]
    return str(max(found, key=lambda path: int(path.name.rpartition("-")[2]))) if found else None


def main() -> None:
    """Fine-tune from the newest checkpoint to the last step."""
    parser = progress.options(__doc__ or "")
    parser.add_argument("--model", required=True)
    parser.add_argument("--text", type=Path, required=True, help="a file with the text to learn")
    parser.add_argument("--length", type=int, default=64, help="tokens of a sample")
    options = parser.parse_args()
    torch.manual_seed(0)
    model = get_peft_model(
        AutoModelForCausalLM.from_pretrained(options.model),
        LoraConfig(task_type="CAUSAL_LM", r=8, lora_alpha=16, target_modules="all-linear"),
    )
    tokens = AutoTokenizer.from_pretrained(options.model)(options.text.read_text(encoding="utf-8"))["input_ids"]
    folder = progress.folder()
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=options.steps,
        save_steps=options.save_every,
        save_total_limit=2,
        logging_steps=1,
        learning_rate=0.01,
        per_device_train_batch_size=4,
        dataloader_pin_memory=torch.cuda.is_available(),
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=Windows(tokens, options.length),
        callbacks=[Progress(options.step_time_min)],
    )
    trainer.train(resume_from_checkpoint=newest(folder))


if __name__ == "__main__":
    main()
