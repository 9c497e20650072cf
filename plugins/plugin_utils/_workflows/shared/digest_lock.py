# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lock file beside the inventory: what was downloaded first is what is taken from then on."""

from __future__ import annotations

import fcntl
import json
import os
import pathlib
import typing as t

from ....module_utils._model.errors import InputError, RefusedError
from ....module_utils._node import files
from ..._hosts.downloads import Download

LOCK = "muster-downloads.lock.json"


class DigestLock:
    """The lock file at a place; it need not exist."""

    def __init__(self, place: pathlib.Path) -> None:
        self.place = place

    def find_digest(self, download: Download) -> str:
        """Return the digest that a file must have, empty when none is known yet."""
        return download.sha256 or str(self._read().get(download.key, ""))

    def hold(self, download: Download, sha256: str, write: bool = True) -> None:
        """Note the digest of a first download; compare it with the one that is known.

        :raises RefusedError: when it is another one.
        """
        wanted = self.find_digest(download)
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


def find_lock(sources: t.Sequence[str], base: pathlib.Path, given: str | None) -> DigestLock:
    """Return the lock file: the one that is named, else the one beside the first inventory that is a file or folder."""
    if given:
        return DigestLock(base / pathlib.Path(given).expanduser())
    for source in sources:
        place = pathlib.Path(source)
        if place.exists():
            return DigestLock((place if place.is_dir() else place.parent) / LOCK)
    return DigestLock(base / LOCK)
