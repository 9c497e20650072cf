# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fetches everything that a cluster downloads into one folder, with the digests that are known or held."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pathlib
import re
import typing as t
import urllib.request

import yaml

from ....module_utils._model.errors import InputError, TransportError
from ....module_utils._model.image_name import full_name
from ....module_utils._node import files
from ..._hosts import bundle, downloads
from ..._hosts.bundle import BundleEntry
from ..._hosts.downloads import Download
from ..._services.registry import archives
from ..._services.registry.client import ImageName, Registry, digest_of
from ..shared.digest_lock import DigestLock, find_lock

_LIMIT_S = 120
_CHUNK = 1 << 20
_MANIFESTS = ("jobset", "kueue")
_IMAGES = "images"


@dataclasses.dataclass(frozen=True, slots=True)
class BundleOrder:
    """What is to be in a bundle. ``mirror``: a URL that has the files as a bundle does, instead of their own URLs."""

    folder: pathlib.Path
    lock: DigestLock
    versions: t.Mapping[str, str]
    architectures: tuple[str, ...]
    images: tuple[str, ...] = ()
    controller_images: bool = True
    mirror: str = ""


def run(options: t.Mapping[str, t.Any], sources: t.Sequence[str], base: pathlib.Path, check: bool) -> dict[str, t.Any]:
    """Return the result of ``release_bundle``.

    :raises InputError: naming the option.
    """
    names = {item.name for item in downloads.entries()} | downloads.image_programs()
    versions = {str(name): str(version) for name, version in (options.get("versions") or {}).items()}
    for name in versions:
        if name not in names:
            raise InputError("versions", f"'{name}' is not one of the downloads", f"Known: {', '.join(sorted(names))}")
    order = BundleOrder(
        base / pathlib.Path(str(options["path"])).expanduser(),
        find_lock(sources, base, options.get("lock_file")),
        versions,
        tuple(options["architectures"]),
        tuple(full_name(str(image)) for image in options["images"]),
        bool(options["controller_images"]),
        str(options.get("mirror") or "").rstrip("/"),
    )
    return make_bundle(order, check)


def make_bundle(order: BundleOrder, check: bool) -> dict[str, t.Any]:
    """Fetch what is not there yet; in check mode only say what that is."""
    kept = {item.key: item for item in bundle.read_index(order.folder) if _is_whole(order.folder, item)}
    wanted = [_file_entry(download) for download in list_downloads(order)]
    missing = [item.path for item in wanted if item.key not in kept]
    if check:
        return {"changed": bool(missing), "path": str(order.folder), "fetched": missing, "entries": []}
    order.folder.mkdir(parents=True, exist_ok=True)
    entries, fetched = [], []
    for download in list_downloads(order):
        entry = _file_entry(download)
        if entry.key in kept:
            order.lock.hold(download, kept[entry.key].sha256)
            entries.append(kept[entry.key])
            continue
        sha256 = _fetch(order, download, order.folder / entry.path)
        entries.append(dataclasses.replace(entry, sha256=sha256))
        fetched.append(entry.path)
        bundle.write_index(order.folder, [*entries, *kept.values()])
    for image, use in _list_images(order, entries):
        for architecture in order.architectures:
            entry = image_entry(image, architecture, use)
            if entry.key not in kept:
                kept[entry.key] = _fetch_image(order, entry)
                fetched.append(entry.path)
            entries.append(kept[entry.key])
            bundle.write_index(order.folder, dict.fromkeys([*entries, *kept.values()]))
    changed = bundle.write_index(order.folder, entries) or bool(fetched)
    return {
        "changed": changed,
        "path": str(order.folder),
        "fetched": fetched,
        "entries": [dataclasses.asdict(item) for item in entries],
    }


def list_downloads(order: BundleOrder) -> list[Download]:
    """Return the files of releases for the architectures, in the versions that are asked for."""
    found: dict[str, Download] = {}
    for item in downloads.entries():
        if item.architecture not in (*order.architectures, "any"):
            continue
        if item.name in downloads.only_named() and item.name not in order.versions:
            continue
        # Archives of images have the version of their program.
        program = item.name.removesuffix("-images")
        version = order.versions.get(item.name) or order.versions.get(program) or downloads.default_version(program)
        known = downloads.find(item.name, version, item.architecture)
        found[known.key] = known
    return list(found.values())


