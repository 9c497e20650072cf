# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tokens of agents: a line before each is made, an end that is proved, and a check of one that the user gave."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import NodeError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._secrets.secret import Secret
from ansible_collections.muster.training.plugins.plugin_utils._workflows.k3s_node import tokens
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome

TOKEN = f"K10{'a1' * 32}::abc123.0123456789abcdef"

SERVERS = f"K10{'a1' * 32}::server:0123456789abcdef"


class Server:
    """A server that makes and ends tokens; ``lost``: the answer to the making does not arrive."""

    name = "lab-1"

    def __init__(self, home: StateHome, lost: bool = False) -> None:
        self.home = home
        self.lost = lost
        self.live: set[str] = set()
        self.problem: str | None = None

    def call(self, _op: str, **values: t.Any) -> dict[str, t.Any]:
        if values.get("delete"):
            known = values["delete"] in self.live
            self.live.discard(values["delete"])
            return {"deleted": known, "absent": True}
        assert events(self.home)[-1]["event"] in (("intent", "created") if values.get("server") else ("intent",))
        if values.get("server"):
            return {"token": SERVERS}
        self.live.add("abc123")
        if self.lost:
            raise NodeError(self.name, "the connection broke")
        return {"token": TOKEN}

    def ask(self, _op: str, **values: t.Any) -> dict[str, t.Any]:
        assert values["given"] == TOKEN
        return {"problem": self.problem}


def events(home: StateHome) -> list[dict[str, t.Any]]:
    return [json.loads(line) for line in (home.folder / "ledger.jsonl").read_text().splitlines()]


@pytest.fixture
def home(tmp_path: pathlib.Path) -> StateHome:
    return StateHome({"path": str(tmp_path)}, "lab")


def test_a_token_is_in_the_ledger_before_it_is_made_and_after_its_end(home: StateHome) -> None:
    server: t.Any = Server(home)
    assert tokens.create_token(server, home, "lab-2", 600).reveal() == TOKEN
    assert tokens.end_tokens(server, home, "lab-3") == []
    assert tokens.end_tokens(server, home, "lab-2") == ["abc123"] and server.live == set()
    assert [(line["event"], line.get("id")) for line in events(home)] == [
        ("intent", None),
        ("created", "abc123"),
        ("deleted", "abc123"),
        ("verified", "abc123"),
    ]
    assert "0123456789abcdef" not in (home.folder / "ledger.jsonl").read_text()
    assert tokens.end_tokens(server, home) == []


def test_a_token_whose_answer_was_lost_stays_open_until_its_time_is_over(
    home: StateHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    server: t.Any = Server(home, lost=True)
    with pytest.raises(NodeError):
        tokens.create_token(server, home, "lab-2", 600)
    assert tokens.end_tokens(server, home) == []
    now = tokens.time.time()
    monkeypatch.setattr(tokens.time, "time", lambda: now + 601)
    assert len(tokens.end_tokens(server, home)) == 1
    assert events(home)[-1]["event"] == "verified"


def test_without_the_server_its_tokens_are_over(home: StateHome) -> None:
    server: t.Any = Server(home)
    tokens.create_token(server, home, "lab-2", 600)
    assert tokens.end_tokens(None, home) == ["abc123"]
    assert events(home)[-1]["evidence"] == {"server": "removed"}


def test_a_token_of_the_users_is_checked_with_the_server(home: StateHome) -> None:
    server: t.Any = Server(home)
    tokens.check_token(server, Secret(TOKEN, "k3s_token"))
    server.problem = "the token abc123 is expired or does not exist"
    with pytest.raises(RefusedError, match="k3s_token: the token abc123 is expired or does not exist"):
        tokens.check_token(server, Secret(TOKEN, "k3s_token"))


def test_the_servers_token_is_in_the_ledger_until_its_server_has_left(home: StateHome) -> None:
    server: t.Any = Server(home)
    for _turn in range(2):
        assert tokens.read_server_token(server, home, "lab-3").reveal() == SERVERS
    tokens.create_token(server, home, "lab-2", 600)
    # An agent's end does not end it, nor does a teardown of what was rented.
    assert tokens.end_tokens(server, home) == ["abc123"]
    tokens.end_server_token(home, "lab-2")
    of_servers = [(line["event"], line["name"]) for line in events(home) if line["pool"] == "servers"]
    assert of_servers == [("intent", "lab-3"), ("created", "lab-3")]
    tokens.end_server_token(home, "lab-3")
    assert [line["event"] for line in events(home)][-2:] == ["deleted", "verified"]
    assert "0123456789abcdef" not in (home.folder / "ledger.jsonl").read_text()


def test_with_the_cluster_the_servers_token_is_over(home: StateHome) -> None:
    server: t.Any = Server(home)
    tokens.read_server_token(server, home, "lab-3")
    assert tokens.end_tokens(None, home) == ["server"]
    assert events(home)[-1]["evidence"] == {"server": "removed"}
