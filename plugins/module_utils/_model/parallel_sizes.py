# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sizes that programs assert when all ranks have started, held before the start: Megatron-LM's parallel sizes and
DeepSpeed's batch.
"""

from __future__ import annotations

import math
import typing as t

from .errors import InputError

_TRAIN, _MICRO, _STEPS = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
# With any of these the ranks are not all data parallel, and a batch is divided among fewer.
_PARTS = ("tensor_parallel", "sequence_parallel_size", "pipeline", "elasticity")
OPTIONS = ("--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--context-parallel-size")


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
