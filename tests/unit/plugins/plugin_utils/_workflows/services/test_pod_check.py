# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The check from pods: each node does all of it by itself, against a store in memory; what is left is removed."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding, BindingResource
from ansible_collections.muster.training.plugins.module_utils._model.errors import NodeError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._node import host_agent
from ansible_collections.muster.training.plugins.module_utils._secrets.secret import Secret
from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import on_each_node
from ansible_collections.muster.training.plugins.plugin_utils._services.s3_addresses import S3Keys, S3Signer
from ansible_collections.muster.training.plugins.plugin_utils._workflows.services import pod_check
from ansible_collections.muster.training.tests.fakes import object_store, s3_signer


class Visits:
    """Nodes that answer in threads of this process."""

    def __init__(self, *nodes: str, lost: str = "") -> None:
        self.nodes, self.lost = list(nodes), lost
        self.asked: list[t.Any] = []

    def list_nodes(self) -> list[str]:
        return self.nodes

    def ask(self, requests: t.Mapping[str, t.Any]) -> t.Any:
        self.asked.append(requests)

        class Remote(t.NamedTuple):
            name: str

        def answer(remote: Remote) -> t.Any:
            if remote.name == self.lost:
                raise NodeError(remote.name, "its image cannot be pulled")
            return host_agent.answer_request({"node": remote.name, "state_root": None, **requests[remote.name]})

        remotes: t.Any = [Remote(name) for name in requests]
        asked: t.Any = answer
        return on_each_node(remotes, asked)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> t.Iterator[object_store.ObjectStore]:
    s3_signer.use(monkeypatch)
    monkeypatch.setattr(pod_check, "_WAIT_S", 2)
    with object_store.running() as found:
        yield found


def check(server: object_store.ObjectStore, visits: Visits, **how: t.Any) -> t.Any:
    binding = Binding("store", "object_store", "deploy", server.url, resources=(BindingResource("datasets", "bucket"),))
    signer = S3Signer(binding, S3Keys(Secret("AK0123456789", "x"), Secret("SK0123456789", "x")))
    asked: t.Any = visits
    return pod_check.check_from_pods(binding, signer, asked, **{"writes": True, "make": False, **how})


def test_every_node_writes_and_reads_what_another_wrote(server: object_store.ObjectStore) -> None:
    rows, made = check(server, Visits("n1", "n2", "n3"))
    assert [(row.node, row.vantage, row.ok) for row in rows] == [(f"n{i}", "pod", True) for i in (1, 2, 3)]
    assert made == [] and server.objects == {} and all(row.mb_per_s for row in rows)


def test_check_mode_lists_only(server: object_store.ObjectStore) -> None:
    rows, _made = check(server, Visits("n1", "n2"), writes=False)
    assert all(row.ok for row in rows) and {method for method, *_rest in server.asked} == {"GET"}


def test_a_node_whose_pod_does_not_start_is_in_the_matrix_and_nothing_is_left(
    server: object_store.ObjectStore,
) -> None:
    visits = Visits("n1", "n2", "n3", lost="n2")
    rows, _made = check(server, visits)
    told = {row.node: row.problem for row in rows}
    assert "its image cannot be pulled" in str(told["n2"]) and told["n1"] is told["n3"] is None
    assert [item["step"] for request in visits.asked for item in request.values()].count("clean_up") == 1
    assert server.objects == {}


def test_what_a_node_cannot_read_of_another_is_its_own_failure(
    server: object_store.ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    visits = Visits("n1", "n2")
    real = visits.ask

    def lose(requests: t.Any) -> t.Any:
        for request in requests.values():
            for item in request.get("checks", []):
                if item["read"]["writer"] == "n2":
                    item["read"] |= {"get": server.address("elsewhere")}
        return real(requests)

    monkeypatch.setattr(visits, "ask", lose)
    rows, _made = check(server, visits)
    assert [row.problem for row in rows] == ["bucket bucket: cannot read what n2 has written", None]


def test_a_cluster_without_a_node_for_pods_is_refused(server: object_store.ObjectStore, tmp_path: pathlib.Path) -> None:
    with pytest.raises(RefusedError, match="no Node takes pods"):
        check(server, Visits())
