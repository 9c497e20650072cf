# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is installed on the cluster: the projects' own manifests by ``kubectl kustomize``, kept in the cache; DNS by the lab.

Changed are only the image, where the pods run (beside the control plane, so that a drill on a node never hits a
controller), what they ask for, and how often readiness is looked at.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import subprocess
import tempfile
import typing as t

from ..host import LabError
from . import plan
from .binaries import PROGRAMS, module_folder

_KUSTOMIZE_S = 120
# Kueue last: while it starts, its webhooks refuse the pods of others.
STANDARD = ("coredns", "jobset", "kueue")
ON_REQUEST = ("mpi-operator", "trainer", "kuberay")


@dataclasses.dataclass(frozen=True, slots=True)
class Component:
    """A controller: folders of manifests in its module, the image they name, its namespace and Deployment.

    ``own_namespace``: the manifests bring it, else it is made. ``extra``: what a kustomization adds to them.
    ``probed``: the Deployment has a readiness probe.
    """

    name: str
    folders: tuple[str, ...]
    image: str
    namespace: str
    deployment: str
    probed: bool = True
    own_namespace: bool = True
    extra: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)


_TRAINER_SECRET = {
    "secretGenerator": [{"name": "kubeflow-trainer-webhook-cert", "options": {"disableNameSuffixHash": True}}],
}
COMPONENTS: t.Final = {
    item.name: item
    for item in (
        Component(
            "jobset",
            ("config/default",),
            "us-central1-docker.pkg.dev/k8s-staging-images/jobset/jobset",
            "jobset-system",
            "jobset-controller-manager",
        ),
        Component(
            "kueue",
            ("config/default",),
            "us-central1-docker.pkg.dev/k8s-staging-images/kueue/kueue",
            "kueue-system",
            "kueue-controller-manager",
        ),
        Component(
            "mpi-operator",
            ("manifests/overlays/standalone",),
            "mpioperator/mpi-operator",
            "mpi-operator",
            "mpi-operator",
            probed=False,
        ),
        Component(
            "trainer",
            # Its overlay would also install a JobSet of its own, from the network.
            ("manifests/base/crds", "manifests/base/manager", "manifests/base/rbac", "manifests/base/webhook"),
            "ghcr.io/kubeflow/trainer/trainer-controller-manager",
            "kubeflow-system",
            "kubeflow-trainer-controller-manager",
            own_namespace=False,
            extra=_TRAINER_SECRET,
        ),
        Component(
            "kuberay",
            ("config/default",),
            "quay.io/kuberay/operator",
            "ray-system",
            "kuberay-operator",
            own_namespace=False,
        ),
    )
}


def image_name(name: str) -> str:
    """Return the name under which the lab's images are known to the nodes; nothing is ever pulled."""
    return f"localhost/muster-lab/{name}:lab"


def rendered(home: pathlib.Path, kubectl: t.Sequence[str], name: str) -> pathlib.Path:
    """Return the manifests of a component, rendering them once.

    :raises LabError: when its module cannot be had or kustomize fails.
    """
    component = COMPONENTS[name]
    content = {
        "images": [{"name": component.image, **_split(image_name(name))}],
        "patches": [{"target": {"kind": "Deployment"}, "patch": json.dumps(_patches(component))}],
        **component.extra,
    }
    if component.own_namespace:
        return kustomized(home, kubectl, name, component.folders, content)
    # Set everywhere, so only where the manifests are of one namespace and name none.
    content["namespace"] = component.namespace
    return kustomized(home, kubectl, name, component.folders, content, [namespace(component.namespace)])


