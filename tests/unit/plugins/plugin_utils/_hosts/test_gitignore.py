# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ``.gitignore`` leaves out: the same as git itself says of the same folder."""

from __future__ import annotations

import pathlib
import subprocess

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._hosts import file_sync, gitignore

PATHS = [
    "train.py",
    "a.log",
    "logs/a.log",
    "logs/keep.log",
    "data/x.bin",
    "data/deep/y.bin",
    "src/data/z.bin",
    "src/main.py",
    "build/out.o",
    "src/build/gen.py",
    "doc/frotz/a",
    "doc/deep/frotz/b",
    "a.tmp",
    "b.tmp1",
    "tmp/[x]",
    "foo/bar/baz",
    "foo/x/bar",
    "deep/foo/bar",
    "#hash",
    "!bang",
    "ckpt/step-1/model.pt",
    "ckpt/step-1/meta.json",
    "ckpt/best/model.pt",
    "abc",
    "abd",
    "ab-",
    "x]y",
]


@pytest.mark.parametrize(
    "lines",
    [
        ["*.log", "!keep.log"],
        ["/data/", "build"],
        ["data/"],
        ["doc/frotz"],
        ["**/frotz", "# comment", "", "a.tmp   "],
        ["foo/**", "!foo/bar"],
        ["foo/**/bar"],
        ["*.tmp?", "ab[c-d]", "ab[!a-z]"],
        ["\\#hash", "\\!bang"],
        ["ckpt/**/*.pt", "!ckpt/best/model.pt"],
        ["*", "!*/", "!*.py"],
        ["/*", "!/src"],
        ["src/", "!src/main.py"],
        ["[", "x[]]y", "tmp/\\[x\\]"],
    ],
)
def test_it_leaves_out_what_git_leaves_out(tmp_path: pathlib.Path, lines: list[str]) -> None:
    for name in PATHS:
        place = tmp_path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(name)
    (tmp_path / ".gitignore").write_text("\n".join(lines) + "\n")
    (tmp_path / "src" / ".gitignore").write_text("!/data/z.bin\ngen.py\n")
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    listed = subprocess.run(
        ["git", "-C", str(tmp_path), "ls-files", "-z", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    expected = sorted(name for name in listed.split("\0") if name)
    found = file_sync.read_tree(tmp_path, "o", is_code=True)
    assert sorted(file.path for file in found.files) == expected
    assert len(file_sync.read_tree(tmp_path, "o").files) == len(PATHS) + 2, "data is never left out"


def test_the_rules_of_the_repository_count_below_it(tmp_path: pathlib.Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("*.log\n/src/out/\n")
    code = tmp_path / "src" / "app"
    (code / "out").mkdir(parents=True)
    for name in ("a.log", "a.py", "out/b.py"):
        (code / name).write_text("")
    found = file_sync.read_tree(code, "o", is_code=True)
    assert [file.path for file in found.files] == ["a.py", "out/b.py"] and found.ignored == ("a.log",)
    assert gitignore.rules_above(tmp_path) == () and len(gitignore.rules_above(code)) == 2
