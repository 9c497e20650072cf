# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is downloaded: versions, addresses, and the SHA-256 that a file must have, from one data file."""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
import urllib.parse

from ...module_utils._model.errors import InputError

_DATA = pathlib.Path(__file__).with_name("downloads.json")


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


@functools.cache
def only_named() -> frozenset[str]:
    """Return the programs that a bundle has only when it is asked for them: they are one choice of several."""
    return frozenset(json.loads(_DATA.read_text())["only_named"])


def image(name: str) -> Download:
    """Return an image by its full name and tag, with the digest of its index where upstream's is at hand."""
    return Download("image", name, "any", "index", "", str(json.loads(_DATA.read_text())["images"].get(name) or ""))


def pinned_image(name: str, *, by_tag: bool) -> str:
    """Return an image by its digest, or as a bundle's archive has it: by its tag."""
    digest = image(name).sha256
    return name if by_tag or not digest else f"{name}@{digest}"


@functools.cache
def image_programs() -> frozenset[str]:
    """Return the programs that are images and no files of a release; a bundle has those that it is asked for."""
    return frozenset(json.loads(_DATA.read_text())["image_programs"])


def image_of(program: str, version: str = "") -> str:
    """Return the full name and tag of such a program's image, of the version that is installed when none is named."""
    return f"{json.loads(_DATA.read_text())['image_programs'][program]}:{version or default_version(program)}"


def find(name: str, version: str, architecture: str, file: str = "") -> Download:
    """Return the entry of a program; of a version that the data file does not have it is made from one that it has.

    :param file: another file of the same release.
    :raises InputError: when no version of it is known.
    """
    known = [item for item in entries() if item.name == name and item.architecture in (architecture, "any")]
    if not known:
        raise InputError(name, f"has no download for {architecture}", f"It has some for: {_list_architectures(name)}")
    exact = next((item for item in known if item.version == version and file in ("", item.file)), None)
    if exact:
        return exact
    base = known[0]
    here, wanted = (urllib.parse.quote(text, safe="") for text in (base.version, version))
    url = base.url.replace(here, wanted)
    name_of_file = file or base.file.replace(base.version, version)
    return Download(name, version, base.architecture, name_of_file, f"{url.rpartition('/')[0]}/{name_of_file}", "")


def bundle_path(download: Download) -> str:
    """Return where a file is in a bundle: files of several programs, or of several architectures, have one name."""
    files = [item.file for item in entries() if item.name == download.name]
    folder = f"/{download.architecture}" if len(set(files)) < len(files) else ""
    return f"{download.name}/{download.version}{folder}/{download.file}"


def locate(download: Download, source: str, base: pathlib.Path) -> str | pathlib.Path:
    """Return where a file comes from: its own URL, one below another URL, or a file of a folder.

    :param source: empty, a URL, or a bundle, another folder or the file itself on the controller.
    :raises InputError: when the folder does not have it.
    """
    if not source:
        return download.url
    if source.startswith(("https://", "http://")):
        return f"{source.rstrip('/')}/{download.file}"
    place = base / pathlib.Path(source).expanduser()
    found = place
    if place.is_dir():
        names = (bundle_path(download), f"images/{download.file}", download.file)
        found = next((place / name for name in names if (place / name).is_file()), place / download.file)
    if not found.is_file():
        raise InputError("source", f"{found} does not exist", f"Place {download.file} there or name a URL")
    return found


def _list_architectures(name: str) -> str:
    return ", ".join(sorted({item.architecture for item in entries() if item.name == name})) or "none"
