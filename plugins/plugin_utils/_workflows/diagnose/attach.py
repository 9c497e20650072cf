# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Diagnose jobs on the hosts that this collection did not start: which rank the others wait for, at which line.

Nothing is installed on the hosts, and nothing of the jobs is changed.
"""

from __future__ import annotations

import typing as t

from ....module_utils._model.errors import RefusedError
from ....module_utils._model.hang import Standing, describe_ranks, name_hang, read_standing
from ....module_utils._secrets.scrubber import scrub
from ..._hosts.node_client import NodeClient, most_telling_error, on_each_node

_MOST_LINES, _MOST_NAMES = 20, 8
Rank = dict[str, t.Any]


def attach(remotes: t.Sequence[NodeClient], window_s: float) -> dict[str, object]:
    """Return ``{changed, gangs, nodes, summary}`` of the jobs of others on the hosts.

    :param window_s: for how long their ranks are looked at.
    :raises RefusedError: no rank runs on any host. :raises MusterError: no host answered.
    """
    answers, errors = on_each_node(
        remotes, lambda remote: remote.ask("attach", window_s=window_s, deadline_s=window_s + 60.0)
    )
    if not answers:
        raise most_telling_error(errors)
    gangs: dict[tuple[str, int], list[Rank]] = {}
    for name, answer in sorted(answers.items()):
        for rank in answer["ranks"]:
            gangs.setdefault((str(rank["gang"]), int(rank["world_size"])), []).append({**rank, "node": name})
    if not gangs:
        fix = "Name the hosts of the job (muster_train_hosts) and its user (ansible_user), or become root"
        raise RefusedError(f"no rank of a job of others is seen on {', '.join(sorted(answers)[:_MOST_NAMES])}", fix)
    silent = [f"no answer from {name}: {error.message}" for name, error in sorted(errors.items())]
    found = [_judge(gang, size, ranks) for (gang, size), ranks in sorted(gangs.items())]
    lines = [line for one in found for line in t.cast("list[str]", one["lines"])]
    return {"changed": False, "gangs": found, "nodes": sorted(answers), "summary": [*silent, *map(scrub, lines)]}


def _judge(gang: str, size: int, ranks: t.Sequence[Rank]) -> dict[str, object]:
    """Return what is known of one job: ``{gang, program, world_size, ranks, hang, lines}``."""
    seen = {item.rank: item for rank in ranks if (item := read_standing(rank)) is not None}
    stands = {int(rank["rank"]): bool(rank["stands"]) for rank in ranks}
    hang = name_hang({number: item for number, item in seen.items() if stands[number]}, sorted(stands))
    nodes = sorted({str(rank["node"]) for rank in ranks})
    program = next((str(rank["program"]) for rank in ranks if rank["program"]), "a program")
    where = ", ".join(nodes[:_MOST_NAMES]) + ("…" if len(nodes) > _MOST_NAMES else "")
    head = f"job {gang or 'without an address'}: {program}, {len(stands)} of {size} ranks seen on {where}"
    said = f"hangs: {hang.text}" if hang and hang.is_certain else "no rank is seen that the others wait for"
    if sum(stands.values()) < len(stands) and not (hang and hang.is_certain):
        said = f"{len(stands) - sum(stands.values())} of its ranks move"
    lines = [head, said, *_list_places(seen)][:_MOST_LINES]
    return {
        "gang": gang,
        "program": program,
        "world_size": size,
        "ranks": [dict(rank) for rank in ranks],
        "hang": hang.text if hang and hang.is_certain else None,
        "lines": lines,
    }


def _list_places(seen: t.Mapping[int, Standing]) -> t.Iterator[str]:
    """Yield one line for each place at which ranks are, with the frames that differ from their program's line."""
    groups: dict[tuple[object, ...], list[Standing]] = {}
    for item in seen.values():
        places = [place and place.on_any_node for place in (*item.frames[:1], item.place)]
        groups.setdefault((*places, item.operation, item.problem), []).append(item)
    for group in sorted(groups.values(), key=lambda one: (-len(one), one[0].rank)):
        first = group[0]
        inner = f", in {first.frames[0]}" if first.frames and first.frames[0] != first.place else ""
        at = f"at {first.place}{inner}" if first.place else first.problem or "no line of Python"
        yield f"{describe_ranks([item.rank for item in group])}: {first.operation or 'no collective'}, {at}"
