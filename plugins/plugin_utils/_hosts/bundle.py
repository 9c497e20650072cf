# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A folder with everything that a cluster downloads: files of releases and archives of images, with their digests.

``bundle.json`` lists them; a folder without it is a plain folder with files of a release.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import typing as t

from ...module_utils._model.errors import InputError, RefusedError

INDEX = "bundle.json"
_SCHEMA = 1
# Images of controllers are imported when K3s starts; that of a job is imported by itself.
Use = t.Literal["file", "cluster", "job"]


@dataclasses.dataclass(frozen=True, slots=True)
class BundleEntry:
    """A file of a bundle, ``path`` in its folder. An image has its full name and the digest of its manifest."""

    name: str
    version: str
    architecture: str
    path: str
    sha256: str
    use: Use = "file"
    digest: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What tells it from others."""
        return self.name, self.version, self.architecture, self.path


def read_index(folder: pathlib.Path) -> list[BundleEntry]:
    """Return the entries of a bundle; empty for another folder.

    :raises InputError: when the index cannot be read.
    """
    place = folder / INDEX
    if not place.is_file():
        return []
    try:
        return [BundleEntry(**item) for item in json.loads(place.read_text())["entries"]]
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise InputError(str(place), "cannot be read", "Make the bundle again") from exc


def write_index(folder: pathlib.Path, entries: t.Iterable[BundleEntry]) -> bool:
    """Write the index; return whether it differed."""
    ordered = [dataclasses.asdict(item) for item in sorted(entries, key=lambda item: item.key)]
    content = (json.dumps({"schema": _SCHEMA, "entries": ordered}, indent=2) + "\n").encode()
    place = folder / INDEX
    if place.is_file() and place.read_bytes() == content:
        return False
    part = place.with_name(f".{INDEX}.part")
    part.write_bytes(content)
    part.replace(place)
    return True


def check_digest(source: str, base: pathlib.Path, place: pathlib.Path, sha256: str) -> None:
    """Refuse a file of a bundle that is not what its index says; other files are not judged.

    :raises RefusedError: naming the file.
    """
    folder = find_folder(source, base)
    for item in read_index(folder) if folder else ():
        if folder and folder / item.path == place and item.sha256 != sha256:
            raise RefusedError(
                f"{place} has the SHA-256 {sha256} and not {item.sha256}, which {INDEX} has",
                "Make the bundle again; nothing of it was installed",
            )


def find_folder(source: str, base: pathlib.Path) -> pathlib.Path | None:
    """Return the folder that a source names, None for a URL or a file."""
    if not source or source.startswith(("https://", "http://")):
        return None
    place = base / pathlib.Path(source).expanduser()
    return place if place.is_dir() else None


def list_archives(folder: pathlib.Path, architecture: str = "") -> list[BundleEntry]:
    """Return the archives of images that K3s imports when it starts, of one architecture or of all."""
    return [
        item
        for item in read_index(folder)
        if item.use == "cluster" and architecture in ("", item.architecture) and item.architecture
    ]


def find_image(folder: pathlib.Path, image: str, architecture: str) -> BundleEntry:
    """Return the archive of a job's image.

    :raises InputError: when the bundle does not have it.
    """
    images = [item for item in read_index(folder) if item.use == "job"]
    found = next((item for item in images if (item.name, item.architecture) == (image, architecture)), None)
    if found is None:
        known = ", ".join(sorted(f"{item.name} ({item.architecture})" for item in images)) or "none"
        raise InputError(
            "archive", f"{folder} does not hold the image {image} for {architecture}", f"It has images: {known}"
        )
    return found
