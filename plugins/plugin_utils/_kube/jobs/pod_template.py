# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds the pod template of a role: one container that runs the pod's program, its volumes and its placement."""

from __future__ import annotations

import typing as t

from ....module_utils._model import job_backends, pod_spec
from ....module_utils._model.errors import RefusedError
from ....module_utils._model.job import Job, Mount
from ....module_utils._model.rdma_resources import NETWORKS
from ..api.kinds import JsonObject, KubeObject, ObjectMeta
from ..objects import device_claims
from . import quantities
from .spec import CONTAINER, ROLE_LABEL, RUN_LABEL, KubePlan, PodTemplate, Queue, find_secret

# How long a node may be unreachable before its pods are deleted (Kubernetes' own default is 300 s).
_LOST_AFTER_S = 60
# The time that the pod's program needs after the job's own grace period to report how it ended.
_REPORT_S = 30
_SHM_CPU, _SHM_GPU = 1 << 30, 8 << 30
# What the node mounts there later, as after a failure of its server, is seen in the pod.
SEEN_LATER: t.Final[JsonObject] = {"mountPropagation": "HostToContainer"}
_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
_JOBSET_RESTARTS = "metadata.annotations['jobset.sigs.k8s.io/restart-attempt']"


def build_template(
    plan: KubePlan,
    role: str,
    supporting: t.Sequence[KubeObject],
    *,
    restarts: str | None = _JOBSET_RESTARTS,
    index: str | None = _INDEX,
    devices: bool = True,
    spec_of: str | None = None,
    more: t.Mapping[str, object] | None = None,
) -> PodTemplate:
    """Return the pod template of a role.

    :param supporting: the job's supporting objects, among them its ConfigMaps.
    :param restarts: the field in which the engine counts restarts of the gang, None when there is none.
    :param index: the field with the pod's index, None when the pod's name or environment has it.
    :param devices: whether the role gets the job's resources; a launcher beside the ranks does not.
    :param spec_of: the role whose specification this role reads, if not its own.
    :param more: further fields of the pod's specification.
    """
    meta: ObjectMeta = {"labels": {**plan.labels, ROLE_LABEL: role}}
    annotations = topology_annotations(plan.queue, plan.job) if plan.queue else {}
    if devices and plan.rdma and plan.fleet.rdma_networks and not plan.host_network:
        annotations = {**annotations, NETWORKS: ",".join(plan.fleet.rdma_networks)}
    if annotations:
        meta["annotations"] = annotations
    mounts, volumes = build_mounts(plan), build_volumes(plan, spec_of or role, supporting)
    fields = _downward_fields(restarts, index)
    own: JsonObject = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": plan.job.checkpoints.grace_s + _REPORT_S,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [build_container(plan, role, mounts, fields=fields, devices=devices)],
        "volumes": volumes,
        "tolerations": build_tolerations(plan),
        **_build_affinity(plan, role),
        **(more or {}),
    }
    if devices and plan.device_class:
        own["resourceClaims"] = device_claims.build_pod_claims(device_claims.template_name(plan.name))
    if plan.host_network:
        own.update(hostNetwork=True, dnsPolicy="ClusterFirstWithHostNet")
    if plan.pull_secrets:
        own["imagePullSecrets"] = [{"name": name} for name in plan.pull_secrets]
    if plan.job.placement.priority and plan.queue is None:
        own["priorityClassName"] = plan.job.placement.priority
    if plan.job.checkpoints.path and job_backends.checkpoint_mount(plan.job) is None:
        # No mount of the job holds them: they are lost with the pod, but its ranks share them.
        volumes.append({"name": "muster-checkpoints", "emptyDir": {}})
        mounts.append({"name": "muster-checkpoints", "mountPath": plan.job.checkpoints.path})
    return {"metadata": meta, "spec": own}


def pod_command(job: Job, role: str) -> list[str]:
    """Return the container's command."""
    return [job.python or "python3", "-I", "-S", "-u", pod_spec.PROGRAM, f"{pod_spec.SPEC_DIR}/{role}.json"]


