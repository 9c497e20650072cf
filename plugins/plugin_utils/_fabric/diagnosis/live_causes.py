# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Causes that only the state of a running job shows, beside those of :mod:`cause_table` that logs show too."""

from __future__ import annotations

import typing as t

from ....module_utils._model.verdict import Cause
from ....module_utils._secrets.scrubber import mask_likely
from ..verdict.cause_info import Backend, CauseInfo, Weight
from ..verdict.cause_table import CAUSES

_TABLE = (
    CauseInfo(
        "node_unreachable",
        "fatal",
        "A node does not answer",
        "Check that the machine is running and reachable over SSH; the run continues when it answers, or replace it",
        in_pods="Check the node (kubectl describe node) and its machine; the run continues elsewhere within "
        "restart.max_lost_nodes, or heal replaces it",
        ended="The run has ended. Check the machine, or have heal replace it; the same train command then continues "
        "from the newest checkpoint",
    ),
    CauseInfo(
        "host_key_changed",
        "fatal",
        "The SSH host key of a node has changed",
        "If the machine was replaced, remove the old key (ssh-keygen -R ADDRESS), compare the new one and add it "
        "(ssh-keyscan); if not, another machine answers at this address",
    ),
    CauseInfo(
        "ssh_denied",
        "fatal",
        "A node refuses the SSH user or key",
        "Put your public key on the node (ssh-copy-id USER@ADDRESS), or name user and key in the inventory "
        "(ansible_user, ansible_ssh_private_key_file)",
    ),
    CauseInfo(
        "rank_stopped",
        "fatal",
        "The process of a rank is stopped",
        "A signal or a debugger stopped it: continue it with kill -CONT, or kill it so that the gang restarts",
    ),
    CauseInfo(
        "rank_hangs",
        "fatal",
        "A rank stands at a line of its program, and the others wait for it",
        "Look at that line: a lock, a data loader's worker, or a collective that not all ranks call. cancel keeps all "
        "stacks (logs/NODE.stacks), and the same train command then resumes from the last checkpoint",
    ),
    CauseInfo(
        "rank_stuck_in_kernel",
        "fatal",
        "A rank waits inside the kernel and cannot be interrupted",
        "Check its storage (NFS server, disk) and the kernel log of the GPU driver; the node may need a reboot",
    ),
    CauseInfo(
        "rank_ended",
        "fatal",
        "A rank has ended while others wait for it",
        "Read the end of its log",
    ),
    CauseInfo(
        "rank_left",
        "fatal",
        "A rank has ended without an error while the others went on",
        "It was done, and the others have more batches left: give all ranks equally many (uneven inputs), or use "
        "DistributedDataParallel's join()",
    ),
    CauseInfo(
        "uneven_resume",
        "fatal",
        "The ranks of a restart began at different steps",
        "Save in the folder that MUSTER_CHECKPOINT_DIR names ({checkpoint_dir} in job.args): what one node alone saved "
        "there is copied to the others; or name a folder that all nodes share in checkpoints.path. Where each rank "
        "saves a part of its own, have all load the newest step that every rank has",
        in_pods="Save in a folder that all pods share: name one on a claim of job.mounts in checkpoints.path. Where "
        "each rank saves a part of its own, have all load the newest step that every rank has",
    ),
    CauseInfo(
        "path_lost",
        "fatal",
        "Data that a rank sent to another node is not acknowledged",
        "Check cable, link state, route and firewall between the two nodes, and that both use one MTU",
    ),
    CauseInfo(
        "rank_behind",
        "fatal",
        "One rank does not take part while the others wait for it",
        "Read that rank's stack (py-spy dump --pid) and log: data loading, a branch only it takes, or slow storage",
    ),
    CauseInfo(
        "nccl_error",
        "fatal",
        "NCCL reports an error of a rank",
        "Read that rank's log above the error (set NCCL_DEBUG=INFO for the next run); the other ranks only wait for it",
    ),
    CauseInfo(
        "pod_image",
        "fatal",
        "A container does not start",
        "Check the image's name and architecture, the right to pull it (secret_refs as: registry), and the command",
    ),
    CauseInfo(
        "pod_unschedulable",
        "fatal",
        "No node of the cluster can take a pod",
        "Bring back or replace a node that was lost (heal), free what the scheduler names, or request less: the gang "
        "starts only when all its pods can",
    ),
    CauseInfo(
        "pod_volume",
        "fatal",
        "A volume of a pod is not available",
        "Check that the claim, Secret or ConfigMap exists, the claim's storage class and provisioner (kubectl describe "
        "pvc), and whether several nodes may mount it",
    ),
    CauseInfo(
        "pod_refused",
        "fatal",
        "The cluster refused to create a pod",
        "Raise the namespace's quota, set job.resources where a quota asks for requests, adapt the pod to its Pod "
        "Security level, or repair the admission webhook",
    ),
    CauseInfo(
        "pod_evicted",
        "fatal",
        "The cluster evicted a pod",
        "Check the node (taints, disk and memory pressure) and the preempting pod, and write data and checkpoints to "
        "a mount, not into the pod; the run continues within restart.max_lost_nodes",
        ended="The run has ended. Check the node (taints, disk and memory pressure) and the preempting pod, and write "
        "data and checkpoints to a mount, not into the pod; the same train command then continues from there",
    ),
    CauseInfo(
        "job_queued",
        "secondary",
        "The job is queued",
        "Wait, give it a higher priority, or raise the queue's quota",
    ),
    CauseInfo(
        "queue_lacks_resource",
        "fatal",
        "The job asks for a resource that its queue does not offer",
        "Ask for none of it (job.resources), take another queue, or let the administrator add the resource to the "
        "ClusterQueue's coveredResources with a quota",
    ),
    CauseInfo(
        "never_fits",
        "fatal",
        "The job asks for more than its queue or its namespace has",
        "Ask for less (job.resources, job.nodes), take another queue, or have the queue's quota raised",
    ),
    CauseInfo(
        "pods_not_ready",
        "fatal",
        "The queue took the job back: not all its pods became ready in time",
        "See why they did not become ready (image, nodes, volumes: the warnings of the pods), or let the administrator "
        "raise Kueue's waitForPodsReady.timeout; the job waits in its queue again",
    ),
    CauseInfo(
        "log_unreadable",
        "advice",
        "A pod's log cannot be read",
        "Check the kubelet of the node; without the log the state of the pod's ranks is unknown",
    ),
    CauseInfo(
        "gpu_program",
        "secondary",
        "The kernel reports an error that the program caused on a GPU",
        "The node is well: mend the program (compute-sanitizer, CUDA_LAUNCH_BLOCKING=1 show where it happens)",
    ),
    CauseInfo(
        "gpu_watch",
        "advice",
        "A GPU reports errors with which it still works",
        "Reset the GPU when it is free (nvidia-smi --gpu-reset); if it comes again, have it replaced",
    ),
    CauseInfo(
        "stalled",
        "secondary",
        "No step was finished for a long time, and no cause was found",
        "Read where the ranks stand (cancel keeps their stacks in logs/NODE.stacks), and set TORCH_FR_BUFFER_SIZE and "
        "NCCL_DEBUG=INFO for the next run",
    ),
    CauseInfo(
        "stalled_stopped",
        "secondary",
        "No step was finished for a long time, and the run was stopped",
        "Where each rank stood is in logs/NODE.stacks, with lines of the program where Python's memory may be read",
        in_pods="Run it without job.stop_on.stalled_s, and diagnose it while it stands",
    ),
    CauseInfo(
        "stalled_nccl",
        "secondary",
        "No step was finished for a long time, and the run was stopped",
        "Where each rank stood is in logs/NODE.stacks, with lines of the program where Python's memory may be read; "
        "for the next run set TORCH_FR_BUFFER_SIZE and NCCL_DEBUG=INFO",
        in_pods="Run it without job.stop_on.stalled_s, and diagnose it while it stands; set TORCH_FR_BUFFER_SIZE and "
        "NCCL_DEBUG=INFO for that run",
    ),
    CauseInfo(
        "slowed_down",
        "advice",
        "Steps take longer than they did in this attempt",
        "Compare processor use and links of the nodes; verify the fabric (verify_fabric) when the job has ended",
        in_pods="Compare processor use and links of the nodes; have an administrator of the cluster verify the fabric "
        "(verify_fabric) when the job has ended",
    ),
    CauseInfo(
        "memlock_low",
        "advice",
        "RDMA needs more locked memory than the limit allows",
        "Set LimitMEMLOCK=infinity for the unit that starts the ranks (k3s, containerd, docker), IPC_LOCK for root",
    ),
)
LIVE_CAUSES: t.Mapping[str, CauseInfo] = {info.code: info for info in _TABLE}
# Advice that explains what stopped the job is listed before it, as in a log (see ``CauseInfo.explains``).
_EXPLAINS: t.Mapping[str, tuple[str, ...]] = {
    "mtu_black_hole": ("path_lost",),
    "relayed_path": ("path_lost", "socket_connect_timeout"),
    "wrong_interface": ("path_lost",),
}
# Causes that keep the pods of a run from starting, at first or again.
KEEPS_FROM_STARTING: t.Final = frozenset(
    (
        *("pod_image", "pod_unschedulable", "pod_volume", "pod_refused"),
        *("queue_lacks_resource", "never_fits", "pods_not_ready"),
    )
)
# What a log says of a peer that is not there any more.
_PEER_GONE = frozenset({"socket_reset", "collective_timeout"})