def kustomized(
    home: pathlib.Path,
    kubectl: t.Sequence[str],
    program: str,
    folders: t.Sequence[str],
    content: t.Mapping[str, t.Any],
    objects: t.Sequence[t.Any] = (),
) -> pathlib.Path:
    """Return what a kustomization over folders of a program's module gives, rendering it once.

    :param content: the kustomization's own fields.
    :param objects: further resources.
    :raises LabError: when the module cannot be had or kustomize fails.
    """
    recipe = json.dumps([PROGRAMS[program].version, folders, content, objects], sort_keys=True)
    place = home / "manifests" / f"{program}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}.yaml"
    if place.exists():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    module = module_folder(program)
    with tempfile.TemporaryDirectory() as name:
        # kustomize wants relative paths, and compares them with the real ones.
        folder = pathlib.Path(name).resolve()
        resources = [os.path.relpath((module / item).resolve(), folder) for item in folders]
        for index, item in enumerate(objects):
            (folder / f"{index}.json").write_text(json.dumps(item))
            resources.append(f"{index}.json")
        head = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
        (folder / "kustomization.yaml").write_text(json.dumps({**head, "resources": resources, **content}))
        argv = [*kubectl, "kustomize", "--load-restrictor=LoadRestrictionsNone", str(folder)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_KUSTOMIZE_S, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        raise LabError(f"the manifests of {program} cannot be rendered: {lines[-1].strip()[:300]}")
    new = place.with_suffix(f".{os.getpid()}")
    new.write_text(done.stdout)
    new.rename(place)
    return place


def _split(image: str) -> dict[str, str]:
    name, _, tag = image.rpartition(":")
    return {"newName": name, "newTag": tag}


def _patches(component: Component) -> list[dict[str, t.Any]]:
    """Return the changes to a controller's Deployment, as JSON Patch."""
    pod, container = "/spec/template/spec", "/spec/template/spec/containers/0"
    changes: dict[str, t.Any] = {
        f"{container}/imagePullPolicy": "IfNotPresent",
        f"{container}/resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
        **{f"{pod}/{key}": value for key, value in _beside_control_plane().items()},
    }
    if component.probed:
        changes[f"{container}/readinessProbe/initialDelaySeconds"] = 1
        changes[f"{container}/readinessProbe/periodSeconds"] = 1
    return [{"op": "add", "path": path, "value": value} for path, value in changes.items()]


def _beside_control_plane() -> dict[str, t.Any]:
    return {
        "nodeSelector": {"kubernetes.io/hostname": plan.CONTROL},
        "tolerations": [{"operator": "Exists"}],
    }


def namespace(name: str) -> dict[str, t.Any]:
    """Return a Namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


# Names of a headless Service appear with the first pod: what was not there must be asked again soon, and what changed
# must not be remembered for long.
_COREFILE = f""".:53 {{
    errors
    ready
    kubernetes {plan.DOMAIN} in-addr.arpa ip6.arpa {{
        pods insecure
        ttl 5
    }}
    forward . /etc/resolv.conf
    cache 5
}}
"""


def dns() -> list[dict[str, t.Any]]:
    """Return CoreDNS with its rights, on the address that the kubelets give to pods."""
    meta = {"name": "coredns", "namespace": "kube-system"}
    labels = {"k8s-app": "kube-dns"}
    rules = [
        {"apiGroups": [""], "resources": ["endpoints", "services", "pods", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    rbac = "rbac.authorization.k8s.io"
    ports = [{"name": kind.lower(), "port": 53, "targetPort": 53, "protocol": kind} for kind in ("UDP", "TCP")]
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": "lab:coredns"}, "rules": rules},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "lab:coredns"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "lab:coredns"},
            "subjects": [{"kind": "ServiceAccount", **meta}],
        },
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"Corefile": _COREFILE}},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "kube-dns", "namespace": "kube-system", "labels": labels},
            "spec": {"clusterIP": plan.DNS_SERVICE, "selector": labels, "ports": ports},
        },
        _dns_deployment(meta, labels),
    ]


def _dns_deployment(meta: t.Mapping[str, str], labels: t.Mapping[str, str]) -> dict[str, t.Any]:
    container = {
        "name": "coredns",
        "image": image_name("coredns"),
        "imagePullPolicy": "IfNotPresent",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        # Port 53 is a privileged one.
        "securityContext": {"runAsUser": 0},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": True}],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
    }
    pod = {
        "serviceAccountName": "coredns",
        "dnsPolicy": "Default",
        "priorityClassName": "system-cluster-critical",
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": "coredns"}}],
        **_beside_control_plane(),
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {**meta, "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
