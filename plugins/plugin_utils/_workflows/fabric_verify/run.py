# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verify the fabric: facts -> islands -> expectation -> bench -> evidence -> verdict -> fabric.json."""

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
from ....module_utils._model.node_environment import Environment, group_nodes
from ....module_utils._model.verdict import OUTCOMES, Outcome, Verdict, exit_code, worst_outcome
from ....module_utils._node import files
from ..._fabric.bench import plan as plans
from ..._fabric.bench.expectation import compute_expectation, with_expectation
from ..._fabric.bench.nccl_environment import (
    build_nccl_environment,
    find_proven_network,
    format_nccl_conf,
)
from ..._fabric.topology import node_labels
from ..._fabric.topology import unreachable as absence
from ..._fabric.topology.islands import find_islands
from ..._fabric.topology.unreachable import AbsentNode
from ..._fabric.verdict import drift
from ..._fabric.verdict.verdict import judge_island
from ..shared import run_record
from ..shared.state_dir import StateHome
from ..training_job import run as training_job
from ..training_job.fabric_file import CLUSTER, FABRIC
from . import evidence, history, stages
from .bench_group import Bench
from .history import StoredVerdict
from .hosts_target import FabricTarget, HostsTarget, TargetNodes

_SCHEMA = 1
_MAX_NAMES = 8
# What lets a fabric pass, or a play continue, that has nothing to compare with, such as nodes that share one machine.
_DECLARE = "Declare the link (muster_islands) or the expected bandwidth (muster_expectations)"
_WAYS_ON = f"{_DECLARE}, or set muster_fabric_allow_unproven: true to continue without proof"


@dataclasses.dataclass(frozen=True, slots=True)
class IslandResult:
    """A verdict on an island, what changed since its earlier measurements, and the variables that its nodes need."""

    verdict: Verdict
    island: Island
    changes: tuple[str, ...] = ()
    environment: t.Mapping[str, Environment] = dataclasses.field(default_factory=dict)

    def to_dict(self) -> dict[str, object]:
        """Return the entry of fabric.json."""
        more = {"nodes": list(self.island.nodes), "drift": list(self.changes)}
        classes = [item.to_dict() for item in group_nodes(self.environment)]
        return {**self.verdict.to_dict(), **more, "environment": classes}


@dataclasses.dataclass(frozen=True, slots=True)
class Verification:
    """One verification: the module's request, where the tests run, on which nodes, and with which bench."""

    request: training_job.RunRequest
    target: FabricTarget
    fleet: TargetNodes
    bench: Bench

    @property
    def absent(self) -> list[dict[str, str]]:
        """Return the nodes that did not answer, as they are written."""
        return [node.to_dict() for node in self.fleet.absent]

    @property
    def networks(self) -> dict[str, tuple[str, ...]]:
        """Return the network types of each node."""
        return {node.name: node.network_types for node in self.fleet.nodes}


def run(request: training_job.RunRequest) -> dict[str, t.Any]:
    """Verify every island of the play's hosts and return the module's result."""
    home = StateHome(request.options["state_home"], request.options["cluster"])
    target = _choose_target(request)
    age, unproven = request.options.get("max_age_s") or 0, bool(request.options.get("allow_unproven"))
    recent = history.read_recent(home.folder, age, unproven, target.cluster_id)
    if recent and {name for entry in recent for name in entry.nodes} == set(target.names()):
        return _recent_result(request, home.folder, recent)
    fleet = target.find_nodes()
    work = Verification(request, target, fleet, _choose_bench(request, fleet.nodes))
    if _is_one_rank(work):
        return _one_rank_result(work)
    stored = history.read_verdicts(home.folder, target.cluster_id)
    islands, absent = _find_islands(work, stored)
    idle, notes = _leave_out_busy(islands, fleet.busy if request.options.get("idle_only") else set())
    if request.check:
        return _check_mode_result(work, idle, stored)
    # The groups of one round run at once: the state directory must have its owner before they look for it.
    home.owner(create=True)
    files.private_dir(home.folder)
    results = _verify_islands(work, home.folder, idle, absent)
    document, entries = _build_document(stored, results, work)
    files.write_json(home.folder / FABRIC, document)
    for note in notes:
        request.progress.say(note)
    result = _build_result(work, results, document, [entry.document for entry in entries])
    current = {name for entry in entries for name in entry.nodes}
    former = {name for entry in stored for name in entry.nodes} - current
    verdicts = [(item.verdict, item.island.nodes) for item in results]
    patches = node_labels.build_node_patches(verdicts, sorted(former), work.networks)
    published = target.publish(patches, check=False)
    notes += [published.note] if published.note else []
    result.update(file=str(home.folder / FABRIC), node_patches=patches)
    result["table"] = [*_result_lines(work, results), *notes]
    result.update(changed=published.changed, diff=list(published.diff))
    return result


