# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs that fail below a run: what the kernel says of them (Xid), whose fault that is, and what to do with the node.

Sources: NVIDIA's Xid catalog (docs.nvidia.com/deploy/xid-errors) for meanings and actions; the list of Xids that
NVIDIA's k8s-device-plugin takes for the program's (13, 31, 43, 45, 68, 109).
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

# program: the node is well; watch: it still works, and is to be looked at; reset, boot: it has to leave its jobs first.
XidAction = t.Literal["program", "watch", "reset", "boot"]
FELL_OFF: t.Final = 79
# What the node needs -> the cause that a diagnosis names; every other one is gpu_error.
CAUSE_CODES: t.Final[dict[str, str]] = {"program": "gpu_program", "watch": "gpu_watch"}
_RECOVERY: t.Final = 154
_XIDS: t.Final[dict[int, tuple[XidAction, str]]] = {
    13: ("program", "the program did something that the GPU does not allow"),
    31: ("program", "the program used an address that it does not have"),
    43: ("program", "the program's work was stopped"),
    45: ("program", "the program's work was cleared away after an earlier error"),
    68: ("program", "the program's use of the video decoder failed"),
    69: ("program", "the program sent a command that the GPU does not know"),
    109: ("program", "the program's work did not give way in time"),
    137: ("program", "the program used memory of another GPU that it may not use"),
    32: ("reset", "a command buffer was damaged on its way"),
    38: ("reset", "the driver's firmware failed"),
    46: ("reset", "the GPU stopped processing"),
    48: ("reset", "its memory has an error that cannot be corrected"),
    54: ("boot", "its auxiliary power is not connected"),
    61: ("reset", "its micro-controller failed"),
    62: ("reset", "its micro-controller halted"),
    63: ("watch", "a row of its memory was retired; that is in force after a reset"),
    64: ("boot", "a row of its memory could not be retired"),
    74: ("reset", "an NVLink failed"),
    FELL_OFF: ("boot", "it has fallen off the bus"),
    92: ("watch", "its memory has many errors that are corrected"),
    94: ("watch", "its memory had an error that ended one program alone"),
    95: ("reset", "its memory had an error that may have reached other programs"),
    110: ("boot", "its security engine failed"),
    119: ("boot", "its system processor (GSP) does not answer"),
    120: ("boot", "its system processor (GSP) failed"),
    121: ("reset", "its link to the processor (C2C) failed"),
    136: ("reset", "a link could not be trained"),
    140: ("reset", "its memory has an error that was not recovered"),
    143: ("boot", "it could not be initialised"),
    **dict.fromkeys(range(144, 151), ("reset", "an NVLink failed")),
}
_FIXES: t.Final[dict[str, str]] = {
    "program": "The node is well: mend the program (compute-sanitizer, CUDA_LAUNCH_BLOCKING=1 show where it happens)",
    "watch": "The node may go on: reset the GPU when it is free (nvidia-smi --gpu-reset -i {pci}); if it comes again, "
    "have it replaced",
    "reset": "Take the node out (heal does), then reset the GPU (nvidia-smi --gpu-reset -i {pci}) or boot the node; if "
    "it comes again, have it replaced",
    "boot": "Take the node out (heal does), switch it off and on, and run verify_gpus; if it comes again, have the GPU "
    "replaced",
    "unknown": "Look its number up in NVIDIA's list of Xids; drain the node and boot it if it comes again",
}
_LINE = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f:.]+)\): ([0-9]+),?\s*(.*)")
_BARE = re.compile(
    r"NVRM: (?:GPU )?(?:at PCI:)?([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-7])?): .*fallen off the bus"
)
# Without an Xid the driver says it in three lines, of which the first names the GPU.
_ABOUT = re.compile(r"NVRM: The NVIDIA GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])")
_PLAIN = "NVRM: fallen off the bus"
_RECOVERIES: t.Final[tuple[tuple[str, XidAction], ...]] = (
    ("(None)", "program"),
    ("Reboot", "boot"),
    ("Reset", "reset"),
    ("Drain", "reset"),
)


@dataclasses.dataclass(frozen=True, slots=True)
class GpuFault:
    """One error of a GPU, as the kernel has it. ``pci``: its address; ``line``: the kernel's words."""

    pci: str
    xid: int
    line: str

    @property
    def action(self) -> str:
        """What the node needs: an :data:`XidAction`, or unknown."""
        if self.xid == _RECOVERY:
            wanted = self.line.rpartition(" to ")[2]
            return next((action for words, action in _RECOVERIES if words in wanted), "unknown")
        return _XIDS[self.xid][0] if self.xid in _XIDS else "unknown"

    @property
    def meaning(self) -> str:
        """What happened, in words; empty where that is not known."""
        return _XIDS[self.xid][1] if self.xid in _XIDS else ""

    @property
    def fix(self) -> str:
        """What to do with the node."""
        return _FIXES[self.action].format(pci=self.pci)

    @property
    def text(self) -> str:
        """What a message says of it."""
        return f"GPU {self.pci}: Xid {self.xid}{f', {self.meaning}' if self.meaning else ''}"


def parse_faults(lines: t.Iterable[str]) -> tuple[GpuFault, ...]:
    """Return the errors of GPUs in a kernel's log, each GPU and number once, in the order of their first lines."""
    return tuple(fault for _number, fault in parse_faults_at(enumerate(lines)))


def parse_faults_at(lines: t.Iterable[tuple[int, str]]) -> list[tuple[int, GpuFault]]:
    """Return the errors of GPUs with the number of their lines; ``lines``: (number, text)."""
    found: dict[tuple[str, int], tuple[int, GpuFault]] = {}
    named = ""
    for number, line in lines:
        if about := _ABOUT.search(line):
            named = about[1]
        match, bare = _LINE.search(line), _BARE.search(line)
        if match:
            fault = GpuFault(_normal(match[1]), int(match[2]), line.strip())
        elif bare or (named and _PLAIN in line):
            fault = GpuFault(_normal(bare[1] if bare else named), FELL_OFF, line.strip())
        else:
            continue
        # What a recovery needs is what the last line says.
        if fault.xid == _RECOVERY or (fault.pci, fault.xid) not in found:
            found[fault.pci, fault.xid] = (number, fault)
    return list(found.values())


def find_lost_gpu(facts: t.Mapping[str, t.Any]) -> str:
    """Return why a machine can run no gang with all its GPUs, empty where nothing says so.

    :param facts: as ``_node/facts_devices.py`` has them. Errors after which a reset is enough do not count: the
        kernel's log keeps them after the reset.
    """
    driver, on_bus = facts.get("driver") or {}, len(facts.get("gpus") or ())
    faults = [item for item in parse_faults(facts.get("gpu_errors") or ()) if item.action == "boot"]
    if faults:
        return "; ".join(item.text for item in faults)
    listed = driver.get("listed")
    if driver.get("module") and listed is not None and listed < on_bus:
        return f"nvidia-smi lists {listed} of {on_bus} GPUs"
    return ""


def _normal(pci: str) -> str:
    """Return an address as nvidia-smi takes it: with domain and function."""
    text = pci.lower()
    return text if "." in text else f"{text}.0"
