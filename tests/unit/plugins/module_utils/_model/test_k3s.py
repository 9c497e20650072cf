# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which machines make a K3s cluster, and the one line that names those that do not."""

from __future__ import annotations

import ipaddress
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model import k3s
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, MusterError, RefusedError

PODS, SERVICES = "10.42.0.0/16", "10.43.0.0/16"


ABLE = {"systemd": "1", "cap_eff": "000001ffffffffff", "kmsg": "1", "tun": "1", "cgroup_rw": "1"}
LAN = {"interface": "eth0", "address": "192.168.1.7", "prefix": 24}


def at(address: str, prefix: int = 24) -> tuple[dict[str, t.Any], ...]:
    return ({"interface": "eth1", "address": address, "prefix": prefix},)


def member(host: str, **changes: t.Any) -> k3s.K3sMember:
    values: dict[str, t.Any] = {"role": "agent", "node": host, "machine_id": f"id-{host}", "architecture": "x86_64"}
    return k3s.K3sMember(host, **{**values, "ability": ABLE, "addresses": (LAN,), **changes})


@pytest.mark.parametrize(
    ("roles", "said"),
    [
        ({}, "muster_k3s_role: the inventory has no server"),
        ({"a": "agent"}, "muster_k3s_role: the inventory has no server"),
        ({"a": "server", "b": ""}, "muster_k3s_role: b has none. Set server or agent"),
        ({"a": "server", "b": "master"}, "muster_k3s_role: 'master' of b is not a role"),
        ({"a": "server", "b": "server"}, "2 servers (a, b) have no majority when half of them are lost"),
    ],
)
def test_an_inventory_that_makes_no_cluster_is_refused(roles: dict[str, str], said: str) -> None:
    with pytest.raises(InputError) as raised:
        k3s.check_roles(roles)
    assert said in str(raised.value)


def test_one_server_and_agents_make_a_cluster() -> None:
    k3s.check_roles({"a": "server"})
    k3s.check_roles({"a": "server", "b": "agent", "c": "agent"})
    k3s.check_members([member("a", role="server"), member("b", architecture="aarch64")], PODS, SERVICES)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"node": "a"}, "muster_nodes: a, b are all the node a. Set muster_node.name"),
        ({"machine_id": "id-a"}, "muster_nodes: a, b have one machine id id-a"),
        ({"foreign": ("RKE2 (/etc/rancher/rke2)",)}, "b: has RKE2 (/etc/rancher/rke2) that this collection did not"),
        ({"architecture": "armv7l"}, "b: is a armv7l machine"),
        ({"ability": {**ABLE, "systemd": "0"}}, "b: cannot run K3s: systemd is not running. Train on it over SSH"),
        ({"root": False}, "b: is not managed as root. Set ansible_become: true"),
        ({"addresses": at("10.43.7.1")}, "k3s_service_cidr: 10.43.0.0/16 overlaps the network 10.43.7.0/24 of b"),
        ({"authority": "other"}, "b: has joined a cluster with another CA than the server has now. Let it leave (clu"),
    ],
)
def test_a_machine_that_cannot_be_in_it_is_named(changes: dict[str, t.Any], said: str) -> None:
    with pytest.raises(MusterError) as raised:
        k3s.check_members([member("a", role="server", authority="own"), member("b", **changes)], PODS, SERVICES)
    assert said in str(raised.value)


def test_an_agent_of_the_same_ca_and_a_bare_server_are_taken() -> None:
    k3s.check_members([member("a", role="server", authority="own"), member("b", authority="own")], PODS, SERVICES)
    k3s.check_members([member("a", role="server"), member("b", authority="own")], PODS, SERVICES)


def test_of_a_mesh_all_of_its_range_is_taken() -> None:
    item = member("a", role="server", addresses=at("100.101.2.3", 32))
    assert item.networks == ("100.64.0.0/10",)
    with pytest.raises(InputError, match="k3s_cluster_cidr: 100.96.0.0/16 overlaps the network 100.64.0.0/10 of a"):
        k3s.check_members([item], "100.96.0.0/16", SERVICES)


@pytest.mark.parametrize("text", ["10.42.0.0", "10.42.0.1/16", "ten", "10.42.0.0/33", ""])
def test_a_range_that_is_none_is_refused_by_its_option(text: str) -> None:
    if text == "10.42.0.0":
        k3s.check_ranges([], text, SERVICES)
        return
    with pytest.raises(InputError, match="k3s_cluster_cidr"):
        k3s.check_ranges([], text, SERVICES)