def _leave_out_busy(islands: t.Sequence[Island], busy: t.Collection[str]) -> tuple[list[Island], list[str]]:
    """Return the islands on which nothing runs, and a line for each of the others."""
    idle, notes = [], []
    for island in islands:
        names = sorted(set(busy) & set(island.nodes))[:_MAX_NAMES]
        if names:
            why = f"a run is running on {', '.join(names)}; its last verdict is kept"
            notes.append(f"island {island.name}: not tested because {why}")
        else:
            idle.append(island)
    return idle, notes


def _choose_target(request: training_job.RunRequest) -> FabricTarget:
    """Return where to test: the hosts of the play, or a cluster when the job is for one."""
    if not request.options.get("job"):
        return HostsTarget(request)
    # The Kubernetes client is imported only when it is needed.
    from . import kubernetes_target

    job = kubernetes_target.find_kubernetes_job(request.options, request.surroundings)
    return HostsTarget(request) if job is None else kubernetes_target.KubernetesTarget(request, job)


def _recent_result(
    request: training_job.RunRequest, folder: pathlib.Path, recent: t.Sequence[StoredVerdict]
) -> dict[str, object]:
    """Return the result of verdicts that are recent enough to stand: nothing is tested."""
    names = ", ".join(str(entry.document.get("island")) for entry in recent)
    line = f"islands {names}: not tested again, their verdicts are recent (max_age_s)"
    request.progress.say(line)
    return {
        "changed": False,
        "fabric": {"schema": _SCHEMA, "islands": [entry.document for entry in recent]},
        "exit_code": 0,
        "hosts": {},
        "absent": [],
        "file": str(folder / FABRIC),
        "table": [line],
    }


def _is_one_rank(work: Verification) -> bool:
    """Return whether all that was asked for is one node that would run one rank: no network lies between ranks."""
    nodes = work.fleet.nodes
    backend = t.cast("plans.Backend", work.bench.backend)
    return len(nodes) == 1 and not work.fleet.absent and plans.count_processes(nodes, backend) == 1


def _one_rank_result(work: Verification) -> dict[str, object]:
    """Return the result of one node with one rank: no verdict, and nothing that a play would have to stop at."""
    line = f"{work.fleet.nodes[0].name}: one node with one rank; there is no network between ranks to verify"
    work.request.progress.say(line)
    return {
        "changed": False,
        "fabric": {"schema": _SCHEMA, "islands": []},
        "exit_code": 0,
        "hosts": {},
        "absent": [],
        "node_patches": {},
        "table": [line],
    }


def _check_mode_result(
    work: Verification, islands: t.Sequence[Island], stored: t.Sequence[StoredVerdict]
) -> dict[str, object]:
    """Return check mode's result: what would be tested, and what the last verdicts would change on nodes."""
    verdicts = []
    for entry in stored:
        try:
            verdicts.append((Verdict.from_dict(entry.document), entry.nodes))
        except InputError:
            continue
    patches = node_labels.build_node_patches(verdicts, networks=work.networks)
    published = work.target.publish(patches, check=True)
    tested = "; ".join(f"{item.name} ({', '.join(item.nodes)})" for item in islands)
    work.request.progress.say(f"islands that would be tested: {tested or 'none'}; nothing was started")
    return {
        "changed": published.changed,
        "islands": [island.to_dict() for island in islands],
        "absent": work.absent,
        "node_patches": patches,
        "diff": list(published.diff),
    }


def summarise(verdict: Verdict) -> str:
    """Return one line on a verdict, with the cause and the fix where it did not pass."""
    band = verdict.bandwidth
    parts = [f"island {verdict.island}: {verdict.outcome.upper()}"]
    if verdict.lane:
        parts.append(f"lane {verdict.lane}")
    parts.append(f"transport {verdict.transport.verdict}")
    if band.busbw_gb_s is not None:
        expected = f" of {band.expected_gb_s:.3g} expected" if band.expected_gb_s else ""
        parts.append(f"{band.busbw_gb_s:.3g} GB/s{expected}")
    parts += verdict.reasons[:3]
    parts += [f"{cause.code}{f' on {cause.node}' if cause.node else ''}: {cause.fix}" for cause in verdict.causes[:2]]
    return " · ".join(parts)


