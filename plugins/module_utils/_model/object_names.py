# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names that the controller and the node agent must build in the same way."""

from __future__ import annotations

import hashlib


def unit_marker(run_dir: str, unit: str) -> str:
    """Return the marker that the processes of a unit have in their environment, unique on the machine."""
    parts = run_dir.rstrip("/").split("/")
    digest = hashlib.sha256(run_dir.encode()).hexdigest()[:12]
    return f"{parts[-1]}/{unit}/{digest}"
