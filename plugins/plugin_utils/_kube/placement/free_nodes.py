# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the nodes on which a gang could start again: those that it may use and that no other run occupies."""

from __future__ import annotations

import collections
import typing as t
from decimal import Decimal

from ....module_utils._model.job import Job
from ....module_utils._model.quantity import parse_quantity
from ..api.kinds import KubeObject
from ..jobs.spec import RUN_LABEL, label_value
from .node_fit import judge_nodes

_OVER = ("Succeeded", "Failed")


def find_unavailable(
    job: Job,
    nodes: t.Sequence[KubeObject],
    pods: t.Sequence[KubeObject],
    run_id: str,
    gpu_resource: str = "nvidia.com/gpu",
) -> dict[str, str]:
    """Return name -> reason of the nodes that cannot take a pod of the run's gang now.

    A pod counts when it belongs to another run or holds GPUs; Kubernetes may move any other pod.

    :param pods: the pods of all namespaces that the user may read.
    """
    unavailable = {}
    for result in judge_nodes(job, nodes, gpu_resource):
        # A taint may be one that the job's queue tolerates.
        reasons = [reason for reason in result.reasons if not reason.startswith("taint ")]
        if reasons:
            unavailable[result.node] = ", ".join(reasons)
    wanted = {gpu_resource: job.gpus_per_node, "cpu": job.resources.cpu or 0, "memory": job.resources.memory or 0}
    taken, users = _sum_requests(pods, run_id, gpu_resource)
    for node in nodes:
        name, has = node["metadata"]["name"], node.get("status", {}).get("allocatable") or {}
        short = [
            resource
            for resource, number in wanted.items()
            if number
            and taken[name][resource]
            and _parse_number(has.get(resource)) - taken[name][resource] < Decimal(number)
        ]
        if short and name not in unavailable:
            unavailable[name] = f"taken by {', '.join(sorted(users[name]))} ({', '.join(short)})"
    return unavailable


def _sum_requests(
    pods: t.Sequence[KubeObject], run_id: str, gpu_resource: str
) -> tuple[dict[str, dict[str, Decimal]], dict[str, set[str]]]:
    """Return by node the requests of other pods that count, and the runs or pods that they are of."""
    taken: dict[str, dict[str, Decimal]] = collections.defaultdict(lambda: collections.defaultdict(Decimal))
    users: dict[str, set[str]] = collections.defaultdict(set)
    for pod in pods:
        labels, spec = pod["metadata"].get("labels") or {}, pod.get("spec") or {}
        requests = [(item.get("resources") or {}).get("requests") or {} for item in spec.get("containers") or ()]
        other = labels.get(RUN_LABEL) not in (None, label_value(run_id))
        gpus = any(gpu_resource in item for item in requests) and labels.get(RUN_LABEL) != label_value(run_id)
        node = spec.get("nodeName")
        if not node or not (other or gpus) or (pod.get("status") or {}).get("phase") in _OVER:
            continue
        users[node].add(f"run {labels[RUN_LABEL]}" if other else str(pod["metadata"]["name"]))
        for item in requests:
            for resource, text in item.items():
                taken[node][resource] += _parse_number(text)
    return taken, users


def _parse_number(text: object) -> Decimal:
    return parse_quantity(str(text or "0")) or Decimal(0)
