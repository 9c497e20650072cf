# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines of a cluster, looked at all at once."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, MusterError, NodeError
from ansible_collections.muster.training.plugins.plugin_utils._workflows import k3s_cluster_info as cluster

ROLES = {"a": "server", "b": "agent"}
NODES = {"a": "node-a", "b": "b"}
FACTS: dict[str, t.Any] = {
    "architecture": "x86_64",
    "addresses": [{"address": "192.0.2.1", "prefix": 24}],
    "foreign": [],
    "systemd": True,
    "root": True,
    "unit": {"active": "active"},
}


class Machine:
    def __init__(self, name: str, **changes: t.Any) -> None:
        self.name = name
        self.changes = changes

    def call(self, op: str, **values: t.Any) -> dict[str, t.Any]:
        assert (op, values["step"]) == ("k3s", "look")
        if self.changes.get("problem"):
            raise NodeError(self.name, self.changes["problem"])
        return {**FACTS, "machine_id": self.name, **self.changes}


def check(chosen: t.Collection[str] = ("a", "b"), roles: t.Any = None, **changes: t.Any) -> dict[str, t.Any]:
    machines: t.Any = [Machine("a"), Machine("b", **changes)]
    return cluster.check_cluster(
        lambda: machines, roles or ROLES, NODES, {"b": {"x": "y"}}, chosen, "10.42.0.0/16", "10.43.0.0/16"
    )


def test_who_is_what() -> None:
    found = check()
    assert found["server"] == "a" and found["agents"] == ["b"] and found["up"] is True and found["changed"] is False
    assert [item["name"] for item in found["objects"]] == ["node-a", "b"]
    assert found["labels"] == [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "b", "labels": {"x": "y"}}},
    ]


def test_what_is_refused_by_the_inventory_contacts_no_machine() -> None:
    def connect() -> t.Any:
        raise AssertionError("a machine was contacted")

    for roles, chosen in (({"a": "agent"}, ["a"]), (ROLES, ["b"])):
        with pytest.raises(InputError):
            cluster.check_cluster(connect, roles, NODES, {}, chosen, "10.42.0.0/16", "10.43.0.0/16")


def test_a_limit_without_the_server_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="--limit: leaves out a, which is the server"):
        check(chosen=["b"])


def test_a_machine_that_does_not_answer_is_named() -> None:
    with pytest.raises(MusterError, match="b: python3 is not installed"):
        check(problem="python3 is not installed")


def test_a_foreign_kubernetes_is_named() -> None:
    with pytest.raises(InputError, match="b: has K3s"):
        check(foreign=["K3s (/etc/rancher/k3s)"])
