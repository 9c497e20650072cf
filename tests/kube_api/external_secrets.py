# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""External Secrets for tests: its kinds on a real API server, and a controller that does what the operator's does.

The schema has the fields, enums and defaults of ``external-secrets.io/v1`` that requests of this collection and its
stores use, written from the public description; a field that is not there is refused by the API server. The operator
itself is not run by default: its controller here reads real stores (the provider ``fake``, and ``vault`` over HTTP), sets the
condition ``Ready`` with the operator's reasons, and makes a Secret that its request owns.

With ``MUSTER_EXTERNAL_SECRETS``, the path of the operator's own program with its definitions in ``crds`` beside it, the
same tests run against those. It is built from the Go module github.com/external-secrets/external-secrets, in a quarter
of an hour on one processor, with the providers ``fake`` and ``vault`` alone; nothing here builds it.
"""

from __future__ import annotations

import base64
import json
import os
import pathlib
import subprocess
import threading
import typing as t
import urllib.error
import urllib.request

import yaml

from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.apply import apply
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.external_secrets import API_VERSION, KIND
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.wait import WaitTarget, wait

Dict = dict[str, t.Any]
TEXT: Dict = {"type": "string"}
NAME: Dict = {"type": "string", "minLength": 1, "maxLength": 253}


def section(required: t.Sequence[str] = (), **fields: t.Any) -> Dict:
    return {"type": "object", "properties": fields, **({"required": list(required)} if required else {})}


def choice(*names: str, default: str | None = None) -> Dict:
    return {"type": "string", "enum": list(names), **({"default": default} if default else {})}


STORE_REF = section(name=NAME, kind=choice("SecretStore", "ClusterSecretStore"))
REMOTE = section(["key"], key=TEXT, property=TEXT, version=TEXT)
TARGET = section(
    name=NAME,
    creationPolicy=choice("Owner", "Orphan", "Merge", "None", "CreateOrMerge", default="Owner"),
    deletionPolicy=choice("Delete", "Merge", "Retain", default="Retain"),
    template=section(type=TEXT, metadata=section(labels={"type": "object", "additionalProperties": TEXT})),
)
CONDITIONS: Dict = {
    "type": "array",
    "items": section(
        ["status", "type"], type=TEXT, status=TEXT, reason=TEXT, message=TEXT, lastTransitionTime={"type": "string"}
    ),
}
REQUEST = section(
    refreshPolicy=choice("CreatedOnce", "Periodic", "OnChange"),
    refreshInterval={"type": "string", "default": "1h0m0s"},
    secretStoreRef=STORE_REF,
    target={**TARGET, "default": {"creationPolicy": "Owner", "deletionPolicy": "Retain"}},
    data={
        "type": "array",
        "items": section(
            ["remoteRef", "secretKey"], secretKey=NAME, remoteRef=REMOTE, sourceRef=section(storeRef=STORE_REF)
        ),
    },
)
TOKEN_REF = section(tokenSecretRef=section(name=NAME, key=TEXT))
STORE = section(
    ["provider"],
    provider=section(
        fake=section(["data"], data={"type": "array", "items": section(["key"], key=TEXT, value=TEXT)}),
        vault=section(["server"], server=TEXT, path=TEXT, version=choice("v1", "v2", default="v2"), auth=TOKEN_REF),
    ),
)


def definitions() -> list[Dict]:
    """Return the definitions of the three kinds."""
    found = []
    for kind, scope, spec in (
        ("ExternalSecret", "Namespaced", REQUEST),
        ("SecretStore", "Namespaced", STORE),
        ("ClusterSecretStore", "Cluster", STORE),
    ):
        plural = f"{kind.lower()}s"
        schema = section(
            apiVersion=TEXT, kind=TEXT, metadata={"type": "object"}, spec=spec, status=section(conditions=CONDITIONS)
        )
        version = {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}},
                   "schema": {"openAPIV3Schema": schema}}  # fmt: skip
        names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
        found.append(
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": f"{plural}.external-secrets.io"},
                "spec": {"group": "external-secrets.io", "scope": scope, "names": names, "versions": [version]},
            }
        )
    return found


def program() -> pathlib.Path | None:
    """Return the operator's own program, None where it is not named."""
    named = os.environ.get("MUSTER_EXTERNAL_SECRETS", "")
    return pathlib.Path(named) if named else None


def install(client: Client, made: t.Sequence[Dict] | None = None) -> None:
    """Have the API server know the kinds: by the definitions of the operator itself where that is run."""
    own = program()
    places = sorted((own.parent / "crds").glob("*.yaml")) if own and not made else []
    found: t.Any = made or [yaml.safe_load(place.read_text()) for place in places] or definitions()
    apply(client, found, force=True)
    resource = client.resource("apiextensions.k8s.io/v1/CustomResourceDefinition")
    outcome = wait(client, [WaitTarget(resource, None, item["metadata"]["name"]) for item in found], timeout_s=30)
    assert outcome.end == "done", outcome.summary()
    client.catalog.entries(fresh=True)


class SyncError(Exception):
    """Why a request cannot be satisfied, with the operator's reason."""


class Operator:
    """The operator's own program for one namespace. ``given``: the uids of requests that it satisfied."""

    def __init__(self, client: Client, namespace: str, kubeconfig: pathlib.Path) -> None:
        self._client, self._namespace, self._kubeconfig = client, namespace, kubeconfig
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Operator:
        off = ["cluster-external-secret", "cluster-push-secret", "push-secret"]
        argv = [str(program()), "--namespace", self._namespace, "--metrics-addr", "0"]
        argv += [f"--enable-{name}-reconciler=false" for name in off]
        log = self._kubeconfig.with_name("external-secrets.log")
        with log.open("ab") as said:
            environment = {**os.environ, "KUBECONFIG": str(self._kubeconfig)}
            self._process = subprocess.Popen(argv, env=environment, stdout=said, stderr=said)
        return self

    def __exit__(self, *_error: object) -> None:
        assert self._process is not None and self._process.poll() is None, "the operator has ended"
        self._process.kill()
        self._process.wait()

    @property
    def given(self) -> list[str]:
        found: t.Any = self._client.list(KIND, self._namespace).items
        return [item["metadata"]["uid"] for item in found
                if any(said["status"] == "True" for said in item.get("status", {}).get("conditions", []))]  # fmt: skip


