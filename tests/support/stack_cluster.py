# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real API server with three Nodes for the roles that offer devices to pods (gpu_stack, rdma_stack)."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import threading
import typing as t

import pytest
import yaml

from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.tests.support import kube_api
from ansible_collections.muster.training.tests.support.kube_api import ApiServer

ROOT = pathlib.Path(__file__).resolve().parents[2]
CRDS = pathlib.Path(os.environ.get("MUSTER_CRDS") or ROOT.parent / "shared" / "crds")
LIMIT_S = 120
NODES = ("gpu-1", "gpu-2", "cpu-1")
PLAY = "[{{hosts: localhost, gather_facts: false, roles: [{{role: muster.training.{}}}]}}]"
Dict = dict[str, t.Any]


@contextlib.contextmanager
def start_server(folder: pathlib.Path) -> t.Iterator[ApiServer]:
    """Run a server that lets pods be privileged, as K3s does."""
    kube_api.require()
    with kube_api.ApiServer(folder, ("--allow-privileged=true",)) as server:
        yield server


class Cluster:
    """Three Nodes; a thread says of each DaemonSet that its pods are available, as a controller would."""

    def __init__(self, api: ApiServer, client: Client, folder: pathlib.Path, role: str, **values: t.Any) -> None:
        self.api, self.client, self.folder, self.role, self.values = api, client, folder, role, values
        self._end = threading.Event()
        self._keeper = threading.Thread(target=self._keep, daemon=True)

    def __enter__(self) -> Cluster:
        (self.folder / "play.yml").write_text(PLAY.format(self.role))
        for name in NODES:
            self.client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        self._keeper.start()
        return self

    def __exit__(self, *_args: object) -> None:
        self._end.set()
        self._keeper.join()
        for name in NODES:
            self.client.delete("v1/Node", name)
        for item in self.client.list("apps/v1/DaemonSet").items:
            self.client.delete(item, str(item["metadata"]["name"]), item["metadata"].get("namespace"))
        for pod in self.client.list("v1/Pod", "kube-system").items:
            self.client.delete(pod, str(pod["metadata"]["name"]), "kube-system")

    def _keep(self) -> None:
        while not self._end.wait(0.2):
            for item in self.client.list("apps/v1/DaemonSet").items:
                generation = t.cast("Dict", item["metadata"])["generation"]
                if (item.get("status") or {}).get("observedGeneration") != generation:
                    counts = dict.fromkeys(("desiredNumberScheduled", "updatedNumberScheduled", "numberAvailable"), 1)
                    status = {**counts, "currentNumberScheduled": 1, "numberMisscheduled": 0, "numberReady": 1}
                    body = {"status": {**status, "observedGeneration": generation}}
                    name, space = str(item["metadata"]["name"]), item["metadata"].get("namespace")
                    self.client.patch("apps/v1/DaemonSet", name, body, space, subresource="status")

    def play(self, *words: str, code: int = 0, playbook: pathlib.Path | None = None, **variables: t.Any) -> str:
        """Run the role, or another playbook, and return its output."""
        values = {"muster_kubeconfig": str(self.api.kubeconfig), **self.values, **variables}
        values["muster_state"] = {"path": str(self.folder / "state")}
        values[f"{self.role}_lock_file"] = str(self.folder / "lock.json")
        program = str(pathlib.Path(sys.executable).parent / "ansible-playbook")
        argv = [
            program,
            "-i",
            "localhost,",
            "-c",
            "local",
            str(playbook or self.folder / "play.yml"),
            "-e",
            json.dumps(values),
        ]
        env = {**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_HOME": str(self.folder), "ANSIBLE_LOCALHOST_WARNING": "0"}
        done = subprocess.run([*argv, *words], env=env, capture_output=True, text=True, check=False, timeout=LIMIT_S)
        output = done.stdout + done.stderr
        assert done.returncode == code and "Traceback" not in output, output
        return output

    def labels(self, node: str) -> Dict:
        """Return the labels of a Node."""
        return dict(t.cast("Dict", self.client.get("v1/Node", node))["metadata"].get("labels") or {})

    def annotations(self, node: str) -> Dict:
        """Return the annotations of a Node."""
        return dict(t.cast("Dict", self.client.get("v1/Node", node))["metadata"].get("annotations") or {})

    def versions(self, *kinds: str) -> dict[str, str]:
        """Return the resourceVersion of each object of some kinds."""
        items = [item for kind in kinds for item in self.client.list(kind).items]
        return {str(item["metadata"]["uid"]): str(item["metadata"]["resourceVersion"]) for item in items}

    def add_plugin(self, name: str, *nodes: str, image: str = "nvcr.io/nvidia/k8s-device-plugin:v0.17.4") -> None:
        """Have a foreign device plugin with a pod on each of some nodes."""
        spec: Dict = {
            "containers": [{"name": "p", "image": image}],
            "volumes": [{"name": "k", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}],
        }
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": spec}
        made = self.client.create(
            {
                "apiVersion": "apps/v1",
                "kind": "DaemonSet",
                "metadata": {"name": name, "namespace": "kube-system"},
                "spec": {"selector": {"matchLabels": labels}, "template": template},
            }
        )
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": name, "uid": made["metadata"]["uid"]}
        for node in nodes:
            meta: t.Any = {
                "name": f"{name}-{node}",
                "namespace": "kube-system",
                "labels": labels,
                "ownerReferences": [owner],
            }
            pod_spec = {**spec, "nodeName": node}
            self.client.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod_spec})

    def state(self) -> dict[str, str]:
        """Return the version of every object that the role could write."""
        items = [*self.client.list("v1/Node").items, *self.client.list("apps/v1/DaemonSet").items]
        # The status of a DaemonSet is the controller's.
        return {
            f"{item['kind']}/{item['metadata']['name']}": json.dumps([item.get("spec"), item["metadata"].get("labels")])
            for item in items
        }


def changed(output: str) -> int:
    """Return how many tasks changed something."""
    return int(output.partition("PLAY RECAP")[2].partition("changed=")[2].split()[0])


HELM_CHART: Dict = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "helmcharts.helm.cattle.io"},
    "spec": {
        "group": "helm.cattle.io",
        "scope": "Namespaced",
        "names": {"kind": "HelmChart", "plural": "helmcharts", "singular": "helmchart"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    **{
                                        name: {"type": "string"}
                                        for name in (
                                            "chartContent",
                                            "targetNamespace",
                                            "valuesContent",
                                            "version",
                                            "chart",
                                        )
                                    },
                                    "createNamespace": {"type": "boolean"},
                                    "failurePolicy": {"type": "string", "enum": ["abort", "reinstall"]},
                                },
                            }
                        },
                    }
                },
            }
        ],
    },
}


def require_crds(*names: str) -> list[Dict]:
    """Return definitions of the folder of custom resources; without it the test is listed as not run."""
    if not CRDS.is_dir():
        pytest.skip(f"no folder of custom resource definitions at {CRDS} (MUSTER_CRDS)")
    return [item for name in names for item in yaml.safe_load_all((CRDS / f"{name}.yaml").read_text()) if item]


def leaves(value: Dict, path: tuple[t.Any, ...] = ()) -> t.Iterator[tuple[t.Any, ...]]:
    """Yield the path of each scalar of nested mappings."""
    for key, item in value.items():
        if isinstance(item, dict):
            yield from leaves(item, (*path, key))
        elif not isinstance(item, list):
            yield (*path, key)
