# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An interpreter with torch of this machine, seen on the nodes at the same paths, read-only."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import shutil
import subprocess

from . import nodes

_SYSTEM = ("/usr", "/")
_ASK = "import json, sys; print(json.dumps([sys.prefix, sys.base_prefix]))"
_TORCH_S = 120


@dataclasses.dataclass(frozen=True, slots=True)
class Interpreter:
    """``path`` of the interpreter, the folders to mount for it, and why it cannot be used (empty: nothing known)."""

    path: str
    mounts: tuple[nodes.Mount, ...] = ()
    problem: str = ""


def find(named: str) -> Interpreter:
    """Return the interpreter of MUSTER_TORCH_PYTHON: its environment and the installation that it was made from."""
    if not named:
        return Interpreter("", problem="MUSTER_TORCH_PYTHON names no interpreter with torch")
    path = shutil.which(named)
    if path is None:
        return Interpreter(named, problem="the interpreter of MUSTER_TORCH_PYTHON does not exist")
    done = subprocess.run([path, "-I", "-c", _ASK], capture_output=True, text=True, timeout=30, check=False)
    if done.returncode != 0:
        return Interpreter(path, problem="the interpreter of MUSTER_TORCH_PYTHON does not run")
    prefix, base = json.loads(done.stdout)
    if prefix in _SYSTEM:
        return Interpreter(path, problem="torch is in the system's own Python, which cannot be mounted into the nodes")
    # The node has a /usr of its own; an environment made from the system's Python then needs the same version there.
    folders = [prefix] if base in _SYSTEM else [prefix, base]
    return Interpreter(str(pathlib.Path(path).absolute()), tuple(nodes.Mount(item) for item in dict.fromkeys(folders)))


def try_on(lab: nodes.Lab, wanted: Interpreter) -> str:
    """Return why torch cannot be imported on a node, empty when it can (reading it also warms the page cache)."""
    done = lab.run(lab.nodes[0].name, wanted.path, "-c", "import torch", limit_s=_TORCH_S)
    if done.returncode == 0:
        return ""
    last = (done.stderr.decode(errors="replace").strip().splitlines() or ["no output"])[-1]
    return f"the interpreter of MUSTER_TORCH_PYTHON does not work on the nodes: {last[:200]}"
