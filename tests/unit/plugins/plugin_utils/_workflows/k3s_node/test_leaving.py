# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A server that leaves while others stay: who is asked, what is refused, and what the kubeconfig names then."""

from __future__ import annotations

import json
import pathlib
import socket
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError, UnreachableError
from ansible_collections.muster.training.plugins.plugin_utils._hosts import k3s_files
from ansible_collections.muster.training.plugins.plugin_utils._workflows.k3s_node import access, leaving, node
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import digest_lock
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome

TEXT = json.dumps({"clusters": [{"name": "default", "cluster": {"server": "https://127.0.0.1:6443"}}]})


class Machine:
    """A server; ``gone``: it does not answer."""

    def __init__(self, name: str, active: str = "active", gone: bool = False) -> None:
        self.name, self.active, self.gone = name, active, gone
        self.steps: list[str] = []

    def call(self, _op: str, **values: t.Any) -> dict[str, t.Any]:
        if self.gone:
            raise UnreachableError(self.name, "no route")
        self.steps.append(values["step"])
        if values["step"] == "leave":
            return {"changed": True}
        return {"unit": {"active": self.active}, "record": {"role": "server"}}


@pytest.fixture
def order(tmp_path: pathlib.Path) -> node.NodeOrder:
    home = StateHome({"path": str(tmp_path)}, "lab")
    access.write_kubeconfig(home, TEXT, "192.0.2.3", check=False)
    return node.NodeOrder(
        settings=k3s_files.K3sSettings("server", "c"),
        home=home,
        lock=digest_lock.DigestLock(tmp_path / "lock.json"),
        base=tmp_path,
        version="v1.34.10+k3s1",
        api_address="192.0.2.3",
        api_addresses=("192.0.2.1", "127.0.0.1", "192.0.2.3"),
    )


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> t.Iterator[None]:
    """The second server answers, at this machine; nobody does at the others' addresses."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        real, port = socket.create_connection, listener.getsockname()[1]

        def connect(place: tuple[str, int], timeout: float) -> socket.socket:
            if place[0] != "127.0.0.1":
                raise TimeoutError("timed out")
            return real(("127.0.0.1", port), timeout=timeout)

        monkeypatch.setattr(access.socket, "create_connection", connect)
        yield


def go(order: node.NodeOrder, *machines: Machine, check: bool = False) -> dict[str, t.Any]:
    return leaving.ensure_leaving(t.cast("t.Any", machines), order, ["c"], check)


@pytest.mark.usefixtures("answering")
def test_it_is_kept_from_coming_back_and_the_kubeconfig_names_one_that_answers(order: node.NodeOrder) -> None:
    own = Machine("c")
    assert go(order, own, Machine("a"), Machine("b")) == {"changed": True, "problem": None}
    assert own.steps == ["look", "leave"] and access.find_named(order.home) == "127.0.0.1"


def test_a_check_only_asks(order: node.NodeOrder) -> None:
    own = Machine("c")
    assert go(order, own, Machine("a"), Machine("b"), check=True) == {"changed": True, "problem": None}
    assert own.steps == ["look"] and access.find_named(order.home) == "192.0.2.3"


def test_without_a_majority_nothing_is_done(order: node.NodeOrder) -> None:
    own = Machine("c")
    for other in (Machine("b", gone=True), Machine("b", active="failed")):
        with pytest.raises(RefusedError, match="c: of 3 servers b does not answer"):
            go(order, own, Machine("a"), other)
    assert "leave" not in own.steps and access.find_named(order.home) == "192.0.2.3"


@pytest.mark.usefixtures("answering")
def test_one_that_is_gone_is_told_to_come_back_by_itself(order: node.NodeOrder) -> None:
    result = go(order, Machine("c", gone=True), Machine("a"), Machine("b"))
    assert result["changed"] and "c does not answer: it joins again when it is started" in result["problem"]


def test_a_kubeconfig_that_would_name_nobody_is_refused(order: node.NodeOrder, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_words: object, **_values: object) -> t.NoReturn:
        raise TimeoutError("timed out")

    monkeypatch.setattr(access.socket, "create_connection", connect)
    with pytest.raises(RefusedError, match=r"no other server answers on port 6443 \(192\.0\.2\.1, 127\.0\.0\.1\)"):
        go(order, Machine("c"), Machine("a"), Machine("b"))
