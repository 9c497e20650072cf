# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files that belong to the project, and physical copies of them.

A file belongs to it when git tracks it or would: not ignored. So a check sees new files before they are committed
and never what tools left behind.
"""

from __future__ import annotations

import fnmatch
import os
import pathlib
import shutil
import subprocess
import typing as t

ROOT = pathlib.Path(__file__).resolve().parent.parent
COLLECTION = "muster.training"
# ansible-test writes here, inside the copy it runs in.
GENERATED = ("tests/output/",)


class TreeError(Exception):
    """The files of the project cannot be listed or copied."""


def _git(root: pathlib.Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", os.fspath(root), *arguments], capture_output=True, text=True, check=False, timeout=120
        )
    except OSError as error:
        raise TreeError("git is not installed; the checks need it to know which files belong to the project") from error
    if done.returncode:
        raise TreeError(f"git {arguments[0]} failed in {root.name}: {done.stderr.strip()}")
    return done.stdout


def project_files(root: pathlib.Path = ROOT) -> tuple[str, ...]:
    """Paths relative to ``root``, sorted, with ``/``; deleted files that git still tracks are left out.

    :raises TreeError: where git is missing or ``root`` is not a work tree.
    """
    names = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    there = {name for name in names if name and not name.startswith(GENERATED) and os.path.lexists(root / name)}
    return tuple(sorted(there))


def matching(files: t.Iterable[str], patterns: t.Iterable[str]) -> tuple[str, ...]:
    """The files that one of the shell patterns matches; ``*`` matches ``/`` too."""
    wanted = tuple(patterns)
    return tuple(name for name in files if any(fnmatch.fnmatchcase(name, pattern) for pattern in wanted))


def copy_files(root: pathlib.Path, target: pathlib.Path, files: t.Iterable[str]) -> None:
    """Replace ``target`` by a copy of the files, with their modes and links."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name in files:
        destination = target / name
        destination.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, destination, follow_symlinks=False)


def copy_collection(root: pathlib.Path, above: pathlib.Path) -> pathlib.Path:
    """A fresh copy at ``above/ansible_collections/muster/training``; returns that path.

    ansible-test requires a path of this form without links, and takes the nearest repository above it as the list
    of files; a repository of its own keeps it from looking at the one outside, which ignores the copy.
    """
    target = above.joinpath("ansible_collections", *COLLECTION.split("."))
    copy_files(root, target, project_files(root))
    _git(target, "init", "--quiet")
    return target
