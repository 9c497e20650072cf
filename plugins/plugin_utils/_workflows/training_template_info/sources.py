# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of templates and launches at their sources. What is downloaded is gone when they were read."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import pathlib
import tempfile
import typing as t
import urllib.parse

from ....module_utils._model.catalogue_source import CatalogueSource
from ....module_utils._model.errors import InputError, RefusedError
from ..._hosts import git_checkout
from ..shared import credentials


@dataclasses.dataclass(frozen=True, slots=True)
class TemplateFile:
    """A file with a template. ``place`` is what messages name it by, ``source`` where it came from."""

    content: bytes
    place: str
    source: CatalogueSource


def read_source(source: CatalogueSource, base: pathlib.Path, option: str) -> t.Iterator[TemplateFile]:
    """Yield the templates' files of a source; relative folders are relative to ``base``.

    :raises InputError: when it is not there, or is another one than it says.
    """
    if source.kind == "url":
        yield TemplateFile(_download(source, base, option), str(source.url), source)
        return
    if source.kind == "path":
        folder = pathlib.Path(base, str(source.path)).expanduser()
        yield from _read_folder(folder, folder, f"{folder}/", source, option)
        return
    with tempfile.TemporaryDirectory(prefix="muster-") as cache, _open_access(source, base, option) as access:
        names = (str(source.git), str(source.commit), source.tag)
        root = git_checkout.checkout_commit(*names, pathlib.Path(cache), option, access)
        prefix = f"{source}:{source.folder}/" if source.folder else f"{source}:"
        yield from _read_folder(root / (source.folder or "."), root, prefix, source, option)


def _read_folder(
    folder: pathlib.Path, root: pathlib.Path, prefix: str, source: CatalogueSource, option: str
) -> t.Iterator[TemplateFile]:
    if not folder.is_dir():
        fix = "Name a folder on the controller" if source.kind == "path" else "Check folder and commit"
        raise InputError(option, f"{prefix.rstrip('/')} is not a folder", fix)
    for place in sorted(folder.glob("*.yml")):
        if source.kind == "git" and not place.resolve().is_relative_to(root.resolve()):
            raise RefusedError(f"{prefix}{place.name}: is a link out of the repository", "Remove it there")
        try:
            yield TemplateFile(place.read_bytes(), f"{prefix}{place.name}", source)
        except OSError as exc:
            reason = (exc.strerror or "failed").lower()
            raise RefusedError(f"{prefix}{place.name}: cannot be read ({reason})", "Fix it or remove it") from exc


@contextlib.contextmanager
def _open_access(source: CatalogueSource, base: pathlib.Path, option: str) -> t.Iterator[git_checkout.GitAccess]:
    login = credentials.read_source_login(source.secret_ref, option)
    # A token alone is a password: hosts of git take any user's name with it, and this one.
    user, password = login.get("username", "x-access-token"), login.get("password") or login.get("token") or ""
    with git_checkout.open_access(user, password, _find_authority(source, base)) as access:
        yield access


def _find_authority(source: CatalogueSource, base: pathlib.Path) -> str:
    return str(pathlib.Path(base, source.ca).expanduser()) if source.ca else ""


def _download(source: CatalogueSource, base: pathlib.Path, option: str) -> bytes:
    """Return the file behind an address of HTTPS.

    :raises InputError: when its SHA-256 is another one.
    """
    # Late: it needs OpenSSL, for which every other catalogue would wait.
    from ....module_utils._http.messages import HttpRequest
    from ..._services import keyed_call

    parts = urllib.parse.urlsplit(str(source.url))
    login = credentials.read_source_login(source.secret_ref, option)
    request = HttpRequest("GET", parts.path or "/")
    content = keyed_call.fetch(f"https://{parts.netloc}", _find_authority(source, base), login, request).body
    found = hashlib.sha256(content).hexdigest()
    if found != source.sha256:
        problem = f"{source.url} has the SHA-256 {found} and not {source.sha256}"
        raise InputError(f"{option}.sha256", problem, "Check the file, or update sha256")
    return content
