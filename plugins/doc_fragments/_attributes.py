# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Attributes that every module of the collection declares.

A module that supports all of check mode and of a second run names ``full``, one that shows differences, too,
``full_with_diff``; any other says itself what it supports, beside the descriptions.
"""

from __future__ import annotations


class ModuleDocFragment:
    """Private doc fragment of the collection."""

    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and return changed status prediction without modifying anything.
  diff_mode:
    description: Will return details on what has changed (or would change in C(check_mode)), when in diff mode.
  idempotent:
    description: When run twice in a row outside check mode, with the same arguments, the second run reports no change.
"""

    FULL = r"""
options: {}
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
"""

    FULL_WITH_DIFF = r"""
options: {}
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
"""
