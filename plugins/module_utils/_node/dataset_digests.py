# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a file is what a store has: compared with the checksum that the store vouches for, else with the ETag.

Most programs upload with a checksum of S3's kinds today, and its CRC-32 or SHA-256 takes a tenth or a third of the
processor time that the MD5 of an ETag takes.
"""

from __future__ import annotations

import base64
import concurrent.futures
import hashlib
import os
import pathlib
import re
import typing as t
import zlib

from .s3_client import S3Error, Store

# Asked for in the request, and part of what its signature covers.
MODE: t.Final = {"x-amz-checksum-mode": "ENABLED"}
_BUFFER = 1 << 18
_MIB = 1 << 20
_THREADS = min(4, os.cpu_count() or 1)
# Sizes of parts with which common programs upload (MiB): they say how the ETag of such an object is made.
_PART_MIB = (5, 8, 10, 15, 16, 20, 25, 32, 50, 64, 100, 128, 256, 512, 1024)
_ETAG = re.compile(r"([0-9a-f]{32})(?:-([1-9]\d*))?")


class _Digest(t.Protocol):
    def update(self, data: memoryview) -> object: ...
    def digest(self) -> bytes: ...


class _Crc32:
    """The standard library's CRC-32 with the face of a digest."""

    def __init__(self) -> None:
        self._value = 0

    def update(self, data: memoryview) -> None:
        self._value = zlib.crc32(data, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(4, "big")


def _md5() -> _Digest:
    return hashlib.md5(usedforsecurity=False)


def _sha1() -> _Digest:
    return hashlib.sha1(usedforsecurity=False)


# S3's other kinds (CRC-32C, CRC-64/NVME) are not in the standard library; the ETag decides then.
_KINDS: t.Final[t.Mapping[str, t.Callable[[], _Digest]]] = {
    "crc32": _Crc32,
    "sha256": hashlib.sha256,
    "sha1": _sha1,
    "md5": _md5,
}


class Checksum(t.NamedTuple):
    """A digest of an object; of the digests of its ``parts`` where it was uploaded in several, else ``parts`` is 0."""

    kind: str
    value: str
    parts: int = 0


def ask_checksum(store: Store, url: str, etag: str) -> Checksum | None:
    """Return the checksum that a store has of an object; None where it has none, or another object now."""
    try:
        answer = store.send_again("HEAD", url, headers={**MODE, "If-Match": etag})
    except S3Error:
        return None
    return read_checksum(answer.headers, etag)


def read_checksum(headers: t.Mapping[str, str], etag: str) -> Checksum | None:
    """Return the checksum among the headers of an answer (names in lower case) for the object with this ETag."""
    if headers.get("etag", "").strip('"') != etag.strip('"'):
        return None
    for kind, begin in _KINDS.items():
        value, _dash, count = headers.get(f"x-amz-checksum-{kind}", "").partition("-")
        if value and (not count or count.isdigit()) and kind != "md5":
            raw = base64.b64decode(value, validate=False)
            if len(raw) == len(begin().digest()):
                return Checksum(kind, raw.hex(), int(count or 0))
    return None


def ask_part_bytes(store: Store, url: str, etag: str, size: int) -> int | None:
    """Return the size of the parts in which an object of ``size`` bytes was uploaded, None where the store tells none.

    :param url: tells of the object's first part (HEAD).
    """
    try:
        headers = store.send_again("HEAD", url, headers={"If-Match": etag}).headers
    except S3Error:
        return None
    part, count = headers.get("content-length", ""), headers.get("x-amz-mp-parts-count", "")
    fits = part.isdigit() and count.isdigit() and int(part) and -(-size // int(part)) == int(count)
    return int(part) if fits else None


def digest_file(
    place: pathlib.Path, etag: str, known: Checksum | None = None, part_bytes: int | None = None
) -> tuple[str, bool | None]:
    """Return a digest of a file, and whether what the store says is made of it; None where that cannot be told.

    :param known: the store's checksum, where it has one: it decides.
    :param part_bytes: the size of the parts, where the store told it; else those that common programs use are tried,
        and that none of them fits says nothing.

    The digest is ``KIND/PART_BYTES:HEX``, for :func:`is_unchanged`.
    """
    total = place.stat().st_size
    for wanted in (known, _read_etag(etag)):
        if wanted is None:
            continue
        told = [0] if not wanted.parts else [part_bytes] if part_bytes else []
        found = ""
        for size in told or part_sizes(total, wanted.parts):
            found = _digest(place, wanted.kind, size)
            if found.endswith(f":{wanted.value}"):
                return found, True
        if told:
            return found, False
    return _digest(place, "md5", 0), None


def _read_etag(etag: str) -> Checksum | None:
    """Return the MD5 in an ETag: of the object, or of the MD5s of the N parts in which it was uploaded (``-N``)."""
    found = _ETAG.fullmatch(etag.strip('"'))
    return Checksum("md5", found[1], int(found[2] or 0)) if found else None


def is_unchanged(place: pathlib.Path, digest: str) -> bool:
    """Return whether a file still has the digest that :func:`digest_file` gave."""
    found = re.fullmatch(r"([a-z0-9]+)/(\d+):[0-9a-f]+", digest)
    if found is None or found[1] not in _KINDS:
        return False
    return _digest(place, found[1], int(found[2])) == digest


def part_sizes(size: int, count: int) -> list[int]:
    """Return the sizes of parts that make ``count`` of ``size`` bytes."""
    even = -(-size // max(1, count))
    candidates = {mib * _MIB for mib in _PART_MIB} | {-(-even // _MIB) * _MIB}
    return sorted(part for part in candidates if count > 0 and -(-size // part) == count)


def _digest(place: pathlib.Path, kind: str, part_bytes: int) -> str:
    """Return the digest of a file, or of the digests of its parts, which are read at the same time."""
    begin, total = _KINDS[kind], place.stat().st_size
    if not part_bytes:
        return f"{kind}/0:{_digest_range(place, 0, total, begin()).hex()}"
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as threads:
        firsts = range(0, total, part_bytes)
        digests = threads.map(lambda first: _digest_range(place, first, part_bytes, begin()), firsts)
    whole = begin()
    whole.update(memoryview(b"".join(digests)))
    return f"{kind}/{part_bytes}:{whole.digest().hex()}"


def _digest_range(place: pathlib.Path, first: int, size: int, found: _Digest) -> bytes:
    """Return the digest of some bytes of a file; one small buffer is used again, which stays in the processor's."""
    buffer = memoryview(bytearray(min(_BUFFER, max(1, size))))
    with place.open("rb", buffering=0) as handle:
        handle.seek(first)
        while size > 0 and (read := handle.readinto(buffer[: min(_BUFFER, size)])):
            found.update(buffer[:read])
            size -= read
    return found.digest()
