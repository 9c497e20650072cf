# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The class of csi-driver-nfs against a real API server: made, bound where it is there, refused and removed.

The driver itself does not run: kernels here mount no NFS. A claim of the class is checked with a stand-in of a driver in
test_storage_class.py.
"""

from __future__ import annotations

import pathlib
import typing as t

import pytest
import yaml

from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding
from ansible_collections.muster.training.plugins.plugin_utils._hosts import downloads
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.apply import apply
from ansible_collections.muster.training.plugins.plugin_utils._workflows.services import bind
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import bindings
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.tests.support.kube_api import ApiServer
from ansible_collections.muster.training.tests.support.stack_cluster import (
    HELM_CHART,
    Cluster,
    Dict,
    changed,
    start_server,
)

CLASS, CHART = "storage.k8s.io/v1/StorageClass", ("helm.cattle.io/v1/HelmChart", "csi-driver-nfs", "kube-system")
DRIVER: Dict = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "nfs.csi.k8s.io"},
                "spec": {"attachRequired": False}}  # fmt: skip


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[ApiServer]:
    with start_server(tmp_path_factory.mktemp("api")) as server:
        yield server


@pytest.fixture
def cluster(api: ApiServer, client: Client, tmp_path: pathlib.Path) -> t.Iterator[Cluster]:
    with Cluster(api, client, tmp_path, "shared_filesystem") as made:
        home = StateHome({"path": str(tmp_path / "state")}, "default")
        nas = {"name": "nas", "component": "shared_filesystem", "mode": "bind", "provider": "nfs",
               "endpoint": "nfs://10.0.0.5/srv/muster/nas", "filesystem": {"path": "/mnt/nas", "mount": True}}  # fmt: skip
        bindings.write_binding(home, Binding.from_dict(nas))
        scratch = {**nas, "name": "scratch", "provider": "path", "endpoint": "/scratch"}
        bindings.write_binding(home, Binding.from_dict(scratch))
        # Not the chart of the project: its own digest would refuse it, which is tested below.
        (tmp_path / "csi-driver-nfs-4.13.4.tgz").write_bytes(b"a chart")
        yield made
        for item in client.list(CLASS).items:
            client.delete(CLASS, str(item["metadata"]["name"]))


def play(cluster: Cluster, *words: str, code: int = 0, **changes: t.Any) -> str:
    version = {"shared_filesystem_driver_version": changes.pop("version")} if "version" in changes else {}
    place = {"namespace": "kube-system", "export": "nas", **changes.pop("place", {})}
    service: Dict = {"name": "team", "kind": "shared_filesystem", "mode": "deploy", "provider": "csi_nfs",
                     "deploy": place, "filesystem": {"storage_class": "team-nfs"}, **changes}  # fmt: skip
    source = {"shared_filesystem_source": str(cluster.folder)}
    return " ".join(cluster.play(*words, code=code, shared_filesystem_service=service, **source, **version).split())


def test_the_chart_is_pinned_by_its_digest() -> None:
    (known,) = [item for item in downloads.entries() if item.name == "csi-driver-nfs"]
    assert len(known.sha256) == 64 and known.url.endswith("/v4.13.4/csi-driver-nfs-4.13.4.tgz")


def test_the_life_of_a_class(cluster: Cluster, client: Client) -> None:
    """Check mode, made, again without a write, a team's claim, its volume in use, absent, absent again."""
    refused = play(cluster, code=2)
    assert "the cluster has no nfs.csi.k8s.io, and no HelmChart (helm.cattle.io/v1) to install it by" in refused
    apply(client, [HELM_CHART])
    (known,) = [item for item in downloads.entries() if item.name == "csi-driver-nfs"]
    wrong = play(cluster, code=2)
    assert known.sha256[:12] in wrong and client.get(CLASS, "team-nfs") is None, "a chart of another digest is refused"
    client.create(DRIVER)
    bare = client.list(CLASS).items
    assert changed(play(cluster, "--check")) > 0 and client.list(CLASS).items == bare
    assert changed(play(cluster)) > 0
    made = t.cast("Dict", client.get(CLASS, "team-nfs"))
    assert made["provisioner"] == "nfs.csi.k8s.io" and made["reclaimPolicy"] == "Retain"
    assert made["parameters"] == {
        "server": "10.0.0.5", "share": "/srv/muster/nas", "onDelete": "retain", "mountPermissions": "0777",
        "subDir": "${pvc.metadata.namespace}/${pvc.metadata.name}"}  # fmt: skip
    assert "hard" in made["mountOptions"] and "_netdev" not in made["mountOptions"]
    assert client.get(*CHART) is None, "a driver that is there is not installed again"
    version = made["metadata"]["resourceVersion"]
    assert changed(play(cluster)) == 0
    assert t.cast("Dict", client.get(CLASS, "team-nfs"))["metadata"]["resourceVersion"] == version
    options = {"cluster": "default", "state_home": {"path": str(cluster.folder / "state")}}
    assert bind.list_all({**options, "services": []})["mounts"] == []
    assert changed(play(cluster, state="absent", place={"export": None})) > 0
    assert client.get(CLASS, "team-nfs") is None
    assert changed(play(cluster, state="absent")) == 0
    client.delete("storage.k8s.io/v1/CSIDriver", "nfs.csi.k8s.io")


