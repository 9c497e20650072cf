# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the check of a StorageClass asks of a cluster; tests/kube_api/test_storage_class.py has a real API server."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import NodeError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.service import parse_services
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.pages import ListPage
from ansible_collections.muster.training.plugins.plugin_utils._workflows.services import claim_check

Dict = dict[str, t.Any]
ENTRY: t.Final = {"name": "nas", "kind": "shared_filesystem", "mode": "bind", "provider": "storage_class"}
FORBIDDEN: t.Final = KubeError("x", "is forbidden", status=403)


class Cluster:
    """A cluster with the claims of one namespace, which ``asks`` its pods; ``refuses`` are verbs."""

    namespace = "team"

    def __init__(self, *refuses: str, error: NodeError | None = None) -> None:
        self.refuses, self.error = refuses, error
        self.claims: dict[str, Dict] = {}
        self.policies: list[Dict] = []
        self.client: t.Any = self

    def list(self, _kind: str) -> ListPage:
        if "list" in self.refuses:
            raise FORBIDDEN
        return ListPage([{"metadata": {"name": "nfs-csi"}}], "1")

    def get(self, _kind: str, name: str, _namespace: str) -> Dict | None:
        return self.claims.get(name)

    def create(self, claim: Dict) -> Dict:
        if "create" in self.refuses:
            raise FORBIDDEN
        self.claims[claim["metadata"]["name"]] = claim
        return claim

    def patch(self, kind: str, name: str, value: Dict) -> None:
        assert (kind, name) == ("v1/PersistentVolume", "pv-1")
        self.policies.append(value["spec"])

    def delete(self, _kind: str, name: str, _namespace: str) -> None:
        del self.claims[name]

    def ask(self, requests: Dict, folders: t.Sequence[str], claim: Dict, limit_s: float) -> tuple[Dict, Dict]:
        assert list(folders) == ["/mnt/muster-check"] and limit_s > 0
        self.asked = claim["metadata"]["name"]
        return {}, {node: self.error for node in requests if self.error}


def order(cluster: Cluster, **filesystem: t.Any) -> claim_check.ClassCheck:
    (service,) = parse_services([{**ENTRY, "filesystem": {"storage_class": "nfs-csi", **filesystem}}])
    return claim_check.ClassCheck(service.to_binding(None), t.cast(t.Any, cluster))


def test_a_claim_is_made_and_its_volume_goes_with_it() -> None:
    cluster = Cluster()
    check = order(cluster, size="100Gi")
    check.require_class()
    with check.open("abc") as ask:
        (claim,) = cluster.claims.values()
        assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
        assert claim["spec"]["resources"]["requests"]["storage"] == "100Gi"
        claim["spec"]["volumeName"] = "pv-1"
        assert ask({"a": {}}) == ({}, {}) and cluster.asked == "muster-check-abc"
    assert cluster.claims == {} and cluster.policies == [{"persistentVolumeReclaimPolicy": "Delete"}]


def test_a_class_that_may_not_be_read_is_not_judged_and_a_claim_that_may_not_be_made_is_named() -> None:
    check = order(Cluster("list", "create"))
    check.require_class()
    with pytest.raises(RefusedError, match=r"there is no claim nas in the namespace team.*team_claims"):
        check.open("abc").__enter__()
    with pytest.raises(RefusedError, match=r"the cluster has no StorageClass other \(it has nfs-csi\)"):
        order(Cluster(), storage_class="other").require_class()


def test_the_claim_of_the_jobs_stays() -> None:
    cluster = Cluster("create")
    cluster.claims["nas"] = {
        "metadata": {"name": "nas"},
        "spec": {"storageClassName": "nfs-csi", "accessModes": ["ReadWriteMany"]},
    }
    with order(cluster).open("abc") as ask:
        ask({"a": {}})
    assert cluster.asked == "nas" and list(cluster.claims) == ["nas"]


@pytest.mark.parametrize(
    ("phase", "said", "words"),
    [
        ("Bound", "FailedMount: no mount.nfs4", "FailedMount: no mount.nfs4"),
        ("Pending", "ProvisioningFailed: only RWO", "ProvisioningFailed: only RWO. Name a StorageClass whose driver"),
        ("Pending", "its pod did not end", "the StorageClass nfs-csi gave no volume for ReadWriteMany within 180 s"),
    ],
)
def test_why_pods_did_not_start(phase: str, said: str, words: str) -> None:
    cluster = Cluster(error=NodeError("a", said, ""))
    with order(cluster).open("abc") as ask:
        cluster.claims["muster-check-abc"]["status"] = {"phase": phase}
        _answers, errors = ask({"a": {}})
    assert words in str(errors["a"]) and str(errors["a"]).count("a: ") == 1
