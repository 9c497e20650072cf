# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A component in a cluster: one pod on a permanent Node, with a Service, a claim for its data and a Secret."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import typing as t

from ....module_utils._model.errors import MusterError, NodeError, RefusedError, TransportError
from ....module_utils._secrets.scrubber import scrub
from ..._hosts import downloads
from ..._kube.api.client import MANAGER, Client
from ..._kube.api.errors import server_text
from ..._kube.api.kinds import JsonObject, KubeObject
from ..._kube.api.kubeconfig import register_secret
from ..._kube.objects import events, status
from ..._kube.objects import secrets as kube_secrets
from ..._kube.objects.apply import apply
from ..._kube.objects.apply_plan import Prune
from ..._kube.objects.wait import WaitTarget, wait
from ..._services.component import Site, drop_controller_keys
from ..._services.registry.client import ImageName, Registry, digest_of
from ..shared import deployed
from ..shared.kube_connection import ReportLine, open_client
from .deploy import DeployOrder, Result, describe, refuse_small_disk, refuse_taken_port
from .service_claim import KIND as CLAIM
from .service_claim import ensure_pvc, is_applied

LABEL: t.Final = "muster.training/service"
_UNAUTHORIZED: t.Final = 401
_LOG_S: t.Final = 10.0
_DATA, _FILES = "/data", "/run/muster/files"
# No user of a node, as the images of many projects have it.
_USER: t.Final = 65532
_KEPT: t.Final = "muster-credentials"
_HOSTNAME: t.Final = "kubernetes.io/hostname"
_KINDS: t.Final = ("apps/v1/StatefulSet", "v1/Service", "v1/Secret")
_ACCOUNT: t.Final = "v1/ServiceAccount"
_RBAC: t.Final = "rbac.authorization.k8s.io"
# Those of a pod that reads the cluster. No prune takes them: a service of this name may be in another namespace.
_RIGHTS: t.Final = (f"{_RBAC}/v1/ClusterRoleBinding", f"{_RBAC}/v1/ClusterRole")


