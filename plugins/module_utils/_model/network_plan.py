# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the verdicts on the network mean for a job: refusals, warnings, the variables of each node."""

from __future__ import annotations

import dataclasses
import functools
import typing as t

from . import fabric_gate, harmful_variables, job_backends, node_environment, parallel_sizes
from .fabric_gate import VerdictRecord
from .job import Job
from .node_environment import Environment


@dataclasses.dataclass(frozen=True, slots=True)
class NetworkPlan:
    """The network of a job.

    ``verdicts``: the islands that its nodes may be on, one where that is decided. ``environment``: the variables of
    NCCL and gloo of each node. ``bandwidth_gb_s``: measured bus bandwidth, the lowest of several islands.
    """

    verdicts: tuple[VerdictRecord, ...] = ()
    warnings: tuple[str, ...] = ()
    environment: t.Mapping[str, Environment] = dataclasses.field(default_factory=dict)
    bandwidth_gb_s: float | None = None

    @property
    def verdict(self) -> VerdictRecord | None:
        """Return the verdict on the job's nodes, None where there is none or several are possible."""
        return self.verdicts[0] if len(self.verdicts) == 1 else None

    @property
    def reference(self) -> dict[str, object] | None:
        """Return what the run's record says of the verdict."""
        verdict = self.verdict
        return {key: verdict[key] for key in ("island", "outcome", "lane")} if verdict else None

    def on_nodes(self, names: t.Collection[str]) -> NetworkPlan:
        """Return the plan with the verdicts that hold all of these nodes: where the job was placed to."""
        held = tuple(entry for entry in self.verdicts if names and set(names) <= set(entry.get("nodes") or []))
        return dataclasses.replace(self, verdicts=held)

    def describe(self) -> tuple[str, ...]:
        """Return a line for each class of nodes with the variables that it gets."""
        classes = node_environment.group_nodes(self.environment)
        return tuple(f"network variables of {item.describe()}" for item in classes)


def plan_hosts_network(
    job: Job, hosts: t.Sequence[str], entries: t.Sequence[t.Any], given: t.Mapping[str, Environment] | None = None
) -> NetworkPlan:
    """Return the network of a job on plain hosts.

    :param entries: the cluster's ``fabric.json``.
    :param given: the nodes' variables where they are known already, as in a fabric test.
    :raises RefusedError: when a verdict forbids the job.
    """
    gate = fabric_gate.judge_fabric(job, hosts, entries)
    known = given if given is not None else node_environment.read_environment(gate.verdict or {})
    own = {name: known[name] for name in hosts if name in known}
    verdicts = (gate.verdict,) if gate.verdict else ()
    parallel_sizes.require_fast_tensor(job, [entry.get("lane") for entry in verdicts])
    environment = node_environment.select_variables(own, job.env, own_network=True, rdma=True)
    warnings = (
        *gate.warnings,
        *node_environment.list_overridden(own, job.env),
        *harmful_variables.warn_of_variables(job.env, rdma=_has_rdma(verdicts)),
    )
    return NetworkPlan(verdicts, warnings, environment, gate.bandwidth_gb_s)


def plan_cluster_network(
    job: Job,
    nodes: t.Sequence[str],
    islands: t.Collection[str],
    entries: t.Sequence[t.Any],
    given: t.Mapping[str, Environment] | None = None,
    *,
    rdma: bool,
    one_island: bool,
    hcas: t.Mapping[str, Environment] | None = None,
) -> NetworkPlan:
    """Return the network of a job on a cluster, where the scheduler chooses among ``nodes``.

    Whether a verdict forbids a node is decided by the node's labels (see ``_kube/placement/node_fit.py``).

    :param islands: the islands that the job may be placed to, empty where any is possible.
    :param rdma: whether pods get RDMA devices.
    :param one_island: whether all pods of the job are placed to one island.
    :param hcas: the variables of nodes of whose HCAs pods get a part, which are right without a verdict, too.
    """
    # A single pod needs no network: no verdict matters to it.
    verdicts = _select_verdicts(entries, nodes, islands) if job.nodes > 1 else []
    parallel_sizes.require_fast_tensor(job, [entry.get("lane") for entry in verdicts])
    known = {} if job.nodes < 2 else given if given is not None else _read_environments(verdicts, nodes)
    if job.nodes > 1 and hcas:
        known = {name: {**known.get(name, {}), **hcas.get(name, {})} for name in {*known, *(set(nodes) & set(hcas))}}
    covered = {name for entry in verdicts for name in entry["nodes"]}
    single = one_island or (len(verdicts) == 1 and covered >= set(nodes))
    rdma_proven, bandwidth = _has_rdma(verdicts), _find_lowest_rate(verdicts)
    find_file = functools.partial(job_backends.find_in_pod, job)
    own_network = job.placement.network_mode == "host"
    environment = node_environment.select_variables(
        known, job.env, own_network=own_network, rdma=rdma, one_island=single, find_file=find_file
    )
    warnings = (
        *(line for entry in verdicts for line in fabric_gate.warn_of_verdict(entry)),
        *node_environment.list_missing_files(known, job.env, find_file),
        *node_environment.list_overridden(known, job.env),
        *harmful_variables.warn_of_variables(job.env, rdma=rdma_proven),
    )
    return NetworkPlan(tuple(verdicts), warnings, environment, bandwidth)


def _select_verdicts(
    entries: t.Sequence[t.Any], nodes: t.Sequence[str], islands: t.Collection[str]
) -> list[VerdictRecord]:
    """Return the verdicts on the nodes and islands that a job may be placed to."""
    return [
        entry
        for entry in fabric_gate.readable_verdicts(entries)
        if set(nodes) & set(entry["nodes"]) and (not islands or entry["island"] in islands)
    ]


def _read_environments(verdicts: t.Sequence[VerdictRecord], nodes: t.Sequence[str]) -> dict[str, Environment]:
    found = {name: values for entry in verdicts for name, values in node_environment.read_environment(entry).items()}
    return {name: found[name] for name in nodes if name in found}


def _find_lowest_rate(verdicts: t.Sequence[VerdictRecord]) -> float | None:
    """Return the bandwidth of the slowest of several networks, None while that of one is not known."""
    rates = [fabric_gate.bandwidth_of(entry) for entry in verdicts]
    known = [rate for rate in rates if rate is not None]
    return min(known) if known and len(known) == len(rates) else None


def _has_rdma(verdicts: t.Sequence[VerdictRecord]) -> bool | None:
    """Return whether the verdicts found RDMA, None where there is none."""
    return any(entry.get("lane") in ("A", "B") for entry in verdicts) if verdicts else None
