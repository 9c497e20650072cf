# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stacks of ranks as nodes report them: one line that says where a rank stands, and all of them as a text to keep."""

from __future__ import annotations

import re
import typing as t

# A frame of py-spy: ``    main (train.py:20)``; of faulthandler: ``  File "/x/train.py", line 20 in main``.
_FRAME = re.compile(
    r'^\s+(?:File "(?P<path>[^"]+)", line (?P<number>\d+) in (?P<name>.+)'
    r"|(?P<name2>.+) \((?P<path2>[^()]+):(?P<number2>\d+)\))$"
)
_MAIN = ('"MainThread"', "Current thread ")
_HEAD = re.compile(r"^(?:Current thread|Thread) ")


class Frame(t.NamedTuple):
    """A frame of a stack; the file by its name alone."""

    name: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.name} ({self.file}:{self.line})"


def read_main_stack(text: str) -> list[Frame]:
    """Return the frames of a program's main thread, the innermost first; none where the text has none."""
    stacks: list[tuple[str, list[Frame]]] = []
    for line in text.splitlines():
        if _HEAD.match(line):
            stacks.append((line, []))
        elif stacks and (found := _FRAME.match(line)):
            parts = found.groupdict()
            path = (parts["path"] or parts["path2"]).rsplit("/", 1)[-1]
            number = int(parts["number"] or parts["number2"])
            stacks[-1][1].append(Frame((parts["name"] or parts["name2"]).strip(), path, number))
    main = [frames for head, frames in stacks if any(word in head for word in _MAIN)]
    return main[0] if main else stacks[-1][1] if stacks else []


def describe_rank(node: str, rank: t.Mapping[str, t.Any]) -> str:
    """Return where a rank stands, in one line: its innermost frame and its program's line, else what it waits in."""
    name = f"rank {rank['rank']} on {node}"
    frames = read_main_stack(str(rank.get("text") or ""))
    if not frames:
        return f"{name}: {next(iter(rank.get('kernel') or []), 'nothing is known')}"
    program = next(frame for frame in frames if frame.file == frames[-1].file)
    return f"{name}: {frames[0]}" + (f", called from {program}" if program != frames[0] else "")


def format_stacks(node: str, ranks: t.Sequence[t.Mapping[str, t.Any]]) -> str:
    """Return the stacks of a node's ranks as a text; the line that says where each stands comes last."""
    parts = []
    for rank in ranks:
        head = f"rank {rank['rank']} (pid {rank['pid']}), {rank.get('how') or rank.get('problem') or 'kernel'}"
        parts += [head, *str(rank.get("text") or "").splitlines(), *(rank.get("kernel") or []), ""]
    return "\n".join([*parts, *(describe_rank(node, rank) for rank in ranks), ""])
