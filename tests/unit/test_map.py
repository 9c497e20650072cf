# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files and folders that the layout guide and CONTRIBUTING.md name exist."""

from __future__ import annotations

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "docsite" / "rst" / "guide_layout.rst"
# What the table "Where is what" says of each behaviour, in one or more lines.
ROWS = re.findall(
    r"^   \* - (.+)\n     - (``(?:module|plugin)_utils/\S+\.py``(?:.|\n       )*)", GUIDE.read_text(), re.MULTILINE
)
FOLDERS = re.findall(r"``((?:module|plugin)_utils/_\w+)``", GUIDE.read_text())
# A path with <NAME> or NAME in it stands for a file that is to be written.
STEPS = [
    name
    for name in re.findall(
        r"`((?:plugins|roles|tests|docs|meta|tools|playbooks|changelogs)/[^`\s]+)`",
        (ROOT / "CONTRIBUTING.md").read_text(),
    )
    if not re.search(r"NAME|<|\*", name)
]


def list_files(cell: str) -> list[pathlib.Path]:
    """Return the files of a cell: a name alone is that of a file beside the one before it."""
    found: list[pathlib.Path] = []
    for name in re.findall(r"``([\w/]+(?:\.py)?)``", cell):
        base = ROOT / "plugins" / "plugin_utils" if name.startswith("_") else ROOT / "plugins"
        found.append(base / name if "/" in name else found[-1].parent / name)
    return found


@pytest.mark.parametrize(("behaviour", "cell"), ROWS)
def test_files_of_a_behaviour_exist(behaviour: str, cell: str) -> None:
    missing = [file for file in list_files(cell) if not file.exists()]
    assert not missing, behaviour


@pytest.mark.parametrize("folder", sorted(set(FOLDERS)))
def test_folder_exists(folder: str) -> None:
    assert (ROOT / "plugins" / folder).is_dir()


@pytest.mark.parametrize("name", sorted(set(STEPS)))
def test_file_that_contributors_change_exists(name: str) -> None:
    assert (ROOT / name).exists()


def test_every_folder_is_on_the_map() -> None:
    there = {
        path.relative_to(ROOT / "plugins").as_posix() for path in (ROOT / "plugins").glob("*_utils/_*") if path.is_dir()
    }
    assert there == set(FOLDERS)


def test_the_map_is_one_page() -> None:
    assert 25 <= len(ROWS) <= 60 and len({list_files(cell)[0] for _name, cell in ROWS}) == len(ROWS)
