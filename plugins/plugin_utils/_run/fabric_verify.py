# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runner of ``fabric_verify``: facts -> islands -> expectation -> bench -> evidence -> verdict -> fabric.json.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import io
import secrets
import time
import typing as t

from ...module_utils._model.expectation import Expectation, ExpectationRow
from ...module_utils._model.island import Island, IslandOverride
from ...module_utils._model.node import Node
from ...module_utils._model.verdict import Cause, Transport, Verdict, exit_code, worst
from ...module_utils._node import paths
from .._fabric import bench_plan as plans
from .._fabric import diagnose, diagnose_scan
from .._fabric.causes import CAUSES
from .._fabric.expect import expectation, with_expectation
from .._fabric.islands import islands
from .._fabric.nccl_environment import collective_interface, nccl_conf, nccl_environment
from .._fabric.transport import RankPlace, as_transport, read_transport
from .._fabric.transport_evidence import Seen, read_counters, read_sockets
from .._fabric.verdict import Case, Measured, attendance, judge
from .._hosts.remote import Remote, each, first_error
from . import fabric_bench, record, training_job
from .fabric_bench import GroupRun
from .state_home import StateHome

Dict = dict[str, t.Any]
_SCHEMA = 1
# gloo copies through the CPU: between 30 and 60 MiB a figure is already that of the link.
_MIN_SIZE = 16 << 20
_SLOW_FIXES = {
    "slow_node": "Check this node's link rate, PCIe width, cable and MTU; until then leave it out of the job",
    "slow_path": "Check the switch, cable or route between these two nodes",
}


def run(request: training_job.Request) -> Dict:
    """Verify every island of the play's hosts and return the module's result."""
    home = StateHome(request.options["state_home"], request.options["cluster"])
    nodes = _nodes(request)
    overrides = [IslandOverride.from_dict(item) for item in request.options.get("islands") or []]
    found = islands(nodes, (), overrides)
    backend = request.options.get("backend") or ("nccl" if all(node.gpu.count for node in nodes) else "gloo")
    if request.check:
        return {"changed": False, "islands": [island.to_dict() for island in found]}
    # The groups of one round run at once: the state home must have its owner before they look for it.
    home.owner(create=True)
    verdicts = [_verify(request, island, nodes, backend) for island in found]
    entries = [{**verdict.to_dict(), "nodes": list(island.nodes)} for verdict, island in verdicts]
    document = {"schema": _SCHEMA, "islands": entries}
    paths.private_dir(home.folder)
    paths.write_json(home.folder / "fabric.json", document)
    outcome = worst(verdict.outcome for verdict, _ in verdicts)
    result = {
        "changed": False,
        "fabric": document,
        "file": str(home.folder / "fabric.json"),
        "exit_code": exit_code(outcome),
        "hosts": _host_variables(nodes, verdicts, _addresses(request, nodes)),
        "table": [summary(verdict) for verdict, _ in verdicts],
    }
    for verdict, _ in verdicts:
        request.progress.say(summary(verdict))
    accepted = outcome == "unproven" and request.options["allow_unproven"]
    if exit_code(outcome) and not accepted:
        result.update(failed=True, msg="; ".join(summary(v) for v, _ in verdicts if v.exit_code))
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


def _nodes(request: training_job.Request) -> list[Node]:
    remotes = request.connect(request.hosts)

    def ask(remote: Remote) -> Node:
        record_ = dict(request.hostvars[remote.name].get("muster_node") or {})
        facts = remote.call("info", facts=True)["facts"]
        known = {key: value for key, value in record_.items() if value not in (None, [], {})}
        return Node.from_dict({**facts, **known, "name": remote.name}, f"{remote.name}.muster_node")

    answers, errors = each(remotes, ask)
    if errors:
        raise first_error(errors)
    return [answers[name] for name in request.hosts]


