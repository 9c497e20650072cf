# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What programs and libraries print of their training, as tables of patterns: ``metrics: {preset: NAME}``.

A pattern without a group ``step`` counts for the last step that was read, ``figures_next`` for the one that its bar
shows when it is drawn again below them. ``total`` is the length of the bar
that a line is of: other bars, such as those of an evaluation, have another one. With ``epoch``, too, the step counts
within an epoch of ``total`` steps; ``epoch1`` is an epoch counted from 1. With ``bar`` a line is drawn again and again:
the last drawing of a step has its figures.
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
    :ivar epoch: an epoch on a line of its own, of the steps after it. :ivar printed_by: whether one rank alone prints.
    """

    step: str
    figures: str | None = None
    figures_next: str | None = None
    checkpoint: str | None = None
    resume: str | None = None
    sign: str | None = None
    needs: str = ""
    epoch: str | None = None
    printed_by: t.Literal["one", "all"] = "one"


_COUNT: t.Final = r"(?P<step>[0-9]+)/(?P<total>[0-9]+) \[(?P<bar>[0-9:]+)<[0-9:]+, *[0-9.]+(?:it/s|s/it)"
# A bar of tqdm without a description begins with its percentage, after what a launcher writes before each line.
_BAR: t.Final = r"^(?:\[[^\]\n]*\](?:<std(?:out|err)>)?:|\([^)\n]*pid=[^)\n]*\))? *[0-9]+%\|[^|\n]*\| *" + _COUNT
_VALUE: t.Final = r"'?(?P<{0}>[^',}}\n]+)'?"
_TRAINER: t.Final = (
    r"\{'loss': " + _VALUE.format("loss") + r"(?:, 'grad_norm': " + _VALUE.format("grad_norm") + ")?"
    r"(?:, 'learning_rate': " + _VALUE.format("learning_rate") + ")?"
)
_TRAINER_SAVED: t.Final = r"Saving model checkpoint to \S*checkpoint-(?P<step>[0-9]+)"
_TRAINER_RESUMED: t.Final = r"(?:Continuing|Resuming) training from .*global step (?P<step>[0-9]+)"
_DIFFUSERS_SAVED: t.Final = r"\bSaved state to \S*checkpoint-(?P<step>[0-9]+)"
_DIFFUSERS_RESUMED: t.Final = r"\bResuming from checkpoint checkpoint-(?P<step>[0-9]+)"
PRESETS: t.Final[t.Mapping[str, MetricPreset]] = types.MappingProxyType(
    {
        # ms-swift (swift/trainers/callback.py: add_train_message): transformers' dictionary, and the step in it.
        "ms_swift": MetricPreset(
            step=_TRAINER + r"[^}\n]*'global_step/max_steps': '(?P<step>[0-9]+)/(?P<total>[0-9]+)'",
            checkpoint=_TRAINER_SAVED,
            resume=_TRAINER_RESUMED,
            sign=r"'global_step/max_steps': '[0-9]+/",
        ),
        # Trainer: src/transformers/trainer.py and trainer_callback.py (4.x "Continuing", 5.x "Resuming").
        "transformers": MetricPreset(
            step=_BAR,
            # on_log writes by tqdm.write, which draws the bar again below; above, steps may be missing.
            figures_next=_TRAINER,
            checkpoint=_TRAINER_SAVED,
            resume=_TRAINER_RESUMED,
            sign=r"\{'loss': [^}\n]*'epoch': ",
            needs="--log_level info prints its checkpoints; otherwise set checkpoints.interval_steps",
        ),
        # TQDMProgressBar, and the checkpoint connector's line on what it restored.
        "lightning": MetricPreset(
            step=r"Epoch (?P<epoch>[0-9]+): +[0-9]+%\|[^|\n]*\| *"
            + _COUNT
            + r"(?:[^\n\]]*\b(?:train_)?loss(?:_step)?=(?P<loss>[^,\]\s]+))?",
            resume=r"Restored all states from the checkpoint at \S*step=(?P<step>[0-9]+)",
            # Others have bars that begin with "Epoch", and count their epochs from 1; without a logger no "v_num".
            sign=r"Epoch [0-9]+: +[0-9]+%\|[^\n]*\bv_num=|\bGPU available: (?:True|False)[^\n]*, used: (?:True|False)",
            needs="it does not print its checkpoints: set checkpoints.interval_steps",
        ),
        # The examples without a trainer: a bare bar, and folders step_N.
        "accelerate": MetricPreset(
            step=_BAR,
            checkpoint=r"Saving current state to \S*step_(?P<step>[0-9]+)",
            resume=r"(?:Resumed from checkpoint: |Loading states from )\S*step_(?P<step>[0-9]+)",
            needs="it prints its checkpoints when its logger's level is info; otherwise set checkpoints.interval_steps",
            printed_by="all",
        ),
        # train.py: at an evaluation "step N: train loss L" of many batches and "saving checkpoint to", then "iter N:
        # loss L, time T" of the step itself.
        "nanogpt": MetricPreset(
            step=r"\b(?:iter|step) (?P<step>[0-9]+): (?:train loss |loss (?P<loss>[^,\s]+))",
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
        # The description of its recipes' bar, "epoch|step|Loss: L", and log_dict of its StdoutLogger.
        "torchtune": MetricPreset(
            step=r"(?:\bStep |(?<![0-9|])[0-9]+\|)(?P<step>[0-9]+)(?: \| (?:[^\n]*\b)?loss:|\|Loss: )"
            r"(?P<loss>[^\s|:]+)",
            sign=r"\bStep [0-9]+ \| loss:\S+ lr:\S+ |(?<![0-9|])[0-9]+\|[0-9]+\|Loss: \S+: +[0-9]+%\|",
            needs="it does not print its checkpoints: set checkpoints.interval_steps",
        ),
        # MetricsProcessor.log, in colours or without, and CheckpointManager.load.
        "torchtitan": MetricPreset(
            step=r"(?<!validate )\bstep: +(?P<step>[0-9]+) +loss: +(?P<loss>\S+)"
            r"(?: +grad_norm: +(?P<grad_norm>\S+))?",
            resume=r"Loading the checkpoint (?:at step |from \S*step-)(?P<step>[0-9]+)",
            sign=r"(?<!validate )\bstep: +[0-9]+ [^\n]*\btps: [0-9,]+ [^\n]*\btflops: ",
            needs="it prints no step of its checkpoints: set checkpoints.interval_steps",
        ),
        # Progbar of Keras 2 and 3, and the line of an epoch of verbose=2; the loss is that of the epoch so far.
        "keras": MetricPreset(
            epoch=r"^Epoch (?P<epoch1>[0-9]+)/[0-9]+$",
            step=r"^ *(?P<step>[0-9]+)/(?P<total>[0-9]+) (?:\[[=>.]+\] - |\u2501+ |- )[^\n]*?- loss: (?P<loss>\S+)",
            sign=r"^ *[0-9]+/[0-9]+ (?:\[[=>.]+\] - |\u2501+ |- )(?:ETA: )?[0-9][^\n]*- loss: ",
            needs="it does not print its checkpoints: set checkpoints.interval_steps",
        ),
        # NeMo 2: its own lines instead of a bar.
        "nemo": MetricPreset(
            step=r"\bTraining epoch [0-9]+, iteration [0-9]+/[0-9]+ \|[^\n]*\bglobal_step: (?P<step>[0-9]+)"
            r"[^\n]*\breduced_train_loss: (?P<loss>\S+)",
            sign=r"\bTraining epoch [0-9]+, iteration [0-9]+/[0-9]+ \|",
        ),
        # train_step_logs of nanotron's trainer.
        "nanotron": MetricPreset(
            step=r"\biteration: (?P<step>[0-9]+) / [0-9]+ \| consumed_tokens: [^\n]*\blm_loss: (?P<loss>\S+)",
            sign=r"\biteration: [0-9]+ / [0-9]+ \| consumed_tokens: ",
        ),
        # litgpt's finetune and pretrain, and lit-gpt's: an iteration is a part of a step.
        "litgpt": MetricPreset(
            step=r"\biter [0-9]+ step (?P<step>[0-9]+)(?: \| loss train:|: loss) (?P<loss>[^,\s]+)",
            sign=r"\biter [0-9]+ step [0-9]+(?: \| loss train:|: loss) [^\n]*\biter time: ",
        ),
        # train_gpt2.cu of llm.c, and train_gpt.py of modded-nanogpt, whose evaluations have no loss of a step.
        "llm_c": MetricPreset(
            step=r"\bstep +(?P<step>[0-9]+)/[0-9]+ \| loss (?P<loss>\S+) \(",
            sign=r"\bstep +[0-9]+/[0-9]+ \| loss \S+ \([^\n]*\| norm ",
        ),
        "modded_nanogpt": MetricPreset(
            step=r"\bstep:(?P<step>[0-9]+)/[0-9]+ (?:train_loss:(?P<loss>\S+) )?[^\n]*\btrain_time:",
            sign=r"\bstep:[0-9]+/[0-9]+ [^\n]*\btrain_time:[0-9]",
        ),
        # fairseq's progress bars "simple" and "json": an update is a step.
        "fairseq": MetricPreset(
            step=r'(?:\bepoch [0-9]+:? +[0-9]+ / [0-9]+ |"update": )[^\n]*?\bloss(?:=|": ")(?P<loss>[^,"\s]+)'
            r'[^\n]*\bnum_updates(?:=|": ")(?P<step>[0-9]+)',
            sign=r'(?:\bepoch [0-9]+:? +[0-9]+ / [0-9]+ |"update": )[^\n]*\bnum_updates\b',
        ),
        # StatsManager of OpenNMT-py.
        "opennmt": MetricPreset(
            step=r"\bStep +(?P<step>[0-9]+)/ *[0-9]+; acc: [^\n]*\bxent: +(?P<loss>[^;\s]+)",
            sign=r"\bStep +[0-9]+/ *[0-9]+; acc: [^\n]*\bxent: ",
        ),
        # train_one_epoch of timm's train.py: steps and epochs from 0.
        "timm": MetricPreset(
            step=r"\bTrain: (?P<epoch>[0-9]+) \[ *(?P<step>[0-9]+)/(?P<total>[0-9]+) \( *[0-9]+%\)\] +"
            r"Loss: (?P<loss>\S+)",
            sign=r"\bTrain: [0-9]+ \[ *[0-9]+/[0-9]+ \( *[0-9]+%\)\] +Loss: [^\n]*\bLR: ",
        ),
        # MetricLogger of torchvision's references, of which DINO, DeiT and MAE have copies; the ImageNet example.
        "torchvision": MetricPreset(
            step=r"\bEpoch: \[(?P<epoch>[0-9]+)\] *\[ *(?P<step>[0-9]+)/ *(?P<total>[0-9]+)\][^\n]*?"
            r"\b[Ll]oss:? (?P<loss>[^,\s]+)",
            sign=r"\bEpoch: \[[0-9]+\] *\[ *[0-9]+/ *[0-9]+\](?:\s+eta: [^\n]*\btime: |\s+Time )",
            printed_by="all",
        ),
        # LoggerHook of mmengine, by epochs or iterations, and of mmcv before it.
        "mmengine": MetricPreset(
            step=r"(?:\bEpoch(?:\(train\))? +\[(?P<epoch1>[0-9]+)\]|\bIter(?:\(train\))? +)\[ *(?P<step>[0-9]+)/"
            r"(?P<total>[0-9]+)\][^\n]*?\bloss: (?P<loss>[^,\s]+)",
            sign=r"- INFO - (?:Epoch|Iter)(?:\(train\))? +\[",
        ),
        # CommonMetricPrinter of detectron2, and maskrcnn-benchmark before it.
        "detectron2": MetricPreset(
            step=r"\biter: (?P<step>[0-9]+) +(?:total_)?loss: (?P<loss>\S+)",
            sign=r"(?:\bd2\.utils\.events|\bmaskrcnn_benchmark\.trainer)\b[^\n]*\biter: [0-9]+ ",
        ),
        # The trainer of ultralytics from 8 on, which has several losses and no sum of them.
        "ultralytics": MetricPreset(
            step=r"^ *(?P<epoch1>[0-9]+)/[0-9]+ +[0-9.]+G? [^\n%|]*: +[0-9]+%\|[^|\n]*\| *" + _COUNT,
            sign=r"^ +Epoch +GPU_mem [^\n]*\bdfl_loss\b",
            needs="it has no loss of a step, and does not print its checkpoints: set checkpoints.interval_steps",
        ),
        # PaddleDetection, PaddleSeg (its iterations count on) and PaddleOCR.
        "paddle": MetricPreset(
            step=r"(?:\bEpoch: \[(?P<epoch>[0-9]+)\] \[ *|\[TRAIN\] epoch: [0-9]+, iter: |\bglobal_step: )"
            r"(?P<step>[0-9]+)(?:/(?P<total>[0-9]+))?[^\n]*?\bloss: (?P<loss>[^,\s]+)",
            sign=r"\bppdet\.engine\S* INFO: Epoch: |\[TRAIN\] epoch: [0-9]+, iter: |\bppocr INFO: epoch: ",
        ),
        # ConsoleLogger of composer, as llm-foundry has it: a figure on each line below the batch.
        "composer": MetricPreset(
            step=r"^(?:\[epoch=(?P<epoch1>[0-9]+)[^\]\n]*\])?\[batch=(?P<step>[0-9]+)(?:/(?P<total>[0-9]+))?\]:",
            figures=r"\bTrain loss/train/total: (?P<loss>\S+)",
            sign=r"\bTrain (?:loss/train/total|time/batch): ",
        ),
        # metric_logger.py of MaxText.
        "maxtext": MetricPreset(
            step=r"\bcompleted step: (?P<step>[0-9]+), seconds: [^\n]*\bloss: (?P<loss>\S+)",
            sign=r"\bcompleted step: [0-9]+, seconds: ",
        ),
        # The bar of diffusers' examples and of sd-scripts.
        "diffusers": MetricPreset(
            step=r"\b[Ss]teps: +[0-9]+%\|[^|\n]*\| *"
            + _COUNT
            + r"(?:[^\n\]]*\b(?:avr_|step_)?loss=(?P<loss>[^,\]\s]+))?",
            checkpoint=_DIFFUSERS_SAVED,
            resume=_DIFFUSERS_RESUMED,
            sign=r"\b[Ss]teps: +[0-9]+%\|[^\n]*\b(?:avr_|step_)?loss=",
            needs="sd-scripts does not print its checkpoints: set checkpoints.interval_steps",
        ),
        # Its example that trains without a text: a bar for each epoch, whose step is that of the run.
        "diffusers_unconditional": MetricPreset(
            step=r"\bEpoch [0-9]+: +[0-9]+%\|[^\n]*\bloss=(?P<loss>[^,\s]+), lr=[^,\s]+, step=(?P<step>[0-9]+)",
            checkpoint=_DIFFUSERS_SAVED,
            resume=_DIFFUSERS_RESUMED,
            sign=r"\bEpoch [0-9]+: +[0-9]+%\|[^\n]*\bloss=[^,\s]+, lr=[^,\s]+, step=[0-9]+",
        ),
        # HumanOutputFormat of stable-baselines3: a step is a step of the environment.
        "stable_baselines3": MetricPreset(
            step=r"\| +total_timesteps +\| (?P<step>[0-9]+)",
            figures=r"\| +loss +\| (?P<loss>\S+)",
            sign=r"^\| time/ +\|",
        ),
        # concat_dict_to_str of verl's tracking; a line of a validation alone is none of a step.
        "verl": MetricPreset(
            step=r"\bstep:(?P<step>[0-9]+) - (?=[^\n]*\b(?:actor|training)/)",
            sign=r"\bstep:[0-9]+ - (?:global_seqlen|actor)/",
            needs="it has no one loss; set checkpoints.interval_steps",
        ),
    }
)


def preset_patterns(name: str | None) -> dict[str, str]:
    """Return the patterns of a preset by the key of the metrics that they give, nothing without a preset."""
    if name is None:
        return {}
    preset = PRESETS[name]
    found = {
        "epoch": preset.epoch,
        "step": preset.step,
        "figures": preset.figures,
        "figures_next": preset.figures_next,
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
