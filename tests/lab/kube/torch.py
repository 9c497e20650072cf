# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""PyTorch, launchers' libraries and those of real programs for the pods: folders with the packages of PyPI for the image's Python, mounted."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import typing as t

from ..host import LabError

# What the image for training has: Debian trixie's.
PYTHON = "3.13"
_ASK = "import json, sys, sysconfig; print(json.dumps(['%d.%d' % sys.version_info[:2], sysconfig.get_path('purelib')]))"
_INSTALL_S = 1800


def find(home: pathlib.Path) -> pathlib.Path | None:
    """Return a folder with torch for the image's Python: MUSTER_TORCH_PYTHON's, else the cache's, else None."""
    found = _packages_of("MUSTER_TORCH_PYTHON", "torch")
    if found is not None:
        return found
    kept = _kept(home)
    return kept if (kept / "torch").is_dir() else None


def find_launchers() -> pathlib.Path | None:
    """Return the folder with the launchers' libraries of MUSTER_LAUNCHERS_PYTHON, None where they do not fit."""
    return _packages_of("MUSTER_LAUNCHERS_PYTHON", "accelerate")


def find_programs() -> pathlib.Path | None:
    """Return the folder with what real programs import, of MUSTER_PROGRAMS_PYTHON; None where it does not fit."""
    return _packages_of("MUSTER_PROGRAMS_PYTHON", "diffusers")


def _packages_of(variable: str, package: str) -> pathlib.Path | None:
    """Return the packages of the interpreter that a variable names, where it is the image's Python and has ``package``."""
    named = shutil.which(os.environ.get(variable, ""))
    if not named:
        return None
    done = subprocess.run([named, "-I", "-c", _ASK], capture_output=True, text=True, timeout=60, check=False)
    version, place = json.loads(done.stdout) if done.returncode == 0 else ("", "")
    fits = version == PYTHON and (pathlib.Path(place) / package).is_dir()
    return pathlib.Path(place) if fits else None


def install(home: pathlib.Path, say: t.Callable[[str], None] = print) -> pathlib.Path:
    """Return a folder with torch, installing it from PyPI into the cache where there is none.

    :raises LabError: when pip cannot install it.
    """
    found = find(home)
    if found is not None:
        return found
    say(f"installing torch for Python {PYTHON} into the cache (once; about 3 GB to fetch)")
    new = _kept(home).with_suffix(".new")
    shutil.rmtree(new, ignore_errors=True)
    options = ["--quiet", "--target", str(new), "--python-version", PYTHON, "--only-binary=:all:"]
    argv = [sys.executable, "-m", "pip", "install", *options, "torch", "numpy"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_INSTALL_S, check=False)
    except subprocess.TimeoutExpired as exc:
        raise LabError(f"pip did not install torch within {_INSTALL_S} s") from exc
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["no reason given"]
        raise LabError(f"pip cannot install torch: {lines[-1]}")
    new.rename(_kept(home))
    return _kept(home)


def _kept(home: pathlib.Path) -> pathlib.Path:
    return home / f"torch-python{PYTHON}"