def test_the_driver_comes_with_the_class_and_stays_as_long_as_a_volume_needs_it(
    cluster: Cluster, client: Client
) -> None:
    apply(client, [HELM_CHART])
    (cluster.folder / "csi-driver-nfs-4.99.0.tgz").write_bytes(b"a chart")
    other: Dict = {"version": "4.99.0"}
    assert changed(play(cluster, "--check", **other)) > 0 and client.get(*CHART) is None
    assert changed(play(cluster, **other)) > 0
    chart = t.cast("Dict", client.get(*CHART))["spec"]
    assert chart["chartContent"] == "YSBjaGFydA==" and chart["targetNamespace"] == "kube-system"
    values = yaml.safe_load(chart["valuesContent"])
    assert values == {"controller": {"enableSnapshotter": False, "defaultOnDeletePolicy": "retain"}}
    assert changed(play(cluster, **other)) == 0
    volume: Dict = {
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "of-a-claim"},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"],
                 "csi": {"driver": "nfs.csi.k8s.io", "volumeHandle": "10.0.0.5#srv#x#"}},
    }  # fmt: skip
    client.create(volume)
    play(cluster, state="absent")
    assert client.get(CLASS, "team-nfs") is None and client.get(*CHART) is not None, "a volume still needs the driver"
    client.patch("v1/PersistentVolume", "of-a-claim", {"metadata": {"finalizers": []}})
    client.delete("v1/PersistentVolume", "of-a-claim")
    play(cluster, **other)
    play(cluster, state="absent")
    assert client.get(*CHART) is None


def test_a_class_that_is_there_is_bound_or_refused(cluster: Cluster, client: Client) -> None:
    client.create(DRIVER)
    own: Dict = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "team-nfs"},
                 "provisioner": "nfs.csi.k8s.io", "reclaimPolicy": "Retain",
                 "parameters": {"server": "10.0.0.5", "share": "/srv/muster/nas/"}}  # fmt: skip
    cases: list[tuple[Dict, str]] = [
        ({"provisioner": "rancher.io/local-path"}, "is of rancher.io/local-path, not of nfs.csi.k8s.io"),
        ({"parameters": {**own["parameters"], "server": "10.0.0.6"}}, "is there with server 10.0.0.6, not 10.0.0.5"),
        ({"reclaimPolicy": "Delete"}, "deletes the files with a claim (onDelete: delete)"),
    ]
    try:
        for changes, words in cases:
            client.create({**own, **changes})
            assert words in play(cluster, code=2)
            client.delete(CLASS, "team-nfs")
        client.create(own)
        version = t.cast("Dict", client.get(CLASS, "team-nfs"))["metadata"]["resourceVersion"]
        play(cluster)
        live = t.cast("Dict", client.get(CLASS, "team-nfs"))
        assert live["metadata"]["resourceVersion"] == version, "it is used as it is"
        play(cluster, state="absent")
        assert client.get(CLASS, "team-nfs") is not None, "what is not of this role stays"
    finally:
        client.delete("storage.k8s.io/v1/CSIDriver", "nfs.csi.k8s.io")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"place": {"export": "scratch"}}, "'scratch' is of path, not of NFS"),
        ({"place": {"export": "none"}}, "'none' is not a binding of cluster default"),
        ({"place": {"export": None}}, "deploy.export: is required"),
        ({"place": {"namespace": None, "host": "a"}}, "is not for a StorageClass, which is in a cluster"),
        ({"place": {"delete_data": True}}, "its folders stay on the server"),
        ({"filesystem": {"path": "/mnt/x", "storage_class": "a"}}, "filesystem.path: has no effect"),
        ({"filesystem": {}}, "filesystem.storage_class: is required"),
    ],
)
def test_an_entry_that_is_refused(cluster: Cluster, changes: Dict, words: str) -> None:
    assert words in play(cluster, code=2, **changes)
