# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sizes that programs assert when all ranks have started, held before the start: Megatron-LM's parallel sizes and
DeepSpeed's batch.

Megatron's rules are those of its ``training/arguments.py`` (``validate_args``), ``core/parallel_state.py``
(``initialize_model_parallel``) and ``core/transformer/transformer_config.py``; 0.19 was read. What is not written, as
the number of heads in a program of its own, is not judged.
"""

from __future__ import annotations

import dataclasses
import math
import typing as t

from . import validators as f
from .errors import InputError, RefusedError

if t.TYPE_CHECKING:
    from .job import Job

_TRAIN, _MICRO, _STEPS = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
# With any of these the ranks are not all data parallel, and a batch is divided among fewer.
_PARTS = ("tensor_parallel", "sequence_parallel_size", "pipeline", "elasticity")
OPTIONS = ("--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--context-parallel-size")
# Field of ``job.parallel`` -> Megatron's option.
_OPTIONS: t.Final[t.Mapping[str, str]] = {
    "tensor": OPTIONS[0],
    "pipeline": OPTIONS[1],
    "context": OPTIONS[2],
    "expert": "--expert-model-parallel-size",
    "sequence": "--sequence-parallel",
    "micro_batch": "--micro-batch-size",
    "global_batch": "--global-batch-size",
}
# The options of the model's own sizes that the rules need.
_HEADS, _GROUPS, _HIDDEN = "--num-attention-heads", "--num-query-groups", "--hidden-size"
_LAYERS, _LENGTH, _EXPERTS = "--num-layers", "--seq-length", "--num-experts"
_VIRTUAL = "--num-virtual-stages-per-pipeline-rank"
# With these Megatron itself divides the layers unequally.
_UNEQUAL = (
    "--decoder-first-pipeline-num-layers",
    "--decoder-last-pipeline-num-layers",
    "--pipeline-model-parallel-layout",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Parallel:
    """How Megatron divides the model and the batch among ranks: the sizes of its groups, 1 for no division.

    ``sequence``: also the activations between the tensor parallel parts. ``micro_batch``: samples of a rank in one
    pass. ``global_batch``: samples of a step over all ranks. None leaves it to the program's arguments.
    """

    tensor: int = f.field(f.integer(1, 1024), 1)
    pipeline: int = f.field(f.integer(1, 1024), 1)
    context: int = f.field(f.integer(1, 1024), 1)
    expert: int = f.field(f.integer(1, 1024), 1)
    sequence: bool = f.field(f.boolean, False)
    micro_batch: int | None = f.field(f.integer(1), None)
    global_batch: int | None = f.field(f.integer(1), None)

    @property
    def model_size(self) -> int:
        """Return how many ranks have one copy of the model."""
        return self.tensor * self.pipeline * self.context


def check(args: t.Sequence[str], world_sizes: t.Iterable[int]) -> None:
    """Refuse arguments whose tensor, pipeline and context parallel sizes do not divide every world size.

    :raises InputError: naming the sizes and the world size.
    """
    sizes = {option: size for option in OPTIONS if (size := _read(args, option)) is not None}
    product = math.prod(sizes.values())
    for world in world_sizes:
        if world % product:
            said = " x ".join(f"{option.removeprefix('--')} {size}" for option, size in sizes.items())
            raise InputError(
                "job.args",
                f"{said} = {product} does not divide the world size {world}",
                "Change the sizes, nodes or processes_per_node",
            )


def _read(args: t.Sequence[str], option: str) -> int | None:
    """Return the option's last value as argparse takes it; None where it is not there or not a positive number."""
    found = None
    for word, following in zip(args, [*args[1:], ""], strict=False):
        name, equals, value = word.partition("=")
        if name == option:
            found = value if equals else following
    return int(found) if found and found.isdecimal() and int(found) else None