def run(client: Client, namespace: str, kubeconfig: pathlib.Path) -> Operator | Controller:
    """Return what does the operator's part in a namespace: its own program where that is named."""
    return Operator(client, namespace, kubeconfig) if program() else Controller(client, namespace)


class Controller:
    """The operator's part in one namespace, in a thread. ``given``: the names of requests that it satisfied."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.given: list[str] = []
        self.errors: list[BaseException] = []

    def __enter__(self) -> Controller:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join(20)
        assert not self.errors, self.errors

    def _run(self) -> None:
        while not self._over.wait(0.05):
            try:
                for item in self._client.list(KIND, self._namespace).items:
                    self._reconcile(t.cast(Dict, item))
            except MusterError:
                continue
            except Exception as exc:
                self.errors.append(exc)
                return

    def _reconcile(self, item: Dict) -> None:
        meta = item["metadata"]
        if meta["uid"] in self.given or meta.get("deletionTimestamp"):
            return
        try:
            data = {entry["secretKey"]: self._read(item["spec"], entry) for entry in item["spec"]["data"]}
        except SyncError as exc:
            self._set(meta["name"], "False", "SecretSyncedError", "could not get secret data from provider")
            self._warn(item, f"error processing spec.data[0] (key: train), err: {exc}")
            return
        target = item["spec"]["target"]
        owner = {"apiVersion": API_VERSION, "kind": "ExternalSecret", "name": meta["name"], "uid": meta["uid"],
                 "controller": True, "blockOwnerDeletion": True}  # fmt: skip
        template = target.get("template") or {}
        secret: t.Any = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": template.get("type", "Opaque"),
            "metadata": {"name": target["name"], "namespace": self._namespace, "ownerReferences": [owner],
                         "labels": (template.get("metadata") or {}).get("labels") or {}},
            "data": {name: base64.b64encode(value.encode()).decode() for name, value in data.items()},
        }  # fmt: skip
        self._client.create(secret)
        self.given.append(meta["uid"])
        self._set(meta["name"], "True", "SecretSynced", "secret synced")

    def _set(self, name: str, state: str, reason: str, message: str) -> None:
        condition = {"type": "Ready", "status": state, "reason": reason, "message": message,
                     "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip
        self._client.patch(KIND, name, {"status": {"conditions": [condition]}}, self._namespace, subresource="status")

    def _warn(self, item: Dict, message: str) -> None:
        """Say the cause where the operator does: its condition has none."""
        meta = item["metadata"]
        about = {"apiVersion": API_VERSION, "kind": "ExternalSecret", "uid": meta["uid"], "name": meta["name"],
                 "namespace": self._namespace}  # fmt: skip
        event: t.Any = {"apiVersion": "v1", "kind": "Event", "type": "Warning", "reason": "UpdateFailed",
                        "metadata": {"name": f"{meta['name']}.{meta['uid']}", "namespace": self._namespace},
                        "involvedObject": about, "message": message}  # fmt: skip
        apply(self._client, [event])

    def _read(self, spec: Dict, entry: Dict) -> str:
        reference = (entry.get("sourceRef") or {}).get("storeRef") or spec["secretStoreRef"]
        where = None if reference["kind"] == "ClusterSecretStore" else self._namespace
        store = t.cast("Dict | None", self._client.get(f"{API_VERSION}/{reference['kind']}", reference["name"], where))
        if store is None:
            raise SyncError(f"could not get {reference['kind']} {reference['name']}")
        provider, remote = store["spec"]["provider"], entry["remoteRef"]
        value = _read_fake(provider["fake"], remote) if "fake" in provider else self._read_vault(provider, remote)
        if "property" not in remote:
            return value
        found = json.loads(value)
        if remote["property"] not in found:
            raise SyncError(f"cannot find secret data for key: {remote['property']!r}")
        return str(found[remote["property"]])

    def _read_vault(self, provider: Dict, remote: Dict) -> str:
        about = provider["vault"]
        reference = about["auth"]["tokenSecretRef"]
        secret = t.cast("Dict | None", self._client.get("v1/Secret", reference["name"], self._namespace))
        token = base64.b64decode((secret or {"data": {}})["data"].get(reference["key"], "")).decode()
        url = f"{about['server']}/v1/{about['path']}/data/{remote['key']}"
        request = urllib.request.Request(url, headers={"X-Vault-Token": token})
        try:
            with urllib.request.build_opener().open(request, timeout=10) as answer:
                return json.dumps(json.loads(answer.read())["data"]["data"])
        except urllib.error.HTTPError as exc:
            said = {403: "permission denied", 404: "Secret does not exist"}
            raise SyncError(f"cannot read secret data from Vault: Code: {exc.code}. {said.get(exc.code, '')}") from None


def _read_fake(about: Dict, remote: Dict) -> str:
    found = next((item["value"] for item in about["data"] if item["key"] == remote["key"]), None)
    if found is None:
        raise SyncError("Secret does not exist")
    return str(found)


def store(name: str, namespace: str | None, provider: Dict) -> t.Any:
    """Return a store."""
    kind = "SecretStore" if namespace else "ClusterSecretStore"
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": meta, "spec": {"provider": provider}}
