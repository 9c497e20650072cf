# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of the modules that decide what offers devices to pods."""

from __future__ import annotations


class ModuleDocFragment:
    """Private doc fragment of the collection."""

    DOCUMENTATION = r"""
options:
  by_tag:
    description: Whether RV(image) is named by its tag, as an archive of a bundle has it, instead of by its digest.
    type: bool
    default: false
  refuse:
    description: Whether the task fails where the plan is a refusal.
    type: bool
    default: true
"""
