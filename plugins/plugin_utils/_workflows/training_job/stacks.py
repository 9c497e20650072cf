# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps where the ranks of a run stand, before they are stopped: afterwards nothing of it can be found.

Hosts are asked. Pods tell it in their logs as they are asked to stop.
"""

from __future__ import annotations

import pathlib
import typing as t

from ....module_utils._model.wording import name_some
from ....module_utils._node import files
from ....module_utils._secrets.scrubber import scrub
from ..._fabric.diagnosis import stacks
from ..._hosts.node_client import NodeClient, on_each_node
from ..shared import run_record

_MOST_SAID = 8
Ranks = t.Sequence[t.Mapping[str, t.Any]]


def keep_stacks(remotes: t.Sequence[NodeClient], run_id: str, folder: pathlib.Path) -> list[str]:
    """Take the stacks of all ranks into the run's logs; return where each rank stands, one line a rank.

    Ranks may be sent a signal that they handle, so that this is for a run that is stopped next.
    """
    answers, _errors = on_each_node(remotes, lambda remote: remote.call("stacks", run_id=run_id, signals=True))
    return _write({name: answer["ranks"] for name, answer in answers.items()}, folder)


def keep_recorded_stacks(events: t.Iterable[t.Mapping[str, t.Any]], since: float, folder: pathlib.Path) -> list[str]:
    """Write the stacks that pods told from a time on into the run's logs; return where each rank stood.

    :param events: the lines of the run's events.jsonl.
    """
    found = {
        line["rank"]: line
        for line in events
        if line.get("kind") == "rank_stack" and isinstance(line.get("rank"), int) and line.get("at", 0.0) >= since
    }
    nodes: dict[str, list[t.Mapping[str, t.Any]]] = {}
    for _rank, line in sorted(found.items()):
        nodes.setdefault(str(line.get("node")), []).append(line)
    return _write(nodes, folder)


def _write(nodes: t.Mapping[str, Ranks], folder: pathlib.Path) -> list[str]:
    lines = []
    for name, ranks in sorted(nodes.items()):
        place = stack_file(folder, name)
        if ranks:
            files.private_dir(place.parent)
            files.write_atomic(place, scrub(stacks.format_stacks(name, ranks)).encode("utf-8", "replace"))
        lines += [scrub(stacks.describe_rank(name, rank)) for rank in ranks]
    return lines


def stack_file(folder: pathlib.Path, node: str) -> pathlib.Path:
    """Return where a run's folder keeps the stacks of a node's ranks."""
    return (folder / run_record.log_file(node)).with_suffix(".stacks")


def describe_stacks(lines: t.Sequence[str]) -> str:
    """Return where ranks stood, for the last line of a run; empty where nothing is known."""
    return name_some(lines, _MOST_SAID, "; ")
