# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Islands: which nodes may share one synchronous job, and why (pure rules; lanes as in the model of an island).

Nodes with RDMA group by equal NICs, because NCCL 2.30 and later refuses ranks with unequal numbers of network
devices; nodes without RDMA by LAN; the remaining nodes by mesh. Islands that a user declares override the rules.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import typing as t

from ....module_utils._model.errors import InputError
from ....module_utils._model.island import Island, IslandOverride, Lane, Link, NetworkPath, PairPath
from ....module_utils._model.node import Node
from ..rails import Rails, find_rails
from .links import Paths, is_one_machine, lan_rate_gbps

Group = tuple[str, ...]
SLOW_GBPS = 10


@dataclasses.dataclass(frozen=True, slots=True)
class _Traits:
    """The properties of a group of nodes that the rules decide."""

    lane: Lane
    link: Link
    nic_count: int | None = None
    nic_rate_gbps: float | None = None
    reasons: tuple[str, ...] = ()


def find_islands(
    nodes: t.Iterable[Node], reachability: t.Iterable[PairPath] = (), overrides: t.Iterable[IslandOverride] = ()
) -> list[Island]:
    """Return the islands of a fleet; every node is in exactly one, ordered by their first node.

    :param reachability: paths that were tried; the paths of other pairs follow from facts and inventory.
    :param overrides: islands that the user declares.
    :raises InputError: an override names a node that does not exist, or a node twice.
    """
    by_name = {node.name: node for node in nodes}
    paths = Paths(by_name, reachability)
    declared = list(overrides)
    _check_overrides(declared, by_name)
    undeclared = sorted(set(by_name) - {name for override in declared for name in override.nodes})
    groups = [(*_declared_traits(override, paths), override.name) for override in declared]
    groups += [(group, _group_traits(group, paths), None) for group in _group_nodes(undeclared, paths)]
    explained = [(group, _add_neighbour_reasons(group, traits, paths), name) for group, traits, name in groups]
    expected = {tuple(sorted(override.nodes)): override.expected_busbw_gb_s for override in declared}
    islands = _name_islands(sorted(explained, key=lambda item: item[0][0]))
    return [dataclasses.replace(island, expected_busbw_gb_s=expected.get(island.nodes)) for island in islands]


def _check_overrides(overrides: t.Sequence[IslandOverride], nodes: t.Mapping[str, Node]) -> None:
    seen: set[str] = set()
    for index, override in enumerate(overrides):
        path = f"fabric_verify_islands[{index}].nodes"
        if not override.nodes:
            raise InputError(path, "must name at least one node")
        for name in override.nodes:
            if name not in nodes:
                raise InputError(path, f"'{name}' is not one of the hosts")
            if name in seen:
                raise InputError(path, f"'{name}' is in two declared islands, or twice in one")
            seen.add(name)


def _group_nodes(names: t.Sequence[str], paths: Paths) -> list[Group]:
    """Partition nodes: RDMA by equal rails, others by LAN, the rest by direct mesh and then by relayed mesh."""
    fast = [name for name in names if paths.rails[name]]
    plain = [name for name in names if not paths.rails[name]]
    groups = _partition(fast, lambda a, b: _same_rails(a, b, paths))
    kinds: tuple[NetworkPath, ...] = ("lan", "mesh_direct", "mesh_relayed")
    for count in range(1, len(kinds) + 1):
        parts = _partition(plain, paths.within(*kinds[:count]))
        groups += [group for group in parts if len(group) > 1]
        plain = [group[0] for group in parts if len(group) == 1]
    return groups + [(name,) for name in plain]


def _partition(names: t.Iterable[str], together: t.Callable[[str, str], bool]) -> list[Group]:
    """Greedy partition into groups in which every pair is ``together``; a path must exist between all of them."""
    groups: list[list[str]] = []
    for name in names:
        home = next((group for group in groups if all(together(name, member) for member in group)), None)
        if home is None:
            groups.append([name])
        else:
            home.append(name)
    return [tuple(group) for group in groups]


def _rail_kind(rails: Rails | None) -> tuple[object, ...]:
    return (rails.link, rails.count, rails.rate_gbps) if rails else ()