def check_batch(config: t.Mapping[str, t.Any], args: t.Sequence[str], world_sizes: t.Iterable[int]) -> None:
    """Refuse a configuration of DeepSpeed whose batch is not made by every world size.

    DeepSpeed asserts ``train_batch_size == micro batch * accumulation * data parallel ranks`` after it has derived what
    is not given (deepspeed/runtime/config.py, ``_set_batch_related_parameters`` and ``_batch_assertion``).

    :raises InputError: naming the batch and the world size.
    """
    if any(config.get(key) for key in _PARTS) or any("parallel" in word for word in args):
        return
    train, micro, steps = (_positive(config.get(key)) for key in (_TRAIN, _MICRO, _STEPS))
    if train is None:
        return
    if not all(isinstance(config.get(key, 1), int) for key in (_MICRO, _STEPS)):
        # "auto": the program fills it in.
        return
    for world in world_sizes:
        unit = (micro or 1) * (steps or 1) * world
        if train % unit if None in (micro, steps) else train != unit:
            given = (("micro batch", micro), ("accumulation", steps))
            made = " x ".join([f"{name} {size}" for name, size in given if size is not None] + [f"world size {world}"])
            multiple = "a multiple of " if None in (micro, steps) else ""
            raise InputError(
                f"job.deepspeed_config.{_TRAIN}",
                f"is {train}, and {made} = {unit}",
                f"Set it to {multiple}{unit}, or leave it out",
            )


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def check_parallel(job: Job) -> None:
    """Refuse sizes that Megatron would assert against when all ranks have started.

    :raises InputError: naming the option and its numbers.
    """
    sizes = job.parallel
    if job.launcher != "megatron":
        if sizes != Parallel():
            raise InputError("job.parallel", f"has no effect with launcher '{job.launcher}'", "Use launcher: megatron")
        return
    for name, option in _OPTIONS.items():
        if name in ("micro_batch", "global_batch") and getattr(sizes, name) is None:
            continue
        if any(word.partition("=")[0] == option for word in job.args):
            fix = f"Leave {option} out of job.args, and set job.parallel.{name}"
            raise InputError("job.args", f"{option} is what job.parallel.{name} becomes", fix)
    if job.elastic.min is not None:
        fix = "Leave job.elastic out: with resume: auto a job of another size continues by Megatron's own loading"
        raise InputError("job.elastic", "Megatron's groups cannot shrink or grow while it trains", fix)
    if job.world_size % sizes.model_size:
        raise InputError(
            "job.parallel",
            f"tensor {sizes.tensor} x pipeline {sizes.pipeline} x context {sizes.context} = {sizes.model_size} does not"
            f" divide the world size {job.world_size}",
            "Change the sizes, nodes or processes_per_node",
        )
    _check_pipeline(job, sizes)
    _check_model(job, sizes)
    _check_experts(job, sizes)
    _check_megatron_batch(job, sizes)


def _check_pipeline(job: Job, sizes: Parallel) -> None:
    if sizes.pipeline > 1 and not job.gpus_per_node:
        problem = f"is {sizes.pipeline}, and Megatron sends between stages on GPUs only; the job has gpus_per_node: 0"
        raise InputError("job.parallel.pipeline", problem, "Set gpus_per_node, or pipeline: 1")
    layers, stages = _read(job.args, _LAYERS), _read(job.args, _VIRTUAL) or 1
    if layers and not any(word.partition("=")[0] in _UNEQUAL for word in job.args):
        parts = sizes.pipeline * stages
        if layers % parts:
            made = f" x {stages} virtual stages = {parts}" if stages > 1 else ""
            raise InputError(
                "job.parallel.pipeline",
                f"{sizes.pipeline}{made} does not divide {_LAYERS} {layers}",
                "Choose a divisor, or divide the layers by --pipeline-model-parallel-layout",
            )


