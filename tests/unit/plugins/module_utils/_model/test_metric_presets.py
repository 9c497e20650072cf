# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines that programs print, as their presets read them."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.module_utils._model.metric_presets import PRESETS
from ansible_collections.muster.training.plugins.module_utils._model.run_history import RunHistory
from ansible_collections.muster.training.plugins.module_utils._node import metric_lines

# As transformers 5.23 and tqdm write them where standard error is a file, the evaluation's bar below the training's.
TRAINER = """\
  0%|          | 0/60 [00:00<?, ?it/s][transformers] `loss_type=None` was set in the config
 28%|\u2588\u2588\u258a       | 17/60 [00:02<00:05, 8.21it/s]
{'loss': '3.02', 'grad_norm': '2.019', 'learning_rate': '9.167e-06', 'epoch': '0.9375'}
 33%|\u2588\u2588\u2588\u258e      | 20/60 [00:03<00:04, 1.2s/it]

  0%|          | 0/8 [00:00<?, ?it/s]\x1b[A
 38%|\u2588\u2588\u2588\u258a      | 3/8 [00:00<00:00, 25.1it/s]\x1b[A
{'eval_loss': '3.013', 'eval_runtime': '0.5554', 'epoch': '3.75'}
 62%|\u2588\u2588\u2588\u2588\u2588\u2588\u258e   | 5/8 [00:00<00:00, 25.1it/s]
[transformers] Saving model checkpoint to /mnt/out/checkpoint-20
Writing model shards: 100%|\u2588\u2588\u2588\u2588\u2588\u2588| 1/1 [00:00<00:00, 9.1it/s]
"""
RESUMED = """\
[transformers]   Resuming training from checkpoint with epoch 2 and global step 20
  0%|          | 0/60 [00:00<?, ?it/s]
[default0]: 35%|\u2588\u2588\u2588\u258c      | 21/60 [00:00<00:00, 121.85it/s]
"""


def read(name: str, text: str, at: float = 1.0) -> list[dict[str, t.Any]]:
    patterns = parse_job({"name": "x", "script": "/t.py", "metrics": {"preset": name}}).metrics.patterns
    found = metric_lines.LineReader({"": patterns}).read(text, at)
    return [{key: value for key, value in line.items() if key not in ("at", "drawn")} for line in found]


def test_what_the_trainer_of_transformers_prints() -> None:
    figures = {"loss": 3.02, "grad_norm": 2.019, "learning_rate": 9.167e-06, "step": 17, "of_next": True}
    assert read("transformers", TRAINER) == [{"step": 17}, figures, {"step": 20}, {"checkpoint_step": 20}]
    older = "{'loss': 2.5, 'learning_rate': 5e-05, 'epoch': 0.1}\n"
    assert read("transformers", f"  2%|\u258f| 1/60 [00:01<01:05, 1.1s/it]\n{older}")[1]["loss"] == 2.5


