# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether pods on a node get its GPUs and HCAs: a judgement of what a short pod saw there, beside what the machine has.

That a node offers GPUs proves nothing: with CDI off a pod runs without its device, and without an event.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from .checks import Check
from .gpu_stack_plan import GPU
from .rdma_resources import SHARED

Outcome = t.Literal["pass", "fail", "unproven"]
# What the pod runs, one fact a line. ``bare`` runs the same and has requested nothing.
SCRIPT: t.Final = r"""
for d in /dev/nvidia[0-9]*; do [ -e "$d" ] && echo "device $d"; done
for d in /dev/infiniband/uverbs*; do [ -e "$d" ] && echo "verbs $d"; done
for p in /sys/class/infiniband/*/ports/*; do
  [ -d "$p" ] || continue
  for g in "$p"/gids/*; do
    v=$(cat "$g" 2>/dev/null) || continue
    case $v in ''|*0000:0000:0000:0000) ;; *) echo "gid ${p#/sys/class/infiniband/} ${g##*/} $v" ;; esac
  done
done
while read -r a b c d _; do [ "$a $b $c" = "Max locked memory" ] && echo "memlock $d"; done < /proc/self/limits
set -- $(df -Pk /dev/shm 2>/dev/null | tail -n 1); [ -n "$2" ] && echo "shm_kib $2"
if command -v nvidia-smi >/dev/null; then
  nvidia-smi -L 2>&1 | while read -r l; do echo "smi $l"; done
  nvidia-smi -L >/dev/null 2>&1; echo "smi_rc $?"
fi
echo "end"
""".strip()


@dataclasses.dataclass(frozen=True, slots=True)
class SeenDevices:
    """What a container saw. ``memlock`` in bytes or unlimited; ``complete``: the program came to its end.

    ``smi``: how many GPUs nvidia-smi lists, None without the program.
    """

    devices: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    gids: int = 0
    memlock: str | None = None
    shm_kib: int | None = None
    smi: int | None = None
    smi_error: str = ""
    complete: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class PluginPod:
    """The device plugin's pod on a node. ``problem``: why it does not run, empty where it does."""

    name: str
    namespace: str
    problem: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class ProvedNode:
    """A node, and what its short pod saw.

    ``expected``: its GPUs by its facts, None where none were read; ``capacity``, ``offered``: what its kubelet says;
    ``used``: by pods; ``closed``: why it takes no pods; ``rdma``: the RDMA resource that the pod got, ``hcas``: for how
    many devices by the node's facts. ``seen`` is None where no pod was made, or where it did not start, which
    ``problem`` says. ``device_class``: by which pods claim its GPUs (DRA), None where they request them.
    ``basis``: what the proof is of.
    """

    node: str
    expected: int | None = None
    capacity: int = 0
    offered: int = 0
    used: int = 0
    closed: str = ""
    shared: str = ""
    plugins: tuple[PluginPod, ...] = ()
    rdma: str = ""
    hcas: int = 0
    device_class: str | None = None
    seen: SeenDevices | None = None
    bare: SeenDevices | None = None
    problem: str = ""
    basis: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)

    @property
    def free(self) -> int:
        """How many GPUs a pod can get now."""
        return max(0, self.offered - self.used)

    @property
    def has_gpus(self) -> bool:
        """Whether it has GPUs: by its facts, or by its kubelet."""
        return bool(self.expected or self.capacity or self.offered)

    @property
    def has_hcas(self) -> bool:
        """Whether it has HCAs for jobs: by its facts, or by its kubelet."""
        return bool(self.hcas or self.rdma)

    @property
    def is_testable(self) -> bool:
        """Whether a pod could test it now: it has GPUs that are free, or none and an RDMA resource."""
        return not self.closed and bool(self.free or (self.rdma and not self.has_gpus))


@dataclasses.dataclass(frozen=True, slots=True)
class GpuProblem:
    """Why a node is not proven, or proven bad: a code, the fact, and what to do."""

    code: str
    outcome: Outcome
    problem: str
    fix: str


# What the kubelet and containerd say of a pod that does not start, and what it means. The first match counts.
_START_PROBLEMS: t.Final[tuple[tuple[str, str, str, str], ...]] = (
    (
        r"no runtime for \"?[\w-]+\"? is configured",
        "runtime_missing",
        "its containerd does not know NVIDIA's runtime",
        "Install the container toolkit (role container_runtime); K3s looks for runtimes at its start only",
    ),
    (
        r"unresolvable CDI devices|CDI device injection failed",
        "cdi_missing",
        "its containerd finds no CDI specification of the devices",
        "Restart the device plugin's pod on it, which writes /var/run/cdi",
    ),
    (
        r"nvidia-(cdi-hook|ctk|container-runtime)[^:]*: no such file",
        "hook_missing",
        "the program of the container toolkit that CDI names is not on it",
        "Install the container toolkit (role container_runtime), or set gpu_stack_cdi_hook",
    ),
    (
        r"(libcuda|libnvidia|nvidia)[\w.-]*[^:]*: no such file|driver/library version mismatch",
        "driver_changed",
        "CDI names files of another driver than it has",
        "Restart the device plugin's pod on it; after an update of the driver boot the machine again",
    ),
    (
        r"UnexpectedAdmissionError|Allocate failed|[Nn]o healthy devices",
        "plugin_stale",
        "its device plugin refused the devices that its kubelet gave",
        "Restart the device plugin's pod on it",
    ),
)


