# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which packets are let through: between the cluster's own addresses, and never for the world."""

from __future__ import annotations

import dataclasses
import ipaddress
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model import firewall
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError

PODS = "10.42.0.0/16"
SERVER = firewall.FirewallNode("a", "server", ("192.0.2.1", "100.64.0.1"), "198.51.100.9")
AGENT = firewall.FirewallNode("b", "agent", ("192.0.2.2", "2001:db8::2"))
THIRD = firewall.FirewallNode("c", "agent", ("192.0.2.3",))


def plan(host: str, *nodes: firewall.FirewallNode, **changes: t.Any) -> list[firewall.FirewallRule]:
    values: dict[str, t.Any] = {"pods": PODS, "api_from": (), "job_ports": firewall.JOB_PORTS, **changes}
    return firewall.plan_rules(host, nodes or (SERVER, AGENT, THIRD), **values)


def ports(rules: t.Sequence[firewall.FirewallRule], source: str) -> set[str]:
    return {f"{port}/{rule.protocol}" for rule in rules if source in rule.sources for port in rule.ports}


def test_machines_reach_each_other_and_pods_reach_all() -> None:
    rules = plan("a")
    assert ports(rules, "192.0.2.2") == ports(rules, "2001:db8::2") == {"1024-65535/tcp", "4791/udp", "8472/udp"}
    assert firewall.FirewallRule("input", (PODS,)) in rules
    assert firewall.FirewallRule("forward", (PODS,)) in rules and firewall.FirewallRule("forward", (), (PODS,)) in rules
    assert ports(rules, "192.0.2.1") == set()


def test_without_jobs_on_the_machines_own_network_only_k3s_is_open() -> None:
    assert ports(plan("a", job_ports=()), "192.0.2.2") == {"5001/tcp", "6443/tcp", "10250/tcp", "8472/udp"}
    assert ports(plan("b", job_ports=()), "192.0.2.3") == {"5001/tcp", "10250/tcp", "8472/udp"}


def test_the_api_is_open_for_who_manages_the_server_and_for_nobody_else() -> None:
    rules = plan("a", api_from=("203.0.113.0/24",))
    assert ports(rules, "198.51.100.9") == ports(rules, "203.0.113.0/24") == {"6443/tcp"}
    assert ports(plan("b"), "198.51.100.9") == set()


def test_etcd_is_for_servers() -> None:
    second = dataclasses.replace(THIRD, role="server")
    rules = plan("a", SERVER, AGENT, second, job_ports=())
    assert "2379-2380/tcp" in ports(rules, "192.0.2.3") and "2379-2380/tcp" not in ports(rules, "192.0.2.2")
    assert "2379-2380/tcp" not in ports(plan("b", SERVER, AGENT, second, job_ports=()), "192.0.2.3")


def test_a_single_machine_opens_nothing_for_others() -> None:
    alone = firewall.FirewallNode("a", "server", ("192.0.2.1",))
    assert [rule.sources or rule.destinations for rule in plan("a", alone)] == [(PODS,)] * 3


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"api_from": ("0.0.0.0/0",)}, "api_from: 0.0.0.0/0 would open ports of the cluster to the world. Name the"),
        ({"api_from": ("::/0",)}, "api_from: ::/0 would open ports"),
        ({"api_from": ("0.0.0.0/1",)}, "api_from: 0.0.0.0/1 would open ports"),
        ({"api_from": ("everyone",)}, "api_from: 'everyone' is not an address or a range"),
        ({"pods": "0.0.0.0/0"}, "cluster_cidr: 0.0.0.0/0 would open ports"),
        ({"job_ports": ("4791",)}, "job_ports: '4791' is not a port. Write for instance 4791/udp"),
        ({"job_ports": ("0-70000/tcp",)}, "job_ports: '0-70000/tcp' is not a port"),
        ({"job_ports": ("30-20/tcp",)}, "job_ports: '30-20/tcp' is not a port"),
    ],
)
def test_what_would_open_too_much_or_cannot_be_read_is_refused(changes: dict[str, t.Any], said: str) -> None:
    with pytest.raises(InputError) as raised:
        plan("a", **changes)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"role": "agent", "addresses": ["192.0.2.1"]}, "nodes[0]: has no host or no role"),
        ({"host": "a", "role": "boss", "addresses": ["192.0.2.1"]}, "nodes[0]: has no host or no role"),
        ({"host": "a", "role": "agent", "addresses": []}, "nodes[0].addresses: a has none"),
        ({"host": "a", "role": "agent", "addresses": ["x"]}, "nodes[0].addresses: 'x' is not an address"),
        ({"host": "a", "role": "agent", "addresses": ["192.0.2.1"], "client": "x"}, "nodes[0].client: 'x' is not"),
    ],
)
def test_a_machine_that_cannot_be_read_is_refused(value: dict[str, t.Any], said: str) -> None:
    with pytest.raises(InputError) as raised:
        firewall.FirewallNode.from_dict(value, "nodes[0]")
    assert said in str(raised.value)


def test_a_machine_is_read() -> None:
    value = {"host": "a", "role": "server", "addresses": ["192.0.2.1"], "client": None, "node": "n"}
    assert firewall.FirewallNode.from_dict(value, "nodes[0]") == firewall.FirewallNode("a", "server", ("192.0.2.1",))


NODES = st.lists(
    st.builds(
        firewall.FirewallNode,
        st.uuids().map(str),
        st.sampled_from(["server", "agent"]),
        st.lists(st.ip_addresses(v=4).map(str), min_size=1, max_size=3).map(tuple),
        st.none() | st.ip_addresses(v=4).map(str),
    ),
    min_size=1,
    max_size=6,
)


@given(NODES)
def test_every_rule_has_a_source_or_a_range_of_pods_and_the_order_of_machines_is_the_same(
    nodes: list[firewall.FirewallNode],
) -> None:
    rules = plan(nodes[0].host, *nodes)
    assert rules == plan(nodes[0].host, *reversed(nodes))
    for rule in rules:
        assert rule.sources or rule.destinations == (PODS,)
        for source in rule.sources:
            assert ipaddress.ip_network(source).prefixlen >= 16
        spans = [tuple(map(int, (port.partition("-")[0], port.rpartition("-")[2]))) for port in rule.ports]
        assert all(one[1] < other[0] for one, other in zip(spans, spans[1:], strict=False))
