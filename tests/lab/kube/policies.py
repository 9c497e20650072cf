# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What makes network policies hold on the cluster: kube-router's controller on every machine, as K3s embeds it.

Its program (``netpol/``) is on the machines already; the image has the two commands that it runs, iptables and ipset.
Other engines do not work here: those that put packets into a queue need CONFIG_NFT_QUEUE in the kernel.
"""

from __future__ import annotations

import pathlib
import tempfile
import typing as t

from .. import image
from ..host import LabError
from . import manifests, oci, plan
from .binaries import Binaries
from .stages import Say, until

if t.TYPE_CHECKING:
    from .cluster import Cluster

NAME = "netpol"
_RECIPE: t.Final = image.Recipe(
    kind=NAME, suite=image.KUBE.suite, packages=("ipset", "iptables"), files={}, commands=(), without=image.KUBE.without
)
_SERVING_S, _GONE_S = 120, 60
_META: t.Final = {"name": NAME, "namespace": "kube-system"}
_DAEMONS: t.Final = f"/apis/apps/v1/namespaces/{_META['namespace']}/daemonsets/{NAME}"
_RBAC = "rbac.authorization.k8s.io"


def archive(home: pathlib.Path, binaries: Binaries, say: Say) -> pathlib.Path:
    """Return the archive of the image, making it and the program first where they are not there.

    :raises LabError: when one of them cannot be made.
    """
    binaries.get(NAME)
    folder = home / "images"
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    place = folder / f"{NAME}-{_RECIPE.tag}.tar"
    if not place.exists():
        say("building the image for network policies (once)")
        with tempfile.TemporaryDirectory(dir=folder) as name:
            layer = pathlib.Path(name) / "layer.tar"
            image.bootstrap(_RECIPE, layer)
            oci.write(place, manifests.image_name(NAME), layer, oci.Settings())
        for other in folder.glob(f"{NAME}-{'?' * 12}.tar"):
            if other != place:
                other.unlink()
    return place


def objects() -> list[dict[str, t.Any]]:
    """Return the DaemonSet with its rights."""
    watched = ["namespaces", "nodes", "pods"]
    rules = [
        {"apiGroups": [""], "resources": watched, "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": ["get", "list", "watch"]},
    ]
    role = {"name": f"lab:{NAME}"}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _META},
        {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": role, "rules": rules},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": role,
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", **role},
            "subjects": [{"kind": "ServiceAccount", **_META}],
        },
        _daemons(),
    ]


def _daemons() -> dict[str, t.Any]:
    container = {
        "name": NAME,
        "image": manifests.image_name(NAME),
        "imagePullPolicy": "IfNotPresent",
        "command": [f"{plan.BIN}/{NAME}", f"-services={plan.SERVICES}"],
        "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        "securityContext": {"privileged": True},
        "volumeMounts": [{"name": "programs", "mountPath": plan.BIN, "readOnly": True}],
    }
    # Machines only: simulated nodes have no firewall.
    machines = {"matchExpressions": [{"key": plan.ROLE, "operator": "Exists"}]}
    placed = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [machines]}}
    pod = {
        "serviceAccountName": NAME,
        "hostNetwork": True,
        "priorityClassName": "system-node-critical",
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": placed},
        "containers": [container],
        "volumes": [{"name": "programs", "hostPath": {"path": plan.BIN, "type": "Directory"}}],
    }
    labels = {"k8s-app": NAME}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": _META, "spec": spec}


def wait_enforcing(cluster: Cluster) -> None:
    """Wait until every machine has its rules.

    :raises LabError: naming those that have none.
    """

    if not until(lambda: all(_rules(cluster).values()), _SERVING_S, 0.5):
        lacking = ", ".join(name for name, has in _rules(cluster).items() if not has)
        hint = f"kubectl -n {_META['namespace']} logs daemonset/{NAME}"
        raise LabError(f"no rules of {NAME} on {lacking} after {_SERVING_S} s: {hint}")


def remove(cluster: Cluster) -> None:
    """Take the controller away; it takes its rules with it.

    :raises LabError: naming machines that still have them.
    """
    cluster.api.ask("DELETE", f"{_DAEMONS}?propagationPolicy=Foreground")
    gone = until(lambda: cluster.api.get(_DAEMONS) is None and not any(_rules(cluster).values()), _GONE_S, 0.5)
    if not gone:
        left = ", ".join(name for name, has in _rules(cluster).items() if has)
        raise LabError(f"{NAME} is not gone after {_GONE_S} s; its rules are left on: {left or 'no machine'}")


def _rules(cluster: Cluster) -> dict[str, bool]:
    """Return which machines send what they forward through the controller's chain, which its first round sets up."""
    listed = cluster.on_machines("iptables", "-w", "-S", "FORWARD")
    # What its rules let pass has a mark.
    return {
        name: b"-j KUBE-ROUTER-FORWARD" in done.stdout and b"0x20000" in done.stdout for name, done in listed.items()
    }
