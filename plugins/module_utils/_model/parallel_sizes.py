# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Megatron-LM's parallel sizes: a rule that its programs assert when all ranks have started, held before the start.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import math
import typing as t

from .errors import InputError

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
