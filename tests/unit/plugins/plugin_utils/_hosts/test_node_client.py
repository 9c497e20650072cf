# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node as the backend sees it: which copy is asked, all nodes at once, and which of many errors is shown."""

from __future__ import annotations

import json
import threading
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import (
    MusterError,
    NodeError,
    UnreachableError,
)
from ansible_collections.muster.training.plugins.module_utils._node import host_agent, placed_files
from ansible_collections.muster.training.plugins.plugin_utils._hosts import agent_package, node_client
from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import (
    NodeClient,
    answer_deadline_s,
    find_answering,
    most_telling_error,
    on_each_node,
)


class Shell:
    """Answers with what it was told, and keeps what it was asked."""

    def __init__(self, *answers: dict[str, t.Any]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, dict[str, t.Any]]] = []

    def __call__(self, command: str, data: bytes) -> tuple[int, str, str]:
        self.asked.append((command, json.loads(data.splitlines()[-1])))
        return 0, agent_package.MARK + json.dumps(self.answers.pop(0)) + "\n", ""


def test_the_installed_copy_is_asked_as_soon_as_it_is_known() -> None:
    shell = Shell({"program": "/s/agent/1"}, {"text": {}}, {"program": None}, {"problem": None})
    remote = NodeClient("n", shell, python="/py", state_root="/s")
    remote.call("info", run_id="r")
    assert remote.program == "/s/agent/1"
    remote.call("watch", run_id="r")
    remote.call("info")
    remote.call("prepare")
    assert ["-c" in command for command, _ in shell.asked] == [True, False, False, True]
    command, request = shell.asked[1]
    assert command.split()[:3] == ["exec", "/py", "-I"] and command.split()[-1] == "/s/agent/1/run.py"
    assert request == {"op": "watch", "node": "n", "state_root": "/s", "run_id": "r"}
    assert shell.asked[0][1]["version"] == agent_package.agent_version() and remote.requests == 4


def test_facts_come_from_sources_that_are_sent_where_the_remembered_agent_is_gone() -> None:
    """Another machine may have taken the name of one that was there the last time."""
    asked: list[str] = []

    def shell(command: str, data: bytes) -> tuple[int, str, str]:
        del data
        asked.append(command)
        if "base64" in command:
            return 0, agent_package.MARK + json.dumps({"program": None}) + "\n", ""
        return 2, "", "python3: can't open file"

    remote = NodeClient("n", shell, program="/s/agent/1")
    assert remote.call("info") == {"program": None} and remote.program is None
    assert ["base64" in command for command in asked] == [False, True] and remote.requests == 2


def test_a_problem_is_an_error_of_the_node_unless_it_is_asked_for() -> None:
    remote = NodeClient("n", Shell({"problem": "disk full"}, {"problem": "disk full"}))
    assert remote.ask("put") == {"problem": "disk full"}
    with pytest.raises(NodeError, match="^n: disk full$"):
        remote.call("put")


def test_all_nodes_work_at_once_and_errors_are_kept_by_name() -> None:
    together = threading.Barrier(3, timeout=30)

    def work(remote: NodeClient) -> str:
        together.wait()
        if remote.name == "b":
            raise NodeError("b", "no room")
        return remote.name.upper()

    results, errors = on_each_node([NodeClient(name, Shell()) for name in "abc"], work)
    assert results == {"a": "A", "c": "C"} and str(errors["b"]) == "b: no room"
    assert on_each_node([], work) == ({}, {})


def test_a_defect_is_not_taken_for_an_answer() -> None:
    def work(remote: NodeClient) -> None:
        raise KeyError(remote.name)

    with pytest.raises(KeyError):
        on_each_node([NodeClient("a", Shell())], work)


def test_what_a_node_said_is_shown_before_what_could_not_be_reached() -> None:
    errors: dict[str, MusterError] = {
        "a": UnreachableError("a", "timed out", "Check its address"),
        "c": NodeError("c", "no room", "Free space"),
        "b": UnreachableError("b", "timed out"),
    }
    assert str(most_telling_error(errors)) == "c: no room (also failed: a, b). Free space"
    assert most_telling_error({"a": errors["a"]}) is errors["a"]
    many = {f"n{number}": NodeError(f"n{number}", "x") for number in range(9)}
    assert str(most_telling_error(many)) == "n0: x (also failed: n1, n2, n3, n4, n5…)"


class Silent:
    """A connection to a host that was switched off: nothing ever comes, and no error."""

    def __init__(self) -> None:
        self.over, self.renewed = threading.Event(), 0

    def __call__(self, command: str, data: bytes) -> tuple[int, str, str]:
        self.over.wait(60)
        return 255, "", "too late"

    def renew(self) -> None:
        self.renewed += 1


def test_a_host_that_never_answers_is_unreachable_at_the_deadline() -> None:
    shell = Silent()
    remote = NodeClient("n", shell, program="/s/agent/1", renew=shell.renew)
    with pytest.raises(UnreachableError, match="n: no answer within 0 s"):
        remote.call("watch", run_id="r", wait_s=20, deadline_s=0.05)
    with pytest.raises(UnreachableError):
        remote.run("true", b"", 0.05)
    assert shell.renewed == 2, "a connection that hangs is not used again"
    shell.over.set()


def test_a_login_that_stands_is_told_before_a_long_request_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request of minutes is waited for where the login answers meanwhile, or the node has answered before."""
    monkeypatch.setattr(node_client, "ANSWER_S", 0.05)
    monkeypatch.setattr(node_client, "_LOGIN_S", 0.1)
    standing = Silent()
    with pytest.raises(UnreachableError, match="n: no answer within 0 s.*its user's login ends"):
        NodeClient("n", standing).call("info", facts=True)
    standing.over.set()
    asked: list[str] = []

    def slow(command: str, data: bytes) -> tuple[int, str, str]:
        asked.append(command)
        if command != "true":
            time.sleep(0.3)
        return 0, agent_package.MARK + "{}\n", ""

    remote = NodeClient("n", slow)
    assert remote.call("info", facts=True) == {} and remote.call("info", facts=True) == {}
    assert asked.count("true") == 1


def test_hosts_that_answer_are_told_from_those_that_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_client, "ANSWER_S", 0.5)
    shell = Silent()
    nodes = [NodeClient("a", Shell({"program": None})), NodeClient("b", shell)]
    answering, errors = find_answering(nodes)
    assert [remote.name for remote in answering] == ["a"] and list(errors) == ["b"]
    shell.over.set()


@pytest.mark.parametrize("op", sorted({**host_agent._OPS, **host_agent._MODULES}))
def test_every_request_has_a_deadline(op: str) -> None:
    values = {"wait_s": 8.0, "seconds": 5.0, "within_s": 50.0}
    # Packages of an environment may have to come from far away.
    assert 7 <= answer_deadline_s(op, values) <= (3600 if op == "environment" else 900)
    assert answer_deadline_s("watch", values) == 18 and answer_deadline_s("info", {"run_id": "r"}) == 7
    assert answer_deadline_s("stop", values) >= 2 * 50
    fetches = [{"path": "/a"}, {"path": "/b"}]
    assert answer_deadline_s("k3s", {"step": "bring", "fetches": fetches}) > 2 * placed_files._DOWNLOAD_S
    assert answer_deadline_s("k3s", {"step": "bring", "size": 128 << 20}) > 3000
    assert answer_deadline_s("k3s", {"step": "restart", "wait_s": 300}) >= 330
