# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What changed on an island since its earlier measurements. Pure rules on values.

Only equal tests are compared: same nodes, backend, collective and size.
"""

from __future__ import annotations

import dataclasses
import statistics
import typing as t

from ....module_utils._model.verdict import Cause, Verdict
from ..parse.json_values import as_items, finite_number

# Two measurements of a healthy network differ by a few percent; gloo on busy processors by ten.
DRIFT = 0.85
COMPARED_TESTS = 10
MAX_LINES = 2000
FIX = "Compare link rate, PCIe width, errors and MTU of this node with its peers; nothing else in the island changed"
_MAX_RATE = 1e9
_MAX_NAMES = 8
PairRate = tuple[str, str, float]


@dataclasses.dataclass(frozen=True, slots=True)
class IslandMeasurement:
    """One line of ``fabric_history.jsonl``: a test of an island. ``pairs`` are (node, node, GB/s), each pair once."""

    nodes: tuple[str, ...]
    outcome: str
    at: str | None = None
    island: str | None = None
    lane: str | None = None
    transport: str | None = None
    backend: str | None = None
    collective: str | None = None
    size_bytes: int | None = None
    busbw_gb_s: float | None = None
    pairs: tuple[PairRate, ...] = ()

    @property
    def test(self) -> tuple[object, ...]:
        """Return what must be equal for two figures to be comparable, beside the nodes."""
        return self.backend, self.collective, self.size_bytes

    @classmethod
    def from_dict(cls, line: object) -> IslandMeasurement | None:
        """Return the measurement that a JSON line holds, None when it is not one."""
        if not isinstance(line, dict) or not isinstance(line.get("outcome"), str):
            return None
        nodes, pairs = line.get("nodes"), line.get("pairs")
        if not isinstance(nodes, list) or not all(isinstance(name, str) for name in nodes):
            return None
        if pairs is not None and not isinstance(pairs, list):
            return None
        texts = {
            key: value if isinstance(value := line.get(key), str) else None
            for key in ("at", "island", "lane", "transport", "backend", "collective")
        }
        size = line.get("size_bytes")
        return cls(
            tuple(sorted(nodes)),
            line["outcome"],
            **texts,
            size_bytes=size if isinstance(size, int) else None,
            busbw_gb_s=finite_number(line.get("busbw_gb_s"), _MAX_RATE),
            pairs=tuple(_parse_pairs(pairs)),
        )

    def to_dict(self) -> dict[str, object]:
        """Return the line as JSON-able values."""
        line = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {**line, "nodes": list(self.nodes), "pairs": [list(pair) for pair in self.pairs]}


@dataclasses.dataclass(frozen=True, slots=True)
class Drift:
    """What changed in words, and the causes for what became slower."""

    changes: tuple[str, ...] = ()
    causes: tuple[Cause, ...] = ()


def read_measurements(lines: t.Iterable[object]) -> list[IslandMeasurement]:
    """Return the measurements among JSON lines, in their order."""
    return [line for line in map(IslandMeasurement.from_dict, lines) if line is not None]


def build_measurement(verdict: Verdict, nodes: t.Sequence[str], backend: str) -> IslandMeasurement:
    """Return the line of history for a verdict."""
    band = verdict.bandwidth
    return IslandMeasurement(
        tuple(sorted(nodes)),
        verdict.outcome,
        at=verdict.started_at,
        island=verdict.island,
        lane=verdict.lane,
        transport=verdict.transport.verdict,
        backend=backend,
        collective=band.collective,
        size_bytes=band.size_bytes,
        busbw_gb_s=band.busbw_gb_s,
        pairs=tuple(_parse_pairs([[pair.a, pair.b, pair.busbw_gb_s] for pair in verdict.transport.pairs])),
    )


def compare_with_history(now: IslandMeasurement, history: t.Sequence[IslandMeasurement]) -> Drift:
    """Return what changed between ``now`` and the measurements before it, the oldest first.

    Figures are compared with the median of the last ten equal tests that passed or warned; lane, transport, outcome and
    members with the last test.
    """
    same_nodes = [line for line in history if line.nodes == now.nodes]
    changes = _state_changes(now, same_nodes[-1]) if same_nodes else _member_changes(now, history)
    comparable = [line for line in same_nodes if line.test == now.test and line.outcome in ("pass", "warn")]
    slower, causes = _find_slower(now, comparable[-COMPARED_TESTS:])
    return Drift((*changes, *slower), tuple(causes))


def _member_changes(now: IslandMeasurement, history: t.Sequence[IslandMeasurement]) -> t.Iterator[str]:
    """Yield which nodes joined and left since the last test of an island of this name."""
    before = next((line for line in reversed(history) if line.island == now.island), None)
    if before is None:
        return
    joined, left = sorted(set(now.nodes) - set(before.nodes)), sorted(set(before.nodes) - set(now.nodes))
    if joined:
        yield f"joined: {', '.join(joined[:_MAX_NAMES])}"
    if left:
        yield f"left: {', '.join(left[:_MAX_NAMES])}"


def _state_changes(now: IslandMeasurement, before: IslandMeasurement) -> t.Iterator[str]:
    for key in ("outcome", "lane", "transport"):
        current, former = getattr(now, key), getattr(before, key)
        if former is not None and current != former:
            yield f"{key}: {current}, {former} before"


def _find_slower(now: IslandMeasurement, history: t.Sequence[IslandMeasurement]) -> tuple[list[str], list[Cause]]:
    """Return the bandwidths that dropped, in words, and the nodes (or the island) that they point to."""
    changes: list[str] = []
    rates = [line.busbw_gb_s for line in history if line.busbw_gb_s is not None]
    usual = statistics.median(rates) if rates else 0.0
    if now.busbw_gb_s is not None and now.busbw_gb_s < DRIFT * usual:
        changes.append(f"bandwidth: {now.busbw_gb_s:.3g} GB/s, {usual:.3g} before")
    island_slower = bool(changes)
    slow_pairs = [(a, b, rate, before) for a, b, rate, before in _pair_rates(now, history) if rate < DRIFT * before]
    changes += [f"{a}–{b}: {rate:.3g} GB/s, {before:.3g} before" for a, b, rate, before in slow_pairs]
    nodes = _nodes_slower_everywhere(now, {frozenset((a, b)) for a, b, _rate, _before in slow_pairs})
    if nodes:
        causes = [
            Cause("drift", f"every pair with {name} became slower than its own history", FIX, name) for name in nodes
        ]
        return changes, causes
    return changes, [Cause("drift", changes[-1], FIX)] if island_slower else []


def _pair_rates(
    now: IslandMeasurement, history: t.Sequence[IslandMeasurement]
) -> t.Iterator[tuple[str, str, float, float]]:
    """Yield (a, b, GB/s now, median GB/s before) of each pair that was measured before."""
    former: dict[frozenset[str], list[float]] = {}
    for line in history:
        for a, b, rate in line.pairs:
            former.setdefault(frozenset((a, b)), []).append(rate)
    for a, b, rate in now.pairs:
        if before := former.get(frozenset((a, b))):
            yield a, b, rate, statistics.median(before)


def _nodes_slower_everywhere(now: IslandMeasurement, slow: t.Collection[frozenset[str]]) -> list[str]:
    """Return the nodes all of whose measured pairs (two or more) became slower; none when that are all nodes."""
    measured = [frozenset((a, b)) for a, b, _rate in now.pairs]
    names = []
    for name in now.nodes:
        pairs = [pair for pair in measured if name in pair]
        if len(pairs) > 1 and all(pair in slow for pair in pairs):
            names.append(name)
    return names if len(names) < len(now.nodes) else []


def _parse_pairs(pairs: object) -> t.Iterator[PairRate]:
    """Yield the first rate of each pair; entries that are not (node, node, GB/s) are left out."""
    seen: set[frozenset[str]] = set()
    for entry in as_items(pairs):
        if not isinstance(entry, list | tuple) or len(entry) != 3:
            continue
        a, b, rate = str(entry[0]), str(entry[1]), finite_number(entry[2], _MAX_RATE)
        key = frozenset((a, b))
        if rate is not None and key not in seen:
            seen.add(key)
            yield a, b, rate
