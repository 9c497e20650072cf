# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Megatron-LM's sizes and DeepSpeed's batch against the world: what their programs assert after the start."""

from __future__ import annotations

import pathlib
import re
import textwrap
import typing as t

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model import parallel_sizes
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job

TENSOR, PIPELINE, CONTEXT = parallel_sizes.OPTIONS
MEGATRON = {"name": "x", "script": "/opt/megatron/pretrain_gpt.py", "nodes": 3, "gpus_per_node": 8}


@given(tensor=st.integers(1, 16), pipeline=st.integers(1, 16), context=st.integers(1, 4), world=st.integers(1, 512))
def test_the_rule_is_megatrons_own(tensor: int, pipeline: int, context: int, world: int) -> None:
    """What its ``validate_args`` asserts: ``world_size % (tensor * pipeline * context) == 0``."""
    args = [TENSOR, str(tensor), f"{PIPELINE}={pipeline}", CONTEXT, str(context), "--seq-length", "4096"]
    try:
        parallel_sizes.check(args, [world])
    except InputError as refused:
        assert world % (tensor * pipeline * context) and f"the world size {world}" in str(refused)
    else:
        assert world % (tensor * pipeline * context) == 0


def test_a_job_is_refused_before_it_takes_a_node() -> None:
    said = "tensor-model-parallel-size 8 x pipeline-model-parallel-size 2 = 16 does not divide the world size 24"
    with pytest.raises(InputError, match=said) as caught:
        parse_job({**MEGATRON, "args": [TENSOR, 8, f"{PIPELINE}=2"]})
    assert caught.value.option == "job.args"
    assert parse_job({**MEGATRON, "nodes": 4, "args": [TENSOR, 8, f"{PIPELINE}=2"]}).world_size == 32


def test_an_elastic_job_must_fit_at_every_size() -> None:
    pods = {"placement": {"backend": "kubernetes"}, "image": "x", "nodes": 4, "gpus_per_node": 4, "elastic": {"min": 2}}
    assert parse_job({**MEGATRON, **pods, "args": [TENSOR, 4]}).world_sizes == (8, 12, 16)
    with pytest.raises(InputError, match="8 does not divide the world size 12"):
        parse_job({**MEGATRON, **pods, "args": [TENSOR, 8]})


@pytest.mark.parametrize(
    "args",
    [
        [],
        [TENSOR],
        [TENSOR, "$SIZE"],
        [f"{TENSOR}=0"],
        ["--tensor-model-parallel-size-of-something", "7"],
        [TENSOR, "7", TENSOR, "8"],
    ],
)
def test_what_the_program_itself_must_judge_is_left_to_it(args: list[t.Any]) -> None:
    """As argparse does, the last of several counts."""
    assert parse_job({**MEGATRON, "args": args}).args == tuple(args)


def test_the_job_of_the_guide_is_taken_and_its_pattern_reads_megatrons_line() -> None:
    """The line is of the form of its ``training_log``; a world that the sizes do not divide would be refused."""
    guide = pathlib.Path(__file__).parents[5] / "docs" / "docsite" / "rst" / "guide_job.rst"
    block = re.search(r"^    muster_job:\n      name: gpt\n(?:      .*\n)+", guide.read_text(), re.MULTILINE)
    assert block is not None
    value = yaml.safe_load(textwrap.dedent(block[0]))["muster_job"]
    job = parse_job(value)
    line = " iteration      500/    1000 | consumed samples:        64000 | lm loss: 2.512345E+00 | loss scale: 1.0 |"
    found = re.search(str(job.metrics.step_pattern), line)
    assert found is not None and (found["step"], float(found["loss"])) == ("500", 2.512345)
    with pytest.raises(InputError, match="does not divide the world size 24"):
        parse_job({**value, "nodes": 3, "args": [*value["args"], CONTEXT, 2]})


DEEPSPEED = {"name": "x", "script": "/t.py", "launcher": "deepspeed", "nodes": 2, "gpus_per_node": 4}
SIZES = st.one_of(st.none(), st.integers(1, 24))


@given(train=SIZES, micro=SIZES, steps=SIZES, world=st.integers(1, 16))
def test_the_batch_is_judged_as_deepspeed_does(
    train: int | None, micro: int | None, steps: int | None, world: int
) -> None:
    """Its own steps: derive what is not given by whole division, then assert."""
    keys = (parallel_sizes._TRAIN, parallel_sizes._MICRO, parallel_sizes._STEPS)
    config = {key: value for key, value in zip(keys, (train, micro, steps), strict=True) if value is not None}
    if train is None:
        fits = True
    else:
        if micro is None and steps is None:
            micro, steps = train // world, 1
        elif micro is None:
            micro = train // world // (steps or 1)
        elif steps is None:
            steps = train // micro // world
        fits = train == (micro or 0) * (steps or 0) * world
    try:
        parallel_sizes.check_batch(config, [], [world])
    except InputError:
        assert not fits
    else:
        assert fits


def test_a_batch_that_does_not_fit_is_refused_before_it_takes_a_node() -> None:
    """The sentence of DeepSpeed says it on a node that waited for all others; the fix leads on."""
    config = {"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}
    with pytest.raises(InputError, match="is 32, and micro batch 4 x accumulation 2 x world size 8 = 64") as caught:
        parse_job({**DEEPSPEED, "deepspeed_config": config})
    assert caught.value.fix == "Set it to 64, or leave it out"
    for mended in ({**config, "train_batch_size": 64}, {key: config[key] for key in list(config)[1:]}):
        assert parse_job({**DEEPSPEED, "deepspeed_config": mended}).world_size == 8
    with pytest.raises(InputError, match="Set it to a multiple of 8, or leave it out"):
        parse_job({**DEEPSPEED, "deepspeed_config": {"train_batch_size": 4}})


@pytest.mark.parametrize(
    ("config", "args"),
    [
        ({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": 3}, []),
        ({"train_batch_size": 4, "train_micro_batch_size_per_gpu": "auto"}, []),
        ({"train_batch_size": 4, "tensor_parallel": {"autotp_size": 2}}, []),
        ({"train_batch_size": 4}, ["--tensor-model-parallel-size", "2"]),
    ],
)
def test_a_batch_of_which_not_all_is_known_is_left_to_the_program(config: dict[str, t.Any], args: list[str]) -> None:
    parse_job({**DEEPSPEED, "deepspeed_config": config, "args": args})
