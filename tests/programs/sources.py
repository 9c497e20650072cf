# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs of other projects at a commit: fetched by git into ``build/programs/sources``, never kept in this repository.

MUSTER_PROGRAMS_SOURCES names a folder with git directories ``OWNER+NAME`` (or ``OWNER+NAME/repo``) for machines that
do not reach GitHub.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).parents[2]
BUILD = ROOT / "build" / "programs"


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """A folder of a repository on GitHub at a commit."""

    repo: str
    commit: str
    folder: str


def obtain(source: Source) -> pathlib.Path:
    """Return the folder as it was at the commit.

    :raises subprocess.CalledProcessError: when git cannot bring it; its own words stand above.
    """
    place = BUILD / "sources" / source.repo.replace("/", "+") / source.commit[:12]
    if not (place / source.folder).is_dir():
        git_dir = _find_local(source) or _fetch(source)
        (place / source.folder).mkdir(parents=True)
        # By the folder's own tree: a snapshot may lack large files elsewhere.
        argv = ["git", f"--git-dir={git_dir}", "archive", f"{source.commit}:{source.folder}"]
        archive = subprocess.run(argv, check=True, stdout=subprocess.PIPE).stdout
        subprocess.run(["tar", "-x", "-C", str(place / source.folder)], input=archive, check=True)
    return place / source.folder


def _find_local(source: Source) -> pathlib.Path | None:
    folder = os.environ.get("MUSTER_PROGRAMS_SOURCES")
    top = pathlib.Path(folder, source.repo.replace("/", "+")) if folder else None
    return next((place for place in (top / "repo", top) if (place / "objects").is_dir()), None) if top else None


def _fetch(source: Source) -> pathlib.Path:
    place = BUILD / "git" / source.repo.replace("/", "+")
    subprocess.run(["git", "init", "--quiet", "--bare", str(place)], check=True)
    url = f"https://github.com/{source.repo}"
    argv = ["git", f"--git-dir={place}", "fetch", "--quiet", "--depth=1", url, source.commit]
    subprocess.run(argv, check=True)
    return place
