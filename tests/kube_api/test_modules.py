# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules against a real API server: absent, check mode, apply, again, change, absent; no value in any output."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._workflows.kube_objects import (
    kube_apply,
    kube_info,
    kube_secret,
    kube_wait,
)
from ansible_collections.muster.training.tests.support.kube_api import ApiServer

HERE = pathlib.Path("/")
Dict = dict[str, t.Any]


def secret(api: ApiServer, namespace: str, **more: t.Any) -> Dict:
    return {
        "kubeconfig": str(api.kubeconfig),
        "namespace": namespace,
        "name": "s",
        "state": "present",
        "type": "Opaque",
        "field_manager": "muster",
        "force_conflicts": False,
        **more,
    }


def run_secret(options: Dict, check: bool = False, diff: bool = True) -> Dict:
    return kube_secret.run(options, HERE, check, diff)


def test_the_life_of_a_secret(api: ApiServer, client: Client, namespace: str) -> None:
    wanted = secret(api, namespace, data={"a": "first-canary-value", "b": "x"}, data_base64={"c": "AAEC"})
    predicted = run_secret(wanted, check=True)
    assert predicted["changed"] and predicted["hash"] is None and client.get("Secret", "s", namespace) is None
    made = run_secret(wanted)
    assert (made["action"], made["data_keys"]) == ("created", ["a", "b", "c"]) and len(made["hash"]) == 16
    live = client.get("Secret", "s", namespace)
    assert live and live["data"]["c"] == "AAEC"
    before = client.writes
    again = run_secret(wanted)
    assert not again["changed"] and again["hash"] == made["hash"] and client.writes == before
    same = client.get("Secret", "s", namespace)
    assert same and same["metadata"]["resourceVersion"] == live["metadata"]["resourceVersion"]
    less = secret(api, namespace, data={"a": "other-canary-value"})
    changed = run_secret(less)
    assert changed["changed"] and changed["hash"] != made["hash"]
    live = client.get("Secret", "s", namespace)
    assert live and list(live["data"]) == ["a"]
    for result in (predicted, made, again, changed):
        assert "canary" not in json.dumps(result) and "Y2FuYXJ5" not in json.dumps(result)
    gone = secret(api, namespace, state="absent")
    assert run_secret(gone, check=True)["changed"] and client.get("Secret", "s", namespace)
    assert run_secret(gone)["action"] == "removed" and run_secret(gone)["action"] == "unchanged"


def test_a_secret_of_wrong_form(api: ApiServer, namespace: str) -> None:
    with pytest.raises(MusterError, match="data_base64.c: is not base64"):
        run_secret(secret(api, namespace, data_base64={"c": "%%"}))
    with pytest.raises(MusterError, match="data.a: must be text"):
        run_secret(secret(api, namespace, data={"a": ["x"]}))


def options(api: ApiServer, **more: t.Any) -> Dict:
    defaults = {"field_manager": "muster", "force_conflicts": False, "validate": False, "prune": False, "timeout_s": 60}
    return {"kubeconfig": str(api.kubeconfig), **defaults, **more}


@pytest.mark.parametrize("word", ["ConfigMap", "configmaps", "configmap", "cm"])
def test_a_kind_may_be_called_by_any_of_its_names(api: ApiServer, namespace: str, word: str) -> None:
    shared = {"label_selectors": [], "field_selectors": [], "managed_fields": False, "namespace": namespace}
    for version in ({}, {"api_version": "v1"}):
        found = kube_info.run({"kubeconfig": str(api.kubeconfig), "kind": word, **version, **shared}, HERE)
        assert {item["kind"] for item in found["resources"]} <= {"ConfigMap"}
    with pytest.raises(MusterError, match="apps/v1 configmaps: the API server does not serve this kind"):
        kube_info.run(
            {"kubeconfig": str(api.kubeconfig), "kind": "configmaps", "api_version": "apps/v1", **shared}, HERE
        )


