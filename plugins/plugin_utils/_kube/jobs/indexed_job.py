# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds an Indexed Job with a headless Service, for clusters without JobSet: a gang that fails is not restarted.

Only ranks that crash inside a running pod are restarted, by their launcher; a lost pod ends the run. Of an elastic gang
single pods are replaced until the Job's budget is used up.
"""

from __future__ import annotations

from ..api.kinds import KubeObject
from . import jobset, pod_template, supporting_objects
from .spec import KubePlan

ROLE = jobset.ROLE


def build(plan: KubePlan) -> list[KubeObject]:
    """Return the Job after its supporting objects."""
    # The Service's name is the pods' subdomain; without it their names do not resolve.
    spec = supporting_objects.complete_spec(plan, ROLE, coordinator=f"{plan.name}-0.{plan.name}")
    supporting = supporting_objects.build_all(plan, {ROLE: spec}, supporting_objects.build_headless_service(plan, ROLE))
    template = pod_template.build_template(plan, ROLE, supporting, restarts=None, more={"subdomain": plan.name})
    body = {**jobset.job_spec(plan.job), "template": template, "ttlSecondsAfterFinished": jobset.ttl(plan.job)}
    meta = plan.metadata(plan.name, **plan.queue_labels)
    return [*supporting, {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": body}]
