# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The versions that a pod's interpreter would import: Python's own, torch's and NCCL's, without importing them."""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import json
import subprocess
import sys

_LIMIT_S = 20.0
# Folders of installed packages are named after package and version; the first one on the path is imported.
_SCRIPT = """
import json, os, sys
found = {"python": "%d.%d.%d" % sys.version_info[:3]}
for place in sys.path:
    try:
        entries = sorted(os.listdir(place or "."))
    except OSError:
        continue
    for entry in entries:
        name, _, version = entry[:-10].partition("-")
        if entry.endswith(".dist-info") and (name == "torch" or name.startswith("nvidia_nccl_cu")):
            found.setdefault("torch" if name == "torch" else "nccl", version)
print(json.dumps(found))
"""


def read_versions(python: str | None = None) -> dict[str, str]:
    """Return package -> version of an interpreter, this one's without ``python``; empty when it cannot be asked."""
    try:
        done = subprocess.run(
            [python or sys.executable, "-c", _SCRIPT], capture_output=True, timeout=_LIMIT_S, check=True, text=True
        )
        found = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return {}
    return {str(name): str(version) for name, version in found.items()} if isinstance(found, dict) else {}
