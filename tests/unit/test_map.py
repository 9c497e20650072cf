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
BEHAVIOURS = re.findall(
    r"^   \* - (.+)\n     - ``((?:module|plugin)_utils/\S+\.py)``$", GUIDE.read_text(), re.MULTILINE
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


@pytest.mark.parametrize(("behaviour", "file"), BEHAVIOURS)
def test_file_of_a_behaviour_exists(behaviour: str, file: str) -> None:
    assert (ROOT / "plugins" / file).is_file(), behaviour


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
    assert 25 <= len(BEHAVIOURS) <= 50 and len({file for _name, file in BEHAVIOURS}) == len(BEHAVIOURS)
