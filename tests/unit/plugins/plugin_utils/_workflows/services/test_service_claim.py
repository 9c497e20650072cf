# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The claim of a service's data: what is made of it, and what is used as it is. It is applied in tests/kube_api."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.pages import ListPage
from ansible_collections.muster.training.plugins.plugin_utils._workflows.services import service_claim
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._workflows.services.test_deploy_cluster import (
    made_by,
    service,
)

NAME = "muster-store-data"


class Cluster:
    """A cluster with a claim or none, and StorageClasses by name; ``asked`` lists what was listed."""

    def __init__(self, claim: t.Any, *classes: str) -> None:
        self.claim, self.classes = claim, classes
        self.asked: list[str] = []

    def get(self, kind: str, *_words: t.Any) -> t.Any:
        assert kind == service_claim.KIND
        return self.claim

    def list(self, kind: str) -> ListPage:
        self.asked.append(kind)
        items: t.Any = [{"metadata": {"name": name}, "provisioner": "rancher.io/local-path"} for name in self.classes]
        return ListPage(items, "1")


@pytest.fixture
def applied(monkeypatch: pytest.MonkeyPatch) -> list[t.Any]:
    """What is applied; it always changes something."""
    found: list[t.Any] = []

    def apply(_client: object, objects: t.Any, *_words: object, check: bool) -> t.Any:
        assert not check
        found.extend(objects)
        return type("Applied", (), {"changed": True})

    monkeypatch.setattr(service_claim, "apply", apply)
    return found


def ensure(root: pathlib.Path, cluster: Cluster, **deploy: t.Any) -> bool:
    made: t.Any = service(root, t.cast(t.Any, cluster), **deploy)
    return service_claim.ensure_pvc(made.order, made.client, made.pvc_name)


def test_a_folder_of_the_node_is_a_volume_of_its_own(tmp_path: pathlib.Path, applied: list[t.Any]) -> None:
    cluster = Cluster(None)
    assert ensure(tmp_path, cluster, host_path="/srv/store") and cluster.asked == []
    volume, claim = applied
    assert volume["metadata"]["name"] == claim["spec"]["volumeName"] == f"storage-{NAME}"
    assert volume["spec"]["claimRef"] == {"namespace": "storage", "name": NAME}
    assert claim["spec"]["resources"]["requests"]["storage"] == "100Gi" and claim["spec"]["storageClassName"] == ""


@pytest.mark.parametrize(
    ("live", "wanted", "chosen", "listed"),
    [
        (None, None, "fast", 1),
        (None, "slow", "slow", 1),
        # What it has cannot be changed: a class that came later is not preferred to it.
        (made_by("muster", NAME, spec={"storageClassName": "slow"}), None, "slow", 0),
    ],
    ids=["preferred", "named", "kept"],
)
def test_a_class_is_chosen_once(
    tmp_path: pathlib.Path, applied: list[t.Any], live: t.Any, wanted: str | None, chosen: str, listed: int
) -> None:
    cluster = Cluster(live, "slow", "fast")
    assert ensure(tmp_path, cluster, storage_class=wanted, size="5Gi")
    (claim,) = applied
    assert claim["spec"]["storageClassName"] == chosen and len(cluster.asked) == listed
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "5Gi"


def test_claims_of_others_are_used_as_they_are(tmp_path: pathlib.Path, applied: list[t.Any]) -> None:
    assert not ensure(tmp_path, Cluster(made_by("kubectl", NAME)))
    assert not ensure(tmp_path, Cluster(made_by("muster", "mine")), claim="mine")
    assert applied == []


def test_a_claim_that_is_created_or_named_is_used(tmp_path: pathlib.Path, applied: list[t.Any]) -> None:
    with pytest.raises(RefusedError, match="Create it, or name another"):
        ensure(tmp_path, Cluster(None), claim="mine")
    assert not ensure(tmp_path, Cluster(made_by("kubectl", "mine")), claim="mine"), "created"
    assert not ensure(tmp_path, Cluster(made_by("kubectl", "other")), claim="other"), "another is named"


@pytest.mark.parametrize(
    ("classes", "deploy", "said"),
    [
        ((), {}, "the cluster has no StorageClass[.]"),
        (("a", "b"), {"storage_class": "c"}, "the cluster has no StorageClass c; it has a, b"),
        (("a",), {"claim": "mine"}, "there is no claim storage/mine"),
    ],
)
def test_a_cluster_without_room_is_refused(
    tmp_path: pathlib.Path, applied: list[t.Any], classes: tuple[str, ...], deploy: t.Any, said: str
) -> None:
    with pytest.raises(RefusedError, match=said):
        ensure(tmp_path, Cluster(None, *classes), **deploy)
    assert applied == []
