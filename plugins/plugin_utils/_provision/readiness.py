# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The readiness gate: a script for a new machine, the parser of its output and the rule whether it is usable.

"Active" at a provider is not "usable": field reports have machines with an SSH server and a GPU on which CUDA does
not initialise (error 802), and containers sold where a kernel of one's own is needed. So the gate measures.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ...module_utils._model.k3s_ability import k3s_reasons
from ...module_utils._model.machine_memory import Fault
from ...module_utils._model.offer import Hardware, sold_problems

ProbeState = t.Literal["ready", "not_yet", "bad"]

_UUID = re.compile(r"GPU-[0-9a-f-]{36}\Z")
_LINE = re.compile(r"([a-z_]{1,40})=(.{0,300})\Z")

# One round trip, POSIX sh, no root needed; each line is a fact, each tool that may hang runs under a limit.
PROBE_SCRIPT = r"""
say() { printf '%s=%s\n' "$1" "$2"; }
limit() { if command -v timeout >/dev/null 2>&1; then timeout "$@"; else shift; "$@"; fi; }
say muster_probe 1
say init "$(cat /proc/1/comm 2>/dev/null)"
[ -d /run/systemd/system ] && say systemd 1 || say systemd 0
say container "$(systemd-detect-virt --container 2>/dev/null || true)"
say cap_eff "$(sed -n 's/^CapEff:[[:space:]]*//p' /proc/1/status 2>/dev/null)"
[ -c /dev/kmsg ] && say kmsg 1 || say kmsg 0
[ -c /dev/net/tun ] && say tun 1 || say tun 0
grep -q ' /sys/fs/cgroup[^ ]* [^ ]* rw' /proc/self/mountinfo 2>/dev/null && say cgroup_rw 1 || say cgroup_rw 0
say python "$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)"
say disk_free_kib "$(df -Pk / 2>/dev/null | awk 'NR==2 {print $4}')"
say memory_kib "$(sed -n 's/^MemTotal:[[:space:]]*\([0-9]*\).*/\1/p' /proc/meminfo 2>/dev/null)"
if command -v cloud-init >/dev/null 2>&1; then
  say cloud_init "$(limit 5 cloud-init status 2>/dev/null | sed -n 's/^status:[[:space:]]*//p')"
fi
if command -v apt-get >/dev/null 2>&1; then
  if ps -eo comm= 2>/dev/null | grep -Eq '^(apt|apt-get|dpkg|unattended-upgr.*)$'; then say apt_busy 1
  else say apt_busy 0; fi
fi
if command -v nvidia-smi >/dev/null 2>&1; then
  say gpu_count "$(limit 20 nvidia-smi -L 2>/dev/null | grep -c '^GPU ')"
  gpus="$(limit 20 nvidia-smi --query-gpu=memory.total,name --format=csv,noheader,nounits 2>/dev/null | sort -n)"
  say gpu_memory_mib "$(printf '%s\n' "$gpus" | sed -n '1s/,.*//p')"
  # As many as fit on a line.
  say gpu_uuids "$(limit 20 nvidia-smi --query-gpu=uuid --format=csv,noheader 2>/dev/null | tr '\n' ' ' | cut -c 1-286)"
  say gpu_name "$(printf '%s\n' "$gpus" | sed -n '1s/^[^,]*,[[:space:]]*//p')"
fi
say cuda "$(limit 40 python3 - 2>/dev/null <<'PYTHON'
import ctypes
try:
    cuda = ctypes.CDLL("libcuda.so.1")
except OSError:
    print("missing")
else:
    code = cuda.cuInit(0)
    count = ctypes.c_int(0)
    code = code or cuda.cuDeviceGetCount(ctypes.byref(count))
    print("%d %d" % (code, count.value))
PYTHON
)"
say done 1
"""


@dataclasses.dataclass(frozen=True, slots=True)
class MachineRequirements:
    """What a machine must have. ``gpu_count`` 0 requires no GPU; ``cuda`` false leaves out the driver.

    ``ordered`` is what the machine was sold as.
    """

    gpu_count: int = 0
    cuda: bool = True
    disk_free_gib_min: float = 5.0
    memory_gib_min: float = 0.0
    k3s: bool = False
    ordered: Hardware = Hardware()


