# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The matrix of stores from hosts and pods: one request a node, rows of several buckets, clocks, nothing left behind."""

from __future__ import annotations

import dataclasses
import pathlib
import threading
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding
from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError, UnreachableError
from ansible_collections.muster.training.plugins.module_utils._node import host_agent, s3_check
from ansible_collections.muster.training.plugins.module_utils._secrets.secret import Secret
from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import on_each_node
from ansible_collections.muster.training.plugins.plugin_utils._services.s3_addresses import S3Keys, S3Signer
from ansible_collections.muster.training.plugins.plugin_utils._workflows.services import filesystem_check, store_check
from ansible_collections.muster.training.tests.fakes import object_store, s3_signer

Dict = dict[str, t.Any]
BOTH = ({"purpose": "checkpoints", "ref": "bucket/p"}, {"purpose": "datasets", "ref": "other"})


@dataclasses.dataclass
class Nodes:
    """Nodes whose agents run in threads of this process, asked as hosts or as pods are."""

    names: tuple[str, ...]
    vantage: str
    # Alters a request before it is answered, or raises.
    before: t.Callable[[str, Dict], None] = lambda _name, _request: None
    asked: list[tuple[str, Dict]] = dataclasses.field(default_factory=list)

    def read_cluster_id(self) -> str:
        return "c1"

    def check(self, *stores: store_check.StoreOrder) -> list[store_check.StoreResult]:
        if self.vantage == "pod":
            return store_check.check_from_pods(stores, t.cast(t.Any, self))
        return store_check.check_from_hosts(stores, t.cast(t.Any, [Remote(name, self) for name in self.names]))

    def answer(self, name: str, request: Dict) -> Dict:
        self.asked.append((name, request))
        self.before(name, request)
        return host_agent.answer_request({"node": name, "state_root": None, **request})

    def list_nodes(self) -> list[str]:
        return list(self.names)

    def ask(self, requests: t.Mapping[str, Dict]) -> t.Any:
        remotes: t.Any = [Remote(name, self) for name in requests]
        return on_each_node(remotes, lambda remote: self.answer(remote.name, requests[remote.name]))


class Remote(t.NamedTuple):
    """What is used of a client of a host."""

    name: str
    nodes: Nodes

    def call(self, **request: t.Any) -> Dict:
        return self.nodes.answer(self.name, request)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> t.Iterator[object_store.ObjectStore]:
    s3_signer.use(monkeypatch)
    with object_store.running() as found:
        found.buckets.add("other")
        yield found


