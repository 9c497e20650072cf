# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Putting controllers on a cluster, and the proof that they serve: their webhooks have answered once."""

from __future__ import annotations

import typing as t

from ..host import LabError
from . import manifests, plan, policies
from .stages import until

if t.TYPE_CHECKING:
    from .cluster import Cluster

_SERVING_S = 180
_PROOFS: t.Final = {
    "kueue": (
        "/apis/kueue.x-k8s.io/v1beta2/resourceflavors",
        {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "lab-proof"}},
    ),
    "jobset": (
        "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets",
        {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "lab-proof"}},
    ),
}
# argv: server, name. Ends well when the server has an address for the name (RFC 1035: one question, type A).
_RESOLVE = """
import socket, struct, sys
name = b"".join(bytes([len(part)]) + part.encode() for part in sys.argv[2].split("."))
question = struct.pack(">6H", 7, 0x100, 1, 0, 0, 0) + name + bytes(1) + struct.pack(">2H", 1, 1)
asked = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); asked.settimeout(1)
asked.sendto(question, (sys.argv[1], 53))
sys.exit(struct.unpack(">6H", asked.recv(512)[:12])[3] == 0)
"""


def apply(cluster: Cluster, name: str) -> None:
    """Apply the manifests of a controller."""
    if name == "coredns":
        cluster.apply(manifests.dns())
        return
    if name == policies.NAME:
        cluster.apply(policies.objects())
        return
    place = manifests.rendered(cluster.podman.home, cluster.kubectl_argv(), name)
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(place))


def restart(cluster: Cluster, name: str) -> None:
    """Start a controller anew and wait until it serves."""
    component = manifests.COMPONENTS[name]
    target = ("-n", component.namespace, f"deployment/{component.deployment}")
    cluster.kubectl("rollout", "restart", *target)
    cluster.kubectl("rollout", "status", *target, f"--timeout={_SERVING_S}s")
    wait_serving(cluster, name)


def wait_serving(cluster: Cluster, name: str) -> None:
    """Wait until a controller has a ready pod and answers.

    :raises LabError: saying what to look at when it does not.
    """
    if name == policies.NAME:
        policies.wait_enforcing(cluster)
        return
    component = manifests.COMPONENTS.get(name)
    place = (component.namespace, component.deployment) if component else ("kube-system", "coredns")
    api = cluster.api
    if not until(lambda: api.available(*place), _SERVING_S):
        raise LabError(f"{name} has no ready pod after {_SERVING_S} s: kubectl -n {place[0]} describe pods")
    if name == "coredns" and not until(lambda: _resolves(cluster), _SERVING_S):
        raise LabError(f"coredns does not answer on {plan.DNS_SERVICE}: kubectl -n kube-system logs deploy/coredns")
    proof = _PROOFS.get(name)
    if proof and not until(lambda: api.would_create(*proof), _SERVING_S):
        raise LabError(f"the webhooks of {name} do not answer: kubectl -n {place[0]} logs deploy/{place[1]}")


def _resolves(cluster: Cluster) -> bool:
    asked = ("python3", "-c", _RESOLVE, plan.DNS_SERVICE, f"kubernetes.default.svc.{plan.DOMAIN}")
    return cluster.on_control(*asked)
