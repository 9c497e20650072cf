# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names that several parts must make alike.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import hashlib


def unit_marker(run_dir: str, unit: str) -> str:
    """Return what marks the processes of a unit in their environment: unlike for any other folder on the machine."""
    parts = run_dir.rstrip("/").split("/")
    digest = hashlib.sha256(run_dir.encode()).hexdigest()[:12]
    return f"{parts[-1]}/{unit}/{digest}"
