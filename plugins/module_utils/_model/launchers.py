# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The launchers that ``job.launcher`` accepts, and what the rules on a job need to know of each.

This list holds the documented choices of ``job.launcher``. The code of a launcher is the module of its name
in ``plugin_utils/_launch``, which is imported when a job uses it.
"""

from __future__ import annotations

import dataclasses
import typing as t

from . import validators
from .errors import InputError

_PLAIN_ENGINES = ("jobset", "indexed_job", "trainjob", "volcano")


@dataclasses.dataclass(frozen=True, slots=True)
class LauncherTraits:
    """``engines`` run it on Kubernetes, its own first. ``torchrun``: it starts ranks as torchrun does."""

    engines: tuple[str, ...] = _PLAIN_ENGINES
    torchrun: bool = False
    on_hosts: bool = True


LAUNCHERS: dict[str, LauncherTraits] = {
    "torchrun": LauncherTraits(torchrun=True),
    "accelerate": LauncherTraits(torchrun=True),
    "deepspeed": LauncherTraits(torchrun=True),
    "megatron": LauncherTraits(torchrun=True),
    "mpi": LauncherTraits(engines=("mpijob",)),
    "ray": LauncherTraits(engines=("rayjob",), on_hosts=False),
    "command": LauncherTraits(),
}
TORCHRUN_FAMILY = tuple(name for name, traits in LAUNCHERS.items() if traits.torchrun)
# Words that were accepted once, or that an operator may look for: (problem, what to write instead).
_NO_LAUNCHERS = {
    "horovod": ("horovod is not supported: it does not build with current PyTorch", "Use torchrun, or mpi with mpi4py"),
}


def parse(value: t.Any, path: str) -> str:
    """Return ``value`` where it is a launcher.

    :raises InputError: naming the launchers, or what to use in the place of one that there is not.
    """
    if isinstance(value, str) and value in _NO_LAUNCHERS:
        problem, fix = _NO_LAUNCHERS[value]
        raise InputError(path, problem, fix)
    return validators.choice(*LAUNCHERS)(value, path)
