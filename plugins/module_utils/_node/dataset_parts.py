# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One object on its way to this node: its segments, and how far each of them is."""

from __future__ import annotations

import os
import pathlib
import threading
import typing as t

from .s3_client import S3Error, Store

# An object is fetched in segments of this size, several at once.
SEGMENT_BYTES: t.Final = 32 << 20


class StoppedError(Exception):
    """The time of this request is over; what was received stays."""


class Part:
    """The file of an object that is not whole yet, ``done[n]`` bytes of segment ``n`` at its place.

    An object of one segment grows at its end, and its length says how far it is. For one of several, numbers of eight
    bytes in a file beside it do.
    """

    def __init__(self, place: pathlib.Path, size: int) -> None:
        self.place, self.size = place, size
        self.count = max(1, -(-size // SEGMENT_BYTES))
        self._progress = place.with_name(f"{place.name}.done")
        # A key of SSE-KMS or of a customer: the ETag is not a digest then.
        self.is_opaque = False
        self._is_removed = False
        # Open files by name, while bytes come.
        self._open: dict[pathlib.Path, int] = {}
        self._lock = threading.Lock()
        self.done = self._read()

    def _read(self) -> list[int]:
        length = self.place.stat().st_size if self.place.exists() else 0
        if self.count == 1:
            return [min(length, self.size)]
        data = self._progress.read_bytes() if self._progress.exists() and length else b""
        numbers = [int.from_bytes(data[8 * n : 8 * n + 8], "little") for n in range(self.count)]
        return [min(number, self.length(n)) for n, number in enumerate(numbers)]

    def length(self, number: int) -> int:
        """Return the bytes of a segment."""
        return min(SEGMENT_BYTES, self.size - number * SEGMENT_BYTES)

    @property
    def received_bytes(self) -> int:
        """Bytes that are here."""
        return sum(self.done)

    def write(self, number: int, data: bytes) -> None:
        """Add bytes at the end of a segment, first them and then the note of it.

        :raises S3Error: for more than belongs there.
        :raises StoppedError: when it was removed.
        """
        if self.done[number] + len(data) > self.length(number):
            raise S3Error("the store answers a request for a part of an object with more (Range)", status=1)
        if self._is_removed:
            raise StoppedError
        _write_all(self._handle(self.place), data, number * SEGMENT_BYTES + self.done[number])
        self.done[number] += len(data)
        if self.count > 1:
            _write_all(self._handle(self._progress), self.done[number].to_bytes(8, "little"), 8 * number)

    def _handle(self, place: pathlib.Path) -> int:
        with self._lock:
            if self._is_removed:
                raise StoppedError
            if place not in self._open:
                self._open[place] = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            return self._open[place]

    def close(self) -> None:
        """Close its files, when nothing is being added to them."""
        with self._lock:
            for handle in self._open.values():
                os.close(handle)
            self._open.clear()

    def sync(self) -> None:
        """Have the file on its disk, or with its server, when this returns."""
        os.fsync(self._handle(self.place))

    def remove(self) -> None:
        """Forget what was received; nothing is added to it any more."""
        with self._lock:
            # Its files stay open for threads that are just writing to them; the end of the request closes them.
            self._is_removed = True
        self.place.unlink(missing_ok=True)
        self._progress.unlink(missing_ok=True)

    def put(self, target: pathlib.Path) -> None:
        """Give the whole file its name."""
        self.close()
        target.parent.mkdir(parents=True, exist_ok=True)
        os.chmod(self.place, 0o444)
        os.replace(self.place, target)
        self._progress.unlink(missing_ok=True)


def _write_all(handle: int, data: bytes, offset: int) -> None:
    while data:
        written = os.pwrite(handle, data, offset)
        data, offset = data[written:], offset + written


def fetch(
    store: Store, part: Part, number: int, url: str, etag: str, go_on: t.Callable[[], bool], failures: int = 4
) -> None:
    """Fetch what is missing of a segment; after a cut only the rest is asked for.

    :param go_on: whether there is time left; otherwise the segment stays as it is.
    :raises S3Error: also when the object is no longer the one with this ETag.
    :raises StoppedError: when ``go_on`` says so.
    """
    failed = 0

    def take(data: bytes) -> None:
        part.write(number, data)
        if not go_on():
            raise StoppedError

    while (done := part.done[number]) < part.length(number):
        first = number * SEGMENT_BYTES
        asked = {"Range": f"bytes={first + done}-{first + part.length(number) - 1}", "If-Match": etag}
        try:
            answer = store.send("GET", url, headers=asked, sink=take)
            _check(part, answer.status, answer.headers, etag, first + done)
        except S3Error as exc:
            failed = 0 if part.done[number] > done else failed + 1
            if not exc.transient or failed >= failures:
                raise
        finally:
            if part.done[number] < part.length(number):
                store.close()


def _check(part: Part, status: int, headers: t.Mapping[str, str], etag: str, first: int) -> None:
    if status != 206 and (first or part.count > 1):
        part.remove()
        raise S3Error("the store does not answer requests for a part of an object (Range)", status=status)
    if headers.get("etag", etag).strip('"') != etag.strip('"'):
        part.remove()
        raise S3Error("the object was changed meanwhile", status=412, code="PreconditionFailed")
    encryption = headers.get("x-amz-server-side-encryption", "")
    if encryption.startswith("aws:") or headers.get("x-amz-server-side-encryption-customer-algorithm"):
        part.is_opaque = True
