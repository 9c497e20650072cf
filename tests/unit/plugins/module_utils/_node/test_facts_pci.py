# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""PCI facts: the ACS control word."""

from __future__ import annotations

import struct

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import (
    facts_pci,
)
from ansible_collections.muster.training.tests.unit.plugins.module_utils._node import node_trees


@pytest.mark.parametrize("enabled", [True, False])
def test_acs_control_word(enabled: bool) -> None:
    assert facts_pci.is_acs_enabled(node_trees.acs_config(enabled)) is enabled
    # Without root only the first bytes can be read.
    assert facts_pci.is_acs_enabled(node_trees.acs_config(enabled)[:64]) is None


def test_acs_loop_of_capabilities_ends() -> None:
    loop = b"\0" * 0x100 + struct.pack("<I", 0x0001 | 0x100 << 20) + b"\0" * 16
    assert facts_pci.is_acs_enabled(loop) is None
