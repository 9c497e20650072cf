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
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.module_utils._model.job_templates import PRESETS

TENSOR, PIPELINE, CONTEXT = parallel_sizes.OPTIONS
MODEL = ["--num-layers", 24, "--hidden-size", 2048, "--num-attention-heads", 16, "--seq-length", 4096]
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
    job = parse_job(value, PRESETS)
    line = " iteration      500/    1000 | consumed samples:        64000 | lm loss: 2.512345E+00 | loss scale: 1.0 |"
    found = re.search(job.metrics.forms["megatron"]["step"], line)
    assert found is not None and (found["step"], float(found["loss"])) == ("500", 2.512345)
    said = "TP 8 inside each node, PP 2, DP 2 over 4 nodes, 16 micro-batches a step"
    assert parallel_sizes.describe(job) == said and said in " ".join(guide.read_text().split())
    with pytest.raises(InputError, match="does not divide the world size 24"):
        parse_job({**value, "nodes": 3}, PRESETS)


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


def megatron(parallel: dict[str, t.Any], args: t.Sequence[object] = (), **values: t.Any) -> t.Any:
    """Return the job of four nodes with eight GPUs each."""
    given = {**MEGATRON, "nodes": 4, "launcher": "megatron", "parallel": parallel, "args": [*MODEL, *args], **values}
    return parse_job(given)


@pytest.mark.parametrize(
    ("parallel", "args", "option", "said"),
    [
        ({"tensor": 3}, [], "job.parallel", "tensor 3 x pipeline 1 x context 1 = 3 does not divide the world size 32"),
        ({"tensor": 32}, [], "job.parallel.tensor", "32 does not divide --num-attention-heads 16"),
        ({"tensor": 4}, ["--hidden-size=2050"], "job.parallel.tensor", "4 does not divide --hidden-size 2050"),
        (
            {"tensor": 4},
            ["--group-query-attention", "--num-query-groups", 6],
            "job.parallel.tensor",
            "4 is neither a divisor nor a multiple of --num-query-groups 6",
        ),
        ({"pipeline": 16}, [], "job.parallel.pipeline", "16 does not divide --num-layers 24"),
        (
            {"pipeline": 4},
            ["--num-virtual-stages-per-pipeline-rank", 4],
            "job.parallel.pipeline",
            "4 x 4 virtual stages = 16 does not divide --num-layers 24",
        ),
        (
            {"context": 4},
            ["--seq-length", 4100],
            "job.parallel.context",
            "is 4, and 2 x 4 = 8 does not divide --seq-length 4100",
        ),
        ({"sequence": True}, [], "job.parallel.sequence", "has no effect with tensor: 1"),
        (
            {"sequence": True, "tensor": 8},
            ["--seq-length", 4100],
            "job.parallel.sequence",
            "divides the 4100 tokens of a rank among 8 tensor parallel ones",
        ),
        ({"expert": 4}, [], "job.parallel.expert", "is 4, and the model has no experts"),
        ({"expert": 4}, ["--num-experts", 6], "job.parallel.expert", "4 does not divide --num-experts 6"),
        (
            {"expert": 16, "tensor": 4, "sequence": True},
            ["--num-experts", 16],
            "job.parallel.expert",
            "16 does not divide the 8 ranks that share the data",
        ),
        ({"expert": 4, "tensor": 2}, ["--num-experts", 8], "job.parallel.sequence", "only with sequence parallelism"),
        (
            {"tensor": 8, "micro_batch": 3, "global_batch": 64},
            [],
            "job.parallel.global_batch",
            "is 64, and micro_batch 3 x 4 copies of the model = 12 does not divide it",
        ),
        ({}, ["--tensor-model-parallel-size=2"], "job.args", "is what job.parallel.tensor becomes"),
        ({"micro_batch": 2}, ["--micro-batch-size", 2], "job.args", "is what job.parallel.micro_batch becomes"),
        ({"tensor": 0}, [], "job.parallel.tensor", "0"),
    ],
)
def test_what_megatron_would_assert_is_refused(
    parallel: dict[str, t.Any], args: list[object], option: str, said: str
) -> None:
    with pytest.raises(InputError, match=re.escape(said)) as caught:
        megatron(parallel, args)
    assert caught.value.option == option and "\n" not in str(caught.value)


