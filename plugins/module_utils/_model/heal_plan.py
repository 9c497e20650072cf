# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan for lost nodes: a pure function from the facts of a fleet to actions, in the order in which they are safe.

A node is lost when its provider, its lease or a user reports it as lost. A rented machine is also lost after it has not
answered for some time, because terminating it ends all processes on it. A machine that cannot be terminated is not lost
by silence alone on a cluster: its pods may still write, and a second gang would write beside them. A machine of our own
that lost a GPU still answers: its pods are evicted, and its Node stays closed.
"""

from __future__ import annotations

import dataclasses
import typing as t

# In the safe order: a program saves before its machine is terminated, and pods are released after that.
HealKind = t.Literal[
    "mark_lost",
    "stop",
    "drain",
    "close",
    "give_back",
    "release",
    "admit",
    "rent",
    "join",
    "resume",
    "wait",
    "fail",
    "refuse",
]
HEAL_KINDS: tuple[HealKind, ...] = t.get_args(HealKind)
# The actions that change something; the others only report.
CHANGING_KINDS: tuple[str, ...] = (
    "mark_lost",
    "stop",
    "drain",
    "close",
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

    ``token`` is its lease's, None for a machine that is not rented. ``listed`` is whether the provider lists it as
    usable, None when no provider was asked. ``ready`` is whether it answers (a host) or its Node is Ready, None when
    unknown; ``silent_s`` is for how long it has not been ready. ``reported_lost`` is the reason that a notice or a user
    gave. ``marked_lost``: the ledger has it as lost. ``joined``: it is a node of the cluster. ``tainted``: it is out of
    service. ``unfit``: why the run could not start on it although it is ready, such as that another run uses it.
    ``gpu_fault``: why it cannot run a gang with all its GPUs. ``closed``: it is cordoned.
    """

    name: str
    token: str | None = None
    listed: bool | None = None
    ready: bool | None = None
    silent_s: float = 0.0
    reported_lost: str = ""
    marked_lost: bool = False
    joined: bool = False
    tainted: bool = False
    unfit: str = ""
    gpu_fault: str = ""
    closed: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class FleetRun:
    """The run to heal. ``min_nodes`` is the smallest number of nodes that it may shrink to, None when it may not."""

    run_id: str
    nodes: int
    on_lost_node: str
    min_nodes: int | None = None
    ended: bool = True
    names: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class FleetFacts:
    """The facts of a fleet. ``can_provision``: a pool to rent from is set. ``can_join``: a join role is set."""

    nodes: tuple[FleetNode, ...]
    run: FleetRun | None = None
    kubernetes: bool = False
    can_provision: bool = False
    can_join: bool = False
    patience_s: float = 120.0


@dataclasses.dataclass(frozen=True, slots=True)
class HealAction:
    """One thing to do or to report. ``nodes`` are names; ``count`` is how many machines or nodes."""

    kind: HealKind
    nodes: tuple[str, ...] = ()
    reason: str = ""
    count: int = 0

    def to_dict(self) -> dict[str, t.Any]:
        """Return the entry of a result."""
        return {"kind": self.kind, "nodes": list(self.nodes), "reason": self.reason, "count": self.count}


def loss_reason(node: FleetNode, facts: FleetFacts) -> str:
    """Return why a node is lost, empty when it is not, or not yet."""
    if node.reported_lost:
        return node.reported_lost
    if node.listed is False:
        return "its provider no longer lists it as usable"
    if node.gpu_fault and node.token is not None:
        return node.gpu_fault
    if node.marked_lost:
        return "its lease is marked as lost in the ledger"
    silent = node.ready is False and node.silent_s >= facts.patience_s
    if silent and (node.token is not None or not facts.kubernetes):
        return f"it has not answered for {node.silent_s:.0f} s"
    return ""


def build_heal_plan(facts: FleetFacts) -> tuple[HealAction, ...]:
    """Return the actions in the order to do them; empty when no node is lost and the run needs nothing."""
    lost = {node.name: reason for node in facts.nodes if (reason := loss_reason(node, facts) or node.gpu_fault)}
    remaining = [node for node in facts.nodes if node.name not in lost]
    actions = [*_plan_losses(facts, lost), *_plan_silent_nodes(facts, remaining)]
    actions += [
        HealAction("admit", (node.name,), "it is ready again") for node in remaining if node.tainted and node.ready
    ]
    if facts.run is not None:
        actions += _plan_run(facts, facts.run, lost, remaining)
        actions += _plan_early_stop(facts, facts.run, lost, actions)
    return tuple(sorted(actions, key=lambda action: HEAL_KINDS.index(action.kind)))


def _plan_losses(facts: FleetFacts, lost: t.Mapping[str, str]) -> t.Iterator[HealAction]:
    """Record each loss, terminate the machine and verify that, and only then release its pods."""
    for node in facts.nodes:
        if node.name not in lost:
            continue
        if node.token is None and not loss_reason(node, facts):
            yield from _plan_faulty_gpu(facts, node)
            continue
        if node.token is not None and not node.marked_lost:
            yield HealAction("mark_lost", (node.name,), lost[node.name])
        if node.token is not None and facts.kubernetes and node.joined and node.ready and node.listed is not False:
            yield HealAction("drain", (node.name,), "its kubelet still answers, so that its programs can save")
        if node.token is not None:
            yield HealAction(
                "give_back", (node.name,), "the machine is terminated and verified as gone, with all processes on it"
            )
        if facts.kubernetes and node.joined:
            yield HealAction("release", (node.name,), lost[node.name])


