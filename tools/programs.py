# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``make programs``: real programs of other projects, each trained on two local nodes, killed, resumed and fetched.

``python -m tools.programs [PYTEST OPTIONS]``. The output and the record of each are in ``build/programs/runs``.
MUSTER_PROGRAMS_SOURCES names a folder with git directories of the projects, for machines that do not reach GitHub.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import typing as t

ROOT = pathlib.Path(__file__).parents[1]
RUNS = ROOT / "build" / "programs" / "runs"


def main(argv: list[str]) -> int:
    """Run the programs and print what their records say; return pytest's exit code."""
    options = ["--quiet", "-rfE", "--tb=short", *argv]
    code = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "tests/programs"], cwd=ROOT, check=False
    ).returncode
    for place in sorted(RUNS.glob("*/note.json")):
        print(describe(json.loads(place.read_text(encoding="utf-8"))))
    return code


def describe(note: t.Mapping[str, t.Any]) -> str:
    """What one program's record says, on a line."""
    last = note["attempts"][-1] if note.get("attempts") else {}
    checkpoint, read = note.get("checkpoint") or {}, note.get("steps_read") or {}
    return (
        f"{note['name']}: steps of {read.get('preset') or 'nothing'}, layout {checkpoint.get('layout')}, "
        f"went on at step {last.get('first_step')} to {last.get('last_step')}, "
        f"resumed: {last.get('resumed')}, {note['seconds']} s"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
