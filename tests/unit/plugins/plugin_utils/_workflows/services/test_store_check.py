# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The matrix of a store: rows of several buckets, clocks that differ, and nothing left behind."""

from __future__ import annotations

import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding
from ansible_collections.muster.training.plugins.module_utils._model.errors import UnreachableError
from ansible_collections.muster.training.plugins.module_utils._node import host_agent
from ansible_collections.muster.training.plugins.module_utils._secrets.secret import Secret
from ansible_collections.muster.training.plugins.plugin_utils._services.s3_addresses import S3Keys, S3Signer
from ansible_collections.muster.training.plugins.plugin_utils._workflows.services import store_check
from ansible_collections.muster.training.tests.fakes import object_store, s3_signer


class Node:
    """A node whose agent runs in this process. ``change`` alters its answers."""

    def __init__(self, name: str, change: t.Callable[[str, dict[str, t.Any]], dict[str, t.Any]] | None = None) -> None:
        self.name, self.change = name, change

    def call(self, op: str, **values: t.Any) -> dict[str, t.Any]:
        answer = host_agent.answer_request({"op": op, "node": self.name, **values})
        return self.change(values["step"], answer) if self.change else answer


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> t.Iterator[object_store.ObjectStore]:
    s3_signer.use(monkeypatch)
    with object_store.running() as found:
        found.buckets.add("other")
        yield found


def check(server: object_store.ObjectStore, *nodes: Node, **changes: t.Any) -> list[store_check.Reachability]:
    refs = [{"purpose": "checkpoints", "ref": "bucket/p"}, {"purpose": "datasets", "ref": "other"}]
    about = {"name": "s", "component": "object_store", "mode": "bind", "endpoint": server.url, "resources": refs}
    binding = Binding.from_dict({**about, **changes})
    signer = S3Signer(binding, S3Keys(Secret("AKaccess-key-01", "x"), Secret("SKsecret-key-0123", "x")))
    return store_check.check_store(binding, signer, t.cast(t.Any, nodes), writes=True)


def test_every_bucket_is_used_by_every_node(server: object_store.ObjectStore) -> None:
    rows = check(server, Node("a"), Node("b"), Node("c"))
    assert [(row.node, row.ok) for row in rows] == [("a", True), ("b", True), ("c", True)]
    wrote = {path.rpartition("/")[2] for method, path, _r in server.asked if method == "PUT" and "/bucket/" in path}
    assert wrote == {"a", "b", "c"} and server.objects == {}


def test_one_bucket_that_is_missing_fails_the_node_and_leaves_nothing(server: object_store.ObjectStore) -> None:
    server.buckets.discard("other")
    rows = check(server, Node("a"), Node("b"))
    assert [row.ok for row in rows] == [False, False] and "bucket other: " in str(rows[0].problem)
    assert server.objects == {}


def test_a_store_that_is_only_read_is_not_written(server: object_store.ObjectStore) -> None:
    rows = check(server, Node("a"), access_modes=["read"])
    assert rows[0].ok and rows[0].mb_per_s is None and {method for method, *_ in server.asked} == {"GET"}


def test_a_node_that_breaks_off_leaves_nothing_in_the_bucket(server: object_store.ObjectStore) -> None:
    def fail(step: str, answer: dict[str, t.Any]) -> dict[str, t.Any]:
        if step == "write_probe":
            raise UnreachableError("b", "connection lost")
        return answer

    rows = check(server, Node("a"), Node("b", fail))
    assert [row.ok for row in rows] == [True, False] and rows[1].problem == "b: connection lost"
    assert server.objects == {}


@pytest.mark.parametrize(
    ("ahead", "words"), [(1200, "20 min behind the store's"), (-1200, "20 min ahead of the store's")]
)
def test_a_clock_that_is_off_is_named(server: object_store.ObjectStore, ahead: float, words: str) -> None:
    def shift(_step: str, answer: dict[str, t.Any]) -> dict[str, t.Any]:
        return {**answer, "server_time": time.time() + ahead}

    (row,) = check(server, Node("a", shift))
    assert not row.ok and words in str(row.problem) and "NTP" in str(row.fix)
