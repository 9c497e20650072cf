# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a host of any inventory to the address that its job uses: with the records that the inventories really make."""

from __future__ import annotations

import ipaddress
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.job import Job, parse_job
from ansible_collections.muster.training.plugins.module_utils._model.node_report import InterpreterReport, NodeReport
from ansible_collections.muster.training.plugins.module_utils._node import host_preflight
from ansible_collections.muster.training.plugins.plugin_utils._launch.base import NodeSlot
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import source as code_source
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.hosts import addresses
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.hosts import plan as hosts_plan
from ansible_collections.muster.training.tests.support.samples import machines

Dict = dict[str, t.Any]
MACHINES = machines()


def job(nodes: int = 1, **placement: t.Any) -> Job:
    return parse_job({"name": "x", "nodes": nodes, "script": "/t.py", "placement": placement})


def info(interface: str | None = None, **own: list[str]) -> Dict:
    """Return what a node says of its address, and which addresses its interfaces have."""
    listed = {
        kind: [
            {"address": item, "interface": f"eth{kind}{at}", "prefix": 24} for at, item in enumerate(own.get(kind, []))
        ]
        for kind in ("mesh", "lan", "public")
    }
    return {"interface": interface, "addresses": listed}


def settle(fleet: dict[str, tuple[Dict, Dict]], **placement: t.Any) -> list[str]:
    """Return the addresses of hosts: name to variables and what the node answers."""
    wanted = job(len(fleet), **placement)
    found = hosts_plan.select_hosts(list(fleet), {name: item[0] for name, item in fleet.items()}, wanted)
    reports = {name: NodeReport.from_dict(item[1]) for name, item in fleet.items()}
    settled = addresses.settle_addresses(found, reports, wanted)
    return [host.address for host in settled]


def test_every_source_of_hosts_is_here() -> None:
    providers = {"lambda", "runpod", "vastai", "shadeform", "tailscale", "local"}
    assert set(MACHINES) == providers | {"aws_ec2", "gcp", "droplets", "hcloud"}


@pytest.mark.parametrize("source", MACHINES)
def test_a_host_of_every_inventory_has_an_address_that_programs_can_use(source: str) -> None:
    """What an inventory really made goes through the plan into the launcher's node."""
    variables = MACHINES[source]
    found = hosts_plan.select_hosts(["n1"], {"n1": variables}, job())
    assert ipaddress.ip_address(found[0].address)
    reports = {"n1": NodeReport(training=InterpreterReport("/py"), executable="/py", state_dir="/s")}
    slot: NodeSlot = hosts_plan.build_slots(found, reports, "x-1", {})[0]
    request = hosts_plan.build_info_request(job(), 0, found[0], "x-1", _NO_SOURCE, None)
    assert slot.address == request["address"] == request["ports"][0][0] == found[0].address
    listed = [item for kind in ("lan", "mesh", "public") for item in variables["muster_node"]["addresses"][kind]]
    assert found[0].address in [item["address"] if isinstance(item, dict) else item for item in listed]


_NO_SOURCE = code_source.CodeSource((), None, None)


@pytest.mark.parametrize(
    ("source", "own", "address"),
    [
        # The provider's private address is on an interface; NAT keeps the public one outside.
        ("lambda", {"lan": ["172.17.0.9", "10.19.0.2"]}, "10.19.0.2"),
        # A container of a cluster: the network of the cluster, not that of the container.
        ("runpod", {"lan": ["172.18.0.2", "10.65.0.2"]}, "10.65.0.2"),
        # Only a public address is listed, and no interface has it.
        ("vastai", {"lan": ["172.17.0.2"]}, "172.17.0.2"),
        # Found by its tailnet, and on a LAN that only the machine knows of.
        ("tailscale", {"mesh": ["100.101.102.1"], "lan": ["192.168.100.31"]}, "192.168.100.31"),
        ("local", {"lan": ["10.0.0.9"]}, "127.0.0.1"),
        ("shadeform", {}, "192.0.2.77"),
    ],
)
def test_the_address_is_one_of_the_machines_own(source: str, own: dict[str, list[str]], address: str) -> None:
    assert settle({"n1": (MACHINES[source], info(None, **own))}) == [address]


