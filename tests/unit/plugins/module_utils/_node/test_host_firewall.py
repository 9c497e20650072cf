# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of what was opened, whatever the firewall: before it is opened, while it is, and after."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import (
    host_agent,
    host_firewall,
    host_firewall_tools,
)

RULE = {"hook": "input", "sources": ["192.0.2.1"], "destinations": [], "protocol": "tcp", "ports": ["6443"]}


class Firewall:
    """A firewall whose rules are a list."""

    def __init__(self) -> None:
        self.active = True
        self.rules: list[str] = []
        self.forgetful = False
        self.refusal: str | None = None
        self.recorded: list[t.Any] = []

    def tool(self) -> host_firewall_tools.FirewallTool:
        return host_firewall_tools.FirewallTool(
            lambda: self.active,
            lambda rules: [f"{rule['sources'][0]} {rule['ports'][0]}" for rule in rules],
            lambda wanted: sorted(self.rules) == sorted(wanted),
            self.open,
            lambda lines: self.rules.__setitem__(slice(None), [rule for rule in self.rules if rule not in lines]),
        )

    def open(self, wanted: t.Sequence[str]) -> str | None:
        self.recorded.append(json.loads(host_firewall.RECORD.read_text())["rules"])
        self.rules = [] if self.forgetful else [*wanted]
        return self.refusal


@pytest.fixture
def first(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Firewall:
    monkeypatch.setattr(host_firewall, "RECORD", tmp_path / "muster/firewall.json")
    firewall = Firewall()
    monkeypatch.setattr(host_firewall_tools, "TOOLS", {"first": firewall.tool()})
    return firewall


def ask(state: str = "present", rules: t.Sequence[t.Any] = (RULE,), check: bool = False) -> dict[str, t.Any]:
    return host_agent.answer_request(
        {"op": "firewall", "state": state, "rules": list(rules), "check": check, "node": "n"}
    )


def test_opened_once_and_closed_without_a_trace(first: Firewall, tmp_path: pathlib.Path) -> None:
    assert ask(check=True)["changed"] and first.rules == [] and list(tmp_path.iterdir()) == []
    assert ask() == {"changed": True, "tool": "first", "rules": ["192.0.2.1 6443"]}
    assert first.recorded == [["192.0.2.1 6443"]]
    assert not ask()["changed"] and host_firewall.read_state()["opened"]
    assert ask("absent", check=True)["changed"] and first.rules
    assert ask("absent")["changed"] and first.rules == [] and list(tmp_path.iterdir()) == []
    assert not ask("absent")["changed"]


def test_the_rules_that_hold_are_told_with_what_was_asked_for(first: Firewall) -> None:
    assert host_firewall.read_state()["in_force"] is None
    ask()
    assert host_firewall.read_state()["in_force"] == {"asked": [RULE], "rules": ["192.0.2.1 6443"]}
    first.rules.append("of the user, in between")
    assert host_firewall.read_state()["in_force"] is None
    ask()
    first.active = False
    assert host_firewall.read_state()["in_force"] is None


def test_a_record_without_what_was_asked_for_gets_it(first: Firewall) -> None:
    ask()
    record = json.loads(host_firewall.RECORD.read_text())
    del record["asked"]
    host_firewall.RECORD.write_text(json.dumps(record))
    assert host_firewall.read_state()["in_force"] is None
    assert not ask(check=True)["changed"] and "asked" not in json.loads(host_firewall.RECORD.read_text())
    assert not ask()["changed"]
    assert host_firewall.read_state()["in_force"] == {"asked": [RULE], "rules": ["192.0.2.1 6443"]}


def test_while_rules_change_the_record_has_both(first: Firewall) -> None:
    ask()
    ask(rules=[{**RULE, "sources": ["192.0.2.7"]}])
    assert first.recorded[1] == ["192.0.2.7 6443", "192.0.2.1 6443"]
    assert json.loads(host_firewall.RECORD.read_text())["rules"] == ["192.0.2.7 6443"]


def test_what_the_firewall_refuses_is_taken_back(first: Firewall, tmp_path: pathlib.Path) -> None:
    first.refusal = "a rule is wrong"
    assert ask()["problem"] == "first refuses the rules: a rule is wrong"
    assert first.rules == [] and list(tmp_path.iterdir()) == []


def test_rules_that_are_taken_and_not_in_force_are_told(first: Firewall, tmp_path: pathlib.Path) -> None:
    first.forgetful = True
    assert "are not in force afterwards" in ask()["problem"]
    assert list(tmp_path.iterdir()) == []


def test_another_firewall_takes_over(first: Firewall, monkeypatch: pytest.MonkeyPatch) -> None:
    ask()
    second = Firewall()
    first.active = False
    monkeypatch.setitem(host_firewall_tools.TOOLS, "second", second.tool())
    assert ask()["tool"] == "second" and first.rules == [] and second.rules == ["192.0.2.1 6443"]
    second.active = False
    assert ask() == {"changed": True, "tool": None, "rules": []} and second.rules == []
    assert not host_firewall.RECORD.exists()


def test_without_a_firewall_nothing_is_done(first: Firewall) -> None:
    first.active = False
    assert ask() == {"changed": False, "tool": None, "rules": []}
    state = host_firewall.read_state()
    assert state["tool"] is None and state["opened"] is False


def test_who_manages_the_node_is_found_above_sudo(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for pid, parent, environment in (
        (30, 20, "A=1"),
        (20, 10, "SSH_CONNECTION=198.51.100.9 5 192.0.2.1 22"),
        (10, 1, ""),
    ):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "environ").write_text(f"{environment}\0")
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a) b) S {parent} 0")
    monkeypatch.setattr("os.getpid", lambda: 30)
    assert host_firewall.find_client(str(tmp_path)) == "198.51.100.9"
    monkeypatch.setattr("os.getpid", lambda: 10)
    assert host_firewall.find_client(str(tmp_path)) is None
    monkeypatch.setattr("os.getpid", lambda: 99)
    assert host_firewall.find_client(str(tmp_path)) is None
