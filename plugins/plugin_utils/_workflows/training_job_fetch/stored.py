# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of checkpoints in a bucket, in which they are one stream in parts: which there are, and their bytes.

The controller reads the bucket; where it cannot connect to the store, a node or a pod reads for it.
"""

from __future__ import annotations

import base64
import dataclasses
import fnmatch
import functools
import typing as t
import zlib

from ....module_utils._model.errors import MusterError, RefusedError, TransportError
from ....module_utils._node import checkpoint_store
from ....module_utils._node.checkpoint_choice import NodeCheckpoints, choose_checkpoints
from ....module_utils._node.s3_client import S3Error, Store
from ..._hosts.node_client import NodeClient
from ..training_job.object_stores.checkpoint_binding import BoundCheckpoints
from .remote_file import RemoteFile, add_file, check_path

# What one request reads; an answer of a node is packed in memory.
_PIECE: t.Final = 8 << 20
Manifest = checkpoint_store.Manifest


class ObjectReader(t.Protocol):
    """Reads an object by a signed address: ``size`` bytes from ``first`` on, or all; None where there is no object."""

    def __call__(self, url: str, first: int = 0, size: int | None = None) -> bytes | None: ...


@dataclasses.dataclass(frozen=True, slots=True)
class _Stored:
    """A checkpoint that one node has stored, and in which slot."""

    rank: int
    slot: int
    manifest: Manifest

    @property
    def node(self) -> str:
        return str(self.manifest.get("node") or f"node-{self.rank}")


def list_stored(
    bound: BoundCheckpoints, patterns: t.Sequence[str], find_proxy: t.Callable[[], NodeClient | None]
) -> tuple[list[RemoteFile], list[str]]:
    """Return the files to fetch, and the paths of all where none matches.

    Without ``patterns`` they are those of the newest checkpoint that every node has stored that has stored any.

    :param find_proxy: returns a node that may reach the store where the controller does not.
    :raises TransportError: when neither reaches it.
    """
    read: ObjectReader = functools.partial(_read_directly, bound.binding.name, Store(bound.binding.ca))
    try:
        found = _read_manifests(bound, read)
    except TransportError as exc:
        remote = find_proxy()
        if remote is None:
            raise TransportError(
                f"the controller does not reach the object store {bound.binding.name}: {exc.message}",
                exc.fix or "Fetch on a machine that reaches it",
            ) from exc
        read = functools.partial(_read_through, remote, bound.binding.ca)
        found = _read_manifests(bound, read)
    chosen: dict[str, RemoteFile] = {}
    for stored, item, path in _list_paths(found if patterns else _newest(found)):
        if not patterns or any(matches(path.split("/"), pattern.split("/")) for pattern in patterns):
            add_file(chosen, _build_file(bound, read, stored, item, path), stored.node)
    there = [] if chosen else sorted({path for _stored, _item, path in _list_paths(found)})
    return list(chosen.values()), there


def matches(path: t.Sequence[str], pattern: t.Sequence[str]) -> bool:
    """Return whether a glob, by its parts, matches a path or a folder that the path is in; ``**`` is any folders."""
    if not pattern:
        return True
    if pattern[0] == "**":
        return any(matches(path[skipped:], pattern[1:]) for skipped in range(len(path) + 1))
    return bool(path) and fnmatch.fnmatchcase(path[0], pattern[0]) and matches(path[1:], pattern[1:])


def _read_manifests(bound: BoundCheckpoints, read: ObjectReader) -> list[_Stored]:
    """Return all complete checkpoints in the bucket, each rank's newest first."""
    found = []
    for rank in range(bound.job.nodes):
        if bound.stores(rank):
            urls = enumerate(bound.manifest_addresses(rank))
            read_all = [(slot, checkpoint_store.parse_manifest(read(url))) for slot, url in urls]
            held = [_Stored(rank, slot, manifest) for slot, manifest in read_all if manifest is not None]
            # Of a name that was saved twice, the later one counts.
            by_name = {stored.manifest["name"]: stored for stored in sorted(held, key=_saved_at)}
            found += sorted(by_name.values(), key=_saved_at, reverse=True)
    return found


def _saved_at(stored: _Stored) -> int:
    return int(stored.manifest["saved_at"])


def _newest(found: t.Sequence[_Stored]) -> list[_Stored]:
    """Return what a gang without copies of its own would continue from."""
    rows: dict[str, list[dict[str, t.Any]]] = {}
    for number, stored in enumerate(found):
        row = {**{key: stored.manifest[key] for key in ("name", "saved_at")}, "number": number}
        rows.setdefault(str(stored.rank), []).append(row)
    choices = choose_checkpoints({rank: NodeCheckpoints(stored=tuple(listed)) for rank, listed in rows.items()})
    return [found[choice.fetch["number"]] for choice in choices.values() if choice.fetch is not None]


def _list_paths(found: t.Iterable[_Stored]) -> t.Iterator[tuple[_Stored, dict[str, t.Any], str]]:
    """Yield each file with its path and where it begins in its stream."""
    for stored in found:
        begin = 0
        for item in stored.manifest["files"]:
            path = item["path"] if item.get("beside") else f"{stored.manifest['name']}/{item['path']}".rstrip("/")
            yield stored, {**item, "begin": begin}, check_path(path)
            begin += item["size"]


def _build_file(
    bound: BoundCheckpoints, read: ObjectReader, stored: _Stored, item: t.Mapping[str, t.Any], path: str
) -> RemoteFile:
    part_bytes = int(stored.manifest["part_bytes"])
    name = bound.binding.name
    fix = "Run again if the run stores checkpoints now, or name an older checkpoint in paths (muster_fetch_paths)"

    def read_at(offset: int) -> bytes:
        number, first = divmod(int(item["begin"]) + offset, part_bytes)
        size = min(_PIECE, part_bytes - first, int(item["size"]) - offset)
        data = read(bound.part_address(stored.rank, stored.slot, number), first, size)
        if data is None:
            raise RefusedError(f"{name}: a part of {stored.manifest['name']} does not exist any more", fix)
        return data

    step = stored.manifest.get("step")
    known = step if isinstance(step, int) else None
    return RemoteFile(name, path, int(item["size"]), str(item["sha256"]), path, read_at, fix, known)


def _read_directly(name: str, store: Store, url: str, first: int = 0, size: int | None = None) -> bytes | None:
    try:
        return checkpoint_store.read_object(store, url, first, size)
    except S3Error as exc:
        # Without a status there was no answer.
        error = MusterError if exc.status else TransportError
        raise error(f"{name}: {exc.problem}", exc.fix) from exc


def _read_through(
    remote: NodeClient, ca: str | None, url: str, first: int = 0, size: int | None = None
) -> bytes | None:
    answer = remote.call("s3", step="read", ca=ca, url=url, first=first, size=size)
    return None if answer["data"] is None else zlib.decompress(base64.b64decode(answer["data"]))