def test_apply_then_wait_then_read(api: ApiServer, namespace: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.yml").write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {set: x}}\ndata: {k: v}\n"
    )
    wanted = options(api, src=["a.yml"], namespace=namespace)
    predicted = kube_apply.run(wanted, tmp_path, True, True)
    assert predicted["changed"] and predicted["writes"] == 0 and "+++" not in str(predicted["diff"])
    applied = kube_apply.run(wanted, tmp_path, False, False)
    assert applied["objects"][0]["action"] == "created" and "diff" not in applied
    assert not kube_apply.run(wanted, tmp_path, False, False)["changed"]
    waited = kube_wait.run(
        options(api, objects=applied["objects"], until="done", timeout_s=10), tmp_path, False, lambda _line: None
    )
    assert waited["states"] == [{"object": f"ConfigMap {namespace}/a", "state": "done", "reason": "exists"}]
    late = kube_wait.run(
        options(api, objects=[{"kind": "Job", "name": "never", "namespace": namespace}], until="done", timeout_s=1),
        tmp_path,
        False,
        lambda _line: None,
    )
    assert (
        late["failed"] and late["msg"] == f"not done within 1 s (0 of 1 done): Job {namespace}/never does not exist yet"
    )
    read = kube_info.run(
        options(
            api, kind="cm", namespace=namespace, label_selectors=["set=x"], field_selectors=[], managed_fields=False
        ),
        tmp_path,
    )
    assert [item["data"] for item in read["resources"]] == [{"k": "v"}]
    assert "managedFields" not in read["resources"][0]["metadata"]
    with pytest.raises(MusterError, match="there is nothing to apply"):
        kube_apply.run(options(api, objects=[]), tmp_path, False, False)
    with pytest.raises(MusterError, match="prune_labels: is required"):
        kube_apply.run(options(api, objects=[], prune=True), tmp_path, False, False)


PLAY = """
- hosts: localhost
  gather_facts: false
  module_defaults: {group/muster.training.all: {kubeconfig: "{{ kubeconfig }}", namespace: "{{ space }}"}}
  tasks:
    - muster.training.kube_secret: {name: s, data: {word: "{{ lookup('env', 'CANARY') }}"}}
    - muster.training.kube_info: {kind: Secret, name: s}
    - muster.training.kube_apply:
        objects:
          apiVersion: v1
          kind: Secret
          metadata: {name: t}
          stringData: {word: "{{ lookup('env', 'CANARY') }}"}
    - muster.training.kube_secret: {name: s, type: other, data: {word: "{{ lookup('env', 'CANARY') }}"}}
      ignore_errors: true
    - muster.training.kube_info: {kind: Pod, token: "{{ lookup('env', 'CANARY') }}"}
      ignore_errors: true
"""


def test_no_value_is_in_the_output_of_a_playbook(
    api: ApiServer, client: Client, namespace: str, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "play.yml").write_text(PLAY)
    canary = "c4nary-Value-77-that-shows"
    program = str(pathlib.Path(sys.executable).parent / "ansible-playbook")
    variables = {"kubeconfig": str(api.kubeconfig), "space": namespace}
    # The values of literal manifests are the user's own to hide, hence -v and not -vvv.
    argv = [
        program,
        "-i",
        "localhost,",
        "-c",
        "local",
        "--diff",
        "-v",
        str(tmp_path / "play.yml"),
        "-e",
        json.dumps(variables),
    ]
    environment = {**os.environ, "CANARY": canary, "ANSIBLE_LOCALHOST_WARNING": "False"}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    text = done.stdout + done.stderr
    assert done.returncode == 0 and "failed=0" in text and "ignored=2" in text, text[-2000:]
    assert "field is immutable" in text and "Traceback" not in text
    live = client.get("Secret", "t", namespace)
    assert live is not None
    assert canary not in text and live["data"]["word"] not in text
