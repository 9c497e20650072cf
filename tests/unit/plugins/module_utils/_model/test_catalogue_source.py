# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sources of templates: what one may say, and that an address with a password is not shown."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.catalogue_source import parse_sources
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError

COMMIT, DIGEST, PASSWORD = "a" * 40, "b" * 64, "c4n4ry-pw"
GIT, URL = {"git": "https://g.example.org/t.git", "commit": COMMIT}, {"url": "https://h/x.yml", "sha256": DIGEST}


def test_the_three_kinds_of_source() -> None:
    folder, git, file, ssh = parse_sources(
        [{"path": "./mine"}, {**GIT, "tag": "v1"}, URL, {**GIT, "git": "git@h:t.git"}], "s"
    )
    assert [item.kind for item in (folder, git, file, ssh)] == ["path", "git", "url", "git"]
    assert [str(item) for item in (folder, git, file)] == ["./mine", "https://g.example.org/t.git@v1", URL["url"]]
    assert parse_sources(None, "s") == parse_sources([], "s") == ()


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({}, "s[0]: needs one of path, git and url"),
        ({**GIT, **URL}, "s[0]: needs one of path, git and url"),
        ({**GIT, "commit": "main"}, "s[0].commit: must be a whole commit"),
        ({"git": GIT["git"]}, "s[0].commit: must be a whole commit"),
        ({**GIT, "sha256": DIGEST}, "s[0].sha256: is not for a source with git"),
        ({**GIT, "folder": "../x"}, "s[0].folder: must be a folder in the repository"),
        ({**GIT, "tag": "--x"}, "s[0].tag: must not start with '-'"),
        ({**GIT, "git": "--upload-pack=x"}, "s[0].git: must not start with '-'"),
        ({**GIT, "git": f"https://u:{PASSWORD}@h/x"}, "s[0].git: must not contain a user, a password or a query"),
        ({**GIT, "git": f"https://{PASSWORD}@h/x"}, "s[0].git: must not contain a user, a password or a query"),
        ({**GIT, "git": "git@h:x", "secret_ref": {"from": "env"}}, "s[0].secret_ref: is for https"),
        ({**GIT, "secret_ref": PASSWORD}, "s[0].secret_ref: must be a mapping"),
        ({**GIT, "secret_ref": {"from": "file"}}, "s[0].secret_ref.path: is required with from: file"),
        ({**GIT, "secret_ref": {"from": "env", "keys": {"key": "X"}}}, "s[0].secret_ref.keys.key: is not a credential"),
        ({**URL, "sha256": "1"}, "s[0].sha256: must be the SHA-256"),
        ({**URL, "url": "http://h/x.yml"}, "s[0].url: must be the address of a file behind HTTPS"),
        ({**URL, "url": f"https://h/x.yml?token={PASSWORD}"}, "s[0].url: must not contain a user, a password or a"),
        ({"path": "x", "commit": COMMIT}, "s[0].commit: is not for a source with path"),
        ({"gti": "x"}, "s[0].gti: is not an option. Did you mean 'git'?"),
    ],
)
def test_a_bad_source_is_one_line(entry: dict[str, t.Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_sources([entry], "s")
    assert str(caught.value).startswith(said) and PASSWORD not in str(caught.value) and "\n" not in str(caught.value)


@given(st.lists(st.dictionaries(st.sampled_from(["path", "git", "url", "commit", "ca"]), st.text() | st.none())))
def test_any_list_is_read_or_refused(value: list[dict[str, t.Any]]) -> None:
    try:
        assert all(item.kind for item in parse_sources(value, "s"))
    except InputError:
        return
