# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of k3s_node as an order."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.action import k3s_node
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.plugin_utils._workflows.k3s_node import request

DEFAULTS = {name: spec.get("default") for name, spec in k3s_node.ActionModule.OPTIONS.items()}


def order(**options: t.Any) -> t.Any:
    return request.read_order({**DEFAULTS, "role": "server", **options}, "Lab-1", [], pathlib.Path("/play"))


def test_a_server_with_defaults() -> None:
    found = order(tls_san=["192.0.2.1", "192.0.2.1"])
    assert found.version == "v1.36.4+k3s1" and found.settings.node == "lab-1" and found.settings.names == ("192.0.2.1",)
    assert found.settings.server == "" and found.api_address == "Lab-1" and found.token is None


def test_an_agent_has_the_servers_url() -> None:
    found = order(role="agent", server="lab-1", server_address="2001:db8::1")
    assert found.settings.server == "https://[2001:db8::1]:6443"
    assert order(role="agent", server="lab-1").settings.server == "https://lab-1:6443"
    assert order(role="agent", state="absent").settings.unit == "k3s-agent.service"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"version": "1.36"}, "version: '1.36' is not a version of K3s"),
        ({"node_name": "a_b"}, "node_name: 'a_b' is not a name for a Node"),
        ({"role": "agent"}, "server: Lab-1 is an agent. Name the host that is the server"),
        ({"token_ttl_s": 5}, "token_ttl_s"),
        ({"wait_s": 0}, "wait_s"),
        ({"token": "short"}, "k3s_token"),
        ({"cluster": "Not a name"}, "muster_cluster"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, t.Any], said: str) -> None:
    with pytest.raises(InputError) as raised:
        order(**options)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("state", "role", "wanted"),
    [
        ("present", "agent", "ensure_present"),
        ("restarted", "server", "ensure_running"),
        ("absent", "agent", "ensure_absent"),
    ],
)
def test_a_state_is_one_piece_of_work(monkeypatch: pytest.MonkeyPatch, state: str, role: str, wanted: str) -> None:
    called: list[str] = []
    for name in ("ensure_present", "ensure_running", "ensure_absent"):
        monkeypatch.setattr(request.node, name, lambda *_args, name=name: called.append(name) or {})
    remotes: t.Any = [type("Remote", (), {"name": "lab-2"})(), type("Remote", (), {"name": "lab-1"})()]
    request.run({**DEFAULTS, "state": state, "role": role, "server": "lab-1"}, remotes, [], pathlib.Path("/"), False)
    assert called == [wanted]
