# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts as the target of fabric tests: their facts, the ones that do not answer, and the paths between them."""

from __future__ import annotations

import pathlib
import tempfile
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError, UnreachableError
from ansible_collections.muster.training.plugins.module_utils._node.facts import gather_facts
from ansible_collections.muster.training.plugins.plugin_utils._fabric.topology.islands import find_islands
from ansible_collections.muster.training.plugins.plugin_utils._workflows.fabric_verify.hosts_target import (
    HostsTarget,
    PublishResult,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import run as training_job
from ansible_collections.muster.training.tests.support.run_world import Said
from ansible_collections.muster.training.tests.unit.plugins.module_utils._node import node_trees
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._providers.records import MAPPINGS


class FakeRemote:
    """A host whose agent answers as given."""

    def __init__(self, name: str, answers: dict[str, t.Any]) -> None:
        self.name, self.answers = name, answers

    def call(self, op: str, **_values: t.Any) -> dict[str, t.Any]:
        answer = self.answers.get(op)
        if answer is None:
            raise UnreachableError(self.name, "Connection refused", "")
        return dict(answer)


def info(number: int, runs: t.Sequence[str] = ()) -> dict[str, t.Any]:
    lan = [{"address": f"10.0.0.{number}", "interface": "eth0", "prefix": 24}]
    facts = {"boot_id": str(number), "addresses": {"lan": lan}, "memory_gib": 64}
    return {"facts": facts, "live_runs": [{"run_id": run} for run in runs]}


def target(said: Said, answers: dict[str, dict[str, t.Any]], hostvars: dict[str, t.Any] | None = None) -> HostsTarget:
    request = training_job.RunRequest(
        options={},
        hosts=list(answers),
        hostvars={**{name: {} for name in answers}, **(hostvars or {})},
        base=pathlib.Path("/"),
        check=False,
        connect=lambda names: [t.cast(t.Any, FakeRemote(name, answers[name])) for name in names],
        progress=said,
    )
    return HostsTarget(request)


def test_a_host_that_does_not_answer_is_absent_with_its_inventory_record() -> None:
    stated = {"b": {"muster_node": {"site": "lab", "memory_gib": None}}}
    fleet = target(Said(), {"a": {"info": info(1, ["run-1"])}, "b": {}}, stated).find_nodes()
    assert [node.name for node in fleet.nodes] == ["a"] and fleet.busy == {"a"}
    (absent,) = fleet.absent
    assert (absent.name, absent.node.site) == ("b", "lab") and "Connection refused" in absent.problem
    assert "reachable over SSH" in absent.fix


def test_without_any_answer_the_first_error_is_raised() -> None:
    with pytest.raises(MusterError, match=r"Connection refused \(also failed: b\)"):
        target(Said(), {"a": {}, "b": {}}).find_nodes()


def test_what_the_inventory_states_is_added_to_the_facts() -> None:
    stated = {"a": {"muster_node": {"site": "lab", "memory_gib": None}}}
    (node,) = target(Said(), {"a": {"info": info(1)}}, stated).find_nodes().nodes
    assert node.site == "lab" and node.memory_gib == 64


@pytest.mark.parametrize("private", [True, False], ids=["private addresses listed", "only public addresses listed"])
def test_two_infiniband_nodes_with_a_record_of_lambda_are_one_island(private: bool) -> None:
    """The facts of the machines, the record that the inventory plugin made, and the islands of the two."""
    answers = {name: {"info": {"facts": facts_of("hgx_h100_ib", name), "live_runs": []}} for name in ("a", "b")}
    stated = {
        name: {"muster_node": MAPPINGS["lambda"][0](raw, "acc").record} for name, raw in instances(private).items()
    }
    nodes = target(Said(), answers, stated).find_nodes().nodes
    (island,) = find_islands(nodes)
    assert (island.nodes, island.lane, island.link) == (("a", "b"), "A", "ib")
    assert (island.nic_count, island.nic_rate_gbps) == (8, 400)
    assert [(node.provider, node.gpu.count, node.price_usd_per_hour) for node in nodes] == [("lambda", 8, 23.92)] * 2
    assert all(node.gpu.nvswitch and node.region and node.account for node in nodes)


def test_two_sparks_found_by_tailscale_keep_their_gpu_and_their_lan() -> None:
    answers = {name: {"info": {"facts": facts_of("dgx_spark", name), "live_runs": []}} for name in ("a", "b")}
    device = MAPPINGS["tailscale"][1][0]
    records = {
        name: MAPPINGS["tailscale"][0]({**device, "addresses": [f"100.101.1.{number}"]}, "acc").record
        for name, number in (("a", 31), ("b", 32))
    }
    nodes = (
        target(Said(), answers, {name: {"muster_node": record} for name, record in records.items()}).find_nodes().nodes
    )
    assert [(node.gpu.model, node.gpu.count, node.gpu.unified_memory) for node in nodes] == [
        ("NVIDIA GB10", 1, True)
    ] * 2
    assert [[item.interface for item in node.addresses.mesh] for node in nodes] == [["tailscale0"]] * 2
    assert all(len(node.addresses.lan) == 3 and node.network_types == ("mesh", "lan") for node in nodes)
    (island,) = find_islands(nodes)
    assert (island.nodes, island.link) == (("a", "b"), "roce")


def facts_of(kind: str, name: str) -> dict[str, t.Any]:
    """Return the facts of a fixture tree as the agent answers them, of a machine of its own in the same networks."""
    number = {"a": "31", "b": "32"}[name]
    with tempfile.TemporaryDirectory() as folder:
        request = node_trees.expand(kind, pathlib.Path(folder))
        for entry in request["addresses"]:
            entry[1] = f"{entry[1].rpartition('.')[0]}.{number}" if ":" not in entry[1] else entry[1]
        return {**gather_facts(request), "boot_id": name}


def instances(private: bool) -> dict[str, dict[str, t.Any]]:
    """Return two running instances, from a recorded listing."""
    raw = MAPPINGS["lambda"][1][0]
    raw = raw if private else {**raw, "private_ip": None}
    return {name: {**raw, "name": name, "ip": f"198.51.100.{index}"} for index, name in enumerate("ab", 1)}


def test_a_pair_without_an_answer_is_reported_and_not_one_lan() -> None:
    said = Said()
    silent = {"answers": [], "mesh": {}}
    hosts = target(said, {"a": {"info": info(1), "reach": silent}, "b": {"info": info(2), "reach": silent}})
    nodes = hosts.find_nodes().nodes
    assert [(reach.a, reach.b, reach.path) for reach in hosts.find_paths(nodes)] == [("a", "b", "none")]
    assert said.lines == ["b did not answer a: they are not treated as one LAN"]


def test_declared_addresses_and_labels_of_hosts() -> None:
    hosts = target(Said(), {"a": {}, "b": {}}, {"a": {"muster_address": "192.0.2.1"}})
    assert hosts.addresses(["a", "b"]) == {"a": "192.0.2.1"} and "a" in hosts.all_names()
    assert hosts.publish({"a": {"metadata": {"labels": {"x": "y"}}}}, check=False) == PublishResult()
