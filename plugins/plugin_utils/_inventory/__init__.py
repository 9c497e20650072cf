# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plugins import from here first; what they import after it is compiled once (see ``bytecode``)."""

from __future__ import annotations

from .. import bytecode

bytecode.use()
