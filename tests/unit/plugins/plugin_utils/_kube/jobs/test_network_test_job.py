# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Job of the network test."""

from __future__ import annotations

import dataclasses
import json

from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs import (
    network_test_job,
    registry,
)
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs import spec as jobs_spec
from ansible_collections.muster.training.tests.support.kube_schemas import problems
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._kube.jobs.plans import (
    RICH,
    RICH_PLAN,
    RUN_ID,
    plan,
    pod_of,
)


def test_the_probe_runs_where_the_job_will_and_asks_for_next_to_nothing() -> None:
    value = plan(RICH_PLAN, **RICH)
    objects = network_test_job.build(value)
    assert [problem for item in objects for problem in problems(item)] == []
    pod = objects[-1]["spec"]["template"]["spec"]
    job = pod_of(registry.build(value)[-1])["affinity"]
    assert pod["affinity"]["nodeAffinity"] == job["nodeAffinity"]
    own = {jobs_spec.RUN_LABEL: RUN_ID, jobs_spec.ROLE_LABEL: "probe"}
    (term,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["labelSelector"]["matchLabels"] == own
    assert "gpu" not in json.dumps(pod["containers"][0]["resources"]) and objects[-1]["spec"]["backoffLimit"] == 0
    told = json.loads(objects[0]["data"]["probe.json"])
    assert told["mode"] == "probe" and told["coordinator"] == f"{RUN_ID}-probe-0.{RUN_ID}-probe"
    # The policy is the job's own: it is proven too.
    policies = [next(o for o in made if o["kind"] == "NetworkPolicy") for made in (objects, registry.build(value))]
    assert policies[0] == policies[1]


def test_the_probe_needs_nothing_of_what_a_job_reads_and_stores() -> None:
    """Its pods run before the Secret of the run is there."""
    value = dataclasses.replace(plan(nodes=2), secret="r-secrets", store_keys=("muster-store.json.gz",))
    assert "muster-store.json.gz" in json.dumps(registry.build(value))
    volumes = network_test_job.build(value)[-1]["spec"]["template"]["spec"]["volumes"]
    assert not [item for item in volumes if item["name"] == "muster-secrets"]