def _choose_bench(request: training_job.RunRequest, nodes: t.Sequence[Node]) -> Bench:
    tool = request.options.get("bench") or "torch"
    gpus = tool == "nccl_tests" or all(node.gpu.count for node in nodes)
    backend = request.options.get("backend") or ("nccl" if gpus else "gloo")
    if tool == "nccl_tests" and backend != "nccl":
        raise InputError("backend", "nccl-tests measure NCCL only", "Leave backend out, or use bench: torch")
    return Bench(backend, request.options["collective"], tool, request.options.get("nccl_tests"))


def _find_islands(
    work: Verification, stored: t.Sequence[StoredVerdict]
) -> tuple[list[Island], dict[str, list[AbsentNode]]]:
    """Return the islands of the nodes that answered, and by island the absent nodes that belong to it."""
    nodes, absent = work.fleet.nodes, work.fleet.absent
    for node in absent:
        work.request.progress.say(f"{node.problem}; its island is judged without it. {node.fix}")
    declared = [IslandOverride.from_dict(item) for item in work.request.options.get("islands") or []]
    overrides = absence.without_absent_nodes(declared, absent)
    undeclared = [node for node in nodes if not any(node.name in override.nodes for override in overrides)]
    islands = find_islands(nodes, work.target.find_paths(undeclared), overrides)
    former = [entry.nodes for entry in stored]
    return islands, absence.assign_absent_nodes(absent, islands, declared, former, nodes)


def _verify_islands(
    work: Verification,
    folder: pathlib.Path,
    islands: t.Sequence[Island],
    absent: t.Mapping[str, t.Sequence[AbsentNode]],
) -> list[IslandResult]:
    """Verify islands one after another and compare each with its history."""
    bench = work.bench
    before = history.read_measurements(folder)
    results, measurements = [], []
    for island in islands:
        verdict, tested = _verify_island(work, island, tuple(absent.get(island.name, ())))
        measurement = drift.build_measurement(verdict, tested.nodes, f"{bench.backend}/{bench.tool}")
        verdict, changes = history.compare_verdict(verdict, measurement, before)
        measurements.append(measurement)
        environment = _build_environment(work, tested, verdict)
        results.append(IslandResult(verdict, tested, tuple(changes), environment))
    history.append_measurements(folder, measurements, before)
    return results


def _verify_island(work: Verification, island: Island, absent: tuple[AbsentNode, ...]) -> tuple[Verdict, Island]:
    request, bench = work.request, work.bench
    started_at, clock = time.time(), time.monotonic()
    members = [node for node in work.fleet.nodes if node.name in island.nodes]
    rows = [ExpectationRow.from_dict(item) for item in request.options.get("expectations") or []]
    backend = t.cast("plans.Backend", bench.backend)
    expected = compute_expectation(island, members, backend=backend, collective=bench.collective, overrides=rows)
    island = with_expectation(island, expected)
    tool = bench.backend if bench.tool == "torch" else "nccl-tests"
    request.progress.say(f"island {island.name}: {len(island.nodes)} nodes, lane {island.lane}, testing with {tool}")
    plan = plans.build_bench_plan(
        island,
        members,
        backend=backend,
        collective=bench.collective,
        seconds=request.options["seconds"],
        timeout_s=request.options["timeout_s"],
    )
    # What is measured is what jobs get; only the pinned network is not: a fallback to TCP is to be seen.
    bench = dataclasses.replace(bench, environment=_build_environment(work, island))
    outcome = stages.run_stages(work.target, request.progress, plan, expected, bench, secrets.token_hex(3))
    addresses = work.target.addresses(island.nodes)
    subject = evidence.Subject(island, tuple(members), expected, addresses, absent, work.target.own_network)
    seconds = round(time.monotonic() - clock, 3)
    facts = evidence.collect_evidence(subject, outcome, plan, run_record.format_time(started_at), seconds)
    return judge_island(facts), island