def find_images(manifests: str) -> list[str]:
    """Return the full names of the images that the objects of a YAML text run."""
    names: dict[str, None] = {}

    def collect(value: t.Any) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                if key == "image" and isinstance(item, str):
                    names[full_name(item)] = None
                collect(item)
        elif isinstance(value, list):
            for item in value:
                collect(item)

    for document in yaml.safe_load_all(manifests):
        if isinstance(document, dict) and document.get("kind") != "CustomResourceDefinition":
            collect(document)
    return list(names)


def image_entry(image: str, architecture: str, use: bundle.Use) -> BundleEntry:
    """Return the entry of an image's archive, without its digest."""
    file = f"{re.sub(r'[^A-Za-z0-9.-]+', '_', image)}-{architecture}.tar"
    return BundleEntry(image, "", architecture, f"{_IMAGES}/{file}", "", use)


def _list_images(order: BundleOrder, entries: t.Sequence[BundleEntry]) -> list[tuple[str, bundle.Use]]:
    found: dict[str, bundle.Use] = {}
    for item in entries if order.controller_images else ():
        if item.name in _MANIFESTS:
            found |= dict.fromkeys(find_images((order.folder / item.path).read_text()), "cluster")
    # What runs on the nodes of a cluster comes with it, as its controllers do.
    for name in sorted(downloads.image_programs() & set(order.versions)):
        found[downloads.image_of(name, order.versions[name])] = "cluster"
    found |= dict.fromkeys(order.images, "job")
    return list(found.items())


def _file_entry(download: Download) -> BundleEntry:
    # Archives of images of a release are imported by K3s, too.
    use: bundle.Use = "cluster" if download.name.endswith("-images") else "file"
    return BundleEntry(download.name, download.version, download.architecture, downloads.bundle_path(download), "", use)


def _fetch(order: BundleOrder, download: Download, place: pathlib.Path) -> str:
    """Download a file; it appears at its place when its digest is held."""
    url = f"{order.mirror}/{downloads.bundle_path(download)}" if order.mirror else download.url
    place.parent.mkdir(parents=True, exist_ok=True)
    _clear_left(place.parent)
    part, digest = place.with_name(f".{place.name}.part"), hashlib.sha256()
    try:
        # Releases redirect to another host; no credential is sent.
        with urllib.request.build_opener().open(url, timeout=_LIMIT_S) as source, part.open("wb") as target:
            while data := source.read(_CHUNK):
                target.write(data)
                digest.update(data)
        order.lock.hold(download, digest.hexdigest())
        os.replace(part, place)
    except (OSError, ValueError) as exc:
        raise TransportError(f"{url} cannot be downloaded: {exc}", "Check the network, or name a mirror") from exc
    finally:
        part.unlink(missing_ok=True)
    return digest.hexdigest()


def _fetch_image(order: BundleOrder, entry: BundleEntry) -> BundleEntry:
    """Fetch an image by the digest of its manifest, which is held from the first time on."""
    pinned = downloads.image(entry.name).sha256
    source = f"{entry.name}@{pinned}" if pinned else entry.name
    registry = Registry(ImageName.from_text(source))
    manifest = archives.find_manifest(registry, entry.architecture)
    digest = digest_of(manifest[0])
    held = Download("image", entry.name, entry.architecture, pathlib.PurePath(entry.path).name, "", "")
    order.lock.hold(held, digest)
    place = order.folder / entry.path
    place.parent.mkdir(parents=True, exist_ok=True)
    _clear_left(place.parent)
    archives.write_archive(registry, entry.name, manifest, place)
    return dataclasses.replace(entry, sha256=files.sha256_of(place), digest=digest)


def _clear_left(folder: pathlib.Path) -> None:
    """Remove what a run that was killed has left: a bundle is carried on as a whole."""
    for ending in (".part", ".blob"):
        files.clear_left(folder, ".", ending)


def _is_whole(folder: pathlib.Path, entry: BundleEntry) -> bool:
    place = folder / entry.path
    return place.is_file() and files.sha256_of(place) == entry.sha256
