# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of upstream's releases on their way to a machine: where they come from, and the digest that they must have."""

from __future__ import annotations

import dataclasses
import json
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
    left = [(path, origin, 0) for path, origin in origins]
    while left or first:
        size = min(REQUEST_BYTES, sum(origin.stat().st_size - offset for _path, origin, offset in left))
        digests |= remote.call(op, step="bring", size=size, body=_pack(left), **first)["digests"]
        first = {}
    return digests


def _pack(left: list[tuple[str, pathlib.Path, int]]) -> t.Iterator[bytes]:
    """Yield what one request carries of files (path, where it is, from which byte on); what is for the next stays.

    Each file is a line that names it, its pieces behind their sizes, packed as one stream, and the size 0. The last
    line is empty.
    """
    room = REQUEST_BYTES
    while left and room > 0:
        path, origin, offset = left.pop(0)
        yield json.dumps({"path": path, "offset": offset}).encode() + b"\n"
        packer, data = zlib.compressobj(1), b"-"
        with origin.open("rb") as source:
            source.seek(offset)
            while data and room > 0:
                data = source.read(_CHUNK)
                piece = packer.compress(data) if data else packer.flush()
                room -= len(piece)
                yield b"%d\n%b" % (len(piece), piece) if piece else b""
            rest = packer.flush() if data else b""
            yield (b"%d\n%b" % (len(rest), rest) if rest else b"") + b"0\n"
            if data:
                left.insert(0, (path, origin, source.tell()))
    yield b"\n"