def _build_document(
    stored: t.Sequence[StoredVerdict], results: t.Sequence[IslandResult], work: Verification
) -> tuple[dict[str, object], list[StoredVerdict]]:
    """Return fabric.json and its entries: the new verdicts, and earlier ones on other nodes that still exist.

    A node that --limit leaves alone says nothing about the network to the others: their verdict stays.
    """
    names = work.target.all_names()
    asked = {*work.target.names(), *(node.name for node in work.fleet.absent)}
    # Nodes that no longer exist say nothing of those that do.
    standing = [entry for entry in stored if entry.nodes and all(name in names for name in entry.nodes)]
    wider = {name for entry in standing if not asked >= set(entry.nodes) for name in entry.nodes}
    of_cluster = {CLUSTER: work.target.cluster_id} if work.target.cluster_id else {}
    entries = [
        StoredVerdict(item.island.nodes, {**item.to_dict(), **of_cluster})
        for item in results
        if len(item.island.nodes) > 1 or item.island.nodes[0] not in wider
    ]
    tested = {name for entry in entries for name in entry.nodes}
    entries += [entry for entry in standing if not tested & set(entry.nodes)]
    document: dict[str, object] = {"schema": _SCHEMA, "islands": [entry.document for entry in entries]}
    return ({**document, "absent": work.absent} if work.absent else document), entries


def _result_lines(work: Verification, results: t.Sequence[IslandResult]) -> list[str]:
    """Return one line for each verdict and for each node that did not answer."""
    absent = [f"{node.problem}; the node was not tested. {node.fix}" for node in work.fleet.absent]
    return [*(summarise(item.verdict) for item in results), *absent]


def _build_result(
    work: Verification,
    results: t.Sequence[IslandResult],
    document: dict[str, object],
    entries: t.Sequence[t.Mapping[str, object]],
) -> dict[str, object]:
    request = work.request
    # When nothing was tested, the earlier verdicts decide.
    outcomes = [item.verdict.outcome for item in results] or [_read_outcome(entry) for entry in entries]
    if work.absent:
        outcomes.append("unproven")
    outcome = worst_outcome(outcomes)
    result: dict[str, object] = {
        "changed": False,
        "fabric": document,
        "exit_code": exit_code(outcome),
        "hosts": _host_variables(results),
        "drift": {item.island.name: list(item.changes) for item in results if item.changes},
        "absent": work.absent,
    }
    for item in results:
        request.progress.say(summarise(item.verdict))
        for change in item.changes:
            request.progress.say(f"  changed: {change}")
    accepted = outcome == "unproven" and request.options["allow_unproven"]
    if accepted and results:
        request.progress.say(f"warning: the network is unproven, and the play continues. {_DECLARE} to have it judged")
    if exit_code(outcome) and not accepted:
        lines = _result_lines(work, results)
        failed = [line for item, line in zip(results, lines, strict=False) if item.verdict.exit_code]
        message = "; ".join([*failed, *lines[len(results) :]])
        if outcome == "unproven" and message:
            message += f". {_WAYS_ON}"
        result.update(failed=True, msg=message or f"nothing was tested, and the last verdict is {outcome}")
    return result


def _read_outcome(entry: t.Mapping[str, object]) -> Outcome:
    """Return the outcome of an entry of fabric.json; ``unproven`` when it cannot be read."""
    return next((outcome for outcome in OUTCOMES if outcome == entry.get("outcome")), "unproven")


def _build_environment(work: Verification, island: Island, verdict: Verdict | None = None) -> dict[str, dict[str, str]]:
    """Return the variables of NCCL and gloo of each node of an island that answered, with the verdict as the proof."""
    peers = [node for node in work.fleet.nodes if node.name in island.nodes]
    addresses = work.target.addresses(island.nodes)
    proven = find_proven_network(verdict) if verdict else None
    return {
        node.name: build_nccl_environment(node, island, peers=peers, address=addresses.get(node.name), proven=proven)
        for node in peers
    }


def _host_variables(results: t.Sequence[IslandResult]) -> dict[str, dict[str, object]]:
    """Return for each host what plays need: island, lane, outcome, and NCCL's environment for the node."""
    return {
        name: {
            "island": item.island.name,
            "lane": item.verdict.lane,
            "outcome": item.verdict.outcome,
            "nccl_environment": values,
            "nccl_conf": format_nccl_conf(values),
        }
        for item in results
        for name, values in item.environment.items()
    }
