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

from ....module_utils._model.errors import InputError
from ....module_utils._model.expectation import ExpectationRow
from ....module_utils._model.island import Island, IslandOverride
from ....module_utils._model.node import Node
from ....module_utils._model.verdict import OUTCOMES, Verdict, exit_code, worst_outcome
from ....module_utils._node import files
from ..._fabric.bench import plan as plans
from ..._fabric.bench.expectation import expectation, with_expectation
from ..._fabric.bench.nccl_environment import collective_interface, nccl_conf, nccl_environment
from ..._fabric.topology import node_labels
from ..._fabric.topology import unreachable as absence
from ..._fabric.topology.islands import islands
from ..._fabric.topology.unreachable import Absent
from ..._fabric.verdict import drift
from ..._fabric.verdict.verdict import judge
from ..shared import run_record
from ..shared.state_dir import StateHome
from ..training_job import run as training_job
from . import evidence, history, stages
from .bench_group import Bench
from .hosts_target import Fleet, Ground, Hosts

Dict = dict[str, t.Any]
_SCHEMA = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Judged:
    """A verdict on an island, and what changed since it was measured before."""

    verdict: Verdict
    island: Island
    changes: tuple[str, ...] = ()

    def entry(self) -> Dict:
        """Return the entry of fabric.json."""
        return {**self.verdict.to_dict(), "nodes": list(self.island.nodes), "drift": list(self.changes)}


@dataclasses.dataclass(frozen=True, slots=True)
class Work:
    """What one verification goes by: who asks, where the tests run, the nodes, and with what they are tested."""

    request: training_job.Request
    ground: Ground
    fleet: Fleet
    bench: Bench


def run(request: training_job.Request) -> Dict:
    """Verify every island of the play's hosts and return the module's result."""
    home = StateHome(request.options["state_home"], request.options["cluster"])
    ground = _ground(request)
    fleet = ground.fleet()
    work = Work(request, ground, fleet, _bench(request, fleet.nodes))
    before = history.stored(home.folder)
    found, gone = _islands(work, before)
    resting = [island for island in found if not (request.options.get("idle_only") and fleet.busy & set(island.nodes))]
    if request.check:
        return _rehearsed(work, resting, before)
    notes = []
    for island in (island for island in found if island not in resting):
        names = ", ".join(sorted(fleet.busy & set(island.nodes))[:8])
        notes.append(f"island {island.name}: not tested, a run lives on {names}; its last verdict stays")
    # The groups of one round run at once: the state home must have its owner before they look for it.
    home.owner(create=True)
    files.private_dir(home.folder)
    judged = _judged(work, home.folder, resting, gone)
    document = _document(before, judged, work)
    files.write_json(home.folder / "fabric.json", document)
    for line in notes:
        request.progress.say(line)
    result = _result(work, judged, document)
    now = {str(name) for entry in document["islands"] for name in entry["nodes"]}
    former = {str(name) for entry in before for name in entry["nodes"]} - now
    tested = [(item.verdict, item.island.nodes) for item in judged]
    patches = node_labels.node_patches(tested, sorted(former), _networks(fleet))
    told = ground.publish(patches, check=False)
    notes += [told.note] if told.note else []
    result.update(file=str(home.folder / "fabric.json"), node_patches=patches, table=[*result["table"], *notes])
    result.update(changed=told.changed, diff=list(told.diff))
    return result


def _ground(request: training_job.Request) -> Ground:
    """Return where to test: the hosts of the play, or a cluster when the job is for one."""
    if not request.options.get("job"):
        return Hosts(request)
    # What talks to an API server is imported when there is one.
    from . import kubernetes_target

    given = kubernetes_target.wanted(request.options)
    return Hosts(request) if given is None else kubernetes_target.Cluster(request, given)


def _rehearsed(work: Work, islands_: t.Sequence[Island], before: t.Sequence[Dict]) -> Dict:
    """Return check mode's result: what would be tested, and what the last verdicts would change on nodes."""
    stored = []
    for entry in before:
        try:
            stored.append((Verdict.from_dict(entry), [str(name) for name in entry["nodes"]]))
        except InputError:
            continue
    patches = node_labels.node_patches(stored, networks=_networks(work.fleet))
    told = work.ground.publish(patches, check=True)
    gone = [item.to_dict() for item in work.fleet.absent]
    result: Dict = {"changed": told.changed, "islands": [island.to_dict() for island in islands_], "absent": gone}
    return {**result, "node_patches": patches, "diff": list(told.diff)}


def _networks(fleet: Fleet) -> dict[str, tuple[str, ...]]:
    return {node.name: node.network_types for node in fleet.nodes}


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


