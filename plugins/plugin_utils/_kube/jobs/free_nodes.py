# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes a gang could start again on: those that it may run on and that no other run has taken.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import collections
import typing as t
from decimal import Decimal

from ....module_utils._model.job import Job
from ....module_utils._model.quantity import parse_quantity
from . import placement
from .spec import RUN_LABEL, Object, label_value

_OVER = ("Succeeded", "Failed")


def unfit(
    job: Job, nodes: t.Sequence[Object], pods: t.Sequence[Object], run_id: str, gpu_resource: str = "nvidia.com/gpu"
) -> dict[str, str]:
    """Return name -> reason of the nodes that cannot take a pod of the run's gang now.

    Other pods count where they belong to another run or hold GPUs; what else runs on a node moves as Kubernetes likes.

    :param pods: the pods of all namespaces, as far as they may be read.
    """
    found = {}
    for verdict in placement.judge(job, nodes, gpu_resource):
        # A taint may be one that the job's queue tolerates.
        reasons = [reason for reason in verdict.reasons if not reason.startswith("taint ")]
        if reasons:
            found[verdict.node] = ", ".join(reasons)
    wanted = {gpu_resource: job.gpus_per_node, "cpu": job.resources.cpu or 0, "memory": job.resources.memory or 0}
    taken, who = _taken(pods, run_id, gpu_resource)
    for node in nodes:
        name, has = node["metadata"]["name"], node.get("status", {}).get("allocatable") or {}
        short = [
            resource
            for resource, number in wanted.items()
            if number and taken[name][resource] and _number(has.get(resource)) - taken[name][resource] < Decimal(number)
        ]
        if short and name not in found:
            found[name] = f"taken by {', '.join(sorted(who[name]))} ({', '.join(short)})"
    return found


def _taken(
    pods: t.Sequence[Object], run_id: str, gpu_resource: str
) -> tuple[dict[str, collections.Counter[str]], dict[str, set[str]]]:
    """Return by node what other pods that count ask for, and whose they are."""
    taken: dict[str, t.Any] = collections.defaultdict(lambda: collections.defaultdict(Decimal))
    who: dict[str, set[str]] = collections.defaultdict(set)
    for pod in pods:
        labels, spec = pod["metadata"].get("labels") or {}, pod.get("spec") or {}
        asked = [(item.get("resources") or {}).get("requests") or {} for item in spec.get("containers") or ()]
        other = labels.get(RUN_LABEL) not in (None, label_value(run_id))
        gpus = any(gpu_resource in item for item in asked) and labels.get(RUN_LABEL) != label_value(run_id)
        node = spec.get("nodeName")
        if not node or not (other or gpus) or (pod.get("status") or {}).get("phase") in _OVER:
            continue
        who[node].add(f"run {labels[RUN_LABEL]}" if other else str(pod["metadata"]["name"]))
        for item in asked:
            for resource, text in item.items():
                taken[node][resource] += _number(text)
    return taken, who


def _number(text: t.Any) -> Decimal:
    return parse_quantity(str(text or "0")) or Decimal(0)
