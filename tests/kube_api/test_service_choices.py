# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RustFS, MinIO, Vault and distribution in a cluster: a real API server takes their objects, strictly; a pod is ready when told so."""

from __future__ import annotations

import base64
import concurrent.futures
import dataclasses
import json
import pathlib
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.apply import apply
from ansible_collections.muster.training.plugins.plugin_utils._services import components, hashicorp_vault
from ansible_collections.muster.training.plugins.plugin_utils._services.component import (
    ROOT_TOKEN,
    UNSEAL_KEY,
    BringUp,
    Site,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.services import deploy
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import deployed
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.tests.kube_api.test_cluster_identity import Dict, home, request
from ansible_collections.muster.training.tests.support.kube_api import ApiServer

__all__ = ["home"]
NODE = "choices-1"
# Upstream's digest, which is in the collection's list: no registry is asked.
MINIO = (
    "quay.io/minio/minio:RELEASE.2025-09-07T16-13-09Z@sha256:"
    "14cea493d9a34af32f524e538b8346cf79f3321eff8e708c1e2960462bd8936e"
)
KEY = "the-key-that-vault-made-0001"


@pytest.fixture
def space(client: Client, namespace: str) -> t.Iterator[str]:
    """A namespace with a claim, and a Node that takes pods."""
    access = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim: t.Any = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": access,
                    "metadata": {"name": "data", "namespace": namespace}}  # fmt: skip
    apply(client, [claim])
    client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
    addresses = [{"type": "InternalIP", "address": "192.0.2.9"}]
    status: Dict = {"conditions": [{"type": "Ready", "status": "True"}], "addresses": addresses}
    client.patch("v1/Node", NODE, {"status": status}, subresource="status")
    yield namespace
    client.delete("v1/Node", NODE)


def roll_out(client: Client, namespace: str) -> None:
    """Say of the pod what its kubelet would."""
    end = time.monotonic() + 20
    while client.get("apps/v1/StatefulSet", "muster-own", namespace) is None:
        assert time.monotonic() < end
        time.sleep(0.02)
    live = t.cast(Dict, client.get("apps/v1/StatefulSet", "muster-own", namespace))
    counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "currentReplicas"), 1)
    said: Dict = {**counts, "observedGeneration": live["metadata"]["generation"]}
    said |= {"currentRevision": "a", "updateRevision": "a"}
    client.patch("apps/v1/StatefulSet", "muster-own", {"status": said}, namespace, subresource="status")


def bring_up_as_told(monkeypatch: pytest.MonkeyPatch) -> list[BringUp]:
    """Have Vault brought up by a note of it, which keeps a key as the real one does: no pod runs here."""
    told: list[BringUp] = []

    def note(order: BringUp) -> bool:
        told.append(order)
        if UNSEAL_KEY in order.credentials():
            return False
        order.keep({**order.credentials(), UNSEAL_KEY: KEY})
        return True

    known = (dataclasses.replace(hashicorp_vault.COMPONENT, bring_up=note),)
    monkeypatch.setattr(components, "COMPONENTS", {**components.COMPONENTS, "secrets": known})
    return told


@pytest.mark.parametrize(
    ("provider", "kind", "image", "scheme"),
    [
        ("rustfs", "object_store", "registry.example.com/rustfs:1.0.0", "HTTP"),
        ("minio", "object_store", None, "HTTPS"),
        ("vault", "secrets", "registry.example.com/vault:2.0.4", "HTTPS"),
        ("distribution", "registry", "registry.example.com/registry:3.1.2", "HTTPS"),
    ],
)
def test_a_choice_is_made_in_a_cluster_once(
    api: ApiServer,
    client: Client,
    home: StateHome,
    space: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    provider: str,
    kind: str,
    image: str | None,
    scheme: str,
) -> None:
    """Its image by digest or as named, its keys in the Secret alone; again without a write; removed with what it made."""
    told = bring_up_as_told(monkeypatch)

    def ask(state: str = "present", check: bool = False) -> Dict:
        place: Dict = {"namespace": space, "node": NODE, "claim": "data", **({"image": image} if image else {})}
        place |= {"tls": True} if provider == "minio" else {}
        service: Dict = {
            "name": "own",
            "kind": kind,
            "provider": provider,
            "mode": "deploy",
            "state": state,
            "deploy": place,
        }
        service |= {"resources": [{"purpose": "datasets", "ref": "data"}]} if kind == "object_store" else {}
        options = {"service": service, "state_home": {"path": str(home.root)}, "cluster": "default"}
        return deploy.run(dataclasses.replace(request(api, tmp_path, **options), check=check), [], wait_s=30)

    assert ask(check=True)["changed"] and client.list("apps/v1/StatefulSet", space).items == [] and not told
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        marking = pool.submit(roll_out, client, space)
        made = ask()
        marking.result(30)
    live = t.cast(Dict, client.get("apps/v1/StatefulSet", "muster-own", space))
    secret = t.cast(Dict, client.get("v1/Secret", "muster-own", space))
    (container,) = live["spec"]["template"]["spec"]["containers"]
    component = components.find_component(kind, provider, "x")
    assert made["changed"] and container["image"] == (image or MINIO) and container["command"][0] == component.member
    assert container["readinessProbe"]["httpGet"]["scheme"] == scheme
    variables = {item["name"]: item.get("value", "") for item in container.get("env", ())}
    assert set(variables) == set(component.environment(deploy_site()))
    assert bool(made.get("warnings")) == (provider in ("minio", "vault"))
    kept = deployed.read_credentials(home, "own") or {}
    shown = json.dumps([live, made])
    assert not [value for name, value in kept.items() if not name.startswith("TLS_") and value in shown]
    # What Vault made for itself is on the controller, and not in the cluster.
    everything = "".join(base64.b64decode(text).decode() for text in secret["data"].values())
    assert (kept.get(UNSEAL_KEY) == KEY) is (provider == "vault")
    assert KEY not in everything and ROOT_TOKEN not in everything
    again = ask()
    assert (again["changed"], again["writes"]) == (False, 0)
    assert [order.endpoint for order in told] == ([made["endpoint"]] * 2 if provider == "vault" else [])
    gone = ask("absent")
    assert gone["changed"] and gone["kept"] == f"{space}/data" and "warnings" not in gone
    kinds = ("apps/v1/StatefulSet", "v1/Service", "v1/Secret")
    assert [kind for kind in kinds if client.list(kind, space).items] == []


def deploy_site() -> Site:
    """Return a place for which only the names of variables are asked."""
    return Site("own", "http://x:1", "x", 1, "/data", "/files")


def test_a_service_does_not_become_another_program(
    api: ApiServer, client: Client, home: StateHome, space: str, tmp_path: pathlib.Path
) -> None:
    deployed.write_deployed(
        home, "own", {"provider": "seaweedfs", "place": {"host": None, "namespace": space}, "endpoint": "http://x"}
    )
    service = {"name": "own", "kind": "object_store", "provider": "rustfs", "mode": "deploy",
               "deploy": {"namespace": space}, "resources": [{"purpose": "datasets", "ref": "data"}]}  # fmt: skip
    options = {"service": service, "state_home": {"path": str(home.root)}, "cluster": "default"}
    with pytest.raises(RefusedError, match="is deployed as seaweedfs, whose data rustfs cannot read"):
        deploy.run(request(api, tmp_path, **options), [])
    assert client.list("v1/Secret", space).items == []