def test_a_bar_that_is_drawn_at_zero_before_the_resume_is_no_step() -> None:
    """It says 0 of 60 where the program continues at step 21."""
    assert read("transformers", RESUMED) == [{"resumed_from_step": 20}, {"step": 21, "rank": 0}]
    story = RunHistory()
    for attempt, text in ((1, TRAINER), (2, RESUMED)):
        event = {"kind": "worker_started", "rank": 0, "node": "a", "attempt": attempt, "gang": f"g{attempt}"}
        story.event({**event, "at": 10.0 * attempt})
        for line in read("transformers", text):
            story.metric({"at": 10.0 * attempt + 1, **line})
    assert story.judge_resumes(None)[2].resumed is True
    # So it is with a pattern of one's own.
    patterns = metric_lines.compile_patterns({"step": r"(?P<step>[0-9]+)/60 \["})
    assert [line["step"] for line in metric_lines.parse_lines(patterns, RESUMED, 1.0)] == [21]


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        (
            "lightning",
            (
                "Epoch 1:  25%|\u2588\u2588\u258c  | 5/20 [00:01<00:03, 4.97it/s, v_num=0, train_loss_step=0.52]\n"
                "Validation DataLoader 0: 50%|\u2588\u2588| 5/10 [00:00<00:00, 90.1it/s]\n"
                "Restored all states from the checkpoint at /ck/epoch=0-step=20.ckpt\n"
            ),
            [{"loss": 0.52, "step": 25}, {"resumed_from_step": 20}],
        ),
        (
            "deepspeed",
            (
                "steps: 10 loss: 5.5508 iter time (s): 0.936 samples/sec: 136.706\n"
                "steps:    20 /   100 loss: 5.1 iter time (s): 0.9 samples/sec: 140.0 eta: 1m\n"
                "[2026-01-01 00:00:00,000] [INFO] [logging.py:96:log_dist] [Rank 0] step=30, skipped=0, lr=[1e-05]\n"
                "[2026-01-01 00:00:00,000] [INFO] [logging.py:96:log_dist] [Rank 1] step=30, skipped=0, lr=[1e-05]\n"
            ),
            [
                {"loss": 5.5508, "samples_per_s": 136.706, "step": 10},
                {"loss": 5.1, "samples_per_s": 140.0, "step": 20},
                {"step": 30},
            ],
        ),
        (
            "torchtune",
            "Step 7 | loss:1.25 lr:2e-05 tokens_per_second_per_gpu:900.1 \nWriting logs to /o/log_1.txt\n",
            [{"loss": 1.25, "step": 7}],
        ),
        (
            "torchtitan",
            (
                "[rank0]:[titan] 2026-01-01 00:00:00,000 - root - INFO - \x1b[31mstep: 10  \x1b[32mloss:  7.1234  "
                "\x1b[38;2;180;60;0mgrad_norm:  1.5000  \x1b[36mmemory:  1.00GiB(1.2%)  \x1b[34mtps: 1,234  "
                "\x1b[36mtflops: 5.00  \x1b[35mmfu: 1.2%\x1b[39m\n"
                "step: 20  loss:  6.5  grad_norm:  1.0  memory:  1.00GiB(1.2%)  tps: 1,234  tflops: 5.00  mfu: 1.2%\n"
                "validate step: 20  loss:  9.0  memory:  1.00GiB(1.2%)  tps: 1,234\n"
                "Loading the checkpoint from outputs/checkpoint/step-10.\n"
            ),
            [
                {"loss": 7.1234, "grad_norm": 1.5, "step": 10, "rank": 0},
                {"loss": 6.5, "grad_norm": 1.0, "step": 20},
                {"resumed_from_step": 10},
            ],
        ),
        (
            "accelerate",
            (
                " 50%|\u2588\u2588\u258c  | 5/10 [00:01<00:01, 4.97it/s]\n"
                "INFO:accelerate.accelerator:Saving current state to out/step_5\nResumed from checkpoint: out/step_5\n"
            ),
            [{"step": 5}, {"checkpoint_step": 5}, {"resumed_from_step": 5}],
        ),
        (
            "nanogpt",
            (
                "iter 240: loss 2.1050, time 81.20ms, mfu 1.20%\nstep 250: train loss 2.0101, val loss 2.1144\n"
                "saving checkpoint to out-shakespeare-char\n"
            ),
            [{"loss": 2.105, "step": 240}, {"step": 250}, {"checkpoint_step": 250}],
        ),
        (
            "megatron",
            (
                " iteration       10/     100 | consumed samples:          320 | learning rate: 1.0E-04 | lm loss: 1.05E+01 |\n"
                "  successfully saved checkpoint from iteration      10 to /ck\n"
                " successfully loaded checkpoint from /ck [ t 1/1, p 1/1 ] at iteration 10\n"
            ),
            [{"loss": 10.5, "step": 10}, {"checkpoint_step": 10}, {"resumed_from_step": 10}],
        ),
    ],
)
def test_what_other_programs_print(name: str, text: str, lines: list[dict[str, t.Any]]) -> None:
    assert read(name, text) == lines


def test_own_patterns_replace_those_of_a_preset() -> None:
    metrics = parse_job(
        {
            "name": "x",
            "script": "/t.py",
            "metrics": {"preset": "nanogpt", "checkpoint_pattern": "kept (?P<step>[0-9]+)"},
        }
    ).metrics
    assert metrics.patterns["checkpoint_step"] == "kept (?P<step>[0-9]+)"
    assert metrics.patterns["step"] == PRESETS["nanogpt"].step
    with pytest.raises(InputError, match=r"job\.metrics\.preset.*transformers"):
        parse_job({"name": "x", "script": "/t.py", "metrics": {"preset": "kaldi"}})
    for pattern in ("loss", "step (?P<step>[0-9]+)", "("):
        with pytest.raises(InputError, match=r"job\.metrics\.figures_pattern"):
            parse_job({"name": "x", "script": "/t.py", "metrics": {"figures_pattern": pattern}})
