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
        ("leaving", "server", "ensure_leaving"),
    ],
)
def test_a_state_is_one_piece_of_work(monkeypatch: pytest.MonkeyPatch, state: str, role: str, wanted: str) -> None:
    called: list[str] = []
    for name in ("ensure_present", "ensure_running", "ensure_absent"):
        monkeypatch.setattr(request.node, name, lambda *_args, name=name: called.append(name) or {})
    monkeypatch.setattr(request.leaving, "ensure_leaving", lambda *_args: called.append("ensure_leaving") or {})
    remotes: t.Any = [type("Remote", (), {"name": "lab-2"})(), type("Remote", (), {"name": "lab-1"})()]
    request.run(
        {**DEFAULTS, "state": state, "role": role, "server": "lab-1"}, remotes, [], pathlib.Path("/"), False, {}
    )
    assert called == [wanted]


def test_one_of_several_servers_begins_and_the_others_join_it() -> None:
    several = {"embedded_etcd": True, "servers": ["Lab-1", "lab-2", "lab-3"]}
    first = order(server="Lab-1", **several).settings
    assert (first.init, first.server, first.has_etcd) == (True, "", True)
    further = order(server="lab-2", server_address="192.0.2.2", **several).settings
    assert (further.init, further.server, further.has_etcd) == (False, "https://192.0.2.2:6443", True)
    assert order().settings.has_etcd is False and order(role="agent", server="lab-2").settings.has_etcd is False


def test_a_cluster_stays_when_not_all_servers_leave() -> None:
    servers = ["Lab-1", "lab-2", "lab-3"]
    for leaving, stays in ((["Lab-1"], True), (["Lab-1", "lab-2"], True), (servers, False)):
        assert order(state="absent", servers=servers, leaving=leaving).stays is stays
    assert order(state="absent", servers=["Lab-1"], leaving=["Lab-1"]).stays is False


def test_the_addresses_of_the_api_are_those_of_the_inventory(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[t.Any] = []
    monkeypatch.setattr(request.node, "ensure_present", lambda _remote, made, *_more: found.append(made) or {})
    remotes: t.Any = [type("Remote", (), {"name": "lab-1"})()]
    hostvars = {"lab-1": {"ansible_host": "192.0.2.1"}, "lab-2": {"ansible_host": "192.0.2.2"}, "lab-3": {}}
    hostvars["lab-2"]["k3s_api_address"] = "api.example.com"
    options = {**DEFAULTS, "role": "server", "servers": ["lab-1", "lab-2", "lab-3", "gone"]}
    request.run(options, remotes, [], pathlib.Path("/"), False, hostvars)
    assert found[0].api_addresses == ("192.0.2.1", "api.example.com", "lab-3")