def _same_subnet(a: Rails, b: Rails) -> bool:
    """Return whether InfiniBand subnet prefixes allow one fabric; the default prefix is common and not compared."""
    left, right = ({nic.subnet for nic in item.nics if nic.subnet} for item in (a, b))
    return not left or not right or bool(left & right)


def _same_rails(a: str, b: str, paths: Paths) -> bool:
    left, right = paths.rails[a], paths.rails[b]
    if left is None or right is None or _rail_kind(left) != _rail_kind(right):
        return False
    return paths.path(a, b) == "lan" and _same_subnet(left, right)


def _group_traits(group: Group, paths: Paths) -> _Traits:
    """Return the properties of a group. The worst pair decides the lane."""
    if len(group) == 1:
        return _single_node_traits(paths.nodes[group[0]])
    pairs = list(itertools.combinations(group, 2))
    if all(is_one_machine(paths.nodes[a], paths.nodes[b]) for a, b in pairs):
        return _Traits("C", "loopback", reasons=("one machine: its figures do not measure a network",))
    kinds = {paths.path(a, b) for a, b in pairs}
    if kinds == {"lan"}:
        fast = [paths.rails[name] for name in group]
        equal = fast[0] is not None and all(_rail_kind(item) == _rail_kind(fast[0]) for item in fast)
        return _rdma_traits(group, paths, fast[0]) if equal and fast[0] else _ethernet_traits(group, paths)
    return _wide_area_traits(pairs, kinds, paths)


def _single_node_traits(node: Node) -> _Traits:
    fast = find_rails(node)
    reason = ("one node: no network is used between nodes",)
    return _Traits("C", "loopback", fast.count if fast else None, fast.rate_gbps if fast else None, reason)


def _gpudirect_state(node: Node) -> tuple[bool, str]:
    if not node.gpu.count:
        return False, "has no GPU"
    if node.gpudirect.supported:
        return True, ""
    return False, node.gpudirect.reason or "GPUDirect RDMA support is unknown"


def _rdma_traits(group: Group, paths: Paths, fast: Rails) -> _Traits:
    reasons = [f"every node has {fast.describe()}", *_inferred_path_reasons(group, paths)]
    without = [(name, why) for name in group for able, why in [_gpudirect_state(paths.nodes[name])] if not able]
    if without:
        name, why = without[0]
        more = f" (and {len(without) - 1} more)" if len(without) > 1 else ""
        reasons.append(f"lane B, no GPUDirect: {name}{more}: {why}")
    return _Traits("B" if without else "A", fast.link, fast.count, fast.rate_gbps, tuple(reasons))


def _ethernet_traits(group: Group, paths: Paths) -> _Traits:
    rates = {name: lan_rate_gbps(paths.nodes[name]) for name in group}
    probed = [paths.rate(a, b) for a, b in itertools.combinations(group, 2)]
    measured = [rate for rate in probed if rate is not None]
    stated = [rate for rate in rates.values() if rate is not None]
    unknown = [name for name, rate in rates.items() if rate is None]
    rate = min(measured) if measured else min(stated) if stated and not unknown else None
    reasons = [*_mixed_nic_reasons(group, paths), *_inferred_path_reasons(group, paths)]
    if rate is None:
        reasons.append(f"the link speed of {unknown[0]} is unknown and must be measured")
    elif rate < SLOW_GBPS:
        slowest = next((name for name, value in rates.items() if value == rate), None)
        reasons.append(f"{rate:g} Gb/s{f' at {slowest}' if slowest else ''} is slow for a synchronous job")
    return _Traits("C", "ethernet", 1, rate, tuple(reasons))


def _mixed_nic_reasons(group: Group, paths: Paths) -> list[str]:
    """Return why nodes of one LAN with RDMA use TCP all the same (only in a declared island)."""
    kinds = {item.describe() if item else "no RDMA" for item in (paths.rails[name] for name in group)}
    return [f"TCP, because the nodes' NICs differ: {', '.join(sorted(kinds))}"] if len(kinds) > 1 else []


