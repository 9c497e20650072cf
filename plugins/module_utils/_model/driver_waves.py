# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""In which waves machines get another driver: a pure decision on what is known of each before anything is changed."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from .errors import InputError, RefusedError

_OPTION: t.Final = "max_unavailable"


@dataclasses.dataclass(frozen=True, slots=True)
class WaveMachine:
    """A machine with GPUs.

    ``stale``: its driver is to be changed. ``begun``: an earlier run has closed it or changed its driver, and has not
    opened it again. ``server``: it is a server of its cluster. ``closed``: why it takes no pods although no run of this
    kind closed it, empty where it does.
    """

    host: str
    stale: bool = False
    begun: bool = False
    server: bool = False
    closed: str = ""


def plan_waves(machines: t.Sequence[WaveMachine], max_unavailable: str) -> tuple[tuple[str, ...], ...]:
    """Return the machines to be changed, wave by wave; none where all are as they should be.

    What an earlier run began comes first, since it is closed already, and then what others have closed. Servers are
    last, one in a wave, because a cluster without a majority of them stops. Machines that take no pods for another
    reason count as unavailable all the time.

    :param max_unavailable: how many machines may be closed at once: a number, or a percentage of all.
    :raises InputError: where it is neither.
    :raises RefusedError: where machines that take no pods leave none that may be closed.
    """
    limit = parse_limit(max_unavailable, len(machines))
    todo = [item for item in machines if item.stale or item.begun]
    begun = [item.host for item in todo if item.begun and not item.server]
    closed = [item.host for item in todo if item.closed and not item.begun and not item.server]
    ready = [item.host for item in todo if not item.closed and not item.begun and not item.server]
    servers = [item for item in todo if item.server]
    away = [item for item in machines if item.closed and not item.begun]
    size = limit - len(away)
    if size < 1 and (ready or any(not item.begun and not item.closed for item in servers)):
        names = ", ".join(f"{item.host} ({item.closed})" for item in away)
        raise RefusedError(
            f"{_OPTION} is {max_unavailable}: {limit} of {len(machines)} machines, and so many take no pods: {names}",
            f"Let them take pods, leave them out with --limit, or raise {_OPTION}",
        )
    return (
        *((item.host,) for item in servers if item.begun),
        *_cut(begun, limit),
        *_cut(closed, limit),
        *_cut(ready, max(1, size)),
        *((item.host,) for item in servers if not item.begun),
    )


def parse_limit(text: str, count: int) -> int:
    """Return how many of ``count`` machines ``text`` allows: a number, or a percentage, rounded down, at least one.

    :raises InputError: for anything else.
    """
    match = re.fullmatch(r"([0-9]{1,6})(%?)", text.strip())
    if not match or not int(match[1]) or (match[2] and int(match[1]) > 100):
        raise InputError(_OPTION, f"is {text!r}", "Use a number such as 1, or a percentage such as 25%")
    return max(1, count * int(match[1]) // 100) if match[2] else int(match[1])


def free_of_pods(facts: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the facts of a machine of a cluster as they are after its pods were evicted; others' as they are."""
    driver = facts.get("driver") or {}
    return {**facts, "driver": {**driver, "processes": 0}} if facts.get("k3s_unit") and driver else dict(facts)


def describe_waves(waves: t.Sequence[t.Sequence[str]], max_unavailable: str) -> list[str]:
    """Return a line for each wave."""
    if not waves:
        return ["the drivers of all machines are as they should be"]
    count = len(waves)
    return [
        f"wave {number} of {count} (at most {max_unavailable} unavailable): {', '.join(wave)}"
        for number, wave in enumerate(waves, 1)
    ]


def _cut(hosts: t.Sequence[str], size: int) -> t.Iterator[tuple[str, ...]]:
    return (tuple(hosts[start : start + size]) for start in range(0, len(hosts), size))
