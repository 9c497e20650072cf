# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runner of ``fabric_verify``: facts -> islands -> expectation -> bench -> evidence -> verdict -> fabric.json.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import pathlib
import secrets
import time
import typing as t

from ...module_utils._model.errors import InputError
from ...module_utils._model.expectation import ExpectationRow
from ...module_utils._model.island import Island, IslandOverride, Reach
from ...module_utils._model.node import Node
from ...module_utils._model.verdict import OUTCOMES, Verdict, exit_code, worst
from ...module_utils._node import paths
from .._fabric import bench_plan as plans
from .._fabric import drift, labels, reaching
from .._fabric.expect import expectation, with_expectation
from .._fabric.islands import islands
from .._fabric.nccl_environment import collective_interface, nccl_conf, nccl_environment
from .._fabric.verdict import judge
from .._hosts.remote import Remote, each, first_error
from . import fabric_case, fabric_history, fabric_stages, record, training_job
from .fabric_bench import Bench
from .state_home import StateHome

Dict = dict[str, t.Any]
_SCHEMA = 1
_REACH_S = 2.0


@dataclasses.dataclass(frozen=True, slots=True)
class Judged:
    """A verdict on an island, and what changed since it was measured before."""

    verdict: Verdict
    island: Island
    changes: tuple[str, ...] = ()

    def entry(self) -> Dict:
        """Return the entry of fabric.json."""
        return {**self.verdict.to_dict(), "nodes": list(self.island.nodes), "drift": list(self.changes)}


def run(request: training_job.Request) -> Dict:
    """Verify every island of the play's hosts and return the module's result."""
    home = StateHome(request.options["state_home"], request.options["cluster"])
    nodes, busy, remotes = _nodes(request)
    overrides = [IslandOverride.from_dict(item) for item in request.options.get("islands") or []]
    free = [node for node in nodes if not any(node.name in override.nodes for override in overrides)]
    found = islands(nodes, _reached(request, remotes, free), overrides)
    bench = _bench(request, nodes)
    resting = (
        [island for island in found if not busy & set(island.nodes)] if request.options.get("idle_only") else found
    )
    if request.check:
        return {"changed": False, "islands": [island.to_dict() for island in resting]}
    notes = []
    for island in (island for island in found if island not in resting):
        names = ", ".join(sorted(busy & set(island.nodes))[:8])
        notes.append(f"island {island.name}: not tested, a run lives on {names}; its last verdict stays")
    # The groups of one round run at once: the state home must have its owner before they look for it.
    home.owner(create=True)
    paths.private_dir(home.folder)
    judged = _judged(request, home.folder, resting, nodes, bench)
    before = fabric_history.stored(home.folder)
    document = _document(before, judged, request.hostvars)
    paths.write_json(home.folder / "fabric.json", document)
    for line in notes:
        request.progress.say(line)
    result = _result(request, judged, nodes, document)
    now = {str(name) for entry in document["islands"] for name in entry["nodes"]}
    former = {str(name) for entry in before for name in entry["nodes"]} - now
    patches = labels.node_patches([(item.verdict, item.island.nodes) for item in judged], sorted(former))
    result.update(file=str(home.folder / "fabric.json"), node_patches=patches, table=[*result["table"], *notes])
    return result


def summary(verdict: Verdict) -> str:
    """Return one line on a verdict, with the cause and the fix where it did not pass."""
    band = verdict.bandwidth
    parts = [f"island {verdict.island}: {verdict.outcome.upper()}"]
    if verdict.lane:
        parts.append(f"lane {verdict.lane}")
    parts.append(f"transport {verdict.transport.verdict}")
    if band.busbw_gb_s is not None:
        wanted = f" of {band.expected_gb_s:.3g} expected" if band.expected_gb_s else ""
        parts.append(f"{band.busbw_gb_s:.3g} GB/s{wanted}")
    parts += verdict.reasons[:3]
    parts += [f"{cause.code}{f' on {cause.node}' if cause.node else ''}: {cause.fix}" for cause in verdict.causes[:2]]
    return " · ".join(parts)


def _bench(request: training_job.Request, nodes: t.Sequence[Node]) -> Bench:
    given = request.options.get("backend")
    tool = request.options.get("bench") or "torch"
    backend = given or ("nccl" if tool == "nccl_tests" or all(node.gpu.count for node in nodes) else "gloo")
    if tool == "nccl_tests" and backend != "nccl":
        raise InputError("backend", "nccl-tests measure NCCL only", "Leave backend out, or use bench: torch")
    return Bench(backend, request.options["collective"], tool, request.options.get("nccl_tests"))


def _nodes(request: training_job.Request) -> tuple[list[Node], set[str], list[Remote]]:
    """Return the facts of all hosts, the names of those on which a run lives, and the way to them."""
    remotes = request.connect(request.hosts)

    def ask(remote: Remote) -> tuple[Node, bool]:
        record_ = dict(request.hostvars[remote.name].get("muster_node") or {})
        answer = remote.call("info", facts=True)
        known = {key: value for key, value in record_.items() if value not in (None, [], {})}
        facts = {**answer["facts"], **known, "name": remote.name}
        return Node.from_dict(facts, f"{remote.name}.muster_node"), bool(answer["live_runs"])

    answers, errors = each(remotes, ask)
    if errors:
        raise first_error(errors)
    busy = {name for name, (_, lives) in answers.items() if lives}
    return [answers[name][0] for name in request.hosts], busy, list(remotes)


