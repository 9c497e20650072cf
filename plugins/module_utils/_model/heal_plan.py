# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to do about lost nodes: a pure function from what is known to actions, in the order in which they are safe.

A node is lost when its provider, its ledger line or a person says so; silence alone makes a rented machine lost after
some time, because giving it back ends whatever still runs there. Of a machine that nobody can end, silence proves
nothing on a cluster: its pods may go on writing, and a second gang beside them would too.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import typing as t

# In the order in which they are safe: a program saves before its machine goes, which goes before its pods are freed.
HealKind = t.Literal[
    "mark_lost", "stop", "drain", "give_back", "release", "admit", "rent", "join", "resume", "wait", "fail", "refuse"
]
HEAL_KINDS: tuple[HealKind, ...] = t.get_args(HealKind)
# What an action changes; the others only say something.
CHANGING_KINDS: tuple[str, ...] = (
    "mark_lost",
    "stop",
    "drain",
    "give_back",
    "release",
    "admit",
    "rent",
    "join",
    "resume",
)


@dataclasses.dataclass(frozen=True, slots=True)
class FleetNode:
    """A node of the fleet.

    ``token`` is its lease's, None for a machine that is not rented. ``listed`` is what the provider says: usable, not
    usable any more, or None when nobody was asked. ``ready`` is whether it answers (a host) or its Node is Ready, None
    when that is not known; ``silent_s`` for how long it has not been. ``told`` is the word of a notice or a person.
    ``marked``: the ledger calls it lost already. ``joined``: the cluster knows it. ``tainted``: it is out of service.
    ``unfit``: why the run could not start on it although it is ready, such as that another run has it.
    """

    name: str
    token: str | None = None
    listed: bool | None = None
    ready: bool | None = None
    silent_s: float = 0.0
    told: str = ""
    marked: bool = False
    joined: bool = False
    tainted: bool = False
    unfit: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class FleetRun:
    """The run to heal. ``least`` is the smallest number of nodes that it may shrink to, None when it may not."""

    run_id: str
    nodes: int
    on_lost_node: str
    least: int | None = None
    ended: bool = True
    names: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class FleetFacts:
    """What is known. ``terms``: how to rent was said; ``joins``: how a new node joins the cluster was said."""

    nodes: tuple[FleetNode, ...]
    run: FleetRun | None = None
    kubernetes: bool = False
    terms: bool = False
    joins: bool = False
    patience_s: float = 120.0


@dataclasses.dataclass(frozen=True, slots=True)
class HealAction:
    """One thing to do or to say. ``nodes`` are names; ``count`` is how many machines or nodes."""

    kind: HealKind
    nodes: tuple[str, ...] = ()
    reason: str = ""
    count: int = 0

    def to_dict(self) -> dict[str, t.Any]:
        """Return the entry of a result."""
        return {"kind": self.kind, "nodes": list(self.nodes), "reason": self.reason, "count": self.count}


def loss_reason(node: FleetNode, facts: FleetFacts) -> str:
    """Return why a node is lost, empty when it is not, or not yet."""
    if node.told:
        return node.told
    if node.listed is False:
        return "its provider does not list it as usable any more"
    if node.marked:
        return "the ledger has it as lost"
    silent = node.ready is False and node.silent_s >= facts.patience_s
    if silent and (node.token is not None or not facts.kubernetes):
        return f"it has not answered for {node.silent_s:.0f} s"
    return ""


def build_heal_plan(facts: FleetFacts) -> tuple[HealAction, ...]:
    """Return what to do, in order; nothing when all is well."""
    lost = {node.name: reason for node in facts.nodes if (reason := loss_reason(node, facts))}
    left = [node for node in facts.nodes if node.name not in lost]
    actions = [*_plan_losses(facts, lost), *_plan_silent_nodes(facts, left)]
    actions += [HealAction("admit", (node.name,), "it is back") for node in left if node.tainted and node.ready]
    if facts.run is not None:
        actions += _plan_run(facts, facts.run, lost, left)
        actions += _plan_early_stop(facts, facts.run, lost, actions)
    return tuple(sorted(actions, key=lambda action: HEAL_KINDS.index(action.kind)))


def _plan_losses(facts: FleetFacts, lost: t.Mapping[str, str]) -> t.Iterator[HealAction]:
    """Note each loss, end its lease with proof (and what may still run there), and only then free its pods."""
    for node in facts.nodes:
        if node.name not in lost:
            continue
        if node.token is not None and not node.marked:
            yield HealAction("mark_lost", (node.name,), lost[node.name])
        if node.token is not None and facts.kubernetes and node.joined and node.ready and node.listed is not False:
            yield HealAction("drain", (node.name,), "its kubelet still answers, so that programs on it may save")
        if node.token is not None:
            yield HealAction(
                "give_back", (node.name,), "its lease ends with proof, and with it whatever may still run there"
            )
        if facts.kubernetes and node.joined:
            yield HealAction("release", (node.name,), lost[node.name])


