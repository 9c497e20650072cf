# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every engine's objects: valid by the API's schemas, reproducible, and labelled with the run."""

from __future__ import annotations

import json

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.job_backends import ENGINE_LAUNCHERS
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs import (
    registry,
)
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs import spec as jobs_spec
from ansible_collections.muster.training.tests.support.kube_schemas import problems
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._kube.jobs.plans import (
    ENGINES,
    RUN_ID,
    build,
    pod_of,
    templates,
    variants,
)


def test_every_engine_of_the_model_is_there() -> None:
    assert set(registry._ENGINES) == set(ENGINE_LAUNCHERS) == set(ENGINES)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_api_server_would_take_the_objects(engine: str) -> None:
    for objects in variants(engine):
        assert {(item["kind"], problem) for item in objects for problem in problems(item)} == set()


def test_the_schemas_refuse_what_an_api_server_would() -> None:
    item = build()[-1]
    pod_of(item)["tolerationz"] = []
    item["spec"]["failurePolicy"]["maxRestarts"] = "three"
    found = " ".join(problems(item))
    assert "tolerationz" in found and "'three' is not of type 'integer'" in found
    policy = build()[-2]
    policy["spec"]["egres"] = []
    assert problems(policy)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_same_plan_gives_the_same_objects_and_all_belong_to_the_run(engine: str) -> None:
    for first, second in zip(variants(engine), variants(engine), strict=True):
        assert json.dumps(first) == json.dumps(second)
        for item in first:
            assert item["metadata"]["namespace"] == "team-a"
            assert item["metadata"]["labels"][jobs_spec.RUN_LABEL] == RUN_ID
        for template in templates(first):
            # The policy and the follower find pods by it.
            assert template["metadata"]["labels"][jobs_spec.RUN_LABEL] == RUN_ID
            assert template["metadata"]["labels"][jobs_spec.ROLE_LABEL]