def _reached(request: training_job.Request, remotes: t.Sequence[Remote], nodes: t.Sequence[Node]) -> list[Reach]:
    """Return which nodes reach each other, by a quick try of their addresses; what nobody tells stays open."""
    asked = reaching.questions(nodes, _addresses(request, nodes))

    def ask(remote: Remote) -> Dict:
        targets = [list(item) for ends in asked[remote.name].values() for item in ends]
        mesh = reaching.mesh_addresses(nodes, remote.name)
        return remote.call("reach", targets=targets, mesh=mesh, seconds=_REACH_S)

    answers, _ = each([remote for remote in remotes if remote.name in asked], ask)
    found = reaching.paths(nodes, asked, answers)
    for item in (item for item in found if item.path == "none"):
        request.progress.say(f"{item.a} gets no answer from {item.b}: they are not taken for one LAN")
    return found


def _judged(
    request: training_job.Request, folder: pathlib.Path, found: t.Sequence[Island], nodes: list[Node], bench: Bench
) -> list[Judged]:
    """Verify islands one after another and compare each with its history."""
    before = fabric_history.lines(folder)
    result, new = [], []
    for island in found:
        verdict, tested = _verify(request, island, nodes, bench)
        now = drift.measurement(verdict, tested.nodes, f"{bench.backend}/{bench.tool}")
        verdict, changes = fabric_history.compared(verdict, now, before)
        new.append(now)
        result.append(Judged(verdict, tested, tuple(changes)))
    fabric_history.keep(folder, new, before)
    return result


def _verify(request: training_job.Request, island: Island, nodes: list[Node], bench: Bench) -> tuple[Verdict, Island]:
    began, clock = time.time(), time.monotonic()
    members = [node for node in nodes if node.name in island.nodes]
    rows = [ExpectationRow.from_dict(item) for item in request.options.get("expectations") or []]
    backend, collective = t.cast(t.Any, bench.backend), bench.collective
    wanted = expectation(island, members, backend=backend, collective=collective, overrides=rows)
    island = with_expectation(island, wanted)
    tool = bench.backend if bench.tool == "torch" else "nccl-tests"
    request.progress.say(f"island {island.name}: {len(island.nodes)} nodes, lane {island.lane}, testing with {tool}")
    plan = plans.bench_plan(
        island,
        members,
        backend=backend,
        collective=collective,
        seconds=request.options["seconds"],
        timeout_s=request.options["timeout_s"],
    )
    outcome = fabric_stages.run(request, plan, wanted, bench, secrets.token_hex(3))
    subject = fabric_case.Subject(island, tuple(members), wanted, _addresses(request, members))
    spent = round(time.monotonic() - clock, 3)
    return judge(fabric_case.make(subject, outcome, plan, record.iso(began), spent)), island


def _addresses(request: training_job.Request, nodes: t.Iterable[Node]) -> dict[str, str]:
    """Return the addresses that the user declared for the nodes of a job."""
    found = {node.name: request.hostvars[node.name].get("muster_address") for node in nodes}
    return {name: str(address) for name, address in found.items() if address}


def _document(before: t.Sequence[Dict], judged: t.Sequence[Judged], inventory: t.Container[str]) -> Dict:
    """Return fabric.json: the new verdicts, and those of before on other nodes that the inventory still knows."""
    entries = [item.entry() for item in judged]
    tested = {name for entry in entries for name in entry["nodes"]}
    kept = []
    for item in before:
        names = {str(name) for name in item["nodes"]}
        if names and not tested & names and all(name in inventory for name in names):
            kept.append(item)
    return {"schema": _SCHEMA, "islands": [*entries, *kept]}


def _result(request: training_job.Request, judged: t.Sequence[Judged], nodes: list[Node], document: Dict) -> Dict:
    verdicts = [item.verdict for item in judged]
    # Where nothing was tested, the last verdicts are what is known.
    known = [verdict.outcome for verdict in verdicts] or [item.get("outcome") for item in document["islands"]]
    outcome = worst(item if item in OUTCOMES else "unproven" for item in known)
    result: Dict = {
        "changed": False,
        "fabric": document,
        "exit_code": exit_code(outcome),
        "hosts": _host_variables(nodes, judged, _addresses(request, nodes)),
        "drift": {item.island.name: list(item.changes) for item in judged if item.changes},
        "table": [summary(verdict) for verdict in verdicts],
    }
    for item in judged:
        request.progress.say(summary(item.verdict))
        for change in item.changes:
            request.progress.say(f"  changed: {change}")
    accepted = outcome == "unproven" and request.options["allow_unproven"]
    if exit_code(outcome) and not accepted:
        said = "; ".join(summary(verdict) for verdict in verdicts if verdict.exit_code)
        result.update(failed=True, msg=said or f"nothing was tested, and the last verdict is {outcome}")
    return result


def _host_variables(nodes: list[Node], judged: t.Sequence[Judged], addresses: t.Mapping[str, str]) -> dict[str, Dict]:
    """Return for each host what plays need: island, lane, outcome, and NCCL's environment for the node."""
    result: dict[str, Dict] = {}
    for item in judged:
        verdict, island = item.verdict, item.island
        peers = [node for node in nodes if node.name in island.nodes]
        proven = verdict.outcome in ("pass", "warn") and verdict.transport.verdict in ("rdma_gdr", "rdma_no_gdr")
        for node in peers:
            interface = collective_interface(node, island, peers, addresses.get(node.name))
            values = nccl_environment(node, island, peers=peers, interface=interface, verified=proven)
            result[node.name] = {
                "island": island.name,
                "lane": verdict.lane,
                "outcome": verdict.outcome,
                "nccl_environment": values,
                "nccl_conf": nccl_conf(values),
            }
    return result
