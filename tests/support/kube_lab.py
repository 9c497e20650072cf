# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real Kubernetes cluster for tests: the one that is up, else one for as long as sessions of tests want it.

A test's folder gets the fixtures by ``from …tests.support.kube_lab import kube_lab, team`` in its conftest.py.
MUSTER_LAB_CLUSTER names another cluster than the usual one. A cluster that ``python -m tools.lab up`` made stays; one
that a session made goes with the last session that uses it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import pathlib
import time
import typing as t
import uuid

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs.spec import ISLAND_LABEL
from ansible_collections.muster.training.tests.lab import host
from ansible_collections.muster.training.tests.lab.kube import images, manifests, plan
from ansible_collections.muster.training.tests.lab.kube.api import Api
from ansible_collections.muster.training.tests.lab.kube.cluster import ASKED, NAME, Cluster
from ansible_collections.muster.training.tests.lab.kube.stages import until
from ansible_collections.muster.training.tests.lab.podman import Podman, cache_home

NOTES: list[str] = []
QUEUE = "main"
_KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
_GONE_S = 90


def not_run(reason: str) -> t.NoReturn:
    """List a test as not run; MUSTER_REQUIRE_LAB=1 makes that a failure."""
    if os.environ.get("MUSTER_REQUIRE_LAB") == "1":
        pytest.fail(f"MUSTER_REQUIRE_LAB=1, and {reason}", pytrace=False)
    pytest.skip(reason)


@dataclasses.dataclass(frozen=True, slots=True)
class Team:
    """A namespace with a LocalQueue; ``quota``: what the queue's ClusterQueue has."""

    namespace: str
    quota: t.Mapping[str, str]
    queue: str = QUEUE


class KubeLab:
    """The cluster, and what tests need of it. ``image`` is on every node.

    ``torch``, ``launchers`` and ``programs`` are folders of packages on every node, or empty.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.kubeconfig: pathlib.Path = cluster.kubeconfig
        self.image = manifests.image_name(images.TRAINING)
        self.torch = plan.TORCH if cluster.up_record.torch else ""
        self.launchers = plan.LAUNCHERS if cluster.up_record.launchers else ""
        self.programs = plan.PROGRAMS if cluster.up_record.programs else ""
        self.api: Api = cluster.api

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of the nodes that take work, without simulated ones."""
        return tuple(self.cluster.up_record.workers)

    def kubectl(self, *words: str, data: t.Any = None) -> str:
        """Run kubectl as administrator; ``data`` is handed in as JSON."""
        return self.cluster.kubectl(*words, data=data)

    def fault(self, kind: str, node: str) -> None:
        """Put a fault on a node or take it away: kill, stop, start, cut, heal."""
        getattr(self.cluster.machines, kind)(self.cluster.machine(node))

    def on_node(self, node: str, *argv: str) -> str:
        """Run a command as root on a node, past the network, and return its output."""
        return self.cluster.machines.ask(self.cluster.machine(node), *argv)

    def items(self, path: str) -> list[dict[str, t.Any]]:
        """Return the items of a list of the API, for instance ``/api/v1/namespaces/x/pods``."""
        return t.cast("list[dict[str, t.Any]]", (self.api.get(path) or {"items": []})["items"])

    def unlabel(self) -> None:
        """Take the collection's labels from the nodes, where a verification wrote them."""
        for item in self.items("/api/v1/nodes"):
            held = item["metadata"].get("labels", {})
            # The lab knows its own machines by one of that prefix.
            names = [name for name in held if name.startswith("muster.training/") and name != plan.ROLE]
            if names:
                self.kubectl("label", "node", item["metadata"]["name"], *[f"{name}-" for name in names])

    def pods(self, namespace: str, selector: str = "") -> list[dict[str, t.Any]]:
        """Return the pods of a namespace."""
        return self.items(f"/api/v1/namespaces/{namespace}/pods?labelSelector={selector}")

    def torch_in(self, container: dict[str, t.Any], pod: dict[str, t.Any]) -> None:
        """Add torch to a container of a pod template's spec: a read-only folder of the node, and PYTHONPATH."""
        pod.setdefault("volumes", []).append({"name": "torch", "hostPath": {"path": self.torch, "type": "Directory"}})
        mount = {"name": "torch", "mountPath": self.torch, "readOnly": True}
        container.setdefault("volumeMounts", []).append(mount)
        container.setdefault("env", []).append({"name": "PYTHONPATH", "value": self.torch})

    @contextlib.contextmanager
    def namespace(
        self,
        topology: bool = False,
        simulated: bool = False,
        preemption: bool = False,
        islands: bool = False,
        **quota: str,
    ) -> t.Iterator[Team]:
        """Give a namespace with a LocalQueue of its own ClusterQueue, and remove all of it at the end.

        ``quota``: nominal quota by resource ("cpu", "memory", "gpu" for nvidia.com/gpu). ``topology``: the flavor is
        topology-aware by host, with ``islands`` by the island that verification found, too. ``simulated``: it is about
        the simulated nodes, and pods get their toleration. ``preemption``: a workload of higher priority takes the
        quota of a lower one.
        """
        name = f"t-{uuid.uuid4().hex[:8]}"
        wanted = {("nvidia.com/gpu" if key == "gpu" else key): value for key, value in (quota or {"cpu": "4"}).items()}
        self.cluster.apply(queue_objects(name, wanted, topology, simulated, preemption, islands))
        try:
            yield Team(name, wanted)
        finally:
            self.api.ask("DELETE", f"/api/v1/namespaces/{name}")
            until(lambda: self.api.get(f"/api/v1/namespaces/{name}") is None, _GONE_S)
            for kind in ("clusterqueues", "resourceflavors", "topologies"):
                self.api.ask("DELETE", f"{_KUEUE}/{kind}/{name}")

    @contextlib.contextmanager
    def priorities(self, **values: int) -> t.Iterator[None]:
        """Give priorities of Workloads by name; ``_`` in a name is ``-``. What an earlier test has left goes first."""
        path = f"{_KUEUE}/workloadpriorityclasses"
        names = {key.replace("_", "-"): value for key, value in values.items()}
        for name, value in names.items():
            body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "value": value}
            self.api.ask("DELETE", f"{path}/{name}")
            status, answer = self.api.ask("POST", path, {**body, "metadata": {"name": name}})
            assert status == 201, answer
        try:
            yield
        finally:
            for name in names:
                self.api.ask("DELETE", f"{path}/{name}")


