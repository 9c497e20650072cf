# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Secrets that the cluster resolves: asked for, waited for with the operator's reason, mounted, and gone with the run.

A real API server; the operator is a controller of this test, which reads real stores, or its own program where that is
named (see external_secrets.py).
"""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import pathlib
import time
import typing as t
import uuid

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.job import Job, parse_job, to_yaml_names
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects import external_secrets as kube
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.apply import apply
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import (
    run as kubernetes_run,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes.ending import cancel
from ansible_collections.muster.training.tests.e2e import bao_world
from ansible_collections.muster.training.tests.e2e.service_world import services_python
from ansible_collections.muster.training.tests.kube_api import external_secrets as operator
from ansible_collections.muster.training.tests.kube_api.test_cluster_identity import RUN, home, job, request, unproven
from ansible_collections.muster.training.tests.kube_api.test_runs_in_pods import record_of
from ansible_collections.muster.training.tests.support import canary
from ansible_collections.muster.training.tests.support.kube_api import ApiServer

__all__ = ["home", "unproven"]
pytestmark = pytest.mark.usefixtures("unproven")
VALUE = f"eso-{uuid.uuid4().hex[:8]}/ü&value"
NAME = f"{RUN}-external-1"


@pytest.fixture(autouse=True)
def installed(client: Client) -> None:
    operator.install(client)


def asking(namespace: str, *refs: dict[str, str]) -> Job:
    listed = [{"name": "TOKEN", "from": "external_secrets", "store": "team", "path": "train", **ref} for ref in refs]
    return parse_job({**to_yaml_names(job(namespace)), "secret_refs": listed})


def fake(**values: str) -> t.Any:
    return {"fake": {"data": [{"key": key, "value": value} for key, value in values.items()]}}


def test_a_run_has_the_operator_bring_its_secrets_and_take_them_away(
    api: ApiServer, client: Client, home: StateHome, namespace: str, tmp_path: pathlib.Path
) -> None:
    """Two stores, a property and a whole value; the pods name the Secret; no file of the controller holds a value."""
    whole = json.dumps({"hf": VALUE})
    apply(client, [operator.store("team", namespace, fake(train=whole))])
    apply(client, [operator.store(f"shared-{namespace}", None, fake(other=f"whole-{VALUE}"))])
    asked = asking(
        namespace,
        {"key": "hf"},
        {"name": "OTHER", "path": "other", "store": f"cluster/shared-{namespace}", "as": "file"},
    )
    check = dataclasses.replace(request(api, tmp_path), check=True)
    assert kubernetes_run.run(check, home, asked)["changed"] and client.list(kube.KIND, namespace).items == []
    with operator.run(client, namespace, api.kubeconfig) as controller:
        assert kubernetes_run.run(request(api, tmp_path), home, asked)["changed"]
    live, wanted = client.get("batch/v1/Job", RUN, namespace), client.get(kube.KIND, NAME, namespace)
    secret = client.get("v1/Secret", NAME, namespace)
    assert live and wanted and secret and controller.given == [wanted["metadata"]["uid"]]
    assert {name: base64.b64decode(text).decode() for name, text in secret["data"].items()} == {
        "TOKEN": VALUE,
        "OTHER": f"whole-{VALUE}",
    }
    assert [owner["uid"] for owner in wanted["metadata"]["ownerReferences"]] == [live["metadata"]["uid"]]
    assert client.get("v1/Secret", f"{RUN}-secrets", namespace) is None, "the controller has nothing of its own"
    (volume,) = (item for item in live["spec"]["template"]["spec"]["volumes"] if item["name"] == "muster-secrets")
    assert volume["projected"]["sources"] == [
        {"secret": {"name": NAME, "items": [{"key": name, "path": name}]}} for name in ("TOKEN", "OTHER")
    ]
    kept = b"".join(place.read_bytes() for place in tmp_path.rglob("*") if place.is_file())
    said = "\n".join(t.cast(t.Any, request(api, tmp_path).progress).lines) + json.dumps([live, wanted])
    for form in canary.encodings(VALUE).values():
        assert form not in kept and form.decode() not in said
    cancel.cancel(request(api, tmp_path), home, record_of(home))
    assert client.get(kube.KIND, NAME, namespace) is None


def test_what_the_operator_cannot_read_is_told_and_nothing_is_left(
    api: ApiServer, client: Client, home: StateHome, namespace: str, tmp_path: pathlib.Path, monkeypatch: t.Any
) -> None:
    monkeypatch.setattr(kube.wait_ready, "__defaults__", (1.5,))
    apply(client, [operator.store("team", namespace, fake(train="{}"))])
    with operator.run(client, namespace, api.kubeconfig), pytest.raises(RefusedError) as caught:
        kubernetes_run.run(request(api, tmp_path), home, asking(namespace, {"path": "misspelt"}))
    told = str(caught.value)
    assert f"has not made the Secret {namespace}/{NAME} in 2 s" in told or "in 1 s" in told
    assert "SecretSyncedError: could not get secret data from provider (" in told and "Secret does not exist" in told
    assert client.list(kube.KIND, namespace).items == [] and client.get("batch/v1/Job", RUN, namespace) is None
    # Without an operator nothing is said of the request.
    with pytest.raises(RefusedError, match="has no condition Ready yet"):
        kubernetes_run.run(request(api, tmp_path), home, asking(namespace, {}))
    assert client.list(kube.KIND, namespace).items == []


def test_stores_that_cannot_serve_are_refused_before_anything_is_made(
    api: ApiServer, client: Client, home: StateHome, namespace: str, tmp_path: pathlib.Path
) -> None:
    with pytest.raises(RefusedError, match=f"TOKEN.store: there is no SecretStore team in the namespace {namespace}"):
        kubernetes_run.run(request(api, tmp_path), home, asking(namespace, {}))
    with pytest.raises(RefusedError, match="there is no ClusterSecretStore nobody in the cluster"):
        kubernetes_run.run(request(api, tmp_path), home, asking(namespace, {"store": "cluster/nobody"}))
    apply(client, [operator.store("team", namespace, fake(train="{}"))])
    told = {"type": "Ready", "status": "False", "reason": "InvalidProviderConfig", "message": "unable to log in"}
    kind = f"{kube.API_VERSION}/SecretStore"
    client.patch(kind, "team", {"status": {"conditions": [told]}}, namespace, subresource="status")
    with pytest.raises(
        RefusedError, match="SecretStore team cannot be used: .*InvalidProviderConfig: unable to log in"
    ):
        kubernetes_run.run(request(api, tmp_path), home, asking(namespace, {}))
    assert client.list(kube.KIND, namespace).items == [] and client.list("v1/Secret", namespace).items == []


def test_a_run_that_ends_takes_its_request_with_it(
    api: ApiServer, client: Client, home: StateHome, namespace: str, tmp_path: pathlib.Path
) -> None:
    """A start of later has a request of its own: what the first one left may be deleted at any time."""
    apply(client, [operator.store("team", namespace, fake(train=VALUE))])
    with operator.run(client, namespace, api.kubeconfig):
        kubernetes_run.run(request(api, tmp_path), home, asking(namespace, {}))
        cancel.cancel(request(api, tmp_path), home, record_of(home))
        kubernetes_run.run(request(api, tmp_path), home, asking(namespace, {}))
    names = [item["metadata"]["name"] for item in client.list(kube.KIND, namespace).items]
    assert names == [f"{RUN}-external-2"]
    cancel.cancel(request(api, tmp_path), home, record_of(home))
    assert client.list(kube.KIND, namespace).items == []


@pytest.mark.skipif(
    not os.environ.get("MUSTER_REQUIRE_LAB") and not services_python(), reason="no OpenBao (MUSTER_SERVICES_PYTHON)"
)
def test_a_value_of_a_real_openbao_reaches_the_cluster_and_never_the_controller(
    api: ApiServer, client: Client, home: StateHome, namespace: str, tmp_path: pathlib.Path, monkeypatch: t.Any
) -> None:
    monkeypatch.delenv("BAO_TOKEN", raising=False)
    with bao_world.openbao(tmp_path) as bao:
        token = bao.make_token('path "secret/*" { capabilities = ["read"] }')
        secret: t.Any = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login", "namespace": namespace},
                         "data": {"token": base64.b64encode(token.encode()).decode()}}  # fmt: skip
        client.create(secret)
        about = {"server": bao.url, "path": "secret", "version": "v2",
                 "auth": {"tokenSecretRef": {"name": "login", "key": "token"}}}  # fmt: skip
        apply(client, [operator.store("team", namespace, {"vault": about})])
        began = time.monotonic()
        with operator.run(client, namespace, api.kubeconfig):
            asked = asking(namespace, {"path": "team/train", "key": "TOKEN"})
            assert kubernetes_run.run(request(api, tmp_path / "state"), home, asked)["changed"]
        print(f"a run with a secret of External Secrets: submitted in {time.monotonic() - began:.1f} s")
        live = client.get("v1/Secret", NAME, namespace)
        assert live and base64.b64decode(live["data"]["TOKEN"]).decode() == bao_world.CANARY
    kept = b"".join(place.read_bytes() for place in home.root.rglob("*") if place.is_file())
    for value in (bao_world.CANARY, token):
        assert not [form for form in canary.encodings(value).values() if form in kept]
