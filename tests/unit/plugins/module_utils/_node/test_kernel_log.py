# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records of the kernel's log, as /dev/kmsg has them."""

from __future__ import annotations

import pathlib
import time

from ansible_collections.muster.training.plugins.module_utils._node import kernel_log

RECORDS = """\
6,1,1000000,-;NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  595.91.07
3,2,2000000,-;NVRM: Xid (PCI:0000:18:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
 SUBSYSTEM=pci
 DEVICE=+pci:0000:18:00.0 Xid
damaged Xid
3,3,x,-;Xid without a time
3,4,900000000000,-;NVRM: Xid (PCI:0000:2a:00): 31, pid=1, name=python, MMU Fault; with more
"""


def test_messages_with_the_words_are_returned_without_their_heads(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "kmsg"
    place.write_text(RECORDS)
    found = kernel_log.read_messages(kernel_log.GPU_WORDS, path=str(place))
    assert [line.split(",")[0] for line in found] == [
        "NVRM: Xid (PCI:0000:18:00): 79",
        "NVRM: Xid (PCI:0000:2a:00): 31",
    ]
    assert found[1].endswith("MMU Fault; with more")
    later = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC) + 1000
    assert len(kernel_log.read_messages(kernel_log.GPU_WORDS, later, str(place))) == 1


def test_a_log_that_cannot_be_read_has_no_messages(tmp_path: pathlib.Path) -> None:
    assert kernel_log.read_messages(["x"], path=str(tmp_path / "none")) == []
    assert kernel_log.read_messages(["x"], path=str(tmp_path)) == []
    assert isinstance(kernel_log.read_messages(kernel_log.GPU_WORDS), list)