def build_container(
    plan: KubePlan, role: str, mounts: list[JsonObject], *, fields: t.Mapping[str, str], devices: bool = True
) -> JsonObject:
    """Return the container of a role; ``fields`` are variables and the fields of the pod that they hold."""
    security: JsonObject = {"allowPrivilegeEscalation": False}
    if plan.rdma and devices:
        # RDMA locks the memory that it registers.
        security["capabilities"] = {"add": ["IPC_LOCK"]}
    return {
        "name": CONTAINER,
        "image": plan.image,
        "command": pod_command(plan.job, role),
        "env": [{"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in fields.items()],
        "resources": build_resources(plan) if devices else {},
        "securityContext": security,
        # The end of the log stays with the pod's status.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }


def build_resources(plan: KubePlan) -> JsonObject:
    """Return requests and limits of one node of the job; both are equal, so that it keeps them under load.

    Its GPUs are among them, or a claim of the template (``supporting_objects``) where a DRA driver has them.

    :raises RefusedError: when the job requests RDMA and the cluster has none.
    """
    wanted = plan.job.resources
    amounts: dict[str, str] = {}
    if wanted.cpu is not None:
        amounts["cpu"] = quantities.format_cores(wanted.cpu)
    if wanted.memory is not None:
        amounts["memory"] = quantities.format_bytes(wanted.memory)
    if plan.job.gpus_per_node and not plan.device_class:
        amounts[plan.fleet.gpu_resource] = str(plan.job.gpus_per_node)
    if wanted.rdma and plan.fleet.rdma_resource is None:
        raise RefusedError(
            "job.resources.rdma: the nodes of the cluster have no RDMA resource",
            "Install an RDMA device plugin (playbook rdma_stack), or leave job.resources.rdma out",
        )
    if plan.rdma:
        # Each network takes a device of its own.
        amounts[str(plan.fleet.rdma_resource)] = str(max(1, len(plan.fleet.rdma_networks)))
    claims: JsonObject = {"claims": device_claims.build_container_claims()} if plan.device_class else {}
    return {**({"requests": dict(amounts), "limits": dict(amounts)} if amounts else {}), **claims}


def shm_size(job: Job) -> int:
    """Return the size of /dev/shm: the job's, else what data loaders need; it counts against the memory limit."""
    if job.resources.shm is not None:
        return job.resources.shm
    usual = _SHM_GPU if job.gpus_per_node else _SHM_CPU
    return min(usual, job.resources.memory // 2) if job.resources.memory else usual


def build_volumes(plan: KubePlan, role: str, supporting: t.Sequence[KubeObject]) -> list[JsonObject]:
    """Return the pod's volumes."""
    maps = {_config_map_part(item): item["metadata"]["name"] for item in supporting if item["kind"] == "ConfigMap"}
    program = [{"key": name, "path": name} for name in pod_spec.PROGRAM_FILES]
    spec = [{"key": f"{role}.json", "path": f"{role}.json"}]
    volumes: list[JsonObject] = [
        {"name": "muster-run", "emptyDir": {}},
        {"name": "muster-program", "configMap": {"name": maps["program"], "items": program}},
        {"name": "muster-spec", "configMap": {"name": maps["program"], "items": spec}},
        {
            "name": "muster-shm",
            "emptyDir": {"medium": "Memory", "sizeLimit": quantities.format_bytes(shm_size(plan.job))},
        },
    ]
    if "code" in maps:
        volumes.append({"name": "muster-code", "configMap": {"name": maps["code"]}})
    sources = build_secret_sources(plan)
    if sources:
        volumes.append({"name": "muster-secrets", "projected": {"sources": sources, "defaultMode": 0o444}})
    return [*volumes, *map(build_data_volume, plan.job.mounts)]


def build_data_volume(mount: Mount) -> JsonObject:
    """Return the volume of a mount of the job."""
    name = f"data-{mount.name}"
    if mount.pvc:
        return {"name": name, "persistentVolumeClaim": {"claimName": mount.pvc, "readOnly": mount.read_only}}
    if mount.binding:
        return {"name": name, **build_node_folder(str(mount.host_path))}
    return {"name": name, "hostPath": {"path": mount.host_path}}


def build_node_folder(path: str) -> JsonObject:
    """Return the volume of a file system that nodes have at ``path``; one without that folder starts no pod with it."""
    return {"hostPath": {"path": path, "type": "Directory"}}


def build_mounts(plan: KubePlan) -> list[JsonObject]:
    """Return where the container finds its volumes."""
    mounts: list[JsonObject] = [
        {"name": "muster-run", "mountPath": pod_spec.RUN_DIR},
        {"name": "muster-program", "mountPath": f"{pod_spec.PROGRAM_DIR}/muster_node", "readOnly": True},
        {"name": "muster-spec", "mountPath": pod_spec.SPEC_DIR, "readOnly": True},
        {"name": "muster-shm", "mountPath": "/dev/shm"},
    ]
    if plan.archive:
        mounts.append({"name": "muster-code", "mountPath": pod_spec.CODE_DIR, "readOnly": True})
    if build_secret_sources(plan):
        mounts.append({"name": "muster-secrets", "mountPath": pod_spec.SECRETS_DIR, "readOnly": True})
    for mount in plan.job.mounts:
        more = SEEN_LATER if mount.binding and not mount.pvc else {}
        mounts.append({"name": f"data-{mount.name}", "mountPath": mount.path, "readOnly": mount.read_only, **more})
    return mounts


def build_secret_sources(plan: KubePlan) -> list[JsonObject]:
    """Return the projected sources of the job's secrets: files, also for variables, which the program reads itself.

    :raises RefusedError: when the run's own Secret is needed and the plan has none.
    """
    sources: list[JsonObject] = []
    for ref in plan.job.secret_refs:
        if ref.deliver == "registry":
            continue
        name, key = find_secret(plan, ref)
        if name is None:
            raise RefusedError(f"job.secret_refs: no Secret holds '{ref.name}'")
        sources.append({"secret": {"name": name, "items": [{"key": key, "path": ref.name}]}})
    if plan.store_keys:
        if plan.secret is None:
            raise RefusedError(f"no Secret holds {', '.join(plan.store_keys)}")
        items = [{"key": key, "path": key} for key in plan.store_keys]
        sources.append({"secret": {"name": plan.secret, "items": items}})
    return sources


def build_tolerations(plan: KubePlan) -> list[JsonObject]:
    """Return the pods' tolerations: of unreachable nodes for a short time, and of the taint of GPU nodes."""
    gone = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    tolerations: list[JsonObject] = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _LOST_AFTER_S} for key in gone
    ]
    if plan.job.gpus_per_node:
        tolerations.append({"key": plan.fleet.gpu_resource, "operator": "Exists", "effect": "NoSchedule"})
    return tolerations


def admission_fields(plan: KubePlan) -> JsonObject:
    """Return the fields that Kueue adds to the job's pods at admission, for pods without a queue on the same nodes."""
    if plan.queue is None:
        return {}
    fields: JsonObject = {"tolerations": [*build_tolerations(plan), *(dict(item) for item in plan.queue.tolerations)]}
    if plan.queue.node_labels:
        fields["nodeSelector"] = dict(plan.queue.node_labels)
    return fields


def topology_annotations(queue: Queue, job: Job) -> dict[str, str]:
    """Return Kueue's annotations for topology-aware scheduling; without them it counts quota only, not nodes."""
    if not queue.topology:
        return {}
    if queue.island_level and job.nodes > 1:
        return {"kueue.x-k8s.io/podset-required-topology": queue.island_level}
    return {"kueue.x-k8s.io/podset-unconstrained-topology": "true"}


def anti_affinity(plan: KubePlan, role: str | None = None) -> JsonObject:
    """Return the anti-affinity by which a run's pods, or those of a role, are on a node each."""
    labels = {RUN_LABEL: plan.labels[RUN_LABEL], **({ROLE_LABEL: role} if role else {})}
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def _build_affinity(plan: KubePlan, role: str) -> JsonObject:
    affinity: JsonObject = {}
    if plan.fleet.expressions:
        term = {"matchExpressions": [dict(item) for item in plan.fleet.expressions]}
        affinity["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    if plan.host_network or plan.fleet.whole_node or job_backends.spreads_pods(plan.job):
        # Within the role: a pod without devices, such as mpirun's, may be on the node of one with all of them.
        affinity["podAntiAffinity"] = anti_affinity(plan, role)
    return {"affinity": affinity} if affinity else {}


def _downward_fields(restarts: str | None, index: str | None) -> dict[str, str]:
    fields = {
        "MUSTER_NODE": "spec.nodeName",
        "MUSTER_POD": "metadata.name",
        "MUSTER_POD_UID": "metadata.uid",
        "MUSTER_POD_IP": "status.podIP",
    }
    if index:
        fields["MUSTER_NODE_RANK"] = index
    if restarts:
        fields["MUSTER_RESTARTS"] = restarts
    return fields


def _config_map_part(config_map: KubeObject) -> str:
    """Return the part of a run's ConfigMap: its name ends with the part and a digest."""
    return str(config_map["metadata"]["name"]).rsplit("-", 2)[1]
