# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Causes that only a look at a running job shows, beside those of :mod:`causes` that logs show too.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import typing as t

from ....module_utils._model.verdict import Cause
from ..verdict.cause_table import CAUSES, CauseInfo, Weight

_TABLE = (
    CauseInfo(
        "node_unreachable",
        "fatal",
        "A node does not answer",
        "Look whether the machine runs and its SSH answers; the run goes on when it comes back, or replace the node",
    ),
    CauseInfo(
        "rank_stopped",
        "fatal",
        "The process of a rank is stopped",
        "Somebody or a debugger stopped it: continue it with kill -CONT, or end it so that the gang is started again",
    ),
    CauseInfo(
        "rank_stuck_in_kernel",
        "fatal",
        "A rank waits inside the kernel and cannot be interrupted",
        "Look at its storage (NFS server, disk) and at the GPU driver in the kernel log; the node may need a reboot",
    ),
    CauseInfo(
        "rank_ended",
        "fatal",
        "A rank has ended while others wait for it",
        "Read its log above the end; exit by signal 9 without a message is usually the out-of-memory killer",
    ),
    CauseInfo(
        "path_lost",
        "fatal",
        "What a rank sends to another node is not acknowledged",
        "Check cable, link state, route and firewall between the two nodes, and that both use one MTU",
    ),
    CauseInfo(
        "rank_behind",
        "fatal",
        "One rank does not take part while the others wait for it",
        "Look at that rank's stack (py-spy dump --pid) and log: data loading, a branch only it takes, or slow storage",
    ),
    CauseInfo(
        "gpu_error",
        "fatal",
        "The driver reports a GPU error (Xid)",
        "Look the Xid number up in NVIDIA's table; drain the node, reset the GPU or reboot",
    ),
    CauseInfo(
        "nccl_error",
        "fatal",
        "NCCL reports an error of a rank",
        "Read that rank's log above the error (NCCL_DEBUG=INFO for the next run); the other ranks wait in vain",
    ),
    CauseInfo(
        "disk_full",
        "fatal",
        "The disk of a run's folder is full",
        "Free space on the node or set muster_node_state to a larger disk",
    ),
    CauseInfo(
        "pod_image",
        "fatal",
        "The container of a pod does not start",
        "Check the image's name and architecture, the right to pull it (secret_refs as: registry), and the command",
    ),
    CauseInfo(
        "pod_unschedulable",
        "fatal",
        "No node of the cluster can take a pod",
        "Free GPUs, memory or taints on a node, or ask for less: without all pods the gang does not start",
    ),
    CauseInfo(
        "pod_volume",
        "fatal",
        "A volume of a pod is not there",
        "Look at its claim and storage class (kubectl describe pvc), and whether several nodes may mount it",
    ),
    CauseInfo(
        "pod_refused",
        "fatal",
        "The cluster does not let a pod be made",
        "Raise the namespace's quota, fit the pod to its security level, or bring its webhook back",
    ),
    CauseInfo(
        "pod_evicted",
        "fatal",
        "The cluster took a pod away",
        "Look at the node and at what preempted the pod; the run goes on within its budget of lost nodes",
    ),
    CauseInfo(
        "job_queued",
        "secondary",
        "The job waits in its queue",
        "Wait, give it a higher priority, or raise the queue's quota",
    ),
    CauseInfo(
        "log_unreadable",
        "advice",
        "A pod's log cannot be read",
        "Look at the node's kubelet; what the pod's ranks do is then unknown",
    ),
    CauseInfo(
        "stalled",
        "secondary",
        "No step has been finished for long, and nothing shows why",
        "Look at the ranks' stacks (py-spy dump) and set TORCH_FR_BUFFER_SIZE and NCCL_DEBUG=INFO for the next run",
    ),
    CauseInfo(
        "slowed_down",
        "advice",
        "Steps take longer than they did in this attempt",
        "Compare the nodes' processor use and links; verify the fabric (verify_fabric) when the job has ended",
    ),
    CauseInfo(
        "memlock_low",
        "advice",
        "RDMA needs more locked memory than the limit allows",
        "Set LimitMEMLOCK=infinity for the unit that starts the ranks (k3s, containerd, docker), IPC_LOCK for root",
    ),
)
LIVE_CAUSES: t.Mapping[str, CauseInfo] = {info.code: info for info in _TABLE}
# Advice that is the reason of what stopped the job stands before it, as in a log (see ``CauseInfo.explains``).
_EXPLAINS: t.Mapping[str, tuple[str, ...]] = {
    "mtu_black_hole": ("path_lost",),
    "relayed_path": ("path_lost", "socket_connect_timeout"),
    "wrong_interface": ("path_lost",),
}


def find_cause_info(code: str) -> CauseInfo:
    """Return what is known of a cause; the codes of logs and of live looks are one vocabulary."""
    return LIVE_CAUSES.get(code) or CAUSES[code]


def build_live_cause(code: str, evidence: str, node: str | None = None) -> Cause:
    """Return a cause with the table's fix."""
    return Cause(code, evidence, find_cause_info(code).fix, node)


def cause_weight(code: str) -> Weight:
    """Return how much a cause weighs; one of a code that nobody knows is advice."""
    found = LIVE_CAUSES.get(code) or CAUSES.get(code)
    return found.weight if found else "advice"


def explained_codes(code: str) -> tuple[str, ...]:
    """Return the codes that a cause is the reason of when both are found."""
    found = CAUSES.get(code)
    return (*_EXPLAINS.get(code, ()), *(found.explains if found else ()))