def _plan_silent_nodes(facts: FleetFacts, left: t.Sequence[FleetNode]) -> t.Iterator[HealAction]:
    """Say which nodes do not answer and are not taken for lost."""
    for node in left:
        if node.ready is not False:
            continue
        if node.silent_s < facts.patience_s:
            rest = facts.patience_s - node.silent_s
            yield HealAction("wait", (node.name,), f"it does not answer; it is given {rest:.0f} s more")
        else:
            yield HealAction(
                "wait", (node.name,), "it does not answer, and nobody says that it is off: name it as lost if it is"
            )


def _plan_run(
    facts: FleetFacts, run: FleetRun, lost: t.Mapping[str, str], left: t.Sequence[FleetNode]
) -> t.Iterator[HealAction]:
    """Say how the run goes on."""
    hit = [name for name in run.names if name in lost]
    if not hit and not run.ended:
        return
    waiting = [node.name for node in left if node.ready is False]
    ready = [node.name for node in left if node.ready and not node.unfit]
    if len(ready) < run.nodes and hit and run.on_lost_node == "fail":
        yield HealAction("fail", tuple(hit), "on_lost_node is fail")
        return
    if len(ready) >= run.nodes:
        # A spare is nearer than any machine that could be rented.
        yield from _plan_resume(facts, run, ready[: run.nodes], hit)
        return
    missing = run.nodes - len(ready)
    if run.on_lost_node == "shrink" and run.least is not None and len(ready) >= run.least and not waiting:
        yield from _plan_resume(facts, run, ready, hit)
    elif run.on_lost_node == "replace" and not waiting:
        yield from _plan_replacement(facts, run, ready, hit, missing)
    else:
        other = [f"{node.name}: {node.unfit}" for node in left if node.ready and node.unfit]
        told = f"{len(ready)} of {run.nodes} nodes are there (on_lost_node is {run.on_lost_node})"
        yield HealAction("wait", tuple(waiting), "; ".join([told, *other]))


def _plan_replacement(
    facts: FleetFacts, run: FleetRun, ready: t.Sequence[str], hit: t.Sequence[str], missing: int
) -> t.Iterator[HealAction]:
    if not facts.terms:
        yield HealAction(
            "refuse", (), "how to rent a replacement was not said: set rented_nodes_pool and its candidates", missing
        )
        return
    if facts.kubernetes and not facts.joins:
        yield HealAction("refuse", (), "how a new node joins the cluster was not said: set muster_join_role", missing)
        return
    yield HealAction("rent", (), f"{missing} of {run.nodes} nodes are missing", missing)
    if facts.kubernetes:
        yield HealAction("join", (), "the new machines become nodes of the cluster", missing)
    yield from _plan_resume(facts, run, ready, hit, run.nodes)


def _plan_resume(
    facts: FleetFacts, run: FleetRun, names: t.Sequence[str], hit: t.Sequence[str], count: int | None = None
) -> t.Iterator[HealAction]:
    """On hosts what is left of the gang is stopped before; on a cluster its engine starts it again by itself."""
    if facts.kubernetes and not run.ended:
        return
    if hit and not run.ended:
        yield HealAction("stop", _ready_nodes_of_run(facts, run), "the gang goes on as a whole")
    yield HealAction("resume", tuple(names), f"run {run.run_id} goes on from its checkpoint", count or len(names))


def _plan_early_stop(
    facts: FleetFacts, run: FleetRun, lost: t.Mapping[str, str], actions: t.Sequence[HealAction]
) -> t.Iterator[HealAction]:
    """Let a gang save that loses a host which still answers, whatever becomes of the gang."""
    leaving = [node for node in facts.nodes if node.name in lost and node.name in run.names and node.ready]
    stopped = any(action.kind == "stop" for action in actions)
    if leaving and not stopped and not run.ended and not facts.kubernetes:
        yield HealAction("stop", _ready_nodes_of_run(facts, run), "one of its hosts is about to go")


def _ready_nodes_of_run(facts: FleetFacts, run: FleetRun) -> tuple[str, ...]:
    ready = {node.name for node in facts.nodes if node.ready}
    return tuple(name for name in run.names if name in ready)
