# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of the kernel's log on GPUs, as drivers write them: whose fault each is, and what the node needs."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.gpu_faults import (
    GpuFault,
    find_lost_gpu,
    parse_faults,
)

# Lines as NVIDIA's documents and public issues have them.
LINES = [
    ("NVRM: Xid (PCI:0000:18:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", 79, "boot"),
    ("NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.", 79, "boot"),
    ("NVRM: Xid (PCI:0000:5d:00): 119, pid=2316, name=nvidia-smi, Timeout after 6s of waiting for RPC response", 119, "boot"),
    ("NVRM: Xid (PCI:0000:9b:00): 64, Dynamic Page Retirement: Page already pending retirement", 64, "boot"),
    ("NVRM: Xid (PCI:0000:86:00): 48, pid=1452, DBE (double bit error) ECC Error on Frame Buffer", 48, "reset"),
    ("NVRM: Xid (PCI:0000:cb:00): 95, pid='<unknown>', name=<unknown>, Uncontained: LTC TAG (0x2,0x0)", 95, "reset"),
    ("NVRM: Xid (PCI:0000:0f:00): 74, pid=1, NVLink: fatal error detected on link 6(0x10000, 0x0, 0x0)", 74, "reset"),
    ("NVRM: Xid (PCI:0000:04:00): 149, NETIR_LINK_DOWN Fatal", 149, "reset"),
    ("NVRM: Xid (PCI:0000:3b:00): 63, Row Remapper: New row marked for remapping, reset gpu to activate.", 63, "watch"),
    ("NVRM: Xid (PCI:0000:3b:00): 94, pid=41, name=python, Contained: SM (0x1). RST: No, D-RST: No", 94, "watch"),
    ("NVRM: Xid (PCI:0000:1b:00): 13, pid=7021, name=python, Graphics SM Warp Exception on (GPC 2, TPC 1, SM 0)",
     13, "program"),
    ("NVRM: Xid (PCI:0000:1b:00): 31, pid=7021, name=python, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS",
     31, "program"),
    ("NVRM: Xid (PCI:0000:1b:00): 43, pid=7021, name=python, Ch 00000008", 43, "program"),
    ("NVRM: Xid (PCI:0000:1b:00): 45, pid=7021, name=python, Ch 00000010", 45, "program"),
    ("NVRM: Xid (PCI:0000:04:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
     154, "reset"),
    ("NVRM: Xid (PCI:0000:04:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
     154, "boot"),
    ("NVRM: Xid (PCI:0000:04:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)",
     154, "program"),
    ("NVRM: Xid (PCI:0000:04:00): 9999, something new", 9999, "unknown"),
    ("[ 8123.4] NVRM: Xid (0000:02:00.0): 79, GPU has fallen off the bus.", 79, "boot"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "xid", "action"), LINES)
def test_a_line_is_a_fault_with_what_the_node_needs(line: str, xid: int, action: str) -> None:
    (fault,) = parse_faults([line])
    assert (fault.xid, fault.action) == (xid, action)
    assert fault.pci.endswith(".0") and f"Xid {xid}" in fault.text and fault.fix
    assert ("Take the node out" in fault.fix) is (action in ("reset", "boot"))


def test_other_lines_of_the_kernel_are_none() -> None:
    lines = [
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  595.91.07",
        "NVRM: A GPU crash dump has been created.",
        "Out of memory: Killed process 17 (python)",
        "usb 1-1: device has fallen off the bus",
        "Xid",
        "",
    ]
    assert parse_faults(lines) == ()


def test_each_gpu_and_number_is_told_once_and_the_recovery_as_it_is_last() -> None:
    line = "NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus."
    assert len(parse_faults([line, line, "NVRM: GPU 0000:18:00.0: GPU has fallen off the bus."])) == 1
    assert [item.pci for item in parse_faults([line, line.replace("18", "2a")])] == ["0000:18:00.0", "0000:2a:00.0"]
    needs, gone = LINES[14][0], LINES[16][0]
    assert [item.action for item in parse_faults([needs, gone])] == ["program"]


@pytest.mark.parametrize(
    ("facts", "lost"),
    [
        ({}, ""),
        ({"gpu_errors": [LINES[0][0]]}, "GPU 0000:18:00.0: Xid 79, it has fallen off the bus"),
        ({"gpu_errors": [LINES[4][0], LINES[8][0], LINES[11][0]]}, ""),
        ({"gpus": [{}] * 8, "driver": {"module": "595.91.07", "listed": 7}}, "nvidia-smi lists 7 of 8 GPUs"),
        ({"gpus": [{}] * 8, "driver": {"module": "595.91.07", "listed": 8}}, ""),
        ({"gpus": [{}] * 8, "driver": {"module": "595.91.07", "listed": None}}, ""),
        ({"gpus": [{}] * 8, "driver": {"module": None, "listed": None}}, ""),
    ],
)
def test_a_node_has_lost_a_gpu_where_its_facts_prove_it(facts: dict[str, t.Any], lost: str) -> None:
    assert find_lost_gpu(facts) == lost


@given(st.lists(st.text(max_size=200), max_size=5), st.text(max_size=40))
def test_no_line_raises_an_error(lines: list[str], tail: str) -> None:
    for fault in parse_faults([*lines, f"NVRM: Xid (PCI:0000:18:00): 154, {tail}"]):
        assert isinstance(fault, GpuFault) and fault.text and fault.fix and fault.action
