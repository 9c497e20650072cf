# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Islands: which nodes may share one synchronous job, and why (pure rules; lanes as in the model of an island).

Nodes with RDMA group by equal NICs, because NCCL 2.30 and later refuses ranks with unequal numbers of network
devices; nodes without group by LAN; what is left over groups by mesh. What a user declares wins, and says so.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import typing as t

from ....module_utils._model.errors import InputError
from ....module_utils._model.island import Island, IslandOverride, Lane, Link, NetworkPath, PairPath
from ....module_utils._model.node import Node
from .links import Paths, Rails, lan_rate, one_machine, rails

Group = tuple[str, ...]
SLOW_GBPS = 10


@dataclasses.dataclass(frozen=True, slots=True)
class _Character:
    """What a group of nodes is: the part of an island that rules decide."""

    lane: Lane
    link: Link
    nic_count: int | None = None
    nic_rate_gbps: float | None = None
    reasons: tuple[str, ...] = ()


def islands(
    nodes: t.Iterable[Node], reachability: t.Iterable[PairPath] = (), overrides: t.Iterable[IslandOverride] = ()
) -> list[Island]:
    """Return the islands of a fleet; every node is in exactly one, ordered by their first node.

    :param reachability: what probes found between pairs; pairs without one are judged by facts and inventory.
    :param overrides: islands that the user declares.
    :raises InputError: an override names a node that is not there, or a node twice.
    """
    known = {node.name: node for node in nodes}
    paths = Paths(known, reachability)
    declared = list(overrides)
    _check_overrides(declared, known)
    taken = {name for override in declared for name in override.nodes}
    free = sorted(set(known) - taken)
    found = [(_declared(override, paths), override.name) for override in declared]
    found += [((group, _character(group, paths)), None) for group in _groups(free, paths)]
    described = [((group, _with_neighbours(group, character, paths)), name) for (group, character), name in found]
    wanted = {tuple(sorted(override.nodes)): override.expected_busbw_gb_s for override in declared}
    named = _named(sorted(described, key=lambda item: item[0][0]))
    return [dataclasses.replace(island, expected_busbw_gb_s=wanted.get(island.nodes)) for island in named]


def _check_overrides(overrides: t.Sequence[IslandOverride], known: t.Mapping[str, Node]) -> None:
    seen: set[str] = set()
    for index, override in enumerate(overrides):
        path = f"fabric_verify_islands[{index}].nodes"
        if not override.nodes:
            raise InputError(path, "names no node")
        for name in override.nodes:
            if name not in known:
                raise InputError(path, f"'{name}' is not among the hosts")
            if name in seen:
                raise InputError(path, f"'{name}' is in two declared islands, or twice in one")
            seen.add(name)


def _groups(names: t.Sequence[str], paths: Paths) -> list[Group]:
    """Partition nodes: RDMA by equal rails, the rest by LAN, what is then alone by direct mesh, then by relay."""
    fast = [name for name in names if paths.rails[name]]
    plain = [name for name in names if not paths.rails[name]]
    groups = _cliques(fast, lambda a, b: _same_rails(a, b, paths))
    kinds: tuple[NetworkPath, ...] = ("lan", "mesh_direct", "mesh_relayed")
    for count in range(1, len(kinds) + 1):
        found = _cliques(plain, paths.within(*kinds[:count]))
        groups += [group for group in found if len(group) > 1]
        plain = [group[0] for group in found if len(group) == 1]
    return groups + [(name,) for name in plain]


def _cliques(names: t.Iterable[str], together: t.Callable[[str, str], bool]) -> list[Group]:
    """Greedy partition into groups in which every pair is ``together``; a path must exist between all of them."""
    groups: list[list[str]] = []
    for name in names:
        home = next((group for group in groups if all(together(name, member) for member in group)), None)
        if home is None:
            groups.append([name])
        else:
            home.append(name)
    return [tuple(group) for group in groups]


def _kind(found: Rails | None) -> tuple[object, ...]:
    return (found.link, found.count, found.rate_gbps) if found else ()


