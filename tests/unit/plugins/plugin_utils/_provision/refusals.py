# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Refusals of providers, for tests of pools."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._model.lease import OrderRefused

FULL = OrderRefused("capacity", "insufficient capacity")