STATED: Dict = {"mesh": ["100.64.0.1"], "lan": ["10.1.0.1"], "public": ["203.0.113.1"]}


@pytest.mark.parametrize(
    ("variables", "own", "wanted", "address"),
    [
        ({}, info(), [], "n1"),
        ({"ansible_host": "localhost"}, info("lo"), [], "127.0.0.1"),
        ({"ansible_host": "10.0.0.1"}, info("ethlan1", lan=["10.9.0.1", "10.0.0.1"]), [], "10.0.0.1"),
        # Of Debian: the machine's own name is its loopback, for the machine itself only.
        ({}, info("lo", lan=["10.9.0.1"]), [], "10.9.0.1"),
        # SSH goes through a port of the router.
        ({"ansible_host": "203.0.113.9"}, info(None, lan=["192.168.1.5"]), [], "192.168.1.5"),
        # A name leads to one of its networks.
        ({"ansible_host": "gpu-1.fast"}, info("ethlan1", lan=["10.9.0.1", "10.0.0.1"]), [], "10.0.0.1"),
        ({"ansible_host": "10.0.0.1", "muster_node": {"addresses": STATED}}, info(), [], "10.1.0.1"),
        ({"muster_node": {"addresses": {**STATED, "lan": None}}}, info(), [], "100.64.0.1"),
        ({"muster_node": {"addresses": STATED}}, info(), ["public", "mesh"], "203.0.113.1"),
        ({"muster_node": {"addresses": {"lan": "10.1.0.1"}}}, info(), [], "10.1.0.1"),
        ({"muster_node": {"addresses": STATED}, "muster_address": "10.9.9.9"}, info(), ["mesh"], "10.9.9.9"),
        ({"ansible_host": "10.0.0.1"}, info("ethlan0", lan=["10.0.0.1"], mesh=["100.64.0.9"]), ["mesh"], "100.64.0.9"),
    ],
)
def test_hosts_written_by_hand(variables: Dict, own: Dict, wanted: list[str], address: str) -> None:
    assert settle({"n1": (variables, own)}, required_network_types=wanted) == [address]


@pytest.mark.parametrize(
    "variables", [{"muster_node": {"addresses": {"lan": ["10.1.0.1"]}}}, {"ansible_host": "10.0.0.1"}]
)
def test_a_host_without_an_address_of_the_asked_type_is_refused(variables: Dict) -> None:
    with pytest.raises(RefusedError, match="^n1: has no mesh or public address"):
        settle({"n1": (variables, info())}, required_network_types=["mesh", "public"])


def test_an_address_that_two_nodes_have_tells_them_not_apart() -> None:
    """Containers on two machines, each with the first address of its own bridge, and a mesh between them."""
    fleet = {
        f"n{number}": (
            {"muster_node": {"addresses": {"mesh": [f"100.64.0.{number}"]}}},
            info(mesh=[f"100.64.0.{number}"], lan=["172.17.0.2"]),
        )
        for number in (1, 2)
    }
    assert settle(fleet) == ["100.64.0.1", "100.64.0.2"]


def test_two_hosts_at_one_address_are_refused_by_name() -> None:
    twin = ({"ansible_host": "10.0.0.1"}, info("ethlan0", lan=["10.0.0.1"]))
    with pytest.raises(RefusedError, match=r"^a, b have the same address 10\.0\.0\.1\. Give each host its own"):
        settle({"a": twin, "b": twin})


def test_this_machine_is_asked_by_the_agents_own_code() -> None:
    own = {"interface": host_preflight.find_interface("127.0.0.1"), "addresses": host_preflight.read_own_addresses()}
    assert settle({"n1": (MACHINES["local"], own)}) == ["127.0.0.1"]
