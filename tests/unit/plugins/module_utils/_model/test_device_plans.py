# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recorded hosts, from their files to the decision: driver, container runtime and RDMA."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import device_plans
from ansible_collections.muster.training.plugins.module_utils._node import facts_devices
from ansible_collections.muster.training.plugins.module_utils._node.facts_source import FactsSource
from ansible_collections.muster.training.tests.support import device_hosts

HOSTS = device_hosts.load_hosts()


def test_there_are_sixty_recorded_hosts_and_each_says_where_it_is_from() -> None:
    assert len(HOSTS) >= 60
    assert len({host["name"] for host in HOSTS}) == len(HOSTS)
    assert all(host["source"] and host["expect"] for host in HOSTS)


@pytest.mark.parametrize("host", HOSTS, ids=[host["name"] for host in HOSTS])
def test_recorded_host(host: device_hosts.Host, tmp_path: pathlib.Path) -> None:
    facts = facts_devices.read_devices(FactsSource(device_hosts.write_host(tmp_path, host)))
    # What travels is JSON.
    facts = json.loads(json.dumps(facts))
    plans = device_plans.plan_devices(host["name"], facts, host.get("options", {}))
    for role, expected in host["expect"].items():
        plan = dataclasses.asdict(getattr(plans, role))
        for key, value in expected.items():
            if key == "says":
                said = " | ".join(_texts(plan))
                for text in [value] if isinstance(value, str) else value:
                    assert text in said, f"{role}: {text!r} is not in {said!r}"
            elif key == "hcas":
                used = [item["name"] for item in plan["hcas"] if item["used"]]
                assert sorted(used) == sorted(value), f"{role}.hcas: {plan['hcas']}"
            elif isinstance(value, list):
                missing = [item for item in value if item not in _names(plan[key])]
                assert not missing, f"{role}.{key}: {missing} are not in {plan[key]}"
            else:
                assert plan[key] == value, f"{role}.{key} is {plan[key]!r}; {plan['reason']}"


def _texts(plan: t.Mapping[str, t.Any]) -> list[str]:
    refusals = [f"{item['problem']}. {item['fix']}" for item in plan["refusals"]]
    hcas = [f"{item['name']}: {item['reason']}" for item in plan.get("hcas", ())]
    return [plan["reason"], *refusals, *plan["warnings"], *hcas]


def _names(values: t.Iterable[t.Any]) -> list[t.Any]:
    """Return values, a repository by its URL."""
    return [item["url"] if isinstance(item, dict) else item for item in values]


def test_a_tool_that_answers_nonsense_is_no_error(tmp_path: pathlib.Path) -> None:
    host = {"os": "ubuntu24", "tools": {"nvidia-smi": "\0\xff", "rdma": "?", "mokutil": {"rc": 77}}, "packages": {}}
    facts = facts_devices.read_devices(FactsSource(device_hosts.write_host(tmp_path, host)))
    assert facts["driver"]["listed"] == 0
    assert device_plans.plan_devices("x", facts, {}).gpu_driver.action == "none"


def test_an_empty_machine_is_decided(tmp_path: pathlib.Path) -> None:
    facts = facts_devices.read_devices(FactsSource({"root": str(tmp_path), "path": []}))
    plans = device_plans.plan_devices("x", facts, {})
    assert [plans.gpu_driver.action, plans.container_runtime.action, plans.rdma.action] == ["none", "none", "none"]