def _same_subnet(a: Rails, b: Rails) -> bool:
    """Whether InfiniBand subnet prefixes allow one fabric; the default prefix is everybody's and tells nothing."""
    left, right = ({nic.subnet for nic in item.nics if nic.subnet} for item in (a, b))
    return not left or not right or bool(left & right)


def _same_rails(a: str, b: str, paths: Paths) -> bool:
    left, right = paths.rails[a], paths.rails[b]
    if left is None or right is None or _kind(left) != _kind(right):
        return False
    return paths.path(a, b) == "lan" and _same_subnet(left, right)


def _character(group: Group, paths: Paths) -> _Character:
    """What a group is. The worst pair decides the lane."""
    if len(group) == 1:
        return _single(paths.nodes[group[0]])
    pairs = list(itertools.combinations(group, 2))
    if all(one_machine(paths.nodes[a], paths.nodes[b]) for a, b in pairs):
        return _Character("C", "loopback", reasons=("one machine: its figures say nothing about a network",))
    found = {paths.path(a, b) for a, b in pairs}
    if found == {"lan"}:
        fast = [paths.rails[name] for name in group]
        equal = fast[0] is not None and all(_kind(item) == _kind(fast[0]) for item in fast)
        return _rdma(group, paths, fast[0]) if equal and fast[0] else _ethernet(group, paths)
    return _wide(pairs, found, paths)


def _single(node: Node) -> _Character:
    fast = rails(node)
    reason = ("one node: no network is used between nodes",)
    return _Character("C", "loopback", fast.count if fast else None, fast.rate_gbps if fast else None, reason)


def _gpudirect(node: Node) -> tuple[bool, str]:
    if not node.gpu.count:
        return False, "has no GPU"
    if node.gpudirect.supported:
        return True, ""
    return False, node.gpudirect.reason or "is not known to support GPUDirect RDMA"


def _rdma(group: Group, paths: Paths, fast: Rails) -> _Character:
    reasons = [f"every node has {fast.describe()}", *_unprobed(group, paths)]
    without = [(name, why) for name in group for able, why in [_gpudirect(paths.nodes[name])] if not able]
    if without:
        name, why = without[0]
        more = f" (and {len(without) - 1} more)" if len(without) > 1 else ""
        reasons.append(f"lane B, no GPUDirect: {name}{more}: {why}")
    return _Character("B" if without else "A", fast.link, fast.count, fast.rate_gbps, tuple(reasons))


def _ethernet(group: Group, paths: Paths) -> _Character:
    rates = {name: lan_rate(paths.nodes[name]) for name in group}
    probed = [paths.rate(a, b) for a, b in itertools.combinations(group, 2)]
    measured = [rate for rate in probed if rate is not None]
    stated = [rate for rate in rates.values() if rate is not None]
    unknown = [name for name, rate in rates.items() if rate is None]
    rate = min(measured) if measured else min(stated) if stated and not unknown else None
    reasons = [*_mixed(group, paths), *_unprobed(group, paths)]
    if rate is None:
        reasons.append(f"the link speed of {unknown[0]} is unknown: only a measurement can tell")
    elif rate < SLOW_GBPS:
        slowest = next((name for name, value in rates.items() if value == rate), None)
        reasons.append(f"{rate:g} Gb/s{f' at {slowest}' if slowest else ''} is slow for a synchronous job")
    return _Character("C", "ethernet", 1, rate, tuple(reasons))


def _mixed(group: Group, paths: Paths) -> list[str]:
    """Why nodes of one LAN with RDMA use TCP all the same (only a declared island comes here)."""
    kinds = {item.describe() if item else "no RDMA" for item in (paths.rails[name] for name in group)}
    return [f"TCP, because the nodes' NICs differ: {', '.join(sorted(kinds))}"] if len(kinds) > 1 else []


