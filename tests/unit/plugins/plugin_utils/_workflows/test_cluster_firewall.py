# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Firewalls of several machines at once: each gets the rules of its own place in the cluster."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, MusterError, NodeError
from ansible_collections.muster.training.plugins.plugin_utils._workflows import cluster_firewall

NODES = [
    {"host": "a", "role": "server", "addresses": ["192.0.2.1"], "client": "198.51.100.9"},
    {"host": "b", "role": "agent", "addresses": ["192.0.2.2"], "client": None},
]
OPTIONS = {
    "state": "present",
    "hosts": ["a", "b"],
    "nodes": NODES,
    "cluster_cidr": "10.42.0.0/16",
    "api_from": [],
    "job_ports": [],
}


class Machine:
    requests: t.ClassVar[dict[str, dict[str, t.Any]]] = {}

    def __init__(self, name: str) -> None:
        self.name = name

    def call(self, op: str, **values: t.Any) -> dict[str, t.Any]:
        assert op == "firewall"
        self.requests[self.name] = values
        if self.name == "refuses":
            raise NodeError(self.name, "ufw refuses the rules: x")
        return {"changed": self.name == "a", "tool": "ufw", "rules": ["line"]}


def run(check: bool = False, **changes: t.Any) -> dict[str, t.Any]:
    Machine.requests.clear()
    machines: t.Any = Machine
    return cluster_firewall.ensure_firewall(
        lambda names: [machines(name) for name in names], {**OPTIONS, **changes}, check
    )


def test_each_machine_gets_its_own_rules() -> None:
    result = run(check=True)
    assert result["changed"] and result["firewalls"]["b"] == {"tool": "ufw", "changed": False, "rules": ["line"]}
    sources = {
        host: {source for rule in request["rules"] for source in rule["sources"]}
        for host, request in Machine.requests.items()
    }
    assert sources == {"a": {"10.42.0.0/16", "192.0.2.2", "198.51.100.9"}, "b": {"10.42.0.0/16", "192.0.2.1"}}
    assert all(request["check"] is True for request in Machine.requests.values())


def test_only_the_named_hosts_are_asked() -> None:
    run(hosts=["b"])
    assert list(Machine.requests) == ["b"]
    assert run(hosts=[]) == {"changed": False, "firewalls": {}}


def test_a_machine_whose_rules_hold_is_not_asked_again() -> None:
    run()
    asked = json.loads(json.dumps({host: request["rules"] for host, request in Machine.requests.items()}))
    seen = [
        {**node, "firewall": {"tool": "ufw", "in_force": {"asked": asked[node["host"]], "rules": ["held"]}}}
        for node in NODES
    ]
    result = run(nodes=seen)
    assert Machine.requests == {} and not result["changed"]
    assert result["firewalls"]["a"] == {"tool": "ufw", "changed": False, "rules": ["held"]}
    other = run(nodes=seen, job_ports=["7000/tcp"])
    assert set(Machine.requests) == {"a", "b"} and list(other["firewalls"]) == ["a", "b"]
    run(nodes=[{**seen[0], "firewall": {"tool": "ufw", "in_force": None}}, seen[1]])
    assert set(Machine.requests) == {"a"}
    run(nodes=seen, state="absent")
    assert set(Machine.requests) == {"a", "b"}


def test_closing_needs_no_list_of_machines() -> None:
    run(state="absent", nodes=[], hosts=["b"])
    assert Machine.requests == {"b": {"state": "absent", "check": False}}


def test_a_machine_that_is_not_listed_is_named_before_any_is_asked() -> None:
    with pytest.raises(InputError, match="nodes: has no c. List all machines"):
        run(hosts=["a", "c"])
    assert Machine.requests == {}


def test_a_firewall_that_refuses_is_named() -> None:
    node = {"host": "refuses", "role": "agent", "addresses": ["192.0.2.3"]}
    with pytest.raises(MusterError, match="refuses: ufw refuses the rules"):
        run(hosts=["a", "refuses"], nodes=[*NODES, node])
