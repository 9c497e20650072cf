# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's side of the collection: what lies below is compiled once, not in every run.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import sys

from . import _loading

_loading.install(__name__, __spec__, sys.meta_path)
