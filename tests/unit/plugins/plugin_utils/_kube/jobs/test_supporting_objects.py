# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Program, code and NetworkPolicy of a job."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs import spec as jobs_spec
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs import (
    supporting_objects,
)
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._kube.jobs.plans import (
    RUN_ID,
    build,
)


def test_the_jobs_own_policy_lets_its_pods_talk_and_nobody_else() -> None:
    own = {"podSelector": {"matchLabels": {jobs_spec.RUN_LABEL: RUN_ID}}}
    spec = next(item for item in build() if item["kind"] == "NetworkPolicy")["spec"]
    assert spec == {**own, "policyTypes": ["Ingress"], "ingress": [{"from": [own]}]}
    spec = next(item for item in build({"egress_denied": True}) if item["kind"] == "NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"] and spec["egress"][0] == {"to": [own]}
    assert [port["port"] for port in spec["egress"][1]["ports"]] == [53, 53]


@pytest.mark.parametrize(
    ("selector", "denies"),
    [
        ({}, True),
        ({"matchLabels": {"a": "b"}}, False),
        ({"matchLabels": {"team": "ml", "tier": "train"}}, False),
        ({"matchLabels": {"team": "ml"}}, True),
        ({"matchExpressions": [{"key": "team", "operator": "In", "values": ["ml", "ops"]}]}, True),
        ({"matchExpressions": [{"key": "team", "operator": "In", "values": ["ops"]}]}, False),
        ({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["ops"]}]}, True),
        ({"matchExpressions": [{"key": "web", "operator": "NotIn", "values": ["yes"]}]}, True),
        ({"matchExpressions": [{"key": "team", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "web", "operator": "Exists"}]}, False),
        ({"matchExpressions": [{"key": "web", "operator": "DoesNotExist"}]}, True),
        ({"matchLabels": {"team": "ml"}, "matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}, False),
    ],
)
def test_a_policy_denies_the_egress_of_the_pods_that_it_selects(selector: dict[str, t.Any], denies: bool) -> None:
    labels = {"team": "ml"}
    policy = {"spec": {"podSelector": selector, "policyTypes": ["Ingress", "Egress"]}}
    assert supporting_objects.denies_egress([policy], labels) is denies
    policy["spec"]["policyTypes"] = ["Ingress"]
    assert not supporting_objects.denies_egress([policy], labels)


def test_code_that_no_config_map_can_hold_is_refused_with_the_way_out() -> None:
    with pytest.raises(InputError, match="is 1024 KiB when packed, the limit is 900 KiB. Leave out data"):
        build({"archive": b"x" * (1 << 20)})
    objects = build({"archive": b"x" * (900 << 10)})
    assert len(json.dumps(objects[0])) < 1 << 20
    without = build({"archive": b""})
    assert len(without) == len(objects) - 1 and "/muster/code" not in json.dumps(without[-1])


def test_another_program_or_code_is_another_object() -> None:
    before, after = build(), build({"archive": b"other"})
    names = [
        [item["metadata"]["name"] for item in objects if item["kind"] == "ConfigMap"] for objects in (before, after)
    ]
    assert names[0][1] != names[1][1] and all(item["immutable"] for item in before if item["kind"] == "ConfigMap")