def _wide_area_traits(pairs: t.Sequence[tuple[str, str]], kinds: t.Collection[str], paths: Paths) -> _Traits:
    worst = next(word for word in ("none", "mesh_relayed", "mesh_direct") if word in kinds)
    a, b = next(pair for pair in pairs if paths.path(*pair) == worst)
    measured = [rate for rate in (paths.rate(*pair) for pair in pairs) if rate is not None]
    rate = min(measured) if measured and len(measured) == len(pairs) else None
    untested = "" if paths.has_probe(a, b) else " (not probed: it may be relayed)"
    texts = {
        "none": f"no known path between {a} and {b}",
        "mesh_relayed": f"{a} and {b} reach each other only through a relay",
        "mesh_direct": f"{a} and {b} share no LAN, only a mesh or the open network{untested}",
    }
    return _Traits("D" if worst == "mesh_direct" else "E", "mesh", None, rate, (texts[worst],))


def _inferred_path_reasons(group: Group, paths: Paths) -> list[str]:
    pairs = list(itertools.combinations(group, 2))
    missing = sum(not paths.has_probe(a, b) for a, b in pairs)
    return [f"{missing} of {len(pairs)} paths follow from addresses and inventory, not from a probe"] if missing else []


def _declared_traits(override: IslandOverride, paths: Paths) -> tuple[Group, _Traits]:
    group = tuple(sorted(override.nodes))
    traits = _group_traits(group, paths)
    values = {key: getattr(override, key) for key in ("lane", "link", "nic_count", "nic_rate_gbps")}
    declared = {key: value for key, value in values.items() if value is not None}
    reason = f"declared by the user{f': {override.reason}' if override.reason else ''}"
    changes = [
        f"{key} would be {getattr(traits, key)} by the rules"
        for key, value in declared.items()
        if value != getattr(traits, key)
    ]
    return group, dataclasses.replace(traits, **declared, reasons=(reason, *changes, *traits.reasons))


def _add_neighbour_reasons(group: Group, traits: _Traits, paths: Paths) -> _Traits:
    """Add why other nodes of the same LAN are not in this island."""
    own = paths.rails[group[0]]
    separate: dict[str, str] = {}
    for name in sorted(set(paths.nodes) - set(group)):
        other = paths.rails[name]
        if own and _rail_kind(own) != _rail_kind(other) and paths.path(group[0], name) == "lan":
            count = other is not None and other.link == own.link and other.rate_gbps == own.rate_gbps
            why = ": NCCL 2.30 and later refuses unequal NIC counts" if count else ""
            separate.setdefault(f"{other.describe() if other else 'no RDMA'}{why}", name)
    reasons = tuple(f"not with {name}, which has {why}" for why, name in separate.items())
    return dataclasses.replace(traits, reasons=traits.reasons + reasons)


def _base_name(group: Group, traits: _Traits) -> str:
    rate = f"{traits.nic_rate_gbps:g}g".replace(".", "-") if traits.nic_rate_gbps else ""
    if len(group) == 1:
        slug = re.sub(r"[^a-z0-9]+", "-", group[0].lower()).strip("-")
        return f"solo-{slug[:30].strip('-')}" if slug else "solo"
    if traits.link in ("ib", "roce"):
        return f"{traits.link}-{traits.nic_count}x{rate or 'unknown'}"
    if traits.link == "ethernet":
        return f"lan-{rate}" if rate else "lan"
    return {"loopback": "machine", "mesh": "mesh" if traits.lane == "D" else "relayed"}[traits.link]


def _name_islands(groups: t.Sequence[tuple[Group, _Traits, str | None]]) -> list[Island]:
    """Give each island a unique name that is valid as a label's value."""
    islands: list[Island] = []
    names = {name for _group, _traits, name in groups if name}
    for group, traits, declared_name in groups:
        name = declared_name
        if name is None:
            base = _base_name(group, traits)
            candidates = itertools.chain([base], (f"{base}-{number}" for number in itertools.count(2)))
            name = next(candidate for candidate in candidates if candidate not in names)
            names.add(name)
        fields = {field.name: getattr(traits, field.name) for field in dataclasses.fields(traits)}
        islands.append(Island(name=name, nodes=group, **fields))
    return islands