def _islands(work: Work, before: t.Sequence[Dict]) -> tuple[list[Island], dict[str, list[Absent]]]:
    """Return the islands of the nodes that answered, and by island the nodes of it that did not."""
    nodes, gone = work.fleet.nodes, work.fleet.absent
    for item in gone:
        work.request.progress.say(f"{item.problem}: judged without it. {item.fix}")
    declared = [IslandOverride.from_dict(item) for item in work.request.options.get("islands") or []]
    overrides = absence.present(declared, gone)
    free = [node for node in nodes if not any(node.name in override.nodes for override in overrides)]
    found = islands(nodes, work.ground.reached(free), overrides)
    return found, absence.homes(gone, found, declared, before, nodes)


def _judged(
    work: Work, folder: pathlib.Path, found: t.Sequence[Island], gone: t.Mapping[str, t.Sequence[Absent]]
) -> list[Judged]:
    """Verify islands one after another and compare each with its history."""
    bench = work.bench
    before = history.lines(folder)
    result, new = [], []
    for island in found:
        verdict, tested = _verify(work, island, tuple(gone.get(island.name, ())))
        now = drift.measurement(verdict, tested.nodes, f"{bench.backend}/{bench.tool}")
        verdict, changes = history.compared(verdict, now, before)
        new.append(now)
        result.append(Judged(verdict, tested, tuple(changes)))
    history.keep(folder, new, before)
    return result


def _verify(work: Work, island: Island, gone: tuple[Absent, ...]) -> tuple[Verdict, Island]:
    request, bench = work.request, work.bench
    began, clock = time.time(), time.monotonic()
    members = [node for node in work.fleet.nodes if node.name in island.nodes]
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
    outcome = stages.run(work.ground, request.progress, plan, wanted, bench, secrets.token_hex(3))
    addresses = work.ground.addresses(island.nodes)
    subject = evidence.Subject(island, tuple(members), wanted, addresses, gone, work.ground.own_network)
    spent = round(time.monotonic() - clock, 3)
    return judge(evidence.make(subject, outcome, plan, run_record.iso(began), spent)), island


def _document(before: t.Sequence[Dict], judged: t.Sequence[Judged], work: Work) -> Dict:
    """Return fabric.json: the new verdicts, and those of before on other nodes that the inventory still knows."""
    inventory = work.ground.known()
    entries = [item.entry() for item in judged]
    tested = {name for entry in entries for name in entry["nodes"]}
    kept = []
    for item in before:
        names = {str(name) for name in item["nodes"]}
        if names and not tested & names and all(name in inventory for name in names):
            kept.append(item)
    document: Dict = {"schema": _SCHEMA, "islands": [*entries, *kept]}
    gone = [item.to_dict() for item in work.fleet.absent]
    return {**document, "absent": gone} if gone else document


def _result(work: Work, judged: t.Sequence[Judged], document: Dict) -> Dict:
    request, gone = work.request, work.fleet.absent
    verdicts = [item.verdict for item in judged]
    # Where nothing was tested, the last verdicts are what is known.
    known = [verdict.outcome for verdict in verdicts] or [item.get("outcome") for item in document["islands"]]
    known += ["unproven"] if gone else []
    outcome = worst_outcome(item if item in OUTCOMES else "unproven" for item in known)
    lines = [*(summary(verdict) for verdict in verdicts), *(f"{item.problem}: not tested. {item.fix}" for item in gone)]
    result: Dict = {
        "changed": False,
        "fabric": document,
        "exit_code": exit_code(outcome),
        "hosts": _host_variables(work, judged),
        "drift": {item.island.name: list(item.changes) for item in judged if item.changes},
        "table": lines,
        "absent": [item.to_dict() for item in gone],
    }
    for item in judged:
        request.progress.say(summary(item.verdict))
        for change in item.changes:
            request.progress.say(f"  changed: {change}")
    accepted = outcome == "unproven" and request.options["allow_unproven"]
    if exit_code(outcome) and not accepted:
        bad = [line for verdict, line in zip(verdicts, lines, strict=False) if verdict.exit_code]
        said = "; ".join([*bad, *lines[len(verdicts) :]])
        result.update(failed=True, msg=said or f"nothing was tested, and the last verdict is {outcome}")
    return result


def _host_variables(work: Work, judged: t.Sequence[Judged]) -> dict[str, Dict]:
    """Return for each host what plays need: island, lane, outcome, and NCCL's environment for the node."""
    result: dict[str, Dict] = {}
    for item in judged:
        verdict, island = item.verdict, item.island
        peers = [node for node in work.fleet.nodes if node.name in island.nodes]
        addresses = work.ground.addresses(island.nodes)
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
