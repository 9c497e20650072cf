# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which files belong to the project, and copies of them."""

from __future__ import annotations

import pathlib
import subprocess

import pytest

from ansible_collections.muster.training.tools import tree


@pytest.fixture
def project(tmp_path: pathlib.Path) -> pathlib.Path:
    root = tmp_path / "project"
    (root / "plugins").mkdir(parents=True)
    (root / "tests/output").mkdir(parents=True)
    for name in ("plugins/a.py", "tests/output/log", "junk.pyc"):
        (root / name).write_text(name, encoding="utf-8")
    (root / ".gitignore").write_text("*.pyc\n", encoding="utf-8")
    (root / "run").write_text("#!/bin/sh\n", encoding="utf-8")
    (root / "run").chmod(0o755)
    (root / "link").symlink_to("plugins/a.py")
    (root / "nowhere").symlink_to("gone")
    subprocess.run(["git", "init", "--quiet", root], check=True)
    return root


def test_files_are_those_that_git_would_track(project: pathlib.Path) -> None:
    assert tree.project_files(project) == (".gitignore", "link", "nowhere", "plugins/a.py", "run")


def test_a_deleted_tracked_file_is_left_out(project: pathlib.Path) -> None:
    subprocess.run(["git", "-C", project, "add", "run"], check=True)
    (project / "run").unlink()
    assert "run" not in tree.project_files(project)


def test_a_copy_keeps_modes_and_links_and_drops_what_was_there(project: pathlib.Path, tmp_path: pathlib.Path) -> None:
    target = tree.copy_collection(project, tmp_path / "above")
    assert target == tmp_path / "above/ansible_collections/muster/training"
    (target / "old").touch()
    tree.copy_collection(project, tmp_path / "above")
    assert not (target / "old").exists() and not (target / "junk.pyc").exists()
    assert (target / "run").stat().st_mode & 0o111
    assert (target / "link").readlink() == pathlib.Path("plugins/a.py")
    assert tree.project_files(target) == tree.project_files(project)


def test_a_folder_without_git_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(tree.TreeError, match="git ls-files failed"):
        tree.project_files(tmp_path)


def test_a_machine_without_git_is_told(project: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(tree.TreeError, match="git is not installed"):
        tree.project_files(project)


def test_patterns_reach_into_folders() -> None:
    files = ("roles/a/tasks/main.yml", "README.md", "playbooks/site.yml")
    assert tree.matching(files, ("roles/*", "*.md")) == ("roles/a/tasks/main.yml", "README.md")
