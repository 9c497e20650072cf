# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The end-to-end tests: ``python -m tools.e2e [PYTEST OPTIONS]``, real playbooks on the local inventory's two nodes.

MUSTER_TORCH_PYTHON names the interpreter with torch; without it those tests are listed as not run. With
MUSTER_REQUIRE_LAB=1 everything that a test needs must be there; with MUSTER_TEST_ALL=1 no case is left out.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parents[1]


def main(argv: list[str]) -> int:
    """Run the tests and print how they ended; return pytest's exit code."""
    began = time.monotonic()
    options = ["--quiet", "-rsxXfE", "--tb=short", "--durations=40", *argv]
    code = subprocess.run([sys.executable, "-m", "pytest", *options, "tests/e2e"], cwd=ROOT, check=False).returncode
    torch = os.environ.get("MUSTER_TORCH_PYTHON") or "none: the tests with torch did not run"
    verdict = "passed" if code == 0 else f"FAILED (pytest ended with {code})"
    print(f"end to end: {verdict} after {time.monotonic() - began:.0f} s; interpreter with torch: {torch}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