def queue_objects(
    name: str,
    quota: t.Mapping[str, str],
    topology: bool,
    simulated: bool,
    preemption: bool = False,
    islands: bool = False,
) -> list[dict[str, t.Any]]:
    """Return Namespace, ResourceFlavor, ClusterQueue and LocalQueue of a team, and the Topology where asked."""
    api, meta = "kueue.x-k8s.io/v1beta2", {"name": name}
    flavor: dict[str, t.Any] = {"nodeLabels": {"type": "kwok"} if simulated else {plan.ROLE: "node"}}
    objects: list[dict[str, t.Any]] = [manifests.namespace(name)]
    if simulated:
        flavor["tolerations"] = [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}]
    if topology or islands:
        flavor["topologyName"] = name
        levels = [*([ISLAND_LABEL] if islands else []), "kubernetes.io/hostname"]
        by_level = {"levels": [{"nodeLabel": level} for level in levels]}
        objects.append({"apiVersion": api, "kind": "Topology", "metadata": meta, "spec": by_level})
    resources = [{"name": key, "nominalQuota": value} for key, value in quota.items()]
    group = {"coveredResources": list(quota), "flavors": [{"name": name, "resources": resources}]}
    selector = {"matchLabels": {"kubernetes.io/metadata.name": name}}
    spec: dict[str, t.Any] = {"namespaceSelector": selector, "resourceGroups": [group]}
    if preemption:
        spec["preemption"] = {"withinClusterQueue": "LowerPriority"}
    return [
        *objects,
        {"apiVersion": api, "kind": "ResourceFlavor", "metadata": meta, "spec": flavor},
        {"apiVersion": api, "kind": "ClusterQueue", "metadata": meta, "spec": spec},
        {
            "apiVersion": api,
            "kind": "LocalQueue",
            "metadata": {"name": QUEUE, "namespace": name},
            "spec": {"clusterQueue": name},
        },
    ]


@contextlib.contextmanager
def borrowed(components: t.Sequence[str] = ()) -> t.Iterator[KubeLab]:
    """Give the cluster that is up, else make one; the last one that uses a cluster made so takes it down.

    :raises LabError: when it cannot be had.
    """
    name = os.environ.get(ASKED) or NAME
    cluster = Cluster(Podman(cache_home()), name, lambda line: NOTES.append(line))
    cluster.folder.parent.mkdir(parents=True, exist_ok=True)
    with (cluster.folder.parent / f"{name}.users").open("w") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        began = time.monotonic()
        cluster.ensure(components)
        NOTES.append(f"the cluster {name} is ready after {time.monotonic() - began:.1f} s")
        try:
            yield KubeLab(cluster)
        finally:
            found = cluster.record
            fcntl.flock(users, fcntl.LOCK_UN)
            if found is not None and not found.keep and _is_last(users):
                left = cluster.down()
                assert left == [], "the cluster left something behind"
                NOTES.append(f"nothing is left of the cluster {name}")


def _is_last(users: t.IO[str]) -> bool:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@pytest.fixture(scope="session")
def kube_lab() -> t.Iterator[KubeLab]:
    """The cluster, with two nodes at least, JobSet, Kueue, DNS and the image for training."""
    reason = host.unmet()
    if reason:
        not_run(reason)
    with contextlib.ExitStack() as stack:
        try:
            lab = stack.enter_context(borrowed())
        except host.LabError as error:
            not_run(str(error))
        yield lab


@pytest.fixture
def team(kube_lab: KubeLab) -> t.Iterator[Team]:
    """A namespace with a queue for four cores."""
    with kube_lab.namespace(cpu="4", memory="8Gi") as made:
        yield made
