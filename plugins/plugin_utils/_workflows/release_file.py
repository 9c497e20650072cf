# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A file of a release on the controller: downloaded once, and taken only with the digest that it must have."""

from __future__ import annotations

import base64
import pathlib
import typing as t
import urllib.request

from ...module_utils._model.errors import TransportError
from ...module_utils._node import files
from .._hosts import bundle, downloads
from .shared.digest_lock import find_lock
from .shared.state_dir import StateHome

_LIMIT_S = 120
# Manifests and charts; images and programs go to the machines themselves.
_LARGEST = 64 << 20


def run(options: t.Mapping[str, t.Any], sources: t.Sequence[str], base: pathlib.Path, check: bool) -> dict[str, t.Any]:
    """Return the result of ``release_file``."""
    result = _find_file(options, sources, base, check)
    if options.get("content"):
        path = result["path"]
        result["content"] = base64.b64encode(pathlib.Path(path).read_bytes()).decode() if path else None
    return result


def _find_file(
    options: t.Mapping[str, t.Any], sources: t.Sequence[str], base: pathlib.Path, check: bool
) -> dict[str, t.Any]:
    name = str(options["name"])
    version = str(options.get("version") or downloads.default_version(name))
    download = downloads.find(name, version, str(options["architecture"]))
    lock = find_lock(sources, base, options.get("lock_file"))
    origin = downloads.locate(download, str(options.get("source") or ""), base)
    if isinstance(origin, pathlib.Path):
        sha256 = files.sha256_of(origin)
        bundle.check_digest(str(options.get("source") or ""), base, origin, sha256)
        lock.hold(download, sha256, write=not check)
        return {"changed": False, "path": str(origin), "sha256": sha256, "version": version}
    cache = StateHome(options["state_home"], str(options["cluster"])).root / "downloads"
    wanted = lock.find_digest(download)
    place = cache / f"{wanted}-{download.file}"
    if wanted and place.is_file() and files.sha256_of(place) == wanted:
        return {"changed": False, "path": str(place), "sha256": wanted, "version": version}
    if check:
        return {"changed": True, "path": None, "sha256": wanted or None, "version": version}
    part = files.private_dir(cache) / f".{download.name}-{download.file}.part"
    files.clear_left(cache, ".", ".part")
    files.write_atomic(part, _get(origin))
    sha256 = files.sha256_of(part)
    try:
        lock.hold(download, sha256)
        place = part.rename(cache / f"{sha256}-{download.file}")
    finally:
        part.unlink(missing_ok=True)
    return {"changed": True, "path": str(place), "sha256": sha256, "version": version}


def _get(url: str) -> bytes:
    # Releases redirect to another host, which the client of APIs refuses; no credential is sent here.
    try:
        with urllib.request.build_opener().open(url, timeout=_LIMIT_S) as source:
            data: bytes = source.read(_LARGEST + 1)
    except (OSError, ValueError) as exc:
        raise TransportError(
            f"{url} cannot be downloaded: {exc}", "Check the network, or name a folder (source)"
        ) from exc
    if len(data) > _LARGEST:
        raise TransportError(f"{url} is larger than {_LARGEST >> 20} MiB")
    return data
