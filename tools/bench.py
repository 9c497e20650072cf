# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``make bench [ARGS="NAME…"]``: every figure with its gate, or those of some parts; each line ends in PASS or FAIL."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

# Each bench prints its own lines and ends with 1 when one of its gates failed.
PARTS = {
    "hosts": "tools.bench_hosts",
    "parser": "tools.bench_fabric_parse",
    "apply": "tools.bench_kube",
    "jobs": "tools.bench_kube_jobs",
}


def main(arguments: list[str]) -> int:
    """Run the benches one after another, each to its end; return 1 when a gate of any of them failed."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument(
        "parts", nargs="*", metavar="NAME", help=f"one of {', '.join(PARTS)}; without a name all of them"
    )
    chosen = parser.parse_args(arguments).parts
    if unknown := [name for name in chosen if name not in PARTS]:
        parser.error(f"no part is called {unknown[0]}; there are: {', '.join(PARTS)}")
    failed: list[str] = []
    for name in chosen or PARTS:
        print(f"# {name}", flush=True)
        began = time.monotonic()
        status = subprocess.run([sys.executable, "-m", PARTS[name]], check=False).returncode
        failed += [name] if status else []
        print(f"# {name} took {time.monotonic() - began:.0f} s", flush=True)
    print(f"bench: {f'gates failed in {", ".join(failed)}' if failed else 'all gates passed'}", flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
