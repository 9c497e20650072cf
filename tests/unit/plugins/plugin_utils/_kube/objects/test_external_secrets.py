# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the operator is asked for, byte by byte; a real API server judges it in tests/kube_api."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects import external_secrets as kube


class Cluster:
    """A cluster that answers what it is asked for with one object, or not at all."""

    def __init__(self, live: t.Any = None, forbidden: bool = False, served: bool = True) -> None:
        self.live, self.forbidden, self.served, self.asked = live, forbidden, served, t.cast("list[t.Any]", [])

    def get(self, *words: t.Any) -> t.Any:
        self.asked.append(words)
        if self.forbidden:
            raise KubeError("secretstores", "forbidden", status=403)
        return self.live

    def resource(self, kind: str) -> str:
        if not self.served:
            raise InputError("kind", f"there is no {kind}")
        return kind


def test_one_request_reads_from_several_stores_once() -> None:
    values = [
        kube.RemoteValue("A", "team/a", "k", "team"),
        kube.RemoteValue("B", "b", None, "cluster/shared"),
        kube.RemoteValue("C", "c", None, "team"),
    ]
    made: t.Any = kube.build({"name": "r-external-1", "namespace": "ns", "labels": {"x": "y"}}, values)
    spec = made["spec"]
    assert spec["secretStoreRef"] == {"kind": "SecretStore", "name": "team"}
    assert [item.get("sourceRef") for item in spec["data"]] == [
        None,
        {"storeRef": {"kind": "ClusterSecretStore", "name": "shared"}},
        None,
    ]
    assert [item["remoteRef"] for item in spec["data"]] == [
        {"key": "team/a", "property": "k"},
        {"key": "b"},
        {"key": "c"},
    ]
    assert (spec["refreshPolicy"], spec["refreshInterval"]) == ("CreatedOnce", "0s")
    assert spec["target"]["name"] == "r-external-1" and spec["target"]["creationPolicy"] == "Owner"
    assert spec["target"]["template"]["metadata"]["labels"] == {"x": "y"}


def test_a_store_is_asked_for_where_it_is_and_may_be_unreadable() -> None:
    cluster: t.Any = Cluster({"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    kube.require_store(cluster, "ns", "team", "o")
    kube.require_store(cluster, "ns", "cluster/shared", "o")
    assert cluster.asked == [
        (f"{kube.API_VERSION}/SecretStore", "team", "ns"),
        (f"{kube.API_VERSION}/ClusterSecretStore", "shared", None),
    ]
    unreadable: t.Any = Cluster(forbidden=True)
    kube.require_store(unreadable, "ns", "cluster/shared", "o")
    # One that the operator has not looked at yet is not refused.
    unseen: t.Any = Cluster({})
    kube.require_store(unseen, "ns", "team", "o")
    missing: t.Any = Cluster()
    with pytest.raises(RefusedError, match="o: there is no SecretStore team in the namespace ns"):
        kube.require_store(missing, "ns", "team", "o")


def test_a_cluster_says_whether_it_has_the_operator() -> None:
    there, lacking = t.cast(t.Any, Cluster()), t.cast(t.Any, Cluster(served=False))
    assert kube.is_served(there) and not kube.is_served(lacking)


def test_the_cause_is_the_last_warning_where_events_may_be_read() -> None:
    """The operator's condition says that it failed; only its events say why."""
    asked: t.Any = {"metadata": {"name": "r-external-1", "namespace": "ns"}}
    rows = [("2026-01-01T00:00:02Z", "Secret does not exist"), ("2026-01-01T00:00:01Z", "earlier")]
    items: list[t.Any] = [{"lastTimestamp": at, "message": message} for at, message in rows]

    class Events:
        fields = ""
        error: Exception | None = None

        def list(self, _kind: str, _namespace: str, *, fields: str) -> t.Any:
            self.fields = fields
            if self.error:
                raise self.error
            return type("Page", (), {"items": items})

    cluster: t.Any = Events()
    assert kube._last_warning(cluster, asked) == "Secret does not exist"
    assert "involvedObject.name=r-external-1" in cluster.fields and "type=Warning" in cluster.fields
    cluster.error = KubeError("events", "forbidden", status=403)
    assert kube._last_warning(cluster, asked) == ""
    items.clear()
    cluster.error = None
    assert kube._last_warning(cluster, asked) == ""