def parse_seen(text: str) -> SeenDevices:
    """Return what a container printed (``SCRIPT``)."""
    rows = [line.partition(" ")[::2] for line in text.splitlines()]

    def all_of(key: str) -> tuple[str, ...]:
        return tuple(value for name, value in rows if name == key)

    listed = [line for line in all_of("smi") if re.match(r"GPU [0-9]+:", line)]
    failed = next(iter(all_of("smi_rc")), None)
    shm = next(iter(all_of("shm_kib")), "")
    return SeenDevices(
        all_of("device"),
        all_of("verbs"),
        len(all_of("gid")),
        next(iter(all_of("memlock")), None),
        int(shm) if shm.isdecimal() else None,
        None if failed is None else len(listed),
        "" if failed in (None, "0") else next(iter(all_of("smi")), f"exit status {failed}"),
        ("end", "") in rows,
    )


def judge_node(node: ProvedNode) -> tuple[GpuProblem, ...]:
    """Return what is wrong with a node; nothing where its GPUs and HCAs are proven in a pod."""
    if node.closed:
        return (
            GpuProblem("closed", "unproven", f"takes no pods: {node.closed}", "Let it take pods, then verify again"),
        )
    if not node.offered and (node.has_gpus or not node.has_hcas):
        return (_judge_plugin(node),)
    found = [*_judge_count(node)]
    if node.problem:
        return (*found, _judge_start(node))
    if node.seen is None and not node.has_gpus:
        return tuple(_judge_rdma(node, SeenDevices()))
    if node.seen is None:
        problem = f"all {node.offered} GPUs are used by pods: no pod could test them"
        return (*found, GpuProblem("in_use", "unproven", problem, "Verify again when they are free"))
    return (*found, *_judge_seen(node, node.seen), *_judge_rdma(node, node.seen))


def find_outcome(findings: t.Sequence[GpuProblem]) -> Outcome:
    """Return the worst outcome of a node's findings."""
    outcomes = {item.outcome for item in findings}
    return "fail" if "fail" in outcomes else "unproven" if outcomes else "pass"


def list_warnings(node: ProvedNode) -> t.Iterator[str]:
    """Yield what is not wrong and should be known."""
    if node.bare and node.bare.devices:
        yield f"{node.node}: a container that requests no GPU sees {', '.join(node.bare.devices[:4])}"
    if node.shared:
        yield f"{node.node}: pods share its GPUs ({node.shared}): gangs are not placed on it"


def build_checks(nodes: t.Sequence[ProvedNode]) -> list[Check]:
    """Return the checks of all nodes: one for each finding, and one that is well for a node without any."""
    checks = []
    for node in nodes:
        findings = judge_node(node)
        value = len(node.seen.devices) if node.seen else None
        if not findings and node.has_gpus:
            checks.append(Check("gpus", True, node.node, value, node.offered - node.used))
        elif not findings:
            checks.append(Check("rdma", True, node.node, len(node.seen.verbs) if node.seen else None, node.hcas or 1))
        expected = node.expected if node.expected is not None else node.offered
        checks += [Check(item.code, False, node.node, value, expected, item.problem, item.fix) for item in findings]
    return checks


def _judge_plugin(node: ProvedNode) -> GpuProblem:
    """Return why a node with GPUs offers none."""
    has = f"its facts have {node.expected}" if node.expected else f"its kubelet knows {node.capacity}"
    failed = next((item for item in node.plugins if item.problem), None)
    if failed:
        problem = f"offers no {GPU}, {has}: the device plugin {failed.name} does not run ({failed.problem})"
        fix = f"Look with kubectl logs -n {failed.namespace} {failed.name}"
        return GpuProblem("plugin_failed", "fail", problem, fix)
    if node.plugins:
        pod = node.plugins[0]
        problem = f"offers no {GPU}, {has}, although the device plugin {pod.name} runs: it is not registered"
        return GpuProblem("plugin_stale", "fail", problem, f"kubectl delete pod -n {pod.namespace} {pod.name}")
    return GpuProblem(
        "plugin_missing", "fail", f"offers no {GPU}, {has}: no device plugin runs on it", "Run the role gpu_stack"
    )


