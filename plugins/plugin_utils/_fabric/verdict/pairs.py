# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge tests of pairs and of single nodes: the causes of slow ones, the proofs of all pairs, a table of the rates."""

from __future__ import annotations

import dataclasses
import statistics
import typing as t

from ....module_utils._model.expectation import GATE_PASS
from ....module_utils._model.verdict import Cause, PairProof
from ..bench.suspects import Suspects, find_suspects_of_pairs

Rates = t.Mapping[tuple[str, str], float | None]
SLOW_FIXES: t.Mapping[str, str] = {
    "slow_node": "Check this node's link rate, PCIe width, cable and MTU; until then leave it out of the job",
    "slow_path": "Check the switch, cable or route between these two nodes",
}
_MATRIX_LIMIT = 16


def find_pair_causes(rates: Rates, expected: float | None) -> tuple[Cause, ...]:
    """Return the nodes and paths to blame for slow pairs (GB/s; None for a pair whose test failed)."""
    if not rates:
        return ()
    return tuple(
        _suspect_causes(find_suspects_of_pairs(rates, expected), lambda name: f"every pair with {name} is slow")
    )


def build_search_causes(suspects: Suspects) -> tuple[Cause, ...]:
    """Return the causes for the suspects of a search by halves."""
    causes = list(_suspect_causes(suspects, lambda name: f"every group with {name} is slow, and others are not"))
    for group in suspects.undecided:
        text = f"at least one of {', '.join(group[:8])}{'…' if len(group) > 8 else ''} is slow"
        causes.append(Cause("slow_path", text, SLOW_FIXES["slow_path"]))
    return tuple(causes)


def _suspect_causes(suspects: Suspects, evidence: t.Callable[[str], str]) -> t.Iterator[Cause]:
    for name in suspects.bad:
        yield Cause("slow_node", evidence(name), SLOW_FIXES["slow_node"], name)
    for left, right in suspects.between:
        if len(left) == len(right) == 1:
            text = f"only the path between {left[0]} and {right[0]} is slow"
        else:
            text = f"{', '.join(left[:4])} and {', '.join(right[:4])} are fast alone and slow together"
        yield Cause("slow_path", text, SLOW_FIXES["slow_path"])


def find_inside_causes(rates: t.Mapping[str, float | None]) -> tuple[Cause, ...]:
    """Return the nodes whose inside is slower than that of nodes of the same kind: below 0.85 of their median.

    Two nodes are compared with the faster one; a single node has no peer.
    """
    measured = [rate for rate in rates.values() if rate is not None]
    if len(rates) < 2 or not measured:
        return ()
    usual = max(measured) if len(measured) < 3 else statistics.median(measured)
    causes = []
    for name, rate in sorted(rates.items()):
        if rate is None:
            causes.append(Cause("slow_node", "the test inside the node did not finish", _INSIDE_FIX, name))
        elif rate < GATE_PASS * usual:
            text = f"{rate:.3g} GB/s inside the node, its peers reach {usual:.3g}"
            causes.append(Cause("slow_node", text, _INSIDE_FIX, name))
    return tuple(causes)


_INSIDE_FIX = "Check NVLink, PCIe width, fabric manager and GPU clocks of this node (nvidia-smi -q, nvidia-smi topo -m)"


def merge_pair_proofs(own: t.Sequence[PairProof], tested: t.Iterable[PairProof], rates: Rates) -> tuple[PairProof, ...]:
    """Return the proofs of an island's own test, those of pairs tested alone that it lacks, each with its rate.

    A ring of N nodes uses N of their pairs; the others are proven by their own tests.
    """
    proven = {frozenset((pair.a, pair.b)) for pair in own}
    added: dict[frozenset[str], PairProof] = {}
    for pair in tested:
        key = frozenset((pair.a, pair.b))
        if key not in proven:
            added.setdefault(key, dataclasses.replace(pair, evidence=f"tested alone: {pair.evidence}"))
    result = []
    for pair in (*own, *added.values()):
        rate = rates.get((pair.a, pair.b), rates.get((pair.b, pair.a)))
        result.append(dataclasses.replace(pair, busbw_gb_s=rate) if rate is not None else pair)
    return tuple(result)


def format_matrix(rates: Rates) -> list[str]:
    """Return the lines of a table nodes × nodes in GB/s; ``-`` not tested, ``x`` failed. Empty for more than 16."""
    names = sorted({name for pair in rates for name in pair})
    if len(names) < 3 or len(names) > _MATRIX_LIMIT:
        return []
    cells = [[_format_cell(rates, a, b) for b in names] for a in names]
    numbers = [str(number) for number in range(1, len(names) + 1)]
    width = max(6, *(len(cell) for row in cells for cell in row)) + 1
    left = max(len(name) for name in names) + 4
    head = " " * left + "".join(number.rjust(width) for number in numbers)
    lines = [
        f"{number:>2}  {name}".ljust(left) + "".join(cell.rjust(width) for cell in row)
        for number, name, row in zip(numbers, names, cells, strict=True)
    ]
    return ["GB/s of each pair:", head, *lines]


def _format_cell(rates: Rates, a: str, b: str) -> str:
    if a == b:
        return "."
    key = (a, b) if (a, b) in rates else (b, a)
    if key not in rates:
        return "-"
    value = rates[key]
    return "x" if value is None else f"{value:.3g}"
