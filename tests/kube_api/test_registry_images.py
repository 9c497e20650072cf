# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job whose image is in a bound registry, on a real API server: what its pods run, and with which credential."""

from __future__ import annotations

import base64
import dataclasses
import json
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding
from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import bindings
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import (
    run as kubernetes_run,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes.ending import cancel
from ansible_collections.muster.training.tests.fakes.registry import PASSWORD, USER, FakeRegistry
from ansible_collections.muster.training.tests.kube_api.test_cluster_identity import RUN, home, job, request, unproven
from ansible_collections.muster.training.tests.kube_api.test_runs_in_pods import record_of
from ansible_collections.muster.training.tests.support import canary
from ansible_collections.muster.training.tests.support.kube_api import ApiServer

__all__ = ["home", "unproven"]
pytestmark = pytest.mark.usefixtures("unproven")
MIRROR = "registry.mesh:5000"
IMAGE = f"{MIRROR}/team/train:1"


@pytest.fixture
def server(home: StateHome, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[FakeRegistry]:
    monkeypatch.setenv("REGISTRY_USERNAME", USER)
    monkeypatch.setenv("REGISTRY_PASSWORD", PASSWORD)
    with FakeRegistry("bearer") as made:
        about = {"name": "images", "component": "registry", "mode": "bind", "endpoint": made.url, "hosts": [MIRROR]}
        bindings.write_binding(home, Binding.from_dict({**about, "secret_ref": {"from": "env"}}))
        yield made


def pod_of(client: Client, namespace: str) -> dict[str, t.Any]:
    live = client.get("batch/v1/Job", RUN, namespace)
    assert live is not None
    return t.cast("dict[str, t.Any]", live["spec"]["template"]["spec"])


def test_a_tag_that_moves_is_one_digest_for_a_start(
    api: ApiServer, client: Client, home: StateHome, namespace: str, tmp_path: pathlib.Path, server: FakeRegistry
) -> None:
    """Followed and restarted by its engine it keeps the image; a start from anew takes what the tag stands for then."""
    wanted = dataclasses.replace(job(namespace), image=IMAGE)
    first = server.add_image("team/train", "1", ("amd64", "arm64"), "first")
    asked = request(api, tmp_path)
    assert kubernetes_run.run(asked, home, wanted)["changed"]
    pod = pod_of(client, namespace)
    assert [item["image"] for item in pod["containers"]] == [f"{MIRROR}/team/train@{first}"]
    assert record_of(home).image == f"{MIRROR}/team/train@{first}"
    secret = client.get("v1/Secret", f"{RUN}-pull", namespace)
    assert secret is not None and pod["imagePullSecrets"] == [{"name": f"{RUN}-pull"}]
    config = json.loads(base64.b64decode(secret["data"][".dockerconfigjson"]))
    assert config["auths"][MIRROR] | {"auth": ""} == {"username": USER, "password": PASSWORD, "auth": ""}
    second = server.add_image("team/train", "1", ("amd64", "arm64"), "second")
    calls = len(server.calls)
    again = kubernetes_run.run(request(api, tmp_path), home, wanted)
    assert not again["changed"] and len(server.calls) == calls, "what is followed does not ask the registry"
    assert pod_of(client, namespace) == pod
    cancel.cancel(request(api, tmp_path), home, record_of(home))
    assert client.get("v1/Secret", f"{RUN}-pull", namespace) is None
    kubernetes_run.run(request(api, tmp_path), home, wanted)
    assert pod_of(client, namespace)["containers"][0]["image"].endswith(f"@{second}")
    kept = b"".join(place.read_bytes() for place in tmp_path.rglob("*") if place.is_file())
    shown = json.dumps(pod) + "\n".join(t.cast("t.Any", asked.progress).lines)
    for name, form in canary.encodings(PASSWORD).items():
        assert form not in kept and form.decode() not in shown, name


def test_a_mixed_fleet_gets_the_image_where_it_runs(
    api: ApiServer, client: Client, home: StateHome, namespace: str, tmp_path: pathlib.Path, server: FakeRegistry
) -> None:
    """One node of two is left out: a job of two has no place, and a job of one is kept to the other."""
    client.patch("Node", f"{namespace}-0", {"metadata": {"labels": {"kubernetes.io/arch": "arm64"}}})
    client.patch("Node", f"{namespace}-1", {"metadata": {"labels": {"kubernetes.io/arch": "amd64"}}})
    server.add_image("team/train", "1")
    asked = request(api, tmp_path)
    wanted = dataclasses.replace(job(namespace), image=IMAGE, nodes=1)
    kubernetes_run.run(asked, home, wanted)
    lines = t.cast("t.Any", asked.progress).lines
    assert any(f"{namespace}-0 (arm64) cannot run it, and is left out" in line for line in lines)
    terms = pod_of(client, namespace)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = terms["nodeSelectorTerms"]
    assert {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]} in term["matchExpressions"]
    cancel.cancel(request(api, tmp_path), home, record_of(home))
    server.add_image("team/train", "1", ("riscv64",))
    with pytest.raises(RefusedError, match="is made for riscv64, and nodes are"):
        kubernetes_run.run(request(api, tmp_path), home, wanted)
