# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where templates of the catalogue come from: a folder, a commit of a git repository, or a file behind HTTPS."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import typing as t
import urllib.parse

from . import validators as f
from .binding import SecretPointer
from .errors import InputError

_COMMIT = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})\Z")
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
# The keys of each kind of source, besides the one that names it.
_KEYS: t.Final = {
    "path": (),
    "git": ("commit", "tag", "folder", "ca", "secret_ref"),
    "url": ("sha256", "ca", "secret_ref"),
}
SECRET_KEYS: t.Final = ("token", "username", "password")


@dataclasses.dataclass(frozen=True, slots=True)
class CatalogueSource:
    """One of ``path``, ``git`` and ``url`` is set.

    ``commit`` is what ``git`` must hold, ``tag`` a name that must still lead to it; ``folder`` has the templates.
    ``sha256`` is of the file at ``url``. ``ca``: a file with the authority that its server is known by.
    """

    path: str | None = f.field(f.text, None)
    git: str | None = f.field(f.text, None)
    commit: str | None = f.field(f.text, None)
    tag: str | None = f.field(f.text, None)
    folder: str | None = f.field(f.text, None)
    url: str | None = f.field(f.text, None)
    sha256: str | None = f.field(f.text, None)
    ca: str | None = f.field(f.text, None)
    secret_ref: SecretPointer | None = f.field(f.section(SecretPointer), None)

    @property
    def kind(self) -> str:
        """``path``, ``git`` or ``url``."""
        return next(kind for kind in _KEYS if getattr(self, kind))

    def __str__(self) -> str:
        """Return the source as messages name it."""
        if self.git:
            return f"{self.git}@{self.tag or self.commit}"
        return str(self.path or self.url)


def parse_sources(value: t.Any, path: str) -> tuple[CatalogueSource, ...]:
    """Return the sources of a list.

    :raises InputError: naming what is wrong; never an address that may hold a password.
    """
    sources = f.list_of(f.section(CatalogueSource))(value or [], path)
    for index, source in enumerate(sources):
        _check_source(source, f"{path}[{index}]")
    return sources


def _check_source(source: CatalogueSource, path: str) -> None:
    kinds = [kind for kind in _KEYS if getattr(source, kind)]
    if len(kinds) != 1:
        raise InputError(path, "needs one of path, git and url", "For example: {git: URL, commit: COMMIT}")
    kind = kinds[0]
    for key in ("commit", "tag", "folder", "sha256", "ca", "secret_ref"):
        if getattr(source, key) is not None and key not in _KEYS[kind]:
            raise InputError(f"{path}.{key}", f"is not for a source with {kind}", "Leave it out")
    if kind == "git":
        _check_git(source, path)
    if kind == "url":
        check_url(str(source.url), f"{path}.url")
        if not _DIGEST.match(source.sha256 or ""):
            raise InputError(f"{path}.sha256", "must be the SHA-256 of the file, 64 digits of hexadecimal")
    if source.secret_ref:
        _check_reference(source.secret_ref, f"{path}.secret_ref")


def _check_reference(pointer: SecretPointer, path: str) -> None:
    for key in pointer.keys:
        if key not in SECRET_KEYS:
            known = f"Known are: {', '.join(SECRET_KEYS)}"
            raise InputError(f"{path}.keys.{key}", "is not a credential of a source", known)
    if pointer.source != "env" and not pointer.path:
        raise InputError(f"{path}.path", f"is required with from: {pointer.source}")


def _check_git(source: CatalogueSource, path: str) -> None:
    if not _COMMIT.match(source.commit or ""):
        fix = "Write what `git rev-parse` prints; a tag stands beside it, in tag"
        raise InputError(f"{path}.commit", "must be a whole commit, 40 or 64 digits of hexadecimal", fix)
    is_https = _is_https(str(source.git), f"{path}.git")
    if source.secret_ref and not is_https:
        raise InputError(f"{path}.secret_ref", "is for https", "Git reads SSH's own keys")
    for key in ("git", "tag"):
        if str(getattr(source, key) or "").startswith("-"):
            raise InputError(f"{path}.{key}", "must not start with '-'")
    parts = pathlib.PurePosixPath(source.folder or ".")
    if parts.is_absolute() or ".." in parts.parts:
        raise InputError(f"{path}.folder", "must be a folder in the repository", "Write it without '..'")


def check_url(value: str, option: str) -> None:
    """Refuse what is not the address of a file behind HTTPS, and one with a credential in it.

    :raises InputError: naming ``option``.
    """
    if not _is_https(value, option):
        raise InputError(option, "must be the address of a file behind HTTPS", "Write https://HOST/NAME.yml")


def _is_https(value: str, option: str) -> bool:
    """Return whether an address is one of HTTPS.

    :raises InputError: when it has a credential in it, which would be shown.
    """
    try:
        parts = urllib.parse.urlsplit(value)
        has_login = bool(parts.password or (parts.scheme in ("http", "https") and parts.username))
    except ValueError:
        raise InputError(option, "is not an address") from None
    if has_login or parts.query or parts.fragment:
        raise InputError(option, "must not contain a user, a password or a query", "Use secret_ref")
    return parts.scheme == "https" and bool(parts.hostname)