def _verify(request: training_job.Request, island: Island, nodes: list[Node], backend: str) -> tuple[Verdict, Island]:
    began, clock = time.time(), time.monotonic()
    members = [node for node in nodes if node.name in island.nodes]
    rows = [ExpectationRow.from_dict(item) for item in request.options.get("expectations") or []]
    collective = request.options["collective"]
    wanted = expectation(island, members, backend=t.cast(t.Any, backend), collective=collective, overrides=rows)
    island = with_expectation(island, wanted)
    request.progress.say(f"island {island.name}: {len(island.nodes)} nodes, lane {island.lane}, testing with {backend}")
    plan = plans.bench_plan(
        island,
        members,
        backend=t.cast(t.Any, backend),
        collective=collective,
        seconds=request.options["seconds"],
        timeout_s=request.options["timeout_s"],
    )
    stages = _run_stages(request, plan, wanted, secrets.token_hex(3))
    timing = (record.iso(began), round(time.monotonic() - clock, 3))
    return judge(_case(island, members, wanted, stages, plan, timing, _addresses(request, members))), island


def _addresses(request: training_job.Request, nodes: t.Iterable[Node]) -> dict[str, str]:
    """Return the addresses that the user declared for the nodes of a job."""
    found = {node.name: request.hostvars[node.name].get("muster_address") for node in nodes}
    return {name: str(address) for name, address in found.items() if address}


def _run_stages(
    request: training_job.Request, plan: plans.BenchPlan, wanted: Expectation, token: str
) -> dict[str, list[GroupRun]]:
    """Run the stages in order; one that is asked for only when the island falls short is left out otherwise."""
    done: dict[str, list[GroupRun]] = {}
    for stage in plan.stages:
        if stage.only_if_short and not _short(done.get("island", []), wanted):
            continue
        done[stage.name] = fabric_bench.run_stage(
            request, stage, plan.backend, plan.collective, f"{plan.island}-{token}"
        )
        for group in done[stage.name]:
            row = group.result.judged if group.result else None
            figure = f"{row.busbw_gb_s:.3g} GB/s" if row else f"no result: {group.problem}"
            request.progress.say(f"  {stage.name} {' – '.join(group.nodes)}: {figure} ({group.seconds:.1f} s)")
    return done


def _short(groups: t.Sequence[GroupRun], wanted: Expectation) -> bool:
    rows = [group.result.judged for group in groups if group.result]
    return any(row is None or row.busbw_gb_s < wanted.gate_pass * (wanted.busbw_gb_s or 0.0) for row in rows)


def _case(
    island: Island,
    members: list[Node],
    wanted: Expectation,
    stages: t.Mapping[str, list[GroupRun]],
    plan: plans.BenchPlan,
    timing: tuple[str | None, float],
    addresses: t.Mapping[str, str],
) -> Case:
    whole = next(iter(stages.get("island") or stages.get("inside") or ()), None)
    if whole is None:
        reason = "one CPU node: nothing crosses a network and there is no GPU to test"
        return Case(island.name, island.nodes, island.lane, expectation=wanted, reasons=(reason,), started_at=timing[0])
    seen = _evidence(island, members, wanted, whole, addresses)
    row = whole.result.judged if whole.result else None
    measured = None
    if whole.result and row:
        stage = next(stage for stage in plan.stages if stage.name in ("island", "inside"))
        algorithm = stage.environment.get("NCCL_ALGO")
        took_part = len(whole.result.names)
        measured = Measured(plan.collective, row.size_bytes, whole.result.ranks, took_part, row.busbw_gb_s, algorithm)
    lost = whole.silent if whole.result is None else {}
    ranks = set(whole.ranks_seen) - set(lost) if whole.result is None else {item.rank for item in whole.result.evidence}
    blamed = tuple(_missing_cause(rank, node) for rank, node in lost.items())
    pairs, slow = _pairs(stages, wanted)
    transport = dataclasses.replace(seen.transport, pairs=tuple(_with_rates(seen.transport.pairs, pairs)))
    return Case(
        island=island.name,
        nodes=island.nodes,
        lane=island.lane,
        transport=transport,
        measured=measured,
        expectation=wanted,
        wrong_values=whole.result.wrong_values if whole.result else None,
        ranks=attendance(whole.ranks_asked, ranks),
        causes=(*seen.causes, *slow, *blamed),
        reasons=tuple(reason for reason in (*seen.reasons, whole.problem) if reason),
        started_at=timing[0],
        duration_s=timing[1],
        min_size=min(_MIN_SIZE, max(plan.stages[-1].sizes)),
    )