@dataclasses.dataclass(frozen=True, slots=True)
class ProbeReport:
    """The result of one probe. ``has_answered`` is true when the machine itself replied.

    ``fault``: what is to be remembered of a machine that is bad. ``gpus``: the UUIDs of its GPUs.
    """

    state: ProbeState
    has_answered: bool = False
    problems: tuple[str, ...] = ()
    facts: t.Mapping[str, object] = dataclasses.field(default_factory=dict)
    fault: Fault | None = None
    gpus: tuple[str, ...] = ()


def parse_probe(output: str) -> dict[str, str]:
    """Return the facts of a probe's output; a banner around them or a truncated line is ignored."""
    matches = (_LINE.match(line.strip("\r")) for line in output.split("\n"))
    return {match[1]: match[2].strip() for match in matches if match}


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,15}", text) else None


def _gpu_problems(facts: t.Mapping[str, str], required: MachineRequirements) -> list[str]:
    if not required.gpu_count or not required.cuda:
        return []
    visible = _number(facts.get("gpu_count"))
    if visible is None:
        return ["nvidia-smi is missing"]
    if visible < required.gpu_count:
        return [f"nvidia-smi shows {visible} of {required.gpu_count} GPUs"]
    code, _space, count = facts.get("cuda", "").partition(" ")
    if code != "0":
        return [f"CUDA does not initialise ({'error ' + code if code.isdecimal() else 'libcuda ' + (code or 'hangs')})"]
    if (_number(count) or 0) < required.gpu_count:
        return [f"CUDA sees {count} of {required.gpu_count} GPUs"]
    return []


def _capacity_problems(facts: t.Mapping[str, str], required: MachineRequirements) -> list[str]:
    capacities = (
        ("disk_free_kib", required.disk_free_gib_min, "GiB of free disk"),
        ("memory_kib", required.memory_gib_min, "GiB of memory"),
    )
    problems = []
    for key, minimum, unit in capacities:
        size = _number(facts.get(key))
        if size is not None and size / 2**20 < minimum:
            problems.append(f"has {size / 2**20:.1f} {unit}, {minimum:g} are required")
    return problems


def _sold_problems(facts: t.Mapping[str, str], required: MachineRequirements) -> list[str]:
    """Return how the machine itself shows less than was ordered; how many GPUs it has may still change."""
    gpu_memory, memory = _number(facts.get("gpu_memory_mib")), _number(facts.get("memory_kib"))
    measured = Hardware(
        gpu_model=facts.get("gpu_name") or None,
        gpu_memory_gib=gpu_memory / 2**10 if gpu_memory else None,
        memory_gib=memory / 2**20 if memory else None,
    )
    return sold_problems(required.ordered, measured)


def judge_probe(output: str, required: MachineRequirements) -> ProbeReport:
    """Return the verdict on one probe's output.

    What the first boot has not finished is ``not_yet`` (the caller's patience limits it); what stays so is ``bad``.
    """
    facts = parse_probe(output)
    if facts.get("muster_probe") != "1" or facts.get("done") != "1":
        return ProbeReport("not_yet", problems=("the probe did not finish",))
    reasons = k3s_reasons(facts)
    sold = _sold_problems(facts, required)
    fatal = _capacity_problems(facts, required) + sold
    if required.k3s and reasons:
        fatal.append(f"cannot run K3s: {', '.join(reasons)}")
    waiting = [] if facts.get("python") else ["python3 is missing"]
    if facts.get("cloud_init", "done") in ("running", "not started", "not run"):
        waiting.append("cloud-init is still running")
    if facts.get("apt_busy") == "1":
        waiting.append("apt is busy")
    waiting += _gpu_problems(facts, required)
    report = {"k3s": {"capable": not reasons, "reasons": list(reasons)}, "cuda": facts.get("cuda")}
    state: ProbeState = "bad" if fatal else "not_yet" if waiting else "ready"
    gpus = tuple(item for item in facts.get("gpu_uuids", "").split() if _UUID.match(item))
    # What another call asks for may be less: only what was sold otherwise is the machine's own fault.
    return ProbeReport(state, True, tuple(fatal + waiting), report, "sold_otherwise" if sold else None, gpus)
