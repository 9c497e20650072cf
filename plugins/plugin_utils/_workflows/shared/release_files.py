# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of upstream's releases on their way to a machine: where they come from, and the digest that they must have.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t
import zlib

from ....module_utils._node import files
from ..._hosts import bundle, downloads
from ..._hosts.node_client import NodeClient
from .digest_lock import DigestLock

# What one request carries, packed: each starts the agent anew, and is held in memory until it is sent.
REQUEST_BYTES = 128 << 20
_CHUNK = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class ReleaseFile:
    """A file of a release with its place on the machine, the digest that it must have, and where it comes from.

    ``origin``: a URL for the machine, or a file of the controller. ``sha256`` is empty where no digest is known yet.
    """

    download: downloads.Download
    path: str
    mode: int
    origin: str | pathlib.Path
    sha256: str


def find_file(
    download: downloads.Download,
    path: str,
    mode: int,
    source: str,
    base: pathlib.Path,
    lock: DigestLock,
    check: bool,
) -> ReleaseFile:
    """Return a file of a release; the digest of one on the controller is compared and held at once.

    :param source: empty, a URL, or a folder (or the file itself) of the controller.
    :raises InputError: when the folder does not have it.
    :raises RefusedError: when its digest is another one than the known one.
    """
    origin = downloads.locate(download, source, base)
    sha256 = lock.find_digest(download)
    if isinstance(origin, pathlib.Path):
        sha256 = files.sha256_of(origin)
        bundle.check_digest(source, base, origin, sha256)
        lock.hold(download, sha256, write=not check)
    return ReleaseFile(download, path, mode, origin, sha256)


def send_files(
    remote: NodeClient, op: str, lock: DigestLock, items: t.Sequence[ReleaseFile], begin: t.Mapping[str, t.Any]
) -> list[dict[str, t.Any]]:
    """Bring files beside their places on the machine; return the requests that place them.

    :param op: the agent's operation whose steps ``bring`` and ``discard`` do it.
    :param begin: what the record says before the first byte is there: ``paths`` that will be made, and more.
    :raises RefusedError: when what was downloaded has another digest than the known one; nothing is kept.
    """
    if not items:
        return []
    own = [(item.path, item.origin) for item in items if isinstance(item.origin, pathlib.Path)]
    fetches = [{"path": item.path, "url": item.origin} for item in items if not isinstance(item.origin, pathlib.Path)]
    digests = push_files(remote, op, own, begin=begin, fetches=fetches)
    try:
        for item in items:
            if item.path in digests:
                lock.hold(item.download, digests[item.path])
    except Exception:
        remote.call(op, step="discard", paths=[item.path for item in items])
        raise
    return [{"path": item.path, "mode": item.mode, "sha256": digests.get(item.path, item.sha256)} for item in items]


def push_files(
    remote: NodeClient, op: str, origins: t.Sequence[tuple[str, pathlib.Path]], **first: t.Any
) -> dict[str, str]:
    """Send files beside these paths of the machine, as many in one request as it takes; return digests of downloads.

    A file that an earlier transfer has left is replaced. ``first`` goes with the first request.
    """
    digests: dict[str, str] = {}
    for parts, body in _pack(origins):
        digests |= remote.call(op, step="bring", parts=parts, body=body, **first)["digests"]
        first = {}
    return digests


def _pack(origins: t.Sequence[tuple[str, pathlib.Path]]) -> t.Iterator[tuple[list[dict[str, t.Any]], bytes]]:
    """Yield for each request ``{path, offset, size}`` of its parts, and the parts, each packed by itself."""
    parts: list[dict[str, t.Any]] = []
    packed: list[bytes] = []
    room = REQUEST_BYTES
    for path, origin in origins:
        with origin.open("rb") as source:
            is_over = False
            while not is_over:
                offset = source.tell()
                data, is_over = _pack_part(source, room)
                parts.append({"path": path, "offset": offset, "size": len(data)})
                packed.append(data)
                room -= len(data)
                if room <= 0:
                    # Nothing of it is held here while it is sent.
                    sent, body = parts, b"".join(packed)
                    parts, packed, room, data = [], [], REQUEST_BYTES, b""
                    yield sent, body
    if parts or not origins:
        yield parts, b"".join(packed)


def _pack_part(source: t.BinaryIO, room: int) -> tuple[bytes, bool]:
    """Return what follows in a file, packed, about as much as there is room for, and whether the file is over."""
    packer, chunks, is_over = zlib.compressobj(1), list[bytes](), False
    while room > 0 and not is_over:
        data = source.read(_CHUNK)
        is_over = not data
        chunks.append(packer.compress(data))
        room -= len(chunks[-1])
    return b"".join([*chunks, packer.flush()]), is_over