@dataclasses.dataclass(frozen=True, slots=True)
class ClusterService:
    """One service in its cluster."""

    order: DeployOrder
    client: Client
    say: ReportLine
    # That of its Node, for a component that is reached there.
    address: str = ""

    @property
    def name(self) -> str:
        """The name of its objects."""
        return f"muster-{self.order.service.name}"

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return str(self.order.place.namespace)

    @property
    def pvc_name(self) -> str:
        """The claim of its data."""
        return self.order.place.claim or f"{self.name}-data"

    @property
    def _kinds(self) -> tuple[str, ...]:
        """The kinds of its objects in the namespace."""
        return (*_KINDS, *([_ACCOUNT] if self.order.component.watches else []))

    @property
    def _rights_name(self) -> str:
        return f"muster-{self.namespace}-{self.order.service.name}"

    @property
    def site(self) -> Site:
        """Where its program runs."""
        port = self.order.port
        host = self.address or f"{self.name}.{self.namespace}.svc"
        endpoint = f"{self.order.scheme}://{f'[{host}]' if ':' in host else host}:{port}"
        own = f"{self.name}.{self.namespace}.svc"
        names = (*([self.address] if self.address else []), self.name, own, f"{own}.cluster.local")
        return self.order.describe_site(Site(self.order.service.name, endpoint, "0.0.0.0", port, _DATA, _FILES), names)

    def ensure_present(self) -> Result:
        """Apply what differs, the claim first, and wait until the pod is ready; a second run sends nothing."""
        order = self.order
        if order.volume_bytes is not None:
            refuse_small_disk(order, self.site, f"its claim of {order.volume_size}", order.volume_bytes)
        self._require_parts()
        node = self.choose_node()
        if order.component.on_node and not self.address:
            return dataclasses.replace(self, address=self._address_of(node)).ensure_present()
        name = f"{self.name}.{self.namespace}.svc"
        refuse_taken_port(order, self.site.endpoint)
        own = [*([self.address] if self.address else []), name, f"{name}.cluster.local", "127.0.0.1"]
        places = [*own, *order.more_names]
        self._require_same_keys()
        before = self.client.writes
        is_new = ensure_pvc(order, self.client, self.pvc_name)
        credentials = order.require_credentials(self._read_secret, places)
        objects = self.build_objects(credentials, node)
        prune = Prune({LABEL: order.service.name}, self._kinds)
        applied = apply(self.client, objects, MANAGER, check=order.check, namespace=self.namespace, prune=prune)
        result: Result = {
            "changed": applied.changed or is_new,
            "endpoint": self.site.endpoint,
            "place": f"{self.namespace}/{self.name} on {node}",
            "writes": 0 if order.check else self.client.writes - before,
        }
        if order.check:
            return result
        self._wait()
        about = describe(order, self.site.endpoint, backend="kubernetes", node=node)
        deployed.write_deployed(order.home, order.service.name, about)
        return result

    def is_running(self, endpoint: str) -> bool:
        """Return whether its pod is ready, and its record says so at this address."""
        live = self.client.get("apps/v1/StatefulSet", self.name, self.namespace)
        if live is None or status.read_state(live).phase != "done":
            return False
        about = describe(self.order, endpoint, backend="kubernetes", node=_node_of(live))
        return deployed.read_deployed(self.order.home, self.order.service.name) == about

    def ensure_absent(self) -> Result:
        """Remove the objects; the claim stays with its data unless that is to be deleted."""
        order, (objects, kept) = self.order, self._plan_removal()
        if not order.check:
            if kept:
                self._keep_credentials()
            for kind, live in objects:
                meta = live["metadata"]
                self.client.delete(kind, meta["name"], meta.get("namespace"), uid=str(meta.get("uid") or ""))
            forget = order.place.delete_data and kept is None
            deployed.remove_deployed(order.home, order.service.name, forget=forget)
        return {"changed": bool(objects), "endpoint": None, "place": self.namespace, "kept": kept}

    def _plan_removal(self) -> tuple[list[tuple[str, KubeObject]], str | None]:
        """Return the objects that go by kind, and where data of the service stays, None where none does."""
        order, place, labels = self.order, self.order.place, {LABEL: self.order.service.name}
        found = [(kind, self.client.get(kind, self.name, self.namespace)) for kind in self._kinds]
        if order.component.watches:
            found += [(kind, self.client.get(kind, self._rights_name)) for kind in _RIGHTS]
        objects = [(kind, live) for kind, live in found if live is not None and _has_labels(live, labels)]
        claim = self.client.get(CLAIM, self.pvc_name, self.namespace)
        if claim is None:
            return objects, None
        if not place.delete_data or place.claim or not is_applied(claim):
            return objects, f"{self.namespace}/{self.pvc_name}"
        volumes = self._find_volume(claim)
        kept = next((_folder_of(live) for _kind, live in volumes), None)
        return [*objects, (CLAIM, claim), *volumes], kept

    def _keep_credentials(self) -> None:
        """Keep the service's credentials on the controller: its data can be read with them alone."""
        home, name = self.order.home, self.order.service.name
        if deployed.read_credentials(home, name) is None:
            credentials = self._read_secret()
            if credentials:
                deployed.write_credentials(home, name, credentials)

    def _find_volume(self, claim: KubeObject) -> list[tuple[str, KubeObject]]:
        """Return the claim's volume where it was made with it and would stay, bound to a claim that is gone."""
        name = (claim.get("spec") or {}).get("volumeName")
        live = self.client.get("v1/PersistentVolume", str(name)) if name else None
        spec: t.Any = (live or {}).get("spec") or {}
        stays = spec.get("persistentVolumeReclaimPolicy") == "Retain"
        return [("v1/PersistentVolume", live)] if live is not None and stays and is_applied(live) else []

    def choose_node(self) -> str:
        """Return the Node of the pod: the one that is named or that it has, else the first permanent one.

        :raises RefusedError: when there is none.
        """
        order = self.order
        nodes = {str(item["metadata"]["name"]): item for item in self.client.list("v1/Node").items}
        rented = {name for name, node in nodes.items() if _is_rented(node, order.rented)}
        permanent = [name for name in sorted(nodes) if name not in rented and _takes_pods(nodes[name])]
        before = (deployed.read_deployed(order.home, order.service.name) or {}).get("node")
        wanted = order.place.node or before
        if wanted is None:
            live = self.client.get("apps/v1/StatefulSet", self.name, self.namespace)
            wanted = _node_of(live) if live else None
        if wanted is not None and wanted not in nodes:
            raise RefusedError(
                f"{order.option}.node: the cluster has no Node {wanted}",
                f"Its Nodes that are not rented are: {', '.join(permanent) or 'none'}",
            )
        if order.place.node in rented:
            raise RefusedError(
                f"{order.option}.node: {wanted} is rented: what a service stores there is gone when it is terminated",
                f"Name a Node that you own: {', '.join(permanent) or 'there is none'}",
            )
        if wanted is None and not permanent:
            raise RefusedError(
                f"{order.option}: the cluster has no Node that is not rented and takes pods",
                "Services stay on machines that you own: add one, or name one in node",
            )
        return str(wanted or permanent[0])

    def _address_of(self, node: str) -> str:
        live = t.cast(KubeObject, self.client.get("v1/Node", node))
        listed = {item["type"]: item["address"] for item in (live.get("status") or {}).get("addresses") or ()}
        return str(listed.get("InternalIP") or listed.get("ExternalIP") or node)

    def build_objects(self, credentials: t.Mapping[str, str], node: str) -> list[KubeObject]:
        """Return the Secret, the Service and the StatefulSet."""
        site, component = self.site, self.order.component
        files = component.write_files(site, credentials)
        # What the service was made with is kept beside what it reads: a controller that lost its file finds it there.
        kept = "\n".join(f"{name} = {value}" for name, value in drop_controller_keys(credentials).items())
        labels = {LABEL: self.order.service.name, "app.kubernetes.io/managed-by": "muster.training"}
        meta: t.Any = {"name": self.name, "namespace": self.namespace, "labels": labels}
        hidden = component.hidden(site, credentials)
        values = {_write_key(name): text for name, text in files.items()}
        secret = kube_secrets.build_secret(meta, "Opaque", {**values, **hidden, _KEPT: kept}, {})
        port = {"name": "service", "port": site.port, "targetPort": site.port}
        select = {LABEL: self.order.service.name}
        service: t.Any = {"apiVersion": "v1", "kind": "Service", "metadata": meta,
                          "spec": {"type": "ClusterIP", "selector": select, "ports": [port]}}  # fmt: skip
        digest = hashlib.sha256(repr(sorted([*files.items(), *hidden.items()])).encode()).hexdigest()[:16]
        rights = self._build_rights(meta) if component.watches else []
        template = {"metadata": {"labels": labels, "annotations": {f"{LABEL}-files": digest}},
                    "spec": self._pod(node, sorted(files), sorted(hidden))}  # fmt: skip
        spec = {"replicas": 1, "serviceName": self.name, "selector": {"matchLabels": select}, "template": template}
        workload: t.Any = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta, "spec": spec}
        return [*rights, secret, service, workload]

    def _build_rights(self, meta: t.Mapping[str, t.Any]) -> list[KubeObject]:
        """Return the account of a pod that reads the cluster, with no other rights."""
        shared = {"name": self._rights_name, "labels": meta["labels"]}
        rule = {"apiGroups": [""], "resources": list(self.order.component.watches), "verbs": ["get", "list", "watch"]}
        role: t.Any = {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": shared, "rules": [rule]}
        subject = {"kind": "ServiceAccount", "name": self.name, "namespace": self.namespace}
        ref = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": self._rights_name}
        binding: t.Any = {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRoleBinding", "metadata": shared,
                          "roleRef": ref, "subjects": [subject]}  # fmt: skip
        account: t.Any = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}
        return [account, role, binding]

    def _pod(self, node: str, files: t.Sequence[str], hidden: t.Sequence[str]) -> JsonObject:
        component, site = self.order.component, self.site
        get = {"path": component.ready, "port": site.port, "scheme": self.order.scheme.upper()}
        # A kubelet has no user for a program that asks for one before anything.
        asks = {"tcpSocket": {"port": site.port}} if _UNAUTHORIZED in component.statuses else {"httpGet": get}
        probe = {**asks, "periodSeconds": 2, "failureThreshold": 3}
        container: JsonObject = {
            "name": component.provider,
            "image": self.find_image(),
            "imagePullPolicy": "IfNotPresent",
            "command": [component.member, *component.command(site)],
            **_environment(component.environment(site), self.name, hidden),
            "ports": [{"name": "service", "containerPort": site.port}],
            "readinessProbe": probe,
            "resources": {"requests": {"cpu": "100m", "memory": component.memory}},
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            },
            "volumeMounts": [
                {"name": "data", "mountPath": _DATA},
                {"name": "files", "mountPath": _FILES, "readOnly": True},
                {"name": "tmp", "mountPath": "/tmp"},
            ],
        }
        items = [{"key": _write_key(name), "path": name} for name in files]
        reads = {"serviceAccountName": self.name} if component.watches else {}
        network = {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"} if component.on_node else {}
        return {
            **network,
            **reads,
            "automountServiceAccountToken": bool(reads),
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 60,
            "nodeSelector": {_HOSTNAME: node},
            "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}],
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": _USER,
                "runAsGroup": _USER,
                "fsGroup": _USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
            "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": self.pvc_name}},
                {"name": "files", "secret": {"secretName": self.name, "items": items, "defaultMode": 0o440}},
                {"name": "tmp", "emptyDir": {}},
            ],
        }

    def find_image(self) -> str:
        """Return the image of the pod: the one that is named, else that of the release with its digest.

        The registry is asked for the digest once; from then on the lock file has it, and the service that runs with it.

        :raises RefusedError: when it does not answer.
        """
        order = self.order
        if order.place.image:
            return order.place.image
        name = f"{order.component.image}:{order.component.tag.format(version=order.version)}"
        pinned = downloads.image(name)
        digest = order.lock.find_digest(pinned) or self._digest_in_use(name)
        if not digest and not order.check:
            registry = Registry(ImageName.from_text(name))
            try:
                digest = digest_of(registry.manifest(registry.name.reference)[0])
            except TransportError as exc:
                problem = f"{order.option}.image: the digest of {name} is not known, and {exc.message}"
                fix = "Name the image in deploy.image: with its digest, or as the Nodes have it where they pull none"
                raise RefusedError(problem, fix) from exc
            order.lock.hold(pinned, digest)
        return f"{name}@{digest}" if digest else name

    def _digest_in_use(self, name: str) -> str:
        """Return the digest of an image with which the service runs, empty where it does not run with this one."""
        live: t.Any = self.client.get("apps/v1/StatefulSet", self.name, self.namespace) or {}
        spec = ((live.get("spec") or {}).get("template") or {}).get("spec") or {}
        images = [str(item.get("image")) for item in spec.get("containers") or ()]
        return next((image.partition("@")[2] for image in images if image.startswith(f"{name}@sha256:")), "")

    def _require_parts(self) -> None:
        """Refuse a cluster without the namespace, or with an object of another's by the same name."""
        option = self.order.option
        if self.client.get("v1/Namespace", self.namespace) is None:
            raise RefusedError(
                f"{option}.namespace: there is no namespace {self.namespace}", "Create it, or name another"
            )
        for kind in self._kinds:
            live = self.client.get(kind, self.name, self.namespace)
            if live is not None and not _has_labels(live, {LABEL: self.order.service.name}):
                what = f"{kind.rpartition('/')[2]} {self.namespace}/{self.name}"
                raise RefusedError(f"{option}: {what} is not this collection's", "Give the service another name")

    def _read_secret(self) -> dict[str, str] | None:
        """Return the credentials of a service that another controller deployed, from its Secret."""
        live = self.client.get("v1/Secret", self.name, self.namespace)
        text = base64.b64decode(((live or {}).get("data") or {}).get(_KEPT, "")).decode()
        pairs = [line.partition(" = ") for line in text.splitlines()]
        return {key: register_secret(value) for key, _equals, value in pairs} or None

    def _require_same_keys(self) -> None:
        """Refuse to put other keys in the place of those that the service has: it could not read its data with them."""
        kept = deployed.read_credentials(self.order.home, self.order.service.name)
        there = self._read_secret() if kept else None
        if kept and any(kept.get(key) != value for key, value in (there or {}).items() if not key.startswith("TLS_")):
            place = deployed.credentials_file(self.order.home, self.order.service.name)
            raise RefusedError(
                f"{self.order.option}: the Secret {self.namespace}/{self.name} has other keys than {place}",
                "Another controller has deployed the service: move that file away, and the keys of the Secret are used",
            )

    def _wait(self) -> None:
        """Wait until the pod is ready.

        :raises NodeError: with what the cluster says of it.
        """
        target = WaitTarget(self.client.resource("apps/v1/StatefulSet"), self.namespace, self.name)
        outcome = wait(self.client, [target], timeout_s=float(self.order.wait_s))
        if outcome.end != "done":
            where = f"service {self.order.service.name}"
            said = f"is not ready after {self.order.wait_s} s: {outcome.summary()}"
            said += f"{self._find_warning()}{self._find_end_of_log()}"
            raise NodeError(where, said, self._find_fix())

    def _find_warning(self) -> str:
        """Return the newest warning of the cluster about the pod and what makes it, empty without one."""
        found: list[KubeObject] = []
        for name in (self.name, f"{self.name}-0"):
            fields = f"involvedObject.name={name},type=Warning"
            found += self.client.list("v1/Event", self.namespace, fields=fields).items
        if not found:
            return ""
        newest: t.Any = max(found, key=events.last_seen)
        return f"; {newest.get('reason')}: {server_text(str(newest.get('message') or ''))}"

    def _find_end_of_log(self) -> str:
        """Return the last line of a program that has ended before, empty for one that has not."""
        pod: t.Any = self.client.get("v1/Pod", f"{self.name}-0", self.namespace) or {}
        listed = (pod.get("status") or {}).get("containerStatuses") or ()
        if not any(item.get("restartCount") for item in listed):
            return ""
        try:
            how: t.Any = {"follow": False, "previous": True, "tail": 1, "timeout_s": _LOG_S}
            with self.client.stream_log(self.namespace, f"{self.name}-0", **how) as lines:
                said = [line.decode(errors="replace") for line in lines]
        except MusterError:
            return ""
        return f"; its log ends with: {server_text(scrub(said[-1]))}" if said else ""

    def _find_fix(self) -> str:
        claim = self.client.get(CLAIM, self.pvc_name, self.namespace) or {}
        phase = (claim.get("status") or {}).get("phase")
        if phase != "Bound":
            shown = f"kubectl describe pvc -n {self.namespace} {self.pvc_name}"
            return f"Its claim {self.pvc_name} is {phase}: look why with {shown}"
        return f"Look with kubectl describe pod -n {self.namespace} {self.name}-0"


