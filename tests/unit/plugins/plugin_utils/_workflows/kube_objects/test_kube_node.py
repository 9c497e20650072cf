# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kube_node: several nodes at once, each with its own result; the ledger is checked without a cluster id."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.plugin_utils._kube.nodes.drain import NodeRemoval
from ansible_collections.muster.training.plugins.plugin_utils._workflows.kube_objects import kube_node as subject

OPTIONS: dict[str, t.Any] = {"names": ["a", "b", "a"], "cluster_id": "u", "drain_timeout_s": 60}


class NoClient:
    """A client that only counts."""

    requests = 4


@pytest.fixture(autouse=True)
def client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "open_client", lambda *_args: NoClient())


@pytest.mark.parametrize(("state", "closed"), [("cordoned", True), ("schedulable", False)])
def test_each_named_node_is_cordoned_once(monkeypatch: pytest.MonkeyPatch, state: str, closed: bool) -> None:
    calls: list[tuple[str, bool]] = []
    monkeypatch.setattr(
        subject.drain, "set_cordon", lambda _client, name, value, _check: calls.append((name, value)) or name == "b"
    )
    result = subject.run({**OPTIONS, "state": state}, pathlib.Path(), False, print)
    assert sorted(calls) == [("a", closed), ("b", closed)]
    assert result["changed"] and result["requests"] == 4
    assert result["nodes"] == [{"node": "a", "cordoned": closed}, {"node": "b", "cordoned": closed}]


def test_a_removal_is_changed_when_a_node_was(monkeypatch: pytest.MonkeyPatch) -> None:
    def remove(_client: t.Any, name: str, timeout_s: float, _tell: t.Any, check: bool) -> NodeRemoval:
        assert timeout_s == 60 and check
        return NodeRemoval(name, found=name == "a", deleted=name == "a")

    monkeypatch.setattr(subject.drain, "remove_node", remove)
    result = subject.run({**OPTIONS, "state": "absent"}, pathlib.Path(), True, print)
    assert result["changed"] and [(item["node"], item["deleted"]) for item in result["nodes"]] == [
        ("a", True),
        ("b", False),
    ]
    monkeypatch.setattr(subject.drain, "remove_node", lambda _client, name, *_args: NodeRemoval(name))
    assert not subject.run({**OPTIONS, "state": "absent"}, pathlib.Path(), False, print)["changed"]


def test_each_node_gets_its_own_taints(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(
        subject.taints, "set_taints", lambda _client, name, own, _check: calls.append((name, own)) or name == "a"
    )
    options = {**OPTIONS, "state": "tainted", "taints": {"a": ["k:NoSchedule"], "c": None}}
    result = subject.run(options, pathlib.Path(), False, print)
    assert sorted(calls) == [("a", ["k:NoSchedule"]), ("b", [])]
    assert result["changed"] and result["nodes"][0] == {"node": "a", "taints": ["k:NoSchedule"]}
    calls.clear()
    with pytest.raises(InputError, match="taints: 'k' is not a taint"):
        subject.run({**options, "taints": {"b": ["k"]}}, pathlib.Path(), False, print)
    assert calls == []
