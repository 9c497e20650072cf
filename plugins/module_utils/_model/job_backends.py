# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which options of a job each backend and engine supports: others are refused by name rather than ignored."""

from __future__ import annotations

import posixpath
import re
import typing as t

from .errors import InputError
from .launchers import LAUNCHERS, TORCHRUN_FAMILY

if t.TYPE_CHECKING:
    from .job import Job, Mount, SecretRef

Backend = t.Literal["hosts", "kubernetes"]
UnsupportedOption = tuple[str, t.Callable[["Job"], bool], str]
# Which launchers an engine runs.
ENGINE_LAUNCHERS: dict[str, tuple[str, ...]] = {
    engine: tuple(name for name, traits in LAUNCHERS.items() if engine in traits.engines)
    for engine in ("jobset", "indexed_job", "trainjob", "mpijob", "rayjob", "volcano")
}
# Engines whose objects stay until they are deleted: their operators have no time to live for them.
_ENGINES_WITHOUT_TTL = ("trainjob", "rayjob")
# Folders of the pod that belong to the collection.
RESERVED_PATHS = ("/muster", "/proc", "/sys", "/dev")
# Where pods find a secret without the controller: it never has the value.
IN_CLUSTER: t.Final = ("kubernetes", "external_secrets")
_STORE = re.compile(r"(cluster/)?[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_NEEDS_KUBERNETES = "needs placement.backend: kubernetes"


class Surroundings(t.NamedTuple):
    """The places where a job could run: machines in the play, a kubeconfig or context that the user named."""

    machines: bool
    cluster: bool


class BackendChoice(t.NamedTuple):
    """What ``placement.backend: auto`` stands for, and why."""

    backend: Backend
    reason: str


def choose_backend(has_image: bool, around: Surroundings) -> BackendChoice:
    """Return the backend for ``placement.backend: auto``: the only one that there is, else the one that fits the job.

    :param has_image: whether the job names an image, which only pods run.
    """
    if around.machines != around.cluster:
        if around.machines:
            return BackendChoice("hosts", "the play has machines, and no cluster is named")
        return BackendChoice("kubernetes", "a cluster is named, and the play has no machines")
    there = "machines and a cluster are there" if around.machines else "no machines and no cluster are named"
    if has_image:
        return BackendChoice("kubernetes", f"{there}, and the job has an image")
    return BackendChoice("hosts", f"{there}, and the job has no image")


def require_follower(job: Job, wait: bool) -> None:
    """Refuse rules of a job in pods that need a follower: only the follower of a run knows its machines.

    :raises InputError: a job with ``release`` or ``max_cost_usd`` that is only submitted.
    """
    option = "job.release" if job.release != "never" else "job.max_cost_usd" if job.max_cost_usd else ""
    if option and not wait:
        raise InputError(option, "requires wait: true on Kubernetes", "Leave out wait: false")


def is_elastic(job: Job) -> bool:
    """Return whether the world may change its size."""
    return job.elastic.min is not None


_KUBERNETES_ONLY: tuple[tuple[str, t.Callable[[Job], bool]], ...] = (
    ("job.placement.engine", lambda j: j.placement.engine is not None),
    ("job.placement.cluster", lambda j: j.placement.cluster is not None),
    ("job.placement.namespace", lambda j: j.placement.namespace is not None),
    ("job.placement.queue", lambda j: j.placement.queue is not None),
    ("job.placement.priority", lambda j: j.placement.priority is not None),
    ("job.placement.share_machines", lambda j: j.placement.share_machines),
    ("job.placement.network_mode", lambda j: j.placement.network_mode == "pod"),
    ("job.launcher", lambda j: not LAUNCHERS[j.launcher].on_hosts),
    ("job.image", lambda j: j.image is not None),
    ("job.code.from", lambda j: j.code is not None and j.code.source == "image"),
    ("job.resources.cpu", lambda j: j.resources.cpu is not None),
    ("job.resources.shm", lambda j: j.resources.shm is not None),
    ("job.resources.rdma", lambda j: j.resources.rdma is not None),
    ("job.mounts.pvc", lambda j: any(m.pvc and not m.binding for m in j.mounts)),
    ("job.mounts.host_path", lambda j: any(m.host_path and not m.binding for m in j.mounts)),
    ("job.elastic", is_elastic),
    ("job.ttl_after_finished_s", lambda j: j.ttl_after_finished_s is not None),
)
_NOT_YET_ANYWHERE: tuple[UnsupportedOption, ...] = (
    ("job.code.from", lambda j: j.code is not None and j.code.source == "binding", "service bindings"),
)


def check_backend(job: Job) -> None:
    """Refuse the options that the job's backend does not support.

    :raises InputError: naming the option and, where another backend supports it, that backend.
    """
    where = "Kubernetes" if job.on_kubernetes else "plain hosts"
    if not job.on_kubernetes:
        for option, is_used in _KUBERNETES_ONLY:
            if is_used(job):
                raise InputError(option, "is not supported on plain hosts", f"It {_NEEDS_KUBERNETES}")
    _check_secrets(job)
    _check_mounts(job)
    for option, is_used, feature in _NOT_YET_ANYWHERE:
        if is_used(job):
            raise InputError(option, f"is not available yet on {where}: it comes with {feature}")
    if job.on_kubernetes:
        _check_kubernetes(job)


def backend_warnings(job: Job) -> tuple[str, ...]:
    """Return warnings about a job that is submitted to Kubernetes."""
    if not job.on_kubernetes:
        return ()
    return (*_warn_decimal_sizes(job), *_warn_missing_requests(job))


def _warn_decimal_sizes(job: Job) -> t.Iterator[str]:
    """Yield a warning for each size in whole gigabytes: users mostly mean gibibytes, which are 7 % more."""
    for key in ("memory", "shm"):
        size = getattr(job.resources, key)
        if size and size % 10**9 == 0:
            yield f"job.resources.{key} is {size // 10**9}G, which is {size / 2**30:.2f}Gi: write Gi where you mean GiB"


def _warn_missing_requests(job: Job) -> t.Iterator[str]:
    """Yield a warning for a GPU job without requests: its pods are the first to be throttled and evicted."""
    missing = [key for key in ("cpu", "memory") if getattr(job.resources, key) is None]
    if job.gpus_per_node and missing:
        names = " and ".join(f"job.resources.{key}" for key in missing)
        what = {"cpu": "other pods of the node may take its data loaders' cores", "memory": "it is evicted first"}
        yield f"{names} not set for a job with GPUs: {'; '.join(what[key] for key in missing)}. Set both"


def spreads_pods(job: Job) -> bool:
    """Return whether each pod of the gang has to be on a machine of its own."""
    return job.nodes > 1 and not job.placement.share_machines


def checkpoint_mount(job: Job) -> str | None:
    """Return the name of the mount that holds the checkpoints, or None when they are in the pod."""
    path = job.checkpoints.path
    mounts = [mount for mount in job.mounts if path and is_below(path, mount.path)]
    return max(mounts, key=lambda mount: len(mount.path)).name if mounts else None


def find_in_pod(job: Job, path: str) -> str | None:
    """Return where the job's pods find a file of their node, None when no mount holds it."""
    mounts = [mount for mount in job.mounts if mount.host_path and is_below(path, mount.host_path)]
    if not mounts:
        return None
    nearest = max(mounts, key=lambda mount: len(str(mount.host_path)))
    return posixpath.normpath(posixpath.join(nearest.path, posixpath.relpath(path, str(nearest.host_path))))


def is_below(path: str, folder: str) -> bool:
    """Return whether ``path`` is ``folder`` or is in it."""
    path, folder = posixpath.normpath(path), posixpath.normpath(folder)
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _check_kubernetes(job: Job) -> None:
    if job.image is None:
        raise InputError("job.image", "is required on Kubernetes", "Name the image that the job's pods run")
    if job.requirements:
        raise InputError(
            "job.requirements",
            "is not supported in pods, whose packages are the image's",
            "Install them in the image, and name it in job.image",
        )
    if job.launcher not in ENGINE_LAUNCHERS[job.engine]:
        fitting = [engine for engine, launchers in ENGINE_LAUNCHERS.items() if job.launcher in launchers]
        raise InputError(
            "job.placement.engine",
            f"{job.engine} does not run the launcher '{job.launcher}'",
            f"Use engine: {' or '.join(fitting)}, or leave it out",
        )
    if job.ttl_after_finished_s is not None and job.engine in _ENGINES_WITHOUT_TTL:
        raise InputError(
            "job.ttl_after_finished_s",
            f"has no effect with engine {job.engine}: its objects stay until they are deleted",
            "Leave it out; muster.training.cancel deletes the objects of a run",
        )
    if job.code is not None and job.code.source == "image" and not job.code.ref.startswith("/"):
        raise InputError("job.code.ref", "must be an absolute folder inside the image with from: image")
    if job.resources.cpu is None and job.resources.memory is None and job.placement.queue and not job.gpus_per_node:
        raise InputError(
            "job.resources",
            "is required in a queue: a quota counts the requests of pods",
            "Set resources: {cpu, memory}",
        )
    if job.resources.shm and job.resources.memory and job.resources.shm >= job.resources.memory:
        raise InputError("job.resources.shm", "must be less than job.resources.memory, which it counts against")
    _check_elastic(job)
    _check_stores(job)
    _check_checkpoint_path(job)


def _check_elastic(job: Job) -> None:
    if not is_elastic(job):
        if job.elastic.max is not None:
            raise InputError("job.elastic.min", "is required")
        if job.restart.on_lost_node == "shrink":
            raise InputError("job.restart.on_lost_node", "shrink needs elastic: {min: …}", "Or use wait or fail")
        return
    if job.launcher not in TORCHRUN_FAMILY or job.engine not in ("jobset", "indexed_job"):
        raise InputError(
            "job.elastic",
            f"is not possible with launcher '{job.launcher}' and engine {job.engine}",
            "Use torchrun with engine jobset or indexed_job",
        )
    if job.elastic.max not in (None, job.nodes):
        raise InputError("job.elastic.max", f"must be the job's nodes ({job.nodes})", "Set nodes to the largest size")
    if t.cast(int, job.elastic.min) > job.nodes:
        raise InputError("job.elastic.min", f"is more than the job's nodes ({job.nodes})")


def _check_secrets(job: Job) -> None:
    for ref in job.secret_refs:
        _check_external(ref, job.on_kubernetes)
        if ref.deliver == "registry" and not job.on_kubernetes:
            raise InputError(
                "job.secret_refs.as",
                f"registry has no effect for '{ref.name}' on plain hosts, where no containers are run",
                "Leave it out, or run the job on Kubernetes",
            )
        if ref.source not in ("env", "file") and not ref.path:
            fix = "Name the Secret in the job's namespace" if ref.source == "kubernetes" else "Name its place there"
            raise InputError("job.secret_refs.path", f"is required for '{ref.name}'", fix)
        if ref.source == "kubernetes" and job.on_kubernetes and "/" in str(ref.path):
            raise InputError(
                "job.secret_refs.path",
                f"names another namespace for '{ref.name}': pods read the Secrets of their own",
                "Leave the namespace out, and create the Secret in the job's",
            )


def _check_external(ref: SecretRef, on_kubernetes: bool) -> None:
    """Refuse what External Secrets cannot do, and its options elsewhere."""
    where = f"job.secret_refs.{ref.name}"
    if ref.source != "external_secrets":
        if ref.store:
            raise InputError(f"{where}.store", f"has no effect with from: {ref.source}", "Leave it out")
        return
    if not on_kubernetes:
        raise InputError(
            "job.secret_refs.from",
            f"external_secrets is not possible for '{ref.name}' on plain hosts: the operator is one of a cluster",
            "Name the service that it reads (from: openbao, vault, …), or run the job on Kubernetes",
        )
    if ref.deliver == "registry":
        raise InputError(
            f"{where}.as",
            "registry is not possible with from: external_secrets",
            "Let an ExternalSecret of your own make a Secret for images, and name it: {from: kubernetes, path: SECRET}",
        )
    if not ref.store or not _STORE.fullmatch(ref.store):
        raise InputError(
            f"{where}.store",
            "is required with from: external_secrets" if not ref.store else f"'{ref.store}' is not the name of a store",
            "Name a SecretStore of the namespace (NAME) or a ClusterSecretStore (cluster/NAME)",
        )


def _check_stores(job: Job) -> None:
    """Refuse checkpoints in a bucket where not all pods would continue from one of them."""
    if job.checkpoints.binding is None:
        return
    claim = "name a claim in mounts and a path below it in checkpoints.path"
    if job.engine == "rayjob" and job.checkpoints.resume != "auto":
        raise InputError(
            "job.checkpoints.resume",
            f"{job.checkpoints.resume} is not possible with checkpoints.binding and the engine rayjob: Ray Train looks "
            "for its checkpoints by itself, and resumes from the newest",
            f"Leave it out; another muster_run_id begins anew. Or {claim}",
        )
    if job.engine == "mpijob" and job.metrics.checkpoint_pattern and job.checkpoints.format in ("auto", "files"):
        raise InputError(
            "job.metrics.checkpoint_pattern",
            "cannot be followed with checkpoints.binding and the engine mpijob: what ranks print is in the launcher's "
            "pod, and their checkpoints are in the workers' pods",
            f"Write checkpoint_step and path to MUSTER_METRICS_FILE, and leave it out. Or {claim}",
        )
    if job.engine == "mpijob" and job.restart.max_crashes:
        raise InputError(
            "job.restart.max_crashes",
            "must be 0 with checkpoints.binding and the engine mpijob: its operator starts the launcher again without "
            "the workers, which would continue from different checkpoints",
            "Set restart: {max_crashes: 0}: after a crash the next train starts new workers, and all continue from one "
            f"checkpoint of the bucket. Or {claim}",
        )


def _check_mounts(job: Job) -> None:
    used: dict[str, str] = {}
    for index, mount in enumerate(job.mounts):
        where = f"job.mounts[{index}]"
        _check_mount(mount, where)
        for key in (f"name {mount.name}", f"path {posixpath.normpath(mount.path)}"):
            if key in used:
                raise InputError(where, f"has the same {key} as {used[key]}")
            used[key] = where


def _check_mount(mount: Mount, where: str) -> None:
    # Of a binding, what it says of itself may stand beside its name, as in the record of a run.
    given = [mount.binding] if mount.binding else [mount.pvc, mount.host_path]
    if sum(item is not None for item in given) != 1:
        raise InputError(where, "needs exactly one of binding, pvc and host_path")
    path = posixpath.normpath(mount.path)
    if not path.startswith("/") or path.strip("/") == "":
        raise InputError(f"{where}.path", "must be an absolute path below /")
    if any(is_below(path, reserved) or is_below(reserved, path) for reserved in RESERVED_PATHS):
        raise InputError(f"{where}.path", f"must not be in {', '.join(RESERVED_PATHS)}")
    if mount.host_path is not None and not mount.host_path.startswith("/"):
        raise InputError(f"{where}.host_path", "must be an absolute path")


def _check_checkpoint_path(job: Job) -> None:
    path = job.checkpoints.path
    if path is not None and (not path.startswith("/") or any(is_below(path, reserved) for reserved in RESERVED_PATHS)):
        raise InputError("job.checkpoints.path", f"must be absolute and not in {', '.join(RESERVED_PATHS)}")
    name = checkpoint_mount(job)
    if any(mount.read_only for mount in job.mounts if mount.name == name):
        raise InputError("job.checkpoints.path", f"is on the mount '{name}', which is read_only")
