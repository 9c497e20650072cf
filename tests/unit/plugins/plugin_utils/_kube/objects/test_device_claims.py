# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each pod of a gang, of any engine, gets a claim of its own for its GPUs; a launcher beside the ranks gets none."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs import spec as jobs_spec
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs.spec import EligibleNodes
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.device_claims import TEMPLATE
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._kube.jobs.plans import (
    ENGINES,
    build,
    plan,
    templates,
)

FLEET = {"fleet": EligibleNodes(device_class="gpu.nvidia.com")}


@pytest.mark.parametrize("engine", ENGINES)
def test_gpus_are_claimed_by_the_pods_that_would_request_them(engine: str) -> None:
    changes = {**ENGINES[engine], "gpus_per_node": 2}
    requested, claimed = build({"fleet": EligibleNodes()}, **changes), build(FLEET, **changes)
    (template,) = (item for item in claimed if item["kind"] == "ResourceClaimTemplate")
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"]["count"] == 2 and request["exactly"]["deviceClassName"] == "gpu.nvidia.com"
    assert jobs_spec.RUN_LABEL in template["metadata"]["labels"]
    wants = [
        any("nvidia.com/gpu" in str(part.get("resources")) for part in item["spec"]["containers"])
        for item in templates(requested)
    ]
    pods: list[t.Any] = list(templates(claimed))
    assert any(wants) and [bool(item["spec"].get("resourceClaims")) for item in pods] == wants
    for item in (pod for pod in pods if pod["spec"].get("resourceClaims")):
        (claim,) = item["spec"]["resourceClaims"]
        assert claim["resourceClaimTemplateName"] == template["metadata"]["name"]
        assert item["spec"]["containers"][0]["resources"]["claims"] == [{"name": claim["name"]}]
        assert "nvidia.com/gpu" not in json.dumps([part.get("resources") for part in item["spec"]["containers"]])


def test_a_job_without_gpus_claims_nothing() -> None:
    assert "ResourceClaimTemplate" not in [item["kind"] for item in build(FLEET)]
    assert TEMPLATE not in plan(FLEET).supporting_kinds and TEMPLATE in plan(FLEET, gpus_per_node=1).supporting_kinds
