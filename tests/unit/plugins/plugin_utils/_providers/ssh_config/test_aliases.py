# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names on Host lines: what is a name, and which files are read."""

from __future__ import annotations

import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.plugin_utils._providers.ssh_config import aliases

from .test_client import write


def test_includes_are_relative_to_the_folder_of_the_user(tmp_path: pathlib.Path) -> None:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "one").write_text("Host a\n")
    path = write(tmp_path, "Include conf.d/*\n")
    assert aliases.find_aliases(path, tmp_path) == ["a"]
    assert aliases.own_folder().name == ".ssh"


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("Host a b", ["a", "b"]),
        ("Host a#b #c", ["a#b"]),
        ("Host *", []),
        ("Host !a", []),
        ("Hostname a", []),
        ("HostKeyAlias a", []),
        ("Host", []),
        ("Host 'a'", ["'a'"]),
    ],
)
def test_names_of_a_line(tmp_path: pathlib.Path, line: str, names: list[str]) -> None:
    assert aliases.find_aliases(write(tmp_path, line), tmp_path) == names


@given(st.binary(max_size=400))
def test_any_file_gives_names_or_one_line(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(data)
    try:
        names = aliases.find_aliases(path, path.parent / "none")
    except InputError as error:
        assert len(str(error).splitlines()) == 1
    else:
        assert all(names) and len(set(names)) == len(names)
