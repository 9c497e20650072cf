# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules in the language of each firewall, and nftables' own listing read. Whether packets pass is the lab's to say."""

from __future__ import annotations

import json
import typing as t
import xml.etree.ElementTree

from ansible_collections.muster.training.plugins.module_utils._node import host_firewall_tools as tools

RULES: list[dict[str, t.Any]] = [
    {"hook": "forward", "sources": [], "destinations": ["10.42.0.0/16"], "protocol": "", "ports": []},
    {"hook": "forward", "sources": ["10.42.0.0/16"], "destinations": [], "protocol": "", "ports": []},
    {"hook": "input", "sources": ["10.42.0.0/16"], "destinations": [], "protocol": "", "ports": []},
    {
        "hook": "input",
        "sources": ["192.0.2.2", "2001:db8::2"],
        "destinations": [],
        "protocol": "tcp",
        "ports": ["443", "1024-65535"],
    },
]


def test_ufw() -> None:
    assert tools.render_ufw(RULES) == [
        "ufw route allow to 10.42.0.0/16 comment 'muster'",
        "ufw route allow from 10.42.0.0/16 comment 'muster'",
        "ufw allow from 10.42.0.0/16 comment 'muster'",
        "ufw allow from 192.0.2.2 to any port 443,1024:65535 proto tcp comment 'muster'",
        "ufw allow from 2001:db8::2 to any port 443,1024:65535 proto tcp comment 'muster'",
    ]


def test_firewalld() -> None:
    incoming, passing = (xml.etree.ElementTree.fromstring(text.encode()) for text in tools.render_firewalld(RULES))
    assert [item.attrib["name"] for item in (incoming[2], incoming[3])] == ["ANY", "HOST"]
    assert [item.attrib["name"] for item in (passing[2], passing[3])] == ["ANY", "ANY"]
    rules = [(rule.attrib["family"], [(part.tag, *part.attrib.values()) for part in rule]) for rule in incoming[4:]]
    assert rules == [
        ("ipv4", [("source", "10.42.0.0/16"), ("accept",)]),
        ("ipv4", [("source", "192.0.2.2"), ("port", "443", "tcp"), ("accept",)]),
        ("ipv4", [("source", "192.0.2.2"), ("port", "1024-65535", "tcp"), ("accept",)]),
        ("ipv6", [("source", "2001:db8::2"), ("port", "443", "tcp"), ("accept",)]),
        ("ipv6", [("source", "2001:db8::2"), ("port", "1024-65535", "tcp"), ("accept",)]),
    ]
    assert [[part.tag for part in rule] for rule in passing[4:]] == [["destination", "accept"], ["source", "accept"]]


def chain(name: str, hook: str, policy: str = "accept", family: str = "inet") -> dict[str, t.Any]:
    own = {"family": family, "table": "filter", "name": name, "handle": 1}
    return {"chain": {**own, "type": "filter", "hook": hook, "prio": 0, "policy": policy}}


def rule(name: str, *words: dict[str, t.Any], family: str = "inet", handle: int = 7) -> dict[str, t.Any]:
    return {"rule": {"family": family, "table": "filter", "chain": name, "handle": handle, "expr": list(words)}}


def read(*items: dict[str, t.Any]) -> tuple[list[dict[str, str]], list[dict[str, t.Any]]]:
    return tools.read_ruleset(json.dumps({"nftables": [{"metainfo": {"version": "1.1.3"}}, *items]}))


def test_of_nftables_the_chains_that_drop_are_found() -> None:
    chains, jumps = read(
        chain("input", "input", "drop"),
        chain("forward", "forward"),
        rule("forward", {"counter": None}, {"reject": None}),
        chain("output", "output", "drop"),
        chain("open", "input"),
        rule("open", {"accept": None}),
        {"chain": {"family": "inet", "table": "filter", "name": "muster-input", "handle": 9}},
        rule("input", {"jump": {"target": "muster-input"}}, handle=12),
    )
    assert [item["name"] for item in chains] == ["input", "forward"]
    assert [item["handle"] for item in jumps] == [12]


def test_tables_of_iptables_are_left_alone() -> None:
    assert read(chain("INPUT", "input", "drop", family="ip"), chain("FORWARD", "forward", "drop", family="ip"))[0] == []
    assert tools.read_ruleset("") == ([], [])


def test_the_script_of_nftables_is_of_the_chains_family() -> None:
    chains = [{"family": "inet", "table": "filter", "name": "input", "hook": "input"}]
    script = tools._nftables_script(RULES, chains)
    assert "add rule inet filter muster-input ip saddr { 10.42.0.0/16 } accept\n" in script
    assert (
        "add rule inet filter muster-input ip6 saddr { 2001:db8::2 } tcp dport { 443, 1024-65535 } accept\n" in script
    )
    assert "|| nft" not in script and script.endswith("nft insert rule inet filter input jump muster-input\n")
    only = tools._nftables_script(RULES, [{**chains[0], "family": "ip"}])
    assert "2001:db8::2" not in only and "10.42.0.0/16" in only and "daddr" not in only
    passing = tools._nftables_script(RULES, [{**chains[0], "name": "forward", "hook": "forward"}])
    assert "ip daddr { 10.42.0.0/16 } accept" in passing and "tcp dport" not in passing
