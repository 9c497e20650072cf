# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration space of a PCI bridge, as sysfs shows it to root."""

from __future__ import annotations

import struct


def acs_config(enabled: bool) -> bytes:
    """Return a configuration space with one other extended capability in front of ACS."""
    first = struct.pack("<I", 0x0001 | 1 << 16 | 0x148 << 20)
    acs = struct.pack("<IHH", 0x000D | 1 << 16, 0x001F, 0x001D if enabled else 0)
    return b"\0" * 0x100 + first + b"\0" * 0x44 + acs + b"\0" * 16