def open_cluster(order: DeployOrder, options: t.Mapping[str, t.Any], say: ReportLine) -> ClusterService:
    """Return the service in the cluster of the connection that the options name."""
    return ClusterService(order, open_client(options, order.base, say), say)


def _environment(values: t.Mapping[str, str], secret: str, hidden: t.Sequence[str]) -> JsonObject:
    """Return the variables of a container, nothing at all for a component without any; ``hidden`` are in the Secret."""
    env: list[JsonObject] = [{"name": name, "value": value} for name, value in values.items()]
    env += [{"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": name}}} for name in hidden]
    return {"env": env} if env else {}


def _write_key(name: str) -> str:
    """Return the key of a Secret for the name of a file, which may have folders."""
    return name.replace("/", "__")


def _has_labels(live: KubeObject, labels: t.Mapping[str, str]) -> bool:
    found = live["metadata"].get("labels") or {}
    return all(found.get(key) == value for key, value in labels.items())


def _folder_of(volume: KubeObject) -> str:
    """Return where the data of a volume is."""
    spec: t.Any = volume.get("spec") or {}
    return str((spec.get("hostPath") or spec.get("nfs") or {}).get("path") or volume["metadata"]["name"])


def _is_rented(node: KubeObject, rented: t.Mapping[str, str]) -> bool:
    """Return whether a Node is a rented machine, by its name (in lower case in a cluster) or its addresses."""
    listed: t.Any = (node.get("status") or {}).get("addresses") or ()
    names = {str(node["metadata"]["name"]), *(str(item.get("address")) for item in listed)}
    return not {name.lower() for name in names}.isdisjoint(name.lower() for name in rented)


def _takes_pods(node: KubeObject) -> bool:
    spec = node.get("spec") or {}
    ready = [item for item in (node.get("status") or {}).get("conditions") or [] if item.get("type") == "Ready"]
    closed = [item for item in spec.get("taints") or [] if item.get("effect") in ("NoSchedule", "NoExecute")]
    known = "node-role.kubernetes.io/control-plane"
    is_ready = bool(ready) and ready[0].get("status") == "True"
    return is_ready and not spec.get("unschedulable") and all(item.get("key") == known for item in closed)


def _node_of(workload: KubeObject) -> str | None:
    template: t.Any = (workload.get("spec") or {}).get("template") or {}
    found = ((template.get("spec") or {}).get("nodeSelector") or {}).get(_HOSTNAME)
    return str(found) if found else None