def _plan_faulty_gpu(facts: FleetFacts, node: FleetNode) -> t.Iterator[HealAction]:
    """Take pods off a machine of our own with a GPU that is lost, while its others may still be in use."""
    if not facts.kubernetes:
        yield HealAction("wait", (node.name,), f"no gang is placed on it: {node.gpu_fault}")
    elif node.joined and not node.closed:
        yield HealAction("close", (node.name,), f"{node.gpu_fault}: its pods are evicted, and it takes no others")
    else:
        yield HealAction("wait", (node.name,), f"it stays closed: {node.gpu_fault}")


def _plan_silent_nodes(facts: FleetFacts, remaining: t.Sequence[FleetNode]) -> t.Iterator[HealAction]:
    """Report the nodes that do not answer and do not count as lost."""
    for node in remaining:
        if node.ready is not False:
            continue
        if node.silent_s < facts.patience_s:
            seconds = facts.patience_s - node.silent_s
            yield HealAction("wait", (node.name,), f"it does not answer; it counts as lost in {seconds:.0f} s")
        else:
            yield HealAction(
                "wait", (node.name,), "it does not answer, but it may still run: add it to lost_nodes if it is off"
            )


def _plan_run(
    facts: FleetFacts, run: FleetRun, lost: t.Mapping[str, str], remaining: t.Sequence[FleetNode]
) -> t.Iterator[HealAction]:
    """Plan how the run continues."""
    lost_members = [name for name in run.names if name in lost]
    if not lost_members and not run.ended:
        return
    ready = [node.name for node in remaining if node.ready and not node.unfit]
    if len(ready) >= run.nodes:
        # A free node is used before another machine is rented.
        yield from _plan_resume(facts, run, ready[: run.nodes], lost_members)
    elif lost_members and run.on_lost_node == "fail":
        yield HealAction("fail", tuple(lost_members), "on_lost_node is fail")
    else:
        yield from _plan_short_gang(facts, run, lost_members, remaining, ready)


def _plan_short_gang(
    facts: FleetFacts,
    run: FleetRun,
    lost_members: t.Sequence[str],
    remaining: t.Sequence[FleetNode],
    ready: t.Sequence[str],
) -> t.Iterator[HealAction]:
    """Shrink the gang, replace what is missing, or wait."""
    waiting = [node.name for node in remaining if node.ready is False]
    can_shrink = run.on_lost_node == "shrink" and run.min_nodes is not None and len(ready) >= run.min_nodes
    if can_shrink and not waiting:
        yield from _plan_resume(facts, run, ready, lost_members)
    elif run.on_lost_node == "replace" and not waiting:
        yield from _plan_replacement(facts, run, ready, lost_members, run.nodes - len(ready))
    else:
        unfit = [f"{node.name}: {node.unfit}" for node in remaining if node.ready and node.unfit]
        summary = f"{len(ready)} of {run.nodes} nodes are ready (on_lost_node is {run.on_lost_node})"
        yield HealAction("wait", tuple(waiting), "; ".join([summary, *unfit]))


def _plan_replacement(
    facts: FleetFacts, run: FleetRun, ready: t.Sequence[str], lost_members: t.Sequence[str], missing: int
) -> t.Iterator[HealAction]:
    if not facts.can_provision:
        yield HealAction(
            "refuse", (), "no pool to rent a replacement from: set rented_nodes_pool and its candidates", missing
        )
        return
    if facts.kubernetes and not facts.can_join:
        yield HealAction("refuse", (), "no role that joins a new node to the cluster: set muster_join_role", missing)
        return
    yield HealAction("rent", (), f"{missing} of {run.nodes} nodes are missing", missing)
    if facts.kubernetes:
        yield HealAction("join", (), "the new machines become nodes of the cluster", missing)
    yield from _plan_resume(facts, run, ready, lost_members, run.nodes)


def _plan_resume(
    facts: FleetFacts, run: FleetRun, names: t.Sequence[str], lost_members: t.Sequence[str], count: int | None = None
) -> t.Iterator[HealAction]:
    """On hosts the rest of the gang is stopped first; on a cluster the engine restarts the gang by itself."""
    if facts.kubernetes and not run.ended:
        return
    if lost_members and not run.ended:
        yield HealAction("stop", _ready_nodes_of_run(facts, run), "the gang resumes as a whole")
    yield HealAction("resume", tuple(names), f"run {run.run_id} resumes from its checkpoint", count or len(names))


def _plan_early_stop(
    facts: FleetFacts, run: FleetRun, lost: t.Mapping[str, str], actions: t.Sequence[HealAction]
) -> t.Iterator[HealAction]:
    """Let a gang save when one of its hosts is lost but still answers, whether or not the gang resumes."""
    leaving = [node for node in facts.nodes if node.name in run.names and node.ready and loss_reason(node, facts)]
    stopped = any(action.kind == "stop" for action in actions)
    if leaving and not stopped and not run.ended and not facts.kubernetes:
        yield HealAction("stop", _ready_nodes_of_run(facts, run), "one of its hosts is about to be terminated")


def _ready_nodes_of_run(facts: FleetFacts, run: FleetRun) -> tuple[str, ...]:
    ready = {node.name for node in facts.nodes if node.ready}
    return tuple(name for name in run.names if name in ready)
