# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What programs and libraries print of their training, as tables of patterns: ``metrics: {preset: NAME}``.

A pattern without a group ``step`` counts for the last step that was read. ``total`` is the length of the bar that a
line is of: other bars, such as those of an evaluation, have another one. With ``epoch``, too, the step counts within an
epoch of ``total`` steps.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import types
import typing as t


@dataclasses.dataclass(frozen=True, slots=True)
class MetricPreset:
    """The lines of one program: steps, figures on lines of their own, checkpoints, and where it resumed.

    :ivar sign: a line that no other program prints: by it a program is known where a job names no preset.
    :ivar needs: what has to be asked of the program for what it does not print by itself, for people.
    """

    step: str
    figures: str | None = None
    checkpoint: str | None = None
    resume: str | None = None
    sign: str | None = None
    needs: str = ""


# What changes the colour of a terminal.
_COLOUR: t.Final = r"(?:\x1b\[[0-9;]*m)*"
_COUNT: t.Final = r"(?P<step>[0-9]+)/(?P<total>[0-9]+) \[[0-9:]+<[0-9:]+, *[0-9.]+(?:it/s|s/it)"
# A bar of tqdm without a description begins with its percentage.
_BAR: t.Final = r"(?:^|[\]:>]) *[0-9]+%\|[^|\n]*\| *" + _COUNT
_VALUE: t.Final = r"'?(?P<{0}>[^',}}\n]+)'?"
_TRAINER: t.Final = (
    r"\{'loss': " + _VALUE.format("loss") + r"(?:, 'grad_norm': " + _VALUE.format("grad_norm") + ")?"
    r"(?:, 'learning_rate': " + _VALUE.format("learning_rate") + ")?"
)
PRESETS: t.Final[t.Mapping[str, MetricPreset]] = types.MappingProxyType(
    {
        # Trainer: src/transformers/trainer.py and trainer_callback.py (4.x "Continuing", 5.x "Resuming").
        "transformers": MetricPreset(
            step=_BAR,
            figures=_TRAINER,
            checkpoint=r"Saving model checkpoint to \S*checkpoint-(?P<step>[0-9]+)",
            resume=r"(?:Continuing|Resuming) training from .*global step (?P<step>[0-9]+)",
            sign=r"\{'loss': [^}\n]*'epoch': ",
            needs="--log_level info prints its checkpoints; otherwise set checkpoints.interval_steps",
        ),
        # TQDMProgressBar, and the checkpoint connector's line on what it restored.
        "lightning": MetricPreset(
            step=r"Epoch (?P<epoch>[0-9]+): +[0-9]+%\|[^|\n]*\| *"
            + _COUNT
            + r"(?:[^\n\]]*\b(?:train_)?loss(?:_step)?=(?P<loss>[^,\]\s]+))?",
            resume=r"Restored all states from the checkpoint at \S*step=(?P<step>[0-9]+)",
            # Others have bars that begin with "Epoch", and count their epochs from 1.
            sign=r"Epoch [0-9]+: +[0-9]+%\|[^\n]*\bv_num=",
            needs="it does not print its checkpoints: set checkpoints.interval_steps",
        ),
        # The examples without a trainer: a bare bar, and folders step_N.
        "accelerate": MetricPreset(
            step=_BAR,
            checkpoint=r"Saving current state to \S*step_(?P<step>[0-9]+)",
            resume=r"(?:Resumed from checkpoint: |Loading states from )\S*step_(?P<step>[0-9]+)",
            needs="it prints its checkpoints when its logger's level is info; otherwise set checkpoints.interval_steps",
        ),
        # train.py: "iter N: loss L, time T", at an evaluation "step N: train loss L", then "saving checkpoint to".
        "nanogpt": MetricPreset(
            step=r"\b(?:iter|step) (?P<step>[0-9]+): (?:train )?loss (?P<loss>[^,\s]+)",
            checkpoint=r"\bsaving checkpoint to ",
            sign=r"\biter [0-9]+: loss [^,\s]+, time [0-9.]+ms",
        ),
        # training.py and checkpointing.py of Megatron-LM.
        "megatron": MetricPreset(
            step=r"\biteration +(?P<step>[0-9]+)/ *[0-9]+ \|(?:[^\n]*\blm loss: (?P<loss>\S+))?",
            checkpoint=r"successfully saved checkpoint from iteration +(?P<step>[0-9]+)",
            resume=r"successfully loaded checkpoint from .* at iteration (?P<step>[0-9]+)",
            sign=r"\biteration +[0-9]+/ *[0-9]+ \| consumed samples:",
        ),
        # PipelineEngine.train_batch ("steps: N loss: L iter time (s): T samples/sec: S"), and DeepSpeedEngine's report
        # of its learning rate at each steps_per_print, which has no loss.
        "deepspeed": MetricPreset(
            step=r"(?:\bsteps: +|\[Rank 0\] step=)(?P<step>[0-9]+)(?:, skipped=|(?: +/ +[0-9]+)? loss: (?P<loss>\S+)"
            r"(?:[^\n]*\bsamples/sec: (?P<samples_per_s>[0-9.]+))?)",
            resume=r"\bglobal_step(?P<step>[0-9]+)/\S*model_states\.pt\.\.\.",
            sign=r"\[Rank 0\] step=[0-9]+, skipped=[0-9]+, lr="
            r"|\bsteps: +[0-9]+(?: +/ +[0-9]+)? loss: \S+ iter time \(s\): ",
            needs="it prints steps at each steps_per_print; a loss by its pipeline engine alone",
        ),
        # log_dict of torchtune.training.metric_logging.StdoutLogger, which its recipes have by choice.
        "torchtune": MetricPreset(
            step=r"\bStep (?P<step>[0-9]+) \| (?:[^\n]*\b)?loss:(?P<loss>[^\s|]+)",
            sign=r"\bStep [0-9]+ \| loss:\S+ lr:\S+ ",
            needs="its StdoutLogger prints steps, its DiskLogger does not; set checkpoints.interval_steps",
        ),
        # MetricsProcessor.log, in colours or without, and CheckpointManager.load.
        "torchtitan": MetricPreset(
            step=rf"(?<!validate )(?:\b|(?<=m))step: +(?P<step>[0-9]+) +{_COLOUR}loss: +(?P<loss>\S+)"
            rf"(?: +{_COLOUR}grad_norm: +(?P<grad_norm>[^\s\x1b]+))?",
            resume=r"Loading the checkpoint (?:at step |from \S*step-)(?P<step>[0-9]+)",
            sign=r"(?<!validate )(?:\b|(?<=m))step: +[0-9]+ [^\n]*\btps: [0-9,]+ [^\n]*\btflops: ",
            needs="it prints no step of its checkpoints: set checkpoints.interval_steps",
        ),
    }
)


def preset_patterns(name: str | None) -> dict[str, str]:
    """Return the patterns of a preset by the key of the metrics that they give, nothing without a preset."""
    if name is None:
        return {}
    preset = PRESETS[name]
    found = {
        "step": preset.step,
        "figures": preset.figures,
        "checkpoint_step": preset.checkpoint,
        "resumed_from_step": preset.resume,
    }
    return {key: pattern for key, pattern in found.items() if pattern is not None}


def guessed_forms() -> dict[str, dict[str, str]]:
    """Return the patterns of programs that are known by what they print, each with its sign, by the preset's name.

    Where nothing was asked for, checkpoints are found by their layout.
    """
    return {
        name: {
            "sign": preset.sign,
            **{key: form for key, form in preset_patterns(name).items() if key != "checkpoint_step"},
        }
        for name, preset in PRESETS.items()
        if preset.sign is not None
    }
