# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of upstream's releases on their way to a machine: where they come from, and the digest that they must have.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import base64
import dataclasses
import pathlib
import typing as t
import zlib

from ....module_utils._node import files
from ..._hosts import bundle, downloads
from ..._hosts.node_client import NodeClient
from .digest_lock import DigestLock

# Each request starts the agent anew; an archive of gigabytes shall not need a thousand of them.
PIECE_BYTES = 32 << 20


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


def send_file(
    remote: NodeClient, op: str, lock: DigestLock, item: ReleaseFile, begin: t.Mapping[str, t.Any]
) -> dict[str, t.Any]:
    """Bring a file beside its place on the machine; return the request that places it.

    :param op: the agent's operation whose steps ``piece``, ``fetch`` and ``discard`` do it.
    :param begin: what the record says before the first byte is there: ``paths`` that will be made, and more.
    :raises RefusedError: when what was downloaded has another digest than the known one; it is removed.
    """
    sha256 = item.sha256
    if isinstance(item.origin, pathlib.Path):
        push_file(remote, op, item.path, item.origin, begin=begin)
    else:
        sha256 = remote.call(op, step="fetch", path=item.path, url=item.origin, begin=begin)["sha256"]
        try:
            lock.hold(item.download, sha256)
        except Exception:
            remote.call(op, step="discard", path=item.path)
            raise
    return {"path": item.path, "mode": item.mode, "sha256": sha256}


def push_file(
    remote: NodeClient, op: str, path: str, origin: pathlib.Path, begin: t.Mapping[str, t.Any] | None = None
) -> None:
    """Send a file beside ``path`` of the machine, in pieces; what an earlier transfer has left is replaced."""
    with origin.open("rb") as source:
        offset = 0
        while (data := source.read(PIECE_BYTES)) or not offset:
            packed = base64.b64encode(zlib.compress(data, 1)).decode()
            more = {"begin": begin} if begin and not offset else {}
            offset = remote.call(op, step="piece", path=path, offset=offset, data=packed, **more)["size"]
            if not data:
                break