def _check_model(job: Job, sizes: Parallel) -> None:
    tensor = sizes.tensor
    for option in (_HEADS, _HIDDEN):
        size = _read(job.args, option)
        if size and size % tensor:
            raise InputError("job.parallel.tensor", f"{tensor} does not divide {option} {size}", "Choose a divisor")
    groups = _read(job.args, _GROUPS) if "--group-query-attention" in job.args else None
    if groups and groups % tensor and tensor % groups:
        problem = f"{tensor} is neither a divisor nor a multiple of {_GROUPS} {groups}"
        raise InputError("job.parallel.tensor", problem, "Choose one that is")
    length = _read(job.args, _LENGTH)
    if length and sizes.context > 1 and length % (2 * sizes.context):
        problem = (
            f"is {sizes.context}, and 2 x {sizes.context} = {2 * sizes.context} does not divide {_LENGTH} {length}"
        )
        raise InputError("job.parallel.context", problem, "Choose another size or length")
    if sizes.sequence and tensor == 1:
        fix = "Leave it out, or set tensor: Megatron switches it off without tensor parallel ranks"
        raise InputError("job.parallel.sequence", "has no effect with tensor: 1", fix)
    if sizes.sequence and length and (length // sizes.context) % tensor:
        problem = f"divides the {length // sizes.context} tokens of a rank among {tensor} tensor parallel ones"
        raise InputError("job.parallel.sequence", f"{problem}, which does not come out even", "Choose another length")


def _check_experts(job: Job, sizes: Parallel) -> None:
    if sizes.expert == 1:
        return
    experts = _read(job.args, _EXPERTS)
    if experts is None:
        fix = f"Set {_EXPERTS} in job.args, or expert: 1"
        raise InputError("job.parallel.expert", f"is {sizes.expert}, and the model has no experts", fix)
    if experts % sizes.expert:
        problem = f"{sizes.expert} does not divide {_EXPERTS} {experts}"
        raise InputError("job.parallel.expert", problem, "Choose a divisor")
    copies = job.world_size // (sizes.tensor * sizes.pipeline)
    if copies % sizes.expert:
        problem = f"{sizes.expert} does not divide the {copies} ranks that share the data (data x context parallel)"
        raise InputError("job.parallel.expert", problem, "Choose a divisor")
    if sizes.tensor > 1 and not sizes.sequence:
        problem = "Megatron trains experts with tensor parallel ranks only with sequence parallelism"
        raise InputError("job.parallel.sequence", problem, "Set sequence: true, or tensor: 1")


def _check_megatron_batch(job: Job, sizes: Parallel) -> None:
    if sizes.global_batch is None or sizes.micro_batch is None:
        return
    copies = job.world_size // sizes.model_size
    unit = sizes.micro_batch * copies
    if sizes.global_batch % unit:
        raise InputError(
            "job.parallel.global_batch",
            f"is {sizes.global_batch}, and micro_batch {sizes.micro_batch} x {copies} copies of the model = {unit} does"
            " not divide it",
            f"Set it to a multiple of {unit}",
        )


def build_args(job: Job) -> tuple[str, ...]:
    """Return the program's arguments with Megatron's options of the sizes, and the run's folder to save and load in."""
    sizes, made = job.parallel, []
    for name, option in _OPTIONS.items():
        value = getattr(sizes, name)
        if value is True:
            made.append(option)
        elif value and (value > 1 or name in ("micro_batch", "global_batch")):
            made += [option, str(value)]
    given = {word.partition("=")[0] for word in job.args}
    folders = ("--save",) if job.checkpoints.resume == "never" else ("--save", "--load")
    made += [word for option in folders if option not in given for word in (option, "{checkpoint_dir}")]
    return (*job.args, *made)


def build_env(job: Job) -> dict[str, str]:
    """Return the job's variables with that which Megatron asserts for groups on GPUs before Blackwell."""
    is_asked = job.gpus_per_node and (job.parallel.tensor > 1 or job.parallel.context > 1)
    return {**({"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if is_asked else {}), **job.env}


def crosses_nodes(job: Job) -> bool:
    """Return whether tensor parallel groups, which are ranks that follow each other, are on several nodes."""
    return job.nodes > 1 and job.nproc % job.parallel.tensor != 0


def require_fast_tensor(job: Job, lanes: t.Collection[str | None]) -> None:
    """Refuse tensor parallel groups over several nodes whose network was not measured as that of lane A.

    All of such a group wait for each other several times in each layer.

    :param lanes: of the islands that the nodes may be on; None for one that is not known.
    :raises RefusedError: naming the sizes.
    """
    if not crosses_nodes(job) or job.placement.allow_slow_network or {*lanes} == {"A"}:
        return
    seen = ", ".join(sorted(f"lane {lane}" if lane else "not measured" for lane in {*lanes})) or "not measured"
    raise RefusedError(
        f"job.parallel.tensor: {job.parallel.tensor} ranks of a group are on several nodes of {job.nproc} ranks, and"
        f" wait for the network ({seen}) several times in each layer",
        f"Set tensor to a divisor of {job.nproc} and pipeline for the rest, verify the fabric"
        " (muster.training.verify_fabric) if it is RDMA, or set job.placement.allow_slow_network: true",
    )


def describe(job: Job) -> str:
    """Return how the ranks are divided, as a part of the line before a launch; empty for other launchers."""
    if job.launcher != "megatron":
        return ""
    sizes = job.parallel
    copies = job.world_size // sizes.model_size
    where = " over several nodes" if crosses_nodes(job) else " inside each node" if sizes.tensor > 1 else ""
    over = f" over {job.nodes} nodes" if copies > 1 and job.nodes > 1 else ""
    parts = [f"TP {sizes.tensor}{where}", f"PP {sizes.pipeline}"]
    parts += [f"CP {sizes.context}"] if sizes.context > 1 else []
    parts += [f"EP {sizes.expert}"] if sizes.expert > 1 else []
    parts.append(f"DP {copies}{over}")
    if sizes.global_batch and sizes.micro_batch:
        passes = sizes.global_batch // (sizes.micro_batch * copies)
        parts.append(f"{passes} micro-batch{'es' if passes > 1 else ''} a step")
    return ", ".join(parts)