def _judge_count(node: ProvedNode) -> t.Iterator[GpuProblem]:
    """Yield where its kubelet offers another number of GPUs than the machine has."""
    wanted = node.expected
    if wanted is None and node.capacity > node.offered:
        wanted = node.capacity
    if wanted and node.offered < wanted:
        sick = node.capacity - node.offered
        why = f" ({sick} unhealthy)" if sick > 0 else ""
        problem = f"offers {node.offered} of {wanted} GPUs{why}"
        fix = "Look at nvidia-smi and dmesg (Xid) on it, and at the device plugin's log; boot it again or replace it"
        yield GpuProblem("fewer_gpus", "fail", problem, fix)
    elif node.expected is not None and node.offered > node.expected and not node.shared:
        problem = f"offers {node.offered} GPUs and has {node.expected}"
        yield GpuProblem("plugin_stale", "fail", problem, "Restart the device plugin's pod on it")


def _judge_start(node: ProvedNode) -> GpuProblem:
    for pattern, code, meaning, fix in _START_PROBLEMS:
        if re.search(pattern, node.problem):
            return GpuProblem(code, "fail", f"its pod did not start: {meaning} ({_cut(node.problem)})", fix)
    return GpuProblem(
        "pod_failed", "unproven", f"its pod did not run: {_cut(node.problem)}", "Mend that, then verify again"
    )


def _judge_seen(node: ProvedNode, seen: SeenDevices) -> t.Iterator[GpuProblem]:
    got = len(seen.devices)
    if not seen.complete:
        yield GpuProblem(
            "pod_failed",
            "unproven",
            "its pod ended before it had listed its devices",
            "Verify again with an image with sh",
        )
    elif got == 0 and node.free:
        problem = f"its pod got {node.free} GPUs and sees no device: CDI is off in its containerd, or it has no runtime"
        fix = (
            "Set container_runtime_containerd and run the role container_runtime (enable_cdi), then restart containerd"
        )
        yield GpuProblem("cdi_off", "fail", problem, fix)
    elif got < node.free and not node.shared:
        problem = f"its pod got {node.free} GPUs and sees {got}"
        yield GpuProblem("fewer_devices", "fail", problem, "Restart the device plugin's pod on it")
    if not node.free:
        # Without a GPU the program of an image has nothing to list.
        return
    if seen.smi_error:
        problem = f"nvidia-smi fails in its pod: {_cut(seen.smi_error)}"
        yield GpuProblem("smi_failed", "fail", problem, "Compare the driver's module and libraries (role gpu_driver)")
    elif got and seen.smi is not None and seen.smi != got:
        problem = f"nvidia-smi lists {seen.smi} GPUs in its pod, which has {got}"
        yield GpuProblem("smi_failed", "fail", problem, "Look at nvidia-smi and dmesg (Xid) on it")


def _judge_rdma(node: ProvedNode, seen: SeenDevices) -> t.Iterator[GpuProblem]:
    """Yield what a pod with an RDMA resource lacks: device files, addresses of its ports, memory that it may lock."""
    if not node.rdma and node.hcas:
        problem = f"its facts have {node.hcas} HCAs for jobs, and it offers no RDMA resource"
        fix = "Look at the pod of the RDMA device plugin on it (role rdma_stack)"
        yield GpuProblem("rdma_missing", "fail", problem, fix)
    if not node.rdma or not seen.complete:
        return
    if not seen.verbs:
        problem = f"its pod got {node.rdma} and sees no /dev/infiniband/uverbs*"
        yield GpuProblem("rdma_missing", "fail", problem, "Restart the RDMA device plugin's pod on it")
    # A virtual function is one device, and has an address in the network of a job's pod only.
    elif not node.rdma.startswith(SHARED):
        pass
    elif len(seen.verbs) < node.hcas:
        problem = f"its pod got {node.rdma} and sees {len(seen.verbs)} of {node.hcas} HCAs"
        yield GpuProblem(
            "fewer_hcas", "fail", problem, "Look at the link of its HCAs, then run the playbook rdma_stack"
        )
    elif not seen.gids:
        problem = f"its pod got {node.rdma} and its HCAs have no GID there"
        fix = "Give the HCA's interface an address; pods with RoCE need the network of the node, or one of its own"
        yield GpuProblem("gid_missing", "fail", problem, fix)
    if seen.memlock != "unlimited":
        problem = f"its pod may lock {seen.memlock or 'an unknown number of'} bytes of memory"
        yield GpuProblem(
            "memlock", "fail", problem, "Run the role rdma, which sets LimitMEMLOCK=infinity, and restart K3s"
        )


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 200 else f"{line[:199]}…"