def _evidence(
    island: Island, members: list[Node], wanted: Expectation, whole: GroupRun, addresses: t.Mapping[str, str]
) -> Seen:
    """Return the proof of the transport: NCCL's channel lines, else RDMA counters; for gloo the ranks' sockets."""
    if whole.result is None:
        return Seen(Transport(expected=wanted.transport))
    if whole.result.backend == "gloo":
        right = {
            node.name: name
            for node in members
            if (name := collective_interface(node, island, members, addresses.get(node.name)))
        }
        return read_sockets(whole.result, wanted.transport, right if island.link != "loopback" else None)
    scanned = diagnose_scan.scan(io.BytesIO("\n".join(whole.logs.values()).encode()))
    places = {str(item.host): str(item.node) for item in whole.result.evidence if item.host and item.node}
    declared: dict[int, RankPlace] = {}
    reading = read_transport(scanned.facts, declared, no_verbs=False, table=False)
    proven = as_transport(reading, "nccl log", wanted.transport)
    if proven.verdict == "unproven":
        return read_counters(whole.result, wanted.transport)
    pairs = tuple(dataclasses.replace(p, a=places.get(p.a, p.a), b=places.get(p.b, p.b)) for p in proven.pairs)
    causes = diagnose.judge(scanned, "nccl log").causes
    return Seen(dataclasses.replace(proven, pairs=pairs), causes, reading.notes)


def _pairs(
    stages: t.Mapping[str, list[GroupRun]], wanted: Expectation
) -> tuple[dict[tuple[str, str], float | None], tuple[Cause, ...]]:
    """Return the bandwidth of each tested pair, and the nodes and paths that are to blame for slow ones."""
    # Two nodes are tested as an island at once: that is their one pair.
    two = [group for group in stages.get("island", []) if len(group.nodes) == 2 and group.result]
    groups = [*stages.get("pairs", []), *stages.get("neighbours", []), *two]
    rates: dict[tuple[str, str], float | None] = {}
    for group in groups:
        row = group.result.judged if group.result else None
        rates[(group.nodes[0], group.nodes[1])] = row.busbw_gb_s if row else None
    if not rates:
        return rates, ()
    found = plans.suspects_of_pairs(rates, wanted.busbw_gb_s)
    causes = [_slow_cause(f"every pair with {name} is slow", name) for name in found.bad]
    causes += [_slow_cause(f"only the path between {a[0]} and {b[0]} is slow", None) for a, b in found.between]
    return rates, tuple(causes)


def _slow_cause(evidence: str, node: str | None) -> Cause:
    code = "slow_node" if node else "slow_path"
    return Cause(code, evidence, _SLOW_FIXES[code], node)


def _missing_cause(rank: int, node: str) -> Cause:
    return Cause("ranks_missing", f"rank {rank} on {node} fell silent in the test", CAUSES["ranks_missing"].fix, node)


def _with_rates(pairs: t.Iterable[t.Any], rates: t.Mapping[tuple[str, str], float | None]) -> t.Iterator[t.Any]:
    for pair in pairs:
        rate = rates.get((pair.a, pair.b), rates.get((pair.b, pair.a)))
        yield dataclasses.replace(pair, busbw_gb_s=rate) if rate is not None else pair


def _host_variables(
    nodes: list[Node], verdicts: t.Sequence[tuple[Verdict, Island]], addresses: t.Mapping[str, str]
) -> dict[str, Dict]:
    """Return for each host what plays need: island, lane, outcome, and NCCL's environment for the node."""
    result: dict[str, Dict] = {}
    for verdict, island in verdicts:
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
