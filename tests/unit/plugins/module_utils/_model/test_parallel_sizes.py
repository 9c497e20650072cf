# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Megatron-LM's sizes against the world: tensor x pipeline x context divides the number of ranks."""

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
