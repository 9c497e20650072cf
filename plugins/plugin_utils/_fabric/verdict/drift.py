# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What has changed on an island since it was measured before: its own history is the measure. Pure rules on values.

A measurement is one line of ``fabric_history.jsonl``: ``{at, island, nodes, outcome, lane, transport, backend,
collective, size_bytes, busbw_gb_s, pairs [[a, b, GB/s]]}``. Only equal tests are compared: same nodes, backend,
collective and size.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import statistics
import typing as t

from ....module_utils._model.verdict import Cause, Verdict

# Two measurements of a healthy network differ by a few percent; gloo on busy processors by ten.
DRIFT = 0.85
COMPARED_TESTS = 10
MAX_LINES = 2000
FIX = "Compare link rate, PCIe width, errors and MTU of this node with its peers; nothing else in the island changed"
Dict = dict[str, t.Any]
Lines = t.Sequence[t.Mapping[str, t.Any]]


@dataclasses.dataclass(frozen=True, slots=True)
class Drift:
    """What changed in words, and the causes for what became slower."""

    changes: tuple[str, ...] = ()
    causes: tuple[Cause, ...] = ()


def build_measurement(verdict: Verdict, nodes: t.Sequence[str], backend: str) -> Dict:
    """Return the line of history that stands for a verdict."""
    band = verdict.bandwidth
    return {
        "at": verdict.started_at,
        "island": verdict.island,
        "nodes": sorted(nodes),
        "outcome": verdict.outcome,
        "lane": verdict.lane,
        "transport": verdict.transport.verdict,
        "backend": backend,
        "collective": band.collective,
        "size_bytes": band.size_bytes,
        "busbw_gb_s": band.busbw_gb_s,
        "pairs": [[pair.a, pair.b, pair.busbw_gb_s] for pair in verdict.transport.pairs if pair.busbw_gb_s is not None],
    }


def compare_with_history(now: t.Mapping[str, t.Any], history: Lines) -> Drift:
    """Return what changed between ``now`` and the measurements before it, the oldest first.

    Entries that are no measurements are passed over. Figures are compared with the median of the last ten of equal
    tests that passed or warned; lane, transport, outcome and members with the last one.
    """
    known = [line for line in history if _is_measurement(line)]
    own = [line for line in known if sorted(line["nodes"]) == now["nodes"]]
    changes = [*_member_changes(now, known, own), *(_state_changes(now, own[-1]) if own else ())]
    equal = [line for line in own if _test_key(line) == _test_key(now) and line["outcome"] in ("pass", "warn")][
        -COMPARED_TESTS:
    ]
    slower, causes = _find_slower(now, equal)
    return Drift((*changes, *slower), tuple(causes))


def _is_measurement(line: t.Any) -> bool:
    if not isinstance(line, dict) or not isinstance(line.get("nodes"), list) or "outcome" not in line:
        return False
    pairs = line.get("pairs")
    return all(isinstance(name, str) for name in line["nodes"]) and isinstance(pairs if pairs is not None else [], list)


def _test_key(line: t.Mapping[str, t.Any]) -> tuple[t.Any, ...]:
    return tuple(line.get(key) for key in ("backend", "collective", "size_bytes"))


def _member_changes(now: t.Mapping[str, t.Any], known: Lines, own: Lines) -> t.Iterator[str]:
    """Say who joined and left, when the island of this name had other nodes the last time."""
    if own:
        return
    before = next((line for line in reversed(known) if line.get("island") == now["island"]), None)
    if before is None:
        return
    joined, left = set(now["nodes"]) - set(before["nodes"]), set(before["nodes"]) - set(now["nodes"])
    if joined:
        yield f"joined: {', '.join(sorted(joined)[:8])}"
    if left:
        yield f"left: {', '.join(sorted(left)[:8])}"


def _state_changes(now: t.Mapping[str, t.Any], before: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    for key in ("outcome", "lane", "transport"):
        if before.get(key) is not None and now.get(key) != before[key]:
            yield f"{key}: {now.get(key)}, {before[key]} before"


def _find_slower(now: t.Mapping[str, t.Any], equal: Lines) -> tuple[list[str], list[Cause]]:
    changes: list[str] = []
    causes: list[Cause] = []
    usual = _median(line.get("busbw_gb_s") for line in equal)
    rate = _number(now.get("busbw_gb_s"))
    if usual and rate is not None and rate < DRIFT * usual:
        changes.append(f"bandwidth: {rate:.3g} GB/s, {usual:.3g} before")
    fallen = [(a, b, value, before) for a, b, value, before in _pair_rates(now, equal) if value < DRIFT * before]
    for a, b, value, before in fallen:
        changes.append(f"{a}–{b}: {value:.3g} GB/s, {before:.3g} before")
    blamed = _nodes_slower_everywhere(now, [(a, b) for a, b, _unused, _unused in fallen])
    for name in blamed:
        causes.append(Cause("drift", f"every pair with {name} became slower than its own history", FIX, name))
    if changes and not blamed and (rate is not None and usual and rate < DRIFT * usual):
        causes.append(Cause("drift", changes[0] if not fallen else changes[-1], FIX))
    return changes, causes


def _pair_rates(now: t.Mapping[str, t.Any], equal: Lines) -> t.Iterator[tuple[str, str, float, float]]:
    """Yield (a, b, GB/s now, usual GB/s) of each pair that was measured before."""
    history: dict[frozenset[str], list[float]] = {}
    for line in equal:
        for a, b, value in _measured_pairs(line):
            history.setdefault(frozenset((a, b)), []).append(value)
    for a, b, value in _measured_pairs(now):
        if before := history.get(frozenset((a, b))):
            yield a, b, value, statistics.median(before)


def _measured_pairs(line: t.Mapping[str, t.Any]) -> t.Iterator[tuple[str, str, float]]:
    seen: set[frozenset[str]] = set()
    for item in line.get("pairs") or []:
        if not isinstance(item, list | tuple) or len(item) != 3:
            continue
        value = _number(item[2])
        key = frozenset((str(item[0]), str(item[1])))
        if value is not None and key not in seen:
            seen.add(key)
            yield str(item[0]), str(item[1]), value


def _nodes_slower_everywhere(now: t.Mapping[str, t.Any], fallen: t.Sequence[tuple[str, str]]) -> list[str]:
    """Return the nodes all of whose measured pairs (two or more) fell."""
    slow = {frozenset(pair) for pair in fallen}
    measured = [frozenset((a, b)) for a, b, _unused in _measured_pairs(now)]
    found = []
    for name in now["nodes"]:
        mine = [pair for pair in measured if name in pair]
        if len(mine) > 1 and all(pair in slow for pair in mine):
            found.append(name)
    # When everything fell, no single node is to blame.
    return found if len(found) < len(now["nodes"]) else []


def _median(values: t.Iterable[t.Any]) -> float | None:
    known = [value for value in map(_number, values) if value is not None]
    return statistics.median(known) if known else None


def _number(value: t.Any) -> float | None:
    fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9
    return float(value) if fits else None
