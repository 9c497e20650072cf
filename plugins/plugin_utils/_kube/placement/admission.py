# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Predicts in check mode whether the quotas of queue and namespace have room for a run now."""

from __future__ import annotations

import typing as t

from ....module_utils._model.errors import RefusedError
from ..api.client import Client
from ..api.errors import KubeError
from ..api.kinds import KubeObject
from ..jobs.pod_template import build_resources
from ..jobs.spec import KubePlan
from . import quota

_KUEUE = "kueue.x-k8s.io/v1beta2"
_FIX = "Ask for less (nodes, gpus_per_node, resources), or have the team's quota raised (team_quota, playbook team)"


def predict(client: Client, plan: KubePlan) -> list[str]:
    """Return lines on why the run would wait for a quota, none where there is room now.

    :raises RefusedError: when no waiting would help: it asks for more than the whole of a quota.
    """
    job = plan.job
    requests = t.cast("t.Mapping[str, str]", build_resources(plan).get("requests") or {})
    asked = quota.sum_requests(job.nodes, requests, plan.ranges)
    lines = []
    for known, unread in _read_quotas(client, plan):
        if known is None:
            lines.append(f"{unread}: whether it has room for this run is not known ({_list(asked)} asked)")
            continue
        short = quota.find_shortage(known, asked, job.nodes)
        if short is None:
            continue
        if short.never:
            raise RefusedError(f"run {plan.run_id} would never be admitted: {short.text}", _FIX)
        lines.append(f"run {plan.run_id} would wait: {short.text}{_describe_ways(known, job.placement.priority)}")
    return lines


def _describe_ways(known: quota.Quota, priority: str | None) -> str:
    """Return what else decides how long it waits."""
    parts = []
    if known.borrows:
        parts.append(f"what cohort {known.borrows} can lend is not known here")
    if known.waiting:
        parts.append(f"{known.waiting} {'job waits' if known.waiting == 1 else 'jobs wait'} there already")
    if priority and known.covers_all:
        parts.append(f"with priority {priority} it may end runs of a lower one")
    return f"; {'; '.join(parts)}" if parts else ""


def _list(asked: quota.Amounts) -> str:
    shown = (f"{quota.format_amount(name, value)} {name}" for name, value in sorted(asked.items()))
    return ", ".join(shown) or "nothing"


def _read_quotas(client: Client, plan: KubePlan) -> t.Iterator[tuple[quota.Quota | None, str]]:
    """Yield the quotas that the run counts against; None with the name of one that this user may not read."""
    try:
        found = client.list("v1/ResourceQuota", plan.namespace).items
    except KubeError as exc:
        if not exc.is_forbidden:
            raise
        yield None, f"ResourceQuotas of namespace {plan.namespace} cannot be read with this kubeconfig"
        found = []
    for item in found:
        yield from _parse(item, quota.parse_resource_quota)
    if plan.queue is None:
        return
    try:
        local = client.get(f"{_KUEUE}/LocalQueue", plan.queue.name, plan.namespace)
        name = str(((local or {}).get("spec") or {}).get("clusterQueue") or "")
        cluster_queue = client.get(f"{_KUEUE}/ClusterQueue", name) if name else None
    except KubeError as exc:
        if not exc.is_forbidden:
            raise
        yield None, f"the quota of queue {plan.queue.name} cannot be read with this kubeconfig"
        return
    if cluster_queue is not None:
        yield from _parse(cluster_queue, quota.parse_cluster_queue)


def _parse(
    item: KubeObject, parse: t.Callable[[KubeObject], quota.Quota | None]
) -> t.Iterator[tuple[quota.Quota | None, str]]:
    try:
        known = parse(item)
    except ValueError as exc:
        yield None, f"{item.get('kind') or 'quota'} {item['metadata']['name']} cannot be read: {exc}"
        return
    if known is not None:
        yield known, ""
