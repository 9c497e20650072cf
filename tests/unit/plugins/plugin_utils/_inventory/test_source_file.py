# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inventory source files: refused with their line, or accepted."""

from __future__ import annotations

import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.plugin_utils._inventory import (
    source_file,
)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"plugin: a\nplugin: b\n", r"x\.yml:2: the key 'plugin' occurs twice"),
        (b"compose:\n  a: 1\n  b: 2\n  a: 3\n", r"x\.yml:4: the key 'a'"),
        (b"plugin: [\n", r"x\.yml:\d+: is not valid YAML"),
        (b"a:\n\tb: 1\n", r"x\.yml:2: is not valid YAML"),
        (b"- a\n", "must be a mapping"),
        (b"", "must be a mapping"),
        (b"\xff\xfe\xfa", "not valid YAML"),
        (b"a: \x00b", "not valid YAML"),
        (b"x" * (source_file.MAX_BYTES + 1), "larger than"),
    ],
)
def test_bad_source_files(tmp_path: pathlib.Path, content: bytes, problem: str) -> None:
    path = tmp_path / "x.yml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=problem) as caught:
        source_file.check_file(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [b"plugin: a\n", b"\xef\xbb\xbfplugin: a\n", b"plugin: a\r\ncompose:\r\n  a: 1\r\n",
     b"$ANSIBLE_VAULT;1.1;AES256\n3132\n", b"a: &x {b: 1}\nc:\n  <<: *x\n  d: 1\n",
     b"a: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  31\n"],
)  # fmt: skip
def test_good_source_files(tmp_path: pathlib.Path, content: bytes) -> None:
    path = tmp_path / "x.yml"
    path.write_bytes(content)
    source_file.check_file(str(path))
    with pytest.raises(InputError, match="cannot be read"):
        source_file.check_file(str(tmp_path / "missing.yml"))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_source_file_or_not(content: bytes) -> None:
    import tempfile

    with tempfile.NamedTemporaryFile(suffix=".yml") as stream:
        stream.write(content)
        stream.flush()
        try:
            source_file.check_file(stream.name)
        except InputError as exc:
            assert "\n" not in exc.message


def test_misspelt_options() -> None:
    with pytest.raises(InputError, match=r"api_tokn: is not an option of this plugin. Did you mean 'api_token'\?"):
        source_file.check_keys({"api_tokn": "hidden"}, {"api_token": 1, "states": 1})
    with pytest.raises(InputError, match="Known are: api_token, states"):
        source_file.check_keys(["zzz"], ["states", "api_token"])
