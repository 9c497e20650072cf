# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The version that the collection tells servers; it equals ``version`` of galaxy.yml (a test compares them)."""

from __future__ import annotations

VERSION = "0.1.0"
USER_AGENT = f"muster.training/{VERSION}"