def _wide(pairs: t.Sequence[tuple[str, str]], found: t.Collection[str], paths: Paths) -> _Character:
    worst = next(word for word in ("none", "mesh_relayed", "mesh_direct") if word in found)
    a, b = next(pair for pair in pairs if paths.path(*pair) == worst)
    measured = [rate for rate in (paths.rate(*pair) for pair in pairs) if rate is not None]
    rate = min(measured) if measured and len(measured) == len(pairs) else None
    told = "" if paths.probed(a, b) else " (not probed: it may turn out relayed)"
    texts = {
        "none": f"no path is known between {a} and {b}",
        "mesh_relayed": f"{a} and {b} reach each other only through a relay",
        "mesh_direct": f"{a} and {b} share no LAN, only a mesh or the open network{told}",
    }
    return _Character("D" if worst == "mesh_direct" else "E", "mesh", None, rate, (texts[worst],))


def _unprobed(group: Group, paths: Paths) -> list[str]:
    pairs = list(itertools.combinations(group, 2))
    missing = sum(not paths.probed(a, b) for a, b in pairs)
    return [f"{missing} of {len(pairs)} paths follow from addresses and inventory, no probe"] if missing else []


def _declared(override: IslandOverride, paths: Paths) -> tuple[Group, _Character]:
    group = tuple(sorted(override.nodes))
    ruled = _character(group, paths)
    given = {key: getattr(override, key) for key in ("lane", "link", "nic_count", "nic_rate_gbps")}
    kept = {key: value for key, value in given.items() if value is not None}
    reason = f"declared by the user{f': {override.reason}' if override.reason else ''}"
    changed = [f"{key} would be {getattr(ruled, key)} by the rules" for key in kept if kept[key] != getattr(ruled, key)]
    return group, dataclasses.replace(ruled, **kept, reasons=(reason, *changed, *ruled.reasons))


def _with_neighbours(group: Group, character: _Character, paths: Paths) -> _Character:
    """Say why other nodes of the same LAN are not in this island: what a person would ask first."""
    own = paths.rails[group[0]]
    apart: dict[str, str] = {}
    for name in sorted(set(paths.nodes) - set(group)):
        other = paths.rails[name]
        if own and _kind(own) != _kind(other) and paths.path(group[0], name) == "lan":
            count = other is not None and other.link == own.link and other.rate_gbps == own.rate_gbps
            why = ": NCCL 2.30 and later refuses unequal NIC counts" if count else ""
            apart.setdefault(f"{other.describe() if other else 'no RDMA'}{why}", name)
    reasons = tuple(f"not with {name}, which has {why}" for why, name in apart.items())
    return dataclasses.replace(character, reasons=character.reasons + reasons)


def _base_name(group: Group, character: _Character) -> str:
    rate = f"{character.nic_rate_gbps:g}g".replace(".", "-") if character.nic_rate_gbps else ""
    if len(group) == 1:
        slug = re.sub(r"[^a-z0-9]+", "-", group[0].lower()).strip("-")
        return f"solo-{slug[:30].strip('-')}" if slug else "solo"
    if character.link in ("ib", "roce"):
        return f"{character.link}-{character.nic_count}x{rate or 'unknown'}"
    if character.link == "ethernet":
        return f"lan-{rate}" if rate else "lan"
    return {"loopback": "machine", "mesh": "mesh" if character.lane == "D" else "relayed"}[character.link]


def _named(found: t.Iterable[tuple[tuple[Group, _Character], str | None]]) -> list[Island]:
    """Give each island a name that is valid as a label's value and unique."""
    result: list[Island] = []
    items = list(found)
    used = {name for _unused, name in items if name}
    for (group, character), given in items:
        name = given
        if name is None:
            base = _base_name(group, character)
            name = next(
                word
                for word in itertools.chain([base], (f"{base}-{n}" for n in itertools.count(2)))
                if word not in used
            )
            used.add(name)
        fields = {field.name: getattr(character, field.name) for field in dataclasses.fields(character)}
        result.append(Island(name=name, nodes=group, **fields))
    return result
