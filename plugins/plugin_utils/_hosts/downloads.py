# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is downloaded: where it is, the SHA-256 it must have, and the lock file that holds those seen first.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import fcntl
import functools
import hashlib
import json
import os
import pathlib
import typing as t
import urllib.parse

from ...module_utils._model.errors import InputError, RefusedError
from ...module_utils._node import files

LOCK = "muster-downloads.lock.json"
_DATA = pathlib.Path(__file__).with_name("downloads.json")
_CHUNK = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class Download:
    """One file to download. ``sha256`` is empty where upstream's digest is not known."""

    name: str
    version: str
    architecture: str
    file: str
    url: str
    sha256: str

    @property
    def key(self) -> str:
        """Its name in a lock file."""
        return f"{self.name} {self.version} {self.architecture} {self.file}"


@functools.cache
def entries() -> tuple[Download, ...]:
    """Return all entries of the data file."""
    listed = json.loads(_DATA.read_text())["entries"]
    return tuple(Download(**{**item, "sha256": item["sha256"] or ""}) for item in listed)


@functools.cache
def default_version(name: str) -> str:
    """Return the version of a program that is installed when none is named."""
    return str(json.loads(_DATA.read_text())["defaults"][name])


def find(name: str, version: str, architecture: str, file: str = "") -> Download:
    """Return the entry of a program; of a version that the data file does not have it is made from one that it has.

    :param file: another file of the same release.
    :raises InputError: when no version of it is known.
    """
    known = [item for item in entries() if item.name == name and item.architecture in (architecture, "any")]
    if not known:
        raise InputError(name, f"there is none for {architecture}", f"Known are: {_known(name)}")
    exact = next((item for item in known if item.version == version and file in ("", item.file)), None)
    if exact:
        return exact
    base = known[0]
    here, wanted = (urllib.parse.quote(text, safe="") for text in (base.version, version))
    url = base.url.replace(here, wanted)
    name_of_file = file or base.file
    return Download(name, version, base.architecture, name_of_file, f"{url.rpartition('/')[0]}/{name_of_file}", "")


def locate(download: Download, source: str, base: pathlib.Path) -> str | pathlib.Path:
    """Return where a file comes from: its own URL, one below another URL, or a file of a folder.

    :param source: empty, a URL, or a folder (or the file itself) of the controller.
    :raises InputError: when the folder does not have it.
    """
    if not source:
        return download.url
    if source.startswith(("https://", "http://")):
        return f"{source.rstrip('/')}/{download.file}"
    place = base / pathlib.Path(source).expanduser()
    found = place / download.file if place.is_dir() else place
    if not found.is_file():
        raise InputError("source", f"{found} does not exist", f"Place {download.file} there or name a URL")
    return found


class DigestLock:
    """The lock file beside the inventory: what was downloaded first is what is taken from then on."""

    def __init__(self, place: pathlib.Path) -> None:
        self.place = place

    def expected(self, download: Download) -> str:
        """Return the digest that a file must have, empty when none is known yet."""
        return download.sha256 or str(self._read().get(download.key, ""))

    def hold(self, download: Download, sha256: str, write: bool = True) -> None:
        """Note the digest of a first download; compare it with the one that is known.

        :raises RefusedError: when it is another one.
        """
        wanted = self.expected(download)
        if wanted and wanted != sha256:
            where = "the collection's list of downloads" if download.sha256 else str(self.place)
            raise RefusedError(
                f"{download.name} {download.version} ({download.file}) has the SHA-256 {sha256} and not {wanted}, "
                f"which {where} has",
                "Compare it with upstream's; nothing of it was installed",
            )
        if wanted or not write:
            return
        self.place.parent.mkdir(parents=True, exist_ok=True)
        # Several hosts of one play may come here at the same moment.
        guard = os.open(self.place.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(guard, fcntl.LOCK_EX)
            held = self._read()
            if held.setdefault(download.key, sha256) != sha256:
                raise RefusedError(
                    f"{download.name} {download.version} ({download.file}) has two digests, {sha256} here and "
                    f"{held[download.key]} on another machine",
                    "Compare them with upstream's",
                )
            files.write_atomic(self.place, (json.dumps(held, indent=2, sort_keys=True) + "\n").encode(), 0o644)
        finally:
            os.close(guard)

    def _read(self) -> dict[str, str]:
        try:
            value = json.loads(self.place.read_text())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as exc:
            raise InputError(str(self.place), "cannot be read as JSON", "Restore it from version control") from exc
        return t.cast("dict[str, str]", value)


def sha256_of(place: pathlib.Path) -> str:
    """Return the digest of a file of the controller."""
    digest = hashlib.sha256()
    with place.open("rb") as handle:
        while data := handle.read(_CHUNK):
            digest.update(data)
    return digest.hexdigest()


def _known(name: str) -> str:
    return ", ".join(sorted({item.architecture for item in entries() if item.name == name})) or "none"
