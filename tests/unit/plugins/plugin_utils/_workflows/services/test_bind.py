# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Binding services from two real nodes to a store in memory: all or nothing, and the matrix."""

from __future__ import annotations

import dataclasses
import pathlib
import threading
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding, Reachability
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.service import parse_services
from ansible_collections.muster.training.plugins.plugin_utils._services import vault
from ansible_collections.muster.training.plugins.plugin_utils._workflows.services import bind, store_check
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import bindings
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.tests.fakes import object_store, s3_signer
from ansible_collections.muster.training.tests.support.run_world import RunWorld

Dict = dict[str, t.Any]
NO_ROUTE = {"ok": False, "failed": "no route", "fix": "Open the firewall"}


class BindWorld(RunWorld):
    """Nodes a and b, and the store."""

    def __init__(self, root: pathlib.Path, server: object_store.ObjectStore) -> None:
        super().__init__(root)
        self.server = server
        self.ownership: dict[str, str] = {}

    def service(self, **changes: t.Any) -> Dict:
        resources = [{"purpose": "checkpoints", "ref": "bucket/p"}, {"purpose": "datasets", "ref": "bucket"}]
        about = {"name": "store", "kind": "object_store", "mode": "bind", "endpoint": self.server.url}
        return {**about, "resources": resources, **changes}

    def bind(self, *services: Dict, check: bool = False, require_all: bool = True) -> Dict:
        request = self.request(None, check=check, services=list(services), require_all=require_all)
        known = {name: dict(request.hostvars[name]) for name in "ab"}
        for name, owner in self.ownership.items():
            known[name]["muster_node"] = {"name": name, "ownership": owner}
        return bind.run(dataclasses.replace(request, hostvars=known))

    def listed(self, name: str | None = None) -> Dict:
        return bind.list_all({"state_home": {"path": str(self.root / "home")}, "cluster": "default", "name": name})


