# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``make bench``: every figure with its gate; each line ends in PASS or FAIL."""

from __future__ import annotations

import subprocess
import sys

# Each bench prints its own lines and ends with 1 when one of its gates failed.
PARTS = (
    ("hosts backend", "tools.bench_hosts"),
    ("inventory", "tools.bench_inventory"),
    ("log parser", "tools.bench_fabric_parse"),
    ("Kubernetes apply engine", "tools.bench_kube"),
    ("jobs on Kubernetes", "tools.bench_kube_jobs"),
)


def main() -> int:
    """Run the benches one after another; return 1 when a gate of any of them failed."""
    failed = 0
    for title, module in PARTS:
        print(f"# {title}", flush=True)
        failed |= subprocess.run([sys.executable, "-m", module], check=False).returncode != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