@given(st.ip_addresses(v=4), st.integers(8, 30), st.ip_addresses(v=4), st.integers(8, 30))
def test_ranges_are_refused_exactly_when_they_share_an_address(
    first: ipaddress.IPv4Address, first_bits: int, second: ipaddress.IPv4Address, second_bits: int
) -> None:
    one = ipaddress.IPv4Network((first, first_bits), strict=False)
    two = ipaddress.IPv4Network((second, second_bits), strict=False)
    shares = one[0] in two or two[0] in one
    try:
        k3s.check_ranges([], str(one), str(two))
        refused = False
    except InputError:
        refused = True
    assert refused == shares


def test_a_member_is_made_of_its_agents_answer() -> None:
    answer = {
        "addresses": [{"interface": "eth0", "address": "192.0.2.7", "prefix": 24}],
        "machine_id": "m",
        "architecture": "aarch64",
        "foreign": [],
        "ability": ABLE,
        "root": True,
        "record": {"role": "server"},
        "authority": "own",
    }
    found = k3s.K3sMember.from_answer("a", "server", "n", answer)
    assert found.networks == ("192.0.2.0/24",) and found.node == "n" and found.architecture == "aarch64"
    assert found.installed and found.authority == "own" and found.machine == {}


@pytest.mark.parametrize("name", ["Head-A", "gpu_1", "-a", "gpu 1"])
def test_a_name_that_kubernetes_does_not_take_is_refused_before_anything_is_changed(name: str) -> None:
    """K3s would lower it, and the play would wait for a Node that never comes."""
    with pytest.raises(InputError, match="is not a name that Kubernetes takes for a Node.*Set muster_node.name"):
        k3s.check_members([member("a", role="server"), member("b", node=name)], PODS, SERVICES)


def test_hosts_of_several_clusters_are_told_apart() -> None:
    k3s.check_clusters({"a": "lab", "b": "lab", "c": ""})
    with pytest.raises(InputError, match=r"several clusters \(c of adv; a, b of lab\).*muster_node_hosts"):
        k3s.check_clusters({"a": "lab", "b": "lab", "c": "adv"})


OLD, NEW = "v1.34.10+k3s1", "v1.34.11+k3s1"


def versions(server: tuple[str, str], agent: tuple[str, str], chosen: str, **how: bool) -> None:
    members = [
        member("s", role="server", current=server[0], version=server[1]),
        member("a", current=agent[0], version=agent[1]),
    ]
    k3s.check_versions(members, chosen.split(), may_go_back=how.get("may_go_back", False))


@pytest.mark.parametrize(
    ("server", "agent", "chosen", "said"),
    [
        (
            (NEW, OLD),
            (NEW, OLD),
            "s a",
            "s has K3s v1.34.11.k3s1, and k3s_version is v1.34.10.k3s1: K3s is not set back",
        ),
        (("v1.34.10+k3s2", OLD), ("", OLD), "s a", "K3s is not set back"),
        (("v1.34.10+k3s1", "v1.34.10-rc1+k3s1"), ("", OLD), "s", "K3s is not set back"),
        ((OLD, OLD), (NEW, OLD), "s a", "a has K3s v1.34.11.k3s1.*is not set back"),
        (("v1.33.5+k3s1", "v1.35.1+k3s1"), ("", "v1.35.1+k3s1"), "s", "one minor version at a time.*v1.34 first"),
        ((OLD, OLD), ("", "v1.35.1+k3s1"), "a", "a would have K3s v1.35.1.*newer than its server s"),
        ((OLD, "v1.35.1+k3s1"), ("v1.31.0+k3s1", "v1.35.1+k3s1"), "s", "too old for its server s"),
    ],
)
def test_versions_that_kubernetes_does_not_take_are_refused(
    server: tuple[str, str], agent: tuple[str, str], chosen: str, said: str
) -> None:
    with pytest.raises(RefusedError, match=said):
        versions(server, agent, chosen)


def test_an_upgrade_server_first_and_a_way_back_that_was_asked_for() -> None:
    versions((OLD, NEW), (OLD, NEW), "s")
    versions((OLD, NEW), (OLD, NEW), "s a")
    versions((OLD, "v1.35.1+k3s1"), (OLD, OLD), "s a")
    versions((NEW, OLD), (NEW, OLD), "s a", may_go_back=True)
    versions(("", NEW), ("", NEW), "s a")


def test_where_k3s_runs_another_version_is_for_the_upgrade() -> None:
    members = [
        member("s", role="server", current=NEW, version=NEW, active=True),
        member("a", current=OLD, version=NEW, active=True),
        member("b", current=OLD, version=NEW),
    ]
    said = r"^a has K3s v1.34.10.k3s1, and k3s_version is v1.34.11.k3s1: .* Run muster.training.upgrade"
    with pytest.raises(RefusedError, match=said):
        k3s.check_versions(members, ["s", "a", "b"], may_go_back=False, rolling=False)
    k3s.check_versions(members, ["s", "a", "b"], may_go_back=False)
    k3s.check_versions(members, ["s", "b"], may_go_back=False, rolling=False)