@pytest.fixture(params=["host", "pod"])
def vantage(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def store(url: str, writes: bool = True, makes: bool = False, **changes: t.Any) -> store_check.StoreOrder:
    about = {"name": "s", "component": "object_store", "mode": "bind", "endpoint": url, "resources": list(BOTH)}
    binding = Binding.from_dict({**about, **changes})
    signer = S3Signer(binding, S3Keys(Secret("AKaccess-key-01", "x"), Secret("SKsecret-key-0123", "x")))
    return store_check.StoreOrder(binding, signer, writes, makes)


def test_every_bucket_is_used_by_every_node(server: object_store.ObjectStore, vantage: str) -> None:
    nodes = Nodes(("a", "b", "c"), vantage)
    (result,) = nodes.check(store(server.url))
    assert [(row.node, row.vantage, row.ok) for row in result.rows] == [(name, vantage, True) for name in "abc"]
    assert all(row.mb_per_s and row.latency_ms for row in result.rows)
    wrote = {path.rpartition("/")[2] for method, path, _r in server.asked if method == "PUT" and "/bucket/" in path}
    assert wrote == {"a", "b", "c"} and server.objects == {} and result.made == []


def test_two_stores_from_ten_nodes_are_one_request_a_node_and_at_once(
    server: object_store.ObjectStore, vantage: str
) -> None:
    names = tuple(f"n{number}" for number in range(10))
    # Each waits for all others: asked one after the other, none would ever go on.
    together = threading.Barrier(len(names), timeout=60)
    nodes = Nodes(names, vantage, lambda _name, _request: t.cast(None, together.wait()))
    with object_store.running() as another:
        results = nodes.check(
            store(server.url), store(another.url, name="two", resources=[{"purpose": "datasets", "ref": "bucket"}])
        )
    assert [len(result.rows) for result in results] == [10, 10] and all(row.ok for it in results for row in it.rows)
    assert sorted(name for name, _request in nodes.asked) == sorted(names)


def test_one_bucket_that_is_missing_fails_the_node_and_leaves_nothing(
    server: object_store.ObjectStore, vantage: str
) -> None:
    server.buckets.discard("other")
    (result,) = Nodes(("a", "b"), vantage).check(store(server.url))
    assert [row.ok for row in result.rows] == [False, False] and "bucket other: " in str(result.rows[0].problem)
    assert server.objects == {}


def test_what_was_written_and_cannot_be_read_is_not_left(
    server: object_store.ObjectStore, vantage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a store that does not answer requests for a part of an object, or behind a cache."""
    monkeypatch.setattr(s3_check, "_RANGE", (0, s3_check._PROBE_BYTES * 2))
    (result,) = Nodes(("a", "b"), vantage).check(store(server.url))
    assert not any(row.ok for row in result.rows) and "(Range)" in str(result.rows[0].problem)
    assert server.objects == {} and any(method == "PUT" for method, *_ in server.asked)


def test_a_store_that_fails_does_not_fail_another(server: object_store.ObjectStore, vantage: str) -> None:
    dead = store("http://127.0.0.1:9", name="dead")
    good, bad = Nodes(("a", "b"), vantage).check(store(server.url), dead)
    assert all(row.ok for row in good.rows) and server.objects == {}
    assert all("Connection refused" in str(row.problem) for row in bad.rows)


def test_buckets_of_a_deployed_store_are_made_once(server: object_store.ObjectStore, vantage: str) -> None:
    server.buckets.clear()
    (first,) = Nodes(("a", "b"), vantage).check(store(server.url, makes=True))
    assert all(row.ok for row in first.rows) and sorted(first.made) == ["bucket", "other"]
    (again,) = Nodes(("a", "b"), vantage).check(store(server.url, makes=True))
    assert again.made == []


def test_a_store_that_is_only_read_and_check_mode_only_list(server: object_store.ObjectStore, vantage: str) -> None:
    read, dry = store(server.url, access_modes=["read"]), store(server.url, writes=False, name="dry")
    results = Nodes(("a", "b"), vantage).check(read, dry)
    assert all(row.ok and row.mb_per_s is None for result in results for row in result.rows)
    assert {method for method, *_ in server.asked} == {"GET"}


def test_a_node_that_breaks_off_leaves_nothing_in_the_bucket(
    server: object_store.ObjectStore, vantage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_check, "_WAIT_S", {"host": 1, "pod": 1})

    def fail(name: str, request: Dict) -> None:
        if name == "b" and request["step"] == "visit":
            raise UnreachableError("b", "connection lost")

    nodes = Nodes(("a", "b", "c"), vantage, fail)
    (result,) = nodes.check(store(server.url))
    assert [row.ok for row in result.rows] == [True, False, True]
    assert result.rows[1].problem == "b: connection lost" and server.objects == {}
    assert [request["step"] for _name, request in nodes.asked].count("clean_up") == 1


def test_what_a_node_cannot_read_of_another_is_its_own_failure(
    server: object_store.ObjectStore, vantage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_check, "_WAIT_S", {"host": 1, "pod": 1})

    def lose(_name: str, request: Dict) -> None:
        for item in request["stores"][0]["checks"] if request["step"] == "visit" else ():
            if item["read"]["writer"] == "b":
                item["read"] |= {"get": server.address("elsewhere")}

    (result,) = Nodes(("a", "b"), vantage, lose).check(store(server.url))
    assert [row.problem for row in result.rows] == ["bucket bucket: cannot read what b has written", None]
    assert server.objects == {}


@pytest.mark.parametrize(
    ("ahead", "words"), [(1200, "20 min behind the store's"), (-1200, "20 min ahead of the store's"), (60, None)]
)
def test_a_clock_that_is_off_is_named(server: object_store.ObjectStore, ahead: float, words: str | None) -> None:
    server.ahead_s = ahead
    (result,) = Nodes(("a",), "host").check(store(server.url))
    (row,) = result.rows
    assert row.ok is (words is None) and (words is None or words in str(row.problem))
    assert words is None or "NTP" in str(row.fix)


def test_a_check_that_waits_long_is_no_clock_that_is_off(
    server: object_store.ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The image of one node was pulled for minutes after another had its answer."""
    nodes, order = Nodes(("a",), "pod"), store(server.url)
    real = nodes.ask

    def late(requests: t.Any) -> t.Any:
        answers = real(requests)
        clock = store_check.time.time
        monkeypatch.setattr(store_check.time, "time", lambda: clock() + 290 + 60)
        return answers

    monkeypatch.setattr(nodes, "ask", late)
    (result,) = nodes.check(order)
    assert result.rows[0].ok


def test_a_cluster_without_a_node_for_pods_is_refused(server: object_store.ObjectStore) -> None:
    with pytest.raises(RefusedError, match="service s: no Node takes pods"):
        Nodes((), "pod").check(store(server.url))


def test_pods_for_a_file_system_are_made_beside_those_for_servers(
    server: object_store.ObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    """Two file systems and a store are three visits of each Node; each waits for all others."""
    systems = [
        filesystem_check.FilesystemOrder(
            Binding.from_dict(
                {
                    "name": name,
                    "component": "shared_filesystem",
                    "mode": "bind",
                    "provider": "path",
                    "endpoint": str(tmp_path),
                    "filesystem": {"path": str(tmp_path)},
                }
            ),
            writes=False,
            marker=None,
        )
        for name in ("one", "two")
    ]
    nodes, together = Nodes(("a", "b"), "pod"), threading.Barrier(3, timeout=60)
    real, folders = nodes.ask, []

    def ask(requests: t.Any, shared: t.Any = (), **more: t.Any) -> t.Any:
        folders.append([*shared, *more.get("folders", ())])
        together.wait()
        return real(requests)

    monkeypatch.setattr(nodes, "ask", ask)
    results = store_check.check_from_pods([systems[0], store(server.url), systems[1]], t.cast(t.Any, nodes))
    assert [[row.node for row in result.rows] for result in results] == [["a", "b"]] * 3
    assert sorted(folders) == [[], [str(tmp_path)], [str(tmp_path)]] and all(row.ok for row in results[1].rows)
    assert {row.cluster_id for result in results for row in result.rows} == {"c1"}
