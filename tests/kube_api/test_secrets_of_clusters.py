# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Secrets and a cluster: OpenBao's objects, registry credentials of a run, a Secret read by a job on hosts.

A real API server without kubelets: what tests say of pods stands in for them.
"""

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
from ansible_collections.muster.training.plugins.module_utils._model.job import Job, parse_job, to_yaml_names
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.apply import apply
from ansible_collections.muster.training.plugins.plugin_utils._services import vault
from ansible_collections.muster.training.plugins.plugin_utils._workflows.services import deploy
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.credentials import (
    SecretPlace,
    read_listed,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.request import RunRequest
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import run as training_job
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import (
    network_preflight,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import (
    run as kubernetes_run,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes.ending import cancel
from ansible_collections.muster.training.tests.kube_api.test_cluster_identity import (
    RUN,
    Dict,
    home,
    job,
    request,
    unproven,
)
from ansible_collections.muster.training.tests.kube_api.test_runs_in_pods import record_of
from ansible_collections.muster.training.tests.support import canary
from ansible_collections.muster.training.tests.support.kube_api import ApiServer

__all__ = ["home", "unproven"]
pytestmark = pytest.mark.usefixtures("unproven")
LOGIN = "robot:canary-of-registry-0001"


def pulling(namespace: str) -> Job:
    refs = [{"name": "PULL", "from": "env", "as": "registry"}]
    written = to_yaml_names(job(namespace))
    return parse_job({**written, "image": "registry.example/team/train:1", "secret_refs": refs})


def test_a_run_brings_its_registry_credential_and_takes_it_away(
    api: ApiServer, client: Client, home: StateHome, namespace: str, tmp_path: pathlib.Path, monkeypatch: t.Any
) -> None:
    """It is there before the network test's pods, owned by the run, in the gang's template, and gone with the run."""
    monkeypatch.setenv("PULL", LOGIN)
    seen: list[t.Any] = []

    def look(*_args: t.Any) -> None:
        seen.append(client.get("v1/Secret", f"{RUN}-pull", namespace))

    monkeypatch.setattr(network_preflight, "run_preflight", look)
    assert kubernetes_run.run(request(api, tmp_path), home, pulling(namespace))["changed"]
    live = client.get("batch/v1/Job", RUN, namespace)
    secret = client.get("v1/Secret", f"{RUN}-pull", namespace)
    assert seen[0] is not None and live is not None and secret is not None
    assert secret["type"] == "kubernetes.io/dockerconfigjson"
    assert [owner["uid"] for owner in secret["metadata"]["ownerReferences"]] == [live["metadata"]["uid"]]
    config = json.loads(base64.b64decode(secret["data"][".dockerconfigjson"]))
    assert config["auths"]["registry.example"]["password"] == LOGIN.partition(":")[2]
    assert live["spec"]["template"]["spec"]["imagePullSecrets"] == [{"name": f"{RUN}-pull"}]
    assert client.get("v1/Secret", f"{RUN}-secrets", namespace) is None, "ranks have none"
    cancel.cancel(request(api, tmp_path), home, record_of(home))
    assert client.get("v1/Secret", f"{RUN}-pull", namespace) is None
    kept = b"".join(place.read_bytes() for place in tmp_path.rglob("*") if place.is_file())
    said = "\n".join(t.cast(t.Any, request(api, tmp_path).progress).lines)
    for name, form in canary.encodings(LOGIN.partition(":")[2]).items():
        assert form not in kept and form.decode() not in json.dumps(live) + said, name


def test_a_start_that_is_refused_leaves_no_credential(
    api: ApiServer, client: Client, home: StateHome, namespace: str, tmp_path: pathlib.Path, monkeypatch: t.Any
) -> None:
    monkeypatch.setenv("PULL", LOGIN)

    def refuse(*_args: t.Any) -> None:
        raise RefusedError("pods do not reach each other")

    monkeypatch.setattr(network_preflight, "run_preflight", refuse)
    with pytest.raises(RefusedError, match="do not reach"):
        kubernetes_run.run(request(api, tmp_path), home, pulling(namespace))
    assert client.list("v1/Secret", namespace).items == []


def test_a_job_on_hosts_reads_a_secret_of_the_cluster(api: ApiServer, client: Client, namespace: str) -> None:
    data = {"key": base64.b64encode(b"geheim-of-cluster").decode()}
    meta = {"name": "theirs", "namespace": namespace}
    client.create({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data})
    found = read_listed(SecretPlace("kubernetes", f"{namespace}/theirs"), ["key"], "x", lambda: client)
    assert found == {"key": b"geheim-of-cluster"}


def deploying(api: ApiServer, home: StateHome, namespace: str, base: pathlib.Path, **changes: t.Any) -> RunRequest:
    image = "registry.example.com/openbao:2.7.2"
    place = {"namespace": namespace, "node": f"{namespace}-1", "claim": "data", "image": image}
    place |= changes.pop("place", {})
    service = {"name": "bao", "kind": "secrets", "mode": "deploy", "deploy": place, **changes}
    options = {"service": service, "state_home": {"path": str(home.root)}, "cluster": "default"}
    return request(api, base, **options)


def roll_out(client: Client, namespace: str) -> None:
    """Say of the pod what its kubelet would."""
    end = time.monotonic() + 20
    while client.get("apps/v1/StatefulSet", "muster-bao", namespace) is None:
        assert time.monotonic() < end
        time.sleep(0.02)
    live = t.cast(Dict, client.get("apps/v1/StatefulSet", "muster-bao", namespace))
    counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "currentReplicas"), 1)
    status = {
        **counts,
        "observedGeneration": live["metadata"]["generation"],
        "currentRevision": "a",
        "updateRevision": "a",
    }
    client.patch("apps/v1/StatefulSet", "muster-bao", {"status": status}, namespace, subresource="status")


def test_openbao_is_made_in_a_cluster_once(
    api: ApiServer, client: Client, home: StateHome, namespace: str, tmp_path: pathlib.Path
) -> None:
    """At its Node's own address, over HTTPS; again without a write; removed with what it made and no more."""
    addresses = [{"type": "InternalIP", "address": "192.0.2.7"}]
    client.patch("Node", f"{namespace}-1", {"status": {"addresses": addresses}}, subresource="status")
    access = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim: Dict = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": access}
    apply(client, [{**claim, "metadata": {"name": "data", "namespace": namespace}}])  # type: ignore[typeddict-item]
    checked = deploy.run(dataclasses.replace(deploying(api, home, namespace, tmp_path), check=True), [])
    assert checked["changed"] and client.list("apps/v1/StatefulSet", namespace).items == []
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        marking = pool.submit(roll_out, client, namespace)
        made = deploy.run(deploying(api, home, namespace, tmp_path), [], wait_s=30)
        marking.result(30)
    assert (made["changed"], made["endpoint"]) == (True, "https://192.0.2.7:8200")
    live = t.cast(Dict, client.get("apps/v1/StatefulSet", "muster-bao", namespace))
    pod = live["spec"]["template"]["spec"]
    assert pod["hostNetwork"] and pod["containers"][0]["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"
    place = home.folder / "services" / "bao.credentials"
    lines = [line.partition(" = ") for line in place.read_text().splitlines() if " = " in line]
    assert place.stat().st_mode & 0o777 == 0o600 and "TLS_CERTIFICATE" in {name for name, _equals, _value in lines}
    kept = b"".join(item.read_bytes() for item in home.root.rglob("*") if item.is_file() and item != place)
    for name, _equals, value in lines:
        for form in canary.encodings(value).values():
            assert name.startswith("TLS_") or (form not in kept and form.decode() not in json.dumps([live, made])), name
    again = deploy.run(deploying(api, home, namespace, tmp_path), [], wait_s=30)
    assert (again["changed"], again["writes"]) == (False, 0)
    # A controller that lost its file finds the credentials in the cluster.
    before = place.read_text()
    place.unlink()
    assert deploy.run(deploying(api, home, namespace, tmp_path), [], wait_s=30)["writes"] == 0
    assert sorted(place.read_text().splitlines()) == sorted(before.splitlines())
    gone = deploy.run(deploying(api, home, namespace, tmp_path, state="absent"), [])
    assert gone["changed"] and gone["kept"] == f"{namespace}/data" and place.exists()
    assert [
        kind for kind in ("apps/v1/StatefulSet", "v1/Service", "v1/Secret") if client.list(kind, namespace).items
    ] == []


def test_a_token_made_for_pods_is_in_the_runs_secret_alone_and_ended_with_it(
    api: ApiServer, client: Client, home: StateHome, namespace: str, tmp_path: pathlib.Path, monkeypatch: t.Any
) -> None:
    """Vault's answers are a stand-in's; the controller does not follow, and the next command ends the token."""
    token, revoked = "s.canary-made-for-pods-0001", t.cast("list[str]", [])
    monkeypatch.setenv("BAO_ADDR", "http://bao")
    monkeypatch.setenv("BAO_TOKEN", "s.token-of-the-controller")
    lease = vault.VaultLease("token", "accessor-1", 3600.0, True)
    monkeypatch.setattr(vault, "require_issue", lambda *_args: None)
    monkeypatch.setattr(vault, "issue", lambda *_args: ({"token": token}, lease))
    monkeypatch.setattr(vault, "renew_own", lambda *_args: 0.0)
    monkeypatch.setattr(vault, "revoke", lambda _access, item, _option: revoked.append(item.id))
    refs = [{"name": "TOKEN", "from": "openbao", "path": "auth/token/create/job"}]
    asked = parse_job({**to_yaml_names(job(namespace)), "secret_refs": refs})
    assert kubernetes_run.run(request(api, tmp_path), home, asked)["changed"]
    secret = client.get("v1/Secret", f"{RUN}-secrets", namespace)
    assert secret is not None and base64.b64decode(secret["data"]["TOKEN"]).decode() == token
    kept = b"".join(place.read_bytes() for place in tmp_path.rglob("*") if place.is_file())
    objects = json.dumps([client.list(kind, namespace).items for kind in ("batch/v1/Job", "v1/ConfigMap", "v1/Event")])
    for form in canary.encodings(token).values():
        assert form not in kept and form.decode() not in objects
    options = {"state": "cancelled", "state_home": {"path": str(home.root)}, "cluster": "default"}
    assert revoked == [] and training_job.run(request(api, tmp_path, **options))["changed"]
    assert revoked == ["accessor-1"] and client.get("v1/Secret", f"{RUN}-secrets", namespace) is None
