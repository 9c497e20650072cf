# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The code of a job from git: one commit, checked out on the controller, from where it is sent like any folder."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import typing as t

from ...module_utils._model.errors import InputError

_LIMIT_S = 300
# Git asks for user and password by a program, so that they are in no argument and no variable.
_ASK = """#!/bin/sh
case "$1" in Username*) exec cat "${0%/*}/username" ;; esac
exec cat "${0%/*}/password"
"""


@dataclasses.dataclass(frozen=True, slots=True)
class GitAccess:
    """How a repository behind HTTPS is reached: the program that git asks for a login, and a file with an authority."""

    ask: str = ""
    ca: str = ""


@contextlib.contextmanager
def open_access(username: str, password: str, ca: str) -> t.Iterator[GitAccess]:
    """Yield the access by a user's password, empty for none. It is in files of this user while the context is open."""
    if not password:
        yield GitAccess(ca=ca)
        return
    with tempfile.TemporaryDirectory(prefix="muster-") as folder:
        for name, content, mode in (
            ("username", username, 0o600),
            ("password", password, 0o600),
            ("ask", _ASK, 0o700),
        ):
            with open(os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as handle:
                handle.write(content)
        yield GitAccess(f"{folder}/ask", ca)


def checkout_commit(
    url: str, commit: str, tag: str | None, cache: pathlib.Path, option: str, access: GitAccess
) -> pathlib.Path:
    """Check out a commit below ``cache`` and return the folder.

    :param tag: a name that must lead to the commit, None for none.
    :raises InputError: for ``option``, when the tag was moved, or the repository does not have the commit.
    """
    if tag is None:
        try:
            return checkout_git(f"{url}@{commit}", cache, option, access)[0]
        except InputError as exc:
            if "not our ref" not in str(exc):
                raise
            problem = f"{url} does not have the commit {commit}"
            raise InputError(f"{option}.commit", problem, "Check it, or update commit") from exc
    folder, found = checkout_git(f"{url}@refs/tags/{tag}", cache, option, access)
    if found != commit:
        problem = f"the tag {tag} of {url} leads to {found} and not to {commit}: it was moved"
        raise InputError(f"{option}.tag", problem, "Look at what changed, then update commit")
    return folder


def checkout_git(
    ref: str, cache: pathlib.Path, option: str, access: GitAccess | None = None
) -> tuple[pathlib.Path, str]:
    """Check out ``URL@REVISION`` below ``cache`` and return (folder, commit).

    :raises InputError: for ``option``, with git's own last line.
    """
    url, revision = split_ref(ref)
    if url.startswith("-") or revision.startswith("-"):
        raise InputError(option, "must not start with '-'")
    repository = cache / hashlib.sha256(url.encode()).hexdigest()[:16]
    repository.mkdir(parents=True, exist_ok=True, mode=0o700)
    _run_git(["init", "--quiet", "--bare", str(repository)], option)
    _run_git(["-C", str(repository), "fetch", "--quiet", "--depth=1", url, revision], option, access)
    commit = _run_git(["-C", str(repository), "rev-parse", "FETCH_HEAD^{commit}"], option).strip()
    folder = cache / commit
    if not folder.exists():
        # Under another name until it is whole, so that an interrupted checkout is not used.
        with tempfile.TemporaryDirectory(prefix=".checkout-", dir=cache) as checkout:
            _run_git(
                ["-C", str(repository), f"--work-tree={checkout}", "checkout", "--quiet", "--force", commit, "--", "."],
                option,
            )
            shutil.copytree(checkout, folder.with_name(f".{commit}"), symlinks=True, dirs_exist_ok=True)
        os.replace(folder.with_name(f".{commit}"), folder)
    return folder, commit


def split_ref(ref: str) -> tuple[str, str]:
    """Return (URL, revision) of ``URL@REVISION``; an ``@`` in the URL's user part does not start a revision."""
    scheme, separator, rest = ref.partition("://")
    if not separator:
        scheme, rest = "", ref
    # After the host (URL), or after the colon of user@host:path.
    start = rest.find("/") if separator else rest.find(":") + 1
    host, path = rest[: max(start, 0)], rest[max(start, 0) :]
    path, _unused, revision = path.rpartition("@") if "@" in path else (path, "", "HEAD")
    return f"{scheme}{separator}{host}{path}", revision or "HEAD"


def _run_git(argv: list[str], option: str, access: GitAccess | None = None) -> str:
    env = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    if access is not None and access.ask:
        # A helper of the user's would be asked first, and would be given the password to keep.
        argv, env = ["-c", "credential.helper=", *argv], {**env, "GIT_ASKPASS": access.ask}
    if access is not None and access.ca:
        env["GIT_SSL_CAINFO"] = access.ca
    try:
        result = subprocess.run(["git", *argv], capture_output=True, text=True, timeout=_LIMIT_S, check=False, env=env)
    except subprocess.TimeoutExpired as exc:
        raise InputError(option, f"git did not answer within {_LIMIT_S} s", "Check the address") from exc
    except OSError as exc:
        reason = (exc.strerror or "failed").lower()
        raise InputError(option, f"git cannot be run ({reason})", "Install git on the controller") from exc
    if result.returncode != 0:
        last = (result.stderr.strip().splitlines() or ["no output"])[-1]
        # A URL may carry a token; git quotes it in its messages.
        raise InputError(option, "git failed: " + _without_credentials(last)[:200])
    return result.stdout


def _without_credentials(text: str) -> str:
    return re.sub(r"//[^/@\s]+@", "//", text)