@pytest.fixture
def world(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[BindWorld]:
    s3_signer.use(monkeypatch)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKcanary-access-1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SKcanary-secret-0123")
    with object_store.running() as server:
        found = BindWorld(tmp_path, server)
        yield found
        found.close()


def test_a_service_is_bound_once_and_removed(world: BindWorld) -> None:
    first, again = world.bind(world.service()), world.bind(world.service())
    assert first["changed"] and not again["changed"] and world.server.objects == {}
    (made,) = world.listed()["bindings"]
    assert [(row["node"], row["ok"]) for row in made["reachable_from"]] == [("a", True), ("b", True)]
    assert "SKcanary" not in str(made) and "a (host): ok" in world.listed("store")["matrix"]["store"]
    assert world.bind(world.service(region="eu"))["changed"]
    assert world.bind(world.service(state="absent"), check=True)["changed"] and world.listed()["bindings"]
    assert world.bind(world.service(state="absent"))["changed"] and not world.listed()["bindings"]
    assert not world.bind(world.service(state="absent"))["changed"]


def test_a_service_is_bound_while_nothing_else_is_asked_of_it(world: BindWorld) -> None:
    home = StateHome({"path": str(world.root / "home")}, "default")

    def is_bound(**changes: t.Any) -> bool:
        (service,) = parse_services([world.service(**changes)])
        return bind.is_bound(home, world.root, service)

    assert not is_bound()
    world.bind(world.service())
    assert is_bound() and not is_bound(region="eu") and not is_bound(access_modes=["read"])
    with pytest.raises(RefusedError, match="a binding of object_store has this name"):
        is_bound(kind="secrets", resources=[])


def test_check_mode_only_lists(world: BindWorld) -> None:
    assert world.bind(world.service(), check=True)["changed"] and not world.listed()["bindings"]
    assert {method for method, *_ in world.server.asked} == {"GET"}


def test_a_store_that_one_node_cannot_use_is_bound_only_when_that_is_asked_for(
    world: BindWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_check, "_WAIT_S", {"host": 0})
    world.server.faults["PUT", "/bucket/x"] = []
    real = world.connect

    def connect(names: t.Sequence[str]) -> t.Any:
        found = real(names)
        for node in found:
            if node.name == "b":
                node.call = lambda *_a, **_k: {"stores": [{"made": [], "answers": [dict(NO_ROUTE)] * 2}]}
        return found

    world.connect = connect  # type: ignore[method-assign]
    with pytest.raises(RefusedError, match=r"b \(host\): bucket bucket: no route; a \(host\): ok.*Open the firewall"):
        world.bind(world.service())
    assert not world.listed()["bindings"] and world.server.objects == {}
    world.bind(world.service(), require_all=False)
    assert [row["ok"] for row in world.listed()["bindings"][0]["reachable_from"]] == [True, False]


def test_one_service_that_is_refused_leaves_none_bound(world: BindWorld) -> None:
    """All are checked before one is written, and the error names each that failed."""
    missing = [{"purpose": "datasets", "ref": "nowhere"}]
    services = [world.service(name="good"), world.service(name="bad", resources=missing)]
    services += [world.service(name="worse", endpoint="http://127.0.0.1:9"), world.service(name="old", state="absent")]
    world.bind(world.service(name="old"))
    with pytest.raises(RefusedError) as caught:
        world.bind(*services)
    text = str(caught.value)
    assert "service bad cannot be used" in text and "service worse cannot be used" in text and "good" not in text
    assert [binding["name"] for binding in world.listed()["bindings"]] == ["old"]


def test_rows_of_hosts_that_are_not_in_this_play_stay(world: BindWorld) -> None:
    world.bind(world.service())
    request = world.request(None, services=[world.service()], require_all=True)
    result = bind.run(dataclasses.replace(request, hosts=["b"]))
    assert sorted(row["node"] for row in result["bindings"][0]["reachable_from"]) == ["a", "b"]


def test_rows_of_nodes_that_left_the_cluster_go(tmp_path: pathlib.Path) -> None:
    """One that is not asked, such as a cordoned one, keeps its row, and what is said is what was seen now."""

    class Visits:
        def find_gone(self, names: t.Collection[str]) -> frozenset[str]:
            return frozenset(names) & {"lost", "a-host"}

    about = {"name": "t", "component": "tracking", "mode": "bind", "endpoint": "http://h:1", "provider": "mlflow"}
    seen = [Reachability(name, "pod", True, 1.0, cluster_id="c-1") for name in ("a", "cordoned", "lost")]
    seen += [Reachability("a-host", "host", True, 1.0), Reachability("lost", "pod", True, 1.0, cluster_id="c-2")]
    before = dataclasses.replace(Binding.from_dict(about), reachable_from=tuple(seen))
    said: list[str] = []
    progress: t.Any = types.SimpleNamespace(say=said.append)
    visits: t.Any = Visits()
    order = bind.BindOrder(StateHome({"path": str(tmp_path)}, "c"), tmp_path, False, True, progress, visits)
    bindings.write_binding(order.home, before)
    result = store_check.StoreResult([dataclasses.replace(seen[0], latency_ms=2.0)])
    current, changed = bind._keep(order, dataclasses.replace(before, reachable_from=()), result)
    assert [(row.node, row.vantage) for row in current.reachable_from] == [
        ("a", "pod"), ("cordoned", "pod"), ("a-host", "host")]  # fmt: skip
    assert not changed and "cordoned" not in said[0] and "a (pod): ok 2 ms" in said[0]


def test_a_name_of_another_kind_an_unreadable_ca_and_a_rented_host_are_refused(world: BindWorld) -> None:
    world.bind(world.service())
    vaults = {"name": "store", "kind": "secrets", "mode": "bind", "endpoint": "http://x"}
    with pytest.raises(RefusedError, match="a binding of object_store has this name"):
        world.bind(vaults)
    with pytest.raises(InputError, match=r"store\.ca: cannot read"):
        world.bind(world.service(ca="none.pem"))
    world.ownership["b"] = "rented"
    with pytest.raises(RefusedError, match=r"127\.0\.0\.2 is the node b, which is rented"):
        world.bind(world.service(endpoint="http://127.0.0.2:8333"))


def test_a_secrets_service_is_asked_from_the_controller_alone(
    world: BindWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(vault, "check_access", lambda access, _option: asked.append(access.address))
    monkeypatch.setenv("MY_TOKEN", "s.token-0123456789")
    pointer = {"from": "env", "keys": {"token": "MY_TOKEN"}}
    about = {"name": "bao", "kind": "secrets", "mode": "bind", "endpoint": "http://bao", "secret_ref": pointer}
    assert world.bind(about)["changed"] and asked == ["http://bao"]


def test_credentials_of_all_services_are_tried_at_once(world: BindWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits for all others: one after the other, none would ever go on."""
    together = threading.Barrier(3, timeout=30)
    monkeypatch.setattr(vault, "check_access", lambda _access, _option: together.wait())
    monkeypatch.setenv("MY_TOKEN", "s.token-0123456789")
    pointer = {"from": "env", "keys": {"token": "MY_TOKEN"}}
    about = {"kind": "secrets", "mode": "bind", "endpoint": "http://bao", "secret_ref": pointer}
    assert world.bind(*({"name": name, **about} for name in ("one", "two", "three")))["changed"]
