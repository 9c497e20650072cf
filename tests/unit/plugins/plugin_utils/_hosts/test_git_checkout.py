# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checkouts from real git repositories."""

from __future__ import annotations

import pathlib
import shutil
import subprocess

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.plugin_utils._hosts import git_checkout

needs_git = pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")


def git(root: pathlib.Path, *argv: str) -> str:
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "init.defaultBranch=main"]
    return subprocess.run(
        ["git", *identity, *argv], cwd=root, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def repository(tmp_path: pathlib.Path) -> pathlib.Path:
    root = tmp_path / "origin"
    root.mkdir()
    (root / "train.py").write_bytes(b"one")
    git(root, "init", "--quiet")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "-m", "one")
    git(root, "tag", "v1")
    (root / "train.py").write_bytes(b"two")
    git(root, "commit", "--quiet", "-a", "-m", "two")
    return root


@needs_git
def test_a_revision_is_checked_out_once_below_the_cache(repository: pathlib.Path, tmp_path: pathlib.Path) -> None:
    cache = tmp_path / "cache"
    folder, commit = git_checkout.checkout_git(f"file://{repository}@v1", cache, "o")
    assert (folder / "train.py").read_bytes() == b"one" and commit == git(repository, "rev-parse", "v1")
    head, newest = git_checkout.checkout_git(f"file://{repository}", cache, "o")
    assert (head / "train.py").read_bytes() == b"two" and newest == git(repository, "rev-parse", "HEAD")
    assert git_checkout.checkout_git(f"file://{repository}@v1", cache, "o") == (folder, commit)
    assert not (folder / ".git").exists() and folder.stat().st_mode & 0o777 == 0o700


@needs_git
@pytest.mark.parametrize("ref", ["{}@no-such", "{}-no-such-folder"])
def test_what_git_cannot_do_is_one_line(repository: pathlib.Path, tmp_path: pathlib.Path, ref: str) -> None:
    with pytest.raises(InputError, match="^job.code.ref: git failed: ") as caught:
        git_checkout.checkout_git("file://" + ref.format(repository), tmp_path / "cache", "job.code.ref")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("ref", ["--upload-pack=touch x", "https://example.org/x@--output=x"])
def test_an_option_is_no_repository(tmp_path: pathlib.Path, ref: str) -> None:
    with pytest.raises(InputError, match="must not start with '-'"):
        git_checkout.checkout_git(ref, tmp_path, "o")


def test_a_token_in_a_url_is_never_shown(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "git"
    tool.write_text(
        "#!/bin/sh\necho \"fatal: unable to access 'https://me:geheim-42@host.example/x/': 403\" >&2\nexit 128\n"
    )
    tool.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(InputError) as caught:
        git_checkout.checkout_git("https://me:geheim-42@host.example/x", tmp_path / "cache", "o")
    assert str(caught.value) == "o: git failed: fatal: unable to access 'https://host.example/x/': 403"


def test_a_controller_without_git_says_so(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        InputError, match=r"^o: git cannot be run \(no such file or directory\). Install git on the controller$"
    ):
        git_checkout.checkout_git("https://example.org/x", tmp_path / "cache", "o")


@needs_git
def test_a_branch_with_a_slash_is_a_revision(repository: pathlib.Path, tmp_path: pathlib.Path) -> None:
    git(repository, "branch", "feature/x", "v1")
    folder, _ = git_checkout.checkout_git(f"file://{repository}@feature/x", tmp_path / "cache", "o")
    assert (folder / "train.py").read_bytes() == b"one"


@needs_git
def test_a_checkout_that_was_cut_is_made_again(
    repository: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = git_checkout._run_git

    def cut(argv: list[str], option: str, *access: git_checkout.GitAccess | None) -> str:
        if "checkout" in argv:
            raise InputError(option, "git did not answer within 300 s")
        return real(argv, option, *access)

    with monkeypatch.context() as patch, pytest.raises(InputError):
        patch.setattr(git_checkout, "_run_git", cut)
        git_checkout.checkout_git(f"file://{repository}@v1", tmp_path / "cache", "o")
    folder, _ = git_checkout.checkout_git(f"file://{repository}@v1", tmp_path / "cache", "o")
    assert (folder / "train.py").exists()
