# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Megatron: started as torchrun starts a script; its parallel sizes are arguments of the user's own.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

from .torchrun import launch, pods

__all__ = ["PACKAGES", "launch", "pods"]

PACKAGES = ("torch",)