def test_stages_need_gpus_and_groups_keep_their_size() -> None:
    with pytest.raises(InputError, match="Megatron sends between stages on GPUs only") as caught:
        megatron({"pipeline": 2}, gpus_per_node=0)
    assert caught.value.option == "job.parallel.pipeline"
    pods = {"placement": {"backend": "kubernetes"}, "image": "x", "elastic": {"min": 2}}
    with pytest.raises(InputError, match="cannot shrink or grow") as caught:
        megatron({"tensor": 2}, **pods)
    assert caught.value.option == "job.elastic"
    with pytest.raises(InputError, match="has no effect with launcher 'torchrun'"):
        megatron({"tensor": 2}, launcher="torchrun")


def test_what_is_not_written_is_not_judged() -> None:
    job = parse_job({**MEGATRON, "nodes": 4, "launcher": "megatron", "parallel": {"tensor": 8, "pipeline": 4}})
    assert parallel_sizes.describe(job) == "TP 8 inside each node, PP 4, DP 1"
    # Divided unequally by Megatron itself.
    megatron({"pipeline": 16}, ["--decoder-first-pipeline-num-layers", 9])


def test_the_sizes_become_megatron_s_options() -> None:
    job = megatron({"tensor": 8, "sequence": True, "micro_batch": 1, "global_batch": 64}, ["--save", "/mnt/gpt"])
    own = parallel_sizes.build_args(job)[len(job.args) :]
    assert own == (
        *("--tensor-model-parallel-size", "8", "--sequence-parallel"),
        *("--micro-batch-size", "1", "--global-batch-size", "64", "--load", "{checkpoint_dir}"),
    )
    assert parallel_sizes.describe(job) == "TP 8 inside each node, PP 1, DP 4 over 4 nodes, 16 micro-batches a step"
    anew = megatron({}, checkpoints={"resume": "never"})
    assert parallel_sizes.build_args(anew)[len(anew.args) :] == ("--save", "{checkpoint_dir}")
    assert parallel_sizes.build_env(job) == {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    assert parallel_sizes.build_env(megatron({})) == {}
    own_value = {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}
    assert parallel_sizes.build_env(megatron({"tensor": 8}, env=own_value)) == own_value


@pytest.mark.parametrize(
    ("lanes", "slow", "refused"),
    [(["A"], False, ""), (["B"], False, "lane B"), ([], False, "not measured"), (["A", None], False, "not measured")]
    + [(["B"], True, "")],
)
def test_tensor_parallel_ranks_on_several_nodes_need_lane_a(lanes: list[str | None], slow: bool, refused: str) -> None:
    job = megatron({"tensor": 16}, placement={"allow_slow_network": slow})
    assert parallel_sizes.describe(job).startswith("TP 16 over several nodes")
    if not refused:
        parallel_sizes.require_fast_tensor(job, lanes)
        return
    with pytest.raises(
        RefusedError, match=rf"16 ranks of a group are on several nodes of 8 ranks.*{refused}"
    ) as caught:
        parallel_sizes.require_fast_tensor(job, lanes)
    assert "divisor of 8" in str(caught.value) and "verify_fabric" in str(caught.value)


def test_groups_that_do_not_come_out_even_in_a_node_are_on_several() -> None:
    assert parallel_sizes.crosses_nodes(megatron({"tensor": 4}, gpus_per_node=6, nodes=4))
    assert not parallel_sizes.crosses_nodes(megatron({"tensor": 8}))
    assert not parallel_sizes.crosses_nodes(megatron({"tensor": 4}, nodes=1))
