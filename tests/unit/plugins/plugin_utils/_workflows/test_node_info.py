# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts and checks of a node, from one request."""

from __future__ import annotations

import pathlib
import tempfile
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.node import K3s, Node
from ansible_collections.muster.training.plugins.module_utils._node.facts import gather_facts
from ansible_collections.muster.training.plugins.plugin_utils._workflows import node_info, node_table
from ansible_collections.muster.training.tests.support.samples import machines
from ansible_collections.muster.training.tests.unit.plugins.module_utils._node import node_trees

MACHINES = machines()

ABLE = {"systemd": "1", "cap_eff": "000001ffffffffff", "kmsg": "1", "tun": "1", "cgroup_rw": "1"}


class FakeRemote:
    """A node whose clock differs by some seconds."""

    name = "gpu-1"

    def __init__(self, skew: float) -> None:
        self.skew = skew
        self.requests: list[dict[str, t.Any]] = []

    def call(self, op: str, **values: t.Any) -> dict[str, t.Any]:
        self.requests.append({"op": op, **values})
        training = {"version": "3.12.4", "packages": {"torch": "2.9.0"}, "problem": None}
        state = {"path": "/var/lib/muster", "free_bytes": 1 << 40, "problem": None}
        lan = [{"address": "10.9.0.1", "interface": "eth0", "prefix": 24}, {"address": "10.0.0.1", "interface": "eth1"}]
        info = {"time": time.time() + self.skew, "state": state, "training": training, "live_runs": []}
        return {**info, "interface": "eth1", "addresses": {"mesh": [], "lan": lan, "public": []}}


def gather(skew: float, **variables: t.Any) -> tuple[FakeRemote, dict[str, t.Any]]:
    remote = FakeRemote(skew)
    return remote, node_info.gather_node_info(t.cast(t.Any, remote), variables, "python3", ["torch"], False)


def test_one_request_gives_facts_and_checks() -> None:
    remote, result = gather(0.0)
    wanted = {"op": "info", "python": "python3", "packages": ["torch"], "facts": False, "address": "gpu-1"}
    assert remote.requests == [wanted]
    assert result["changed"] is False and result["node"]["training"]["packages"] == {"torch": "2.9.0"}
    assert abs(result["node"]["clock_skew_s"]) < 1 and {"ok", "failures", "checks"} <= result["checks"].keys()


def test_a_clock_that_differs_is_measured() -> None:
    _remote, result = gather(3600.0)
    assert abs(result["node"]["clock_skew_s"] - 3600) < 1
    assert [check["name"] for check in result["checks"]["checks"] if not check["ok"]] == ["clock"]


def test_a_host_that_no_inventory_describes_gets_a_record() -> None:
    _remote, result = gather(0.0, ansible_host="gpu-1.example.com", ansible_user="ubuntu")
    node = Node.from_dict(result["record"])
    assert (node.name, node.ownership, node.state) == ("gpu-1", "owned", "running")
    assert (node.ssh.host, node.ssh.user, node.price_usd_per_hour) == ("gpu-1.example.com", "ubuntu", None)
    # Of its networks the one by which the user reaches it comes first.
    assert [item.address for item in node.addresses.lan] == ["10.0.0.1", "10.9.0.1"]


@pytest.mark.parametrize("source", MACHINES)
def test_the_record_of_every_inventory_keeps_what_only_it_knows(source: str) -> None:
    """The record that an inventory made, with the facts of a machine as its agent answers them."""
    variables = MACHINES[source]
    stated = Node.from_dict(variables["muster_node"])
    with tempfile.TemporaryDirectory() as folder:
        facts = gather_facts(node_trees.expand("hgx_h100_ib", pathlib.Path(folder)))
    node = node_info.build_record("gpu-1", variables, {"facts": facts})
    assert (node.provider, node.account, node.price_usd_per_hour) == (
        stated.provider,
        stated.account,
        stated.price_usd_per_hour,
    )
    assert (node.gpu.count, node.gpu.nvswitch, len([nic for nic in node.nics if nic.rdma])) == (8, True, 8)
    (header, row, total) = node_table.build_table([node.to_dict()])
    assert (
        "8 x NVIDIA H100 80GB HBM3" in row
        and "8 x 400 Gb/s ib" in row
        and header.startswith("name")
        and "8 GPUs" in total
    )


@pytest.mark.parametrize(
    ("ability", "capable", "reasons"),
    [
        (None, None, ()),
        ({**ABLE, "container": "podman"}, True, ()),
        ({**ABLE, "container": "docker", "kmsg": "0"}, False, ("is a docker container", "has no /dev/kmsg")),
    ],
)
def test_whether_k3s_can_run(ability: dict[str, str] | None, capable: bool | None, reasons: tuple[str, ...]) -> None:
    stated = {"k3s": {"capable": False, "reasons": ["a container"]}}
    for variables, unknown in (({}, K3s()), ({"muster_node": stated}, K3s(False, ("a container",)))):
        node = node_info.build_record("n", variables, {"facts": {"k3s_ability": ability}})
        assert node.k3s == (unknown if capable is None else K3s(capable, reasons))