def find_cause_info(code: str) -> CauseInfo:
    """Return the entry of a cause; the codes of logs and of running jobs are one vocabulary."""
    return LIVE_CAUSES.get(code) or CAUSES[code]


def build_live_cause(code: str, evidence: str, node: str | None = None) -> Cause:
    """Return a cause with the table's fix."""
    return Cause(code, mask_likely(evidence), find_cause_info(code).fix, node)


def find_fix(code: str, backend: Backend | None, *, over: bool = False) -> str | None:
    """Return what to do about a cause on a backend, None for a code that the tables do not hold.

    :param over: whether the run has ended.
    """
    info = LIVE_CAUSES.get(code) or CAUSES.get(code)
    return info.fix_on(backend, over=over) if info else None


def cause_weight(code: str) -> Weight:
    """Return the weight of a cause; an unknown code is advice."""
    info = LIVE_CAUSES.get(code) or CAUSES.get(code)
    return info.weight if info else "advice"


def is_peer_gone(codes: t.Iterable[str]) -> bool:
    """Return whether ranks failed because another one was gone, and for nothing else, by what their logs name."""
    decisive = {code for code in codes if cause_weight(code) != "advice" and code != "rank_ended"}
    return bool(decisive) and decisive <= _PEER_GONE


def explained_codes(code: str) -> tuple[str, ...]:
    """Return the codes that a cause explains when both are found."""
    info = CAUSES.get(code)
    return (*_EXPLAINS.get(code, ()), *(info.explains if info else ()))
