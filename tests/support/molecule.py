# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One step of a Molecule scenario, in an environment of its own."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[2]
BASE = ROOT / ".config" / "molecule" / "config.yml"


def run_step(scenario: str, name: str, folder: pathlib.Path, **variables: str) -> str:
    """Run one step of a scenario and return what it printed; ``folder`` has its state, ``variables`` its environment."""
    programs = pathlib.Path(sys.executable).parent
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ANSIBLE_", "PYTHON", "MOLECULE_"))}
    environment: t.Mapping[str, str] = {
        **kept,
        "PATH": os.pathsep.join([os.fspath(programs), kept.get("PATH", os.defpath)]),
        "ANSIBLE_HOME": str(folder / "ansible"),
        "MOLECULE_EPHEMERAL_DIRECTORY": str(folder / "molecule" / scenario),
        "NO_COLOR": "1",
        "ANSIBLE_NOCOLOR": "1",
        "LC_ALL": "C.UTF-8",
        **variables,
    }
    done = subprocess.run(
        # Named: molecule looks for it at the root of a repository alone.
        [os.fspath(programs / "molecule"), "--base-config", os.fspath(BASE), name, "--scenario-name", scenario],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, f"molecule {name} -s {scenario}\n{done.stdout[-6000:]}{done.stderr[-6000:]}"
    return done.stdout + done.stderr
