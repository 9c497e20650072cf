# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Datasets that this node fetches from a bucket by signed addresses: once a node, resumable, and verified.

A dataset of one content has a folder ``datasets/ID``: ``tree`` with the files, ``parts`` with what is on its way,
``manifest.json`` with what belongs to it and ``record.jsonl`` with the files that are whole. Runs link to ``tree``.
"""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import threading
import time
import typing as t
from xml.etree import ElementTree

from . import files, host_blobs
from .dataset_digests import ask_checksum, ask_part_bytes, digest_file, is_unchanged
from .dataset_parts import Part, StoppedError, fetch
from .s3_client import S3Error, Store

FOLDER: t.Final = "datasets"
_THREADS = 4
_ROOM = 64 << 20
_LIST_LIMIT = 32 << 20
_WAIT_S = 0.2
_RECORDED: t.Final = ("path", "changed", "digest", "verified", "boot")
# In the place of a boot's id: the file was on its disk, or with its server, before this was noted.
_DURABLE: t.Final = "any"
NodeRequest = t.Mapping[str, t.Any]


def list_objects(request: NodeRequest) -> dict[str, t.Any]:
    """Return ``{objects [[key, size, etag]], next}`` of one page of a listing; ``next`` is null after the last."""
    store = Store(request.get("ca"))
    try:
        body = store.read_again(request["list"], _LIST_LIMIT)
    except S3Error as exc:
        return {"problem": exc.problem, "fix": exc.fix}
    finally:
        store.close()
    if b"<!DOCTYPE" in body or b"<ListBucketResult" not in body[:2000]:
        return {"problem": "the answer is not S3's list of a bucket", "fix": "Check the endpoint of the binding"}
    root = ElementTree.fromstring(body)
    space = root.tag.partition("}")[0] + "}" if root.tag.startswith("{") else ""
    rows = [
        [item.findtext(f"{space}Key", ""), int(item.findtext(f"{space}Size", "0")), item.findtext(f"{space}ETag", "")]
        for item in root.iter(f"{space}Contents")
    ]
    more = root.findtext(f"{space}IsTruncated", "") == "true"
    return {"objects": rows, "next": root.findtext(f"{space}NextContinuationToken") if more else None}


def plan(request: NodeRequest, state: pathlib.Path) -> dict[str, t.Any]:
    """Take note of a dataset (``dataset``, ``name``, ``objects [[path, size, etag]]``); return what is missing of it.

    ``{missing [number], bytes}``; a problem when the disk has no room for it.
    """
    staged = StagedDataset(state, request["dataset"])
    files.private_dir(staged.folder / "parts")
    rows = request["objects"]
    if files.read_json(staged.manifest) != rows:
        files.write_json(staged.manifest, rows)
    missing = staged.list_missing()
    size = sum(staged.rows[number][1] for number in missing)
    need = size - sum(staged.part(number).received_bytes for number in missing)
    free = host_blobs.free_bytes(staged.folder)
    if missing and need + _ROOM > free:
        return {
            "problem": f"dataset {request['name']} needs {need:,} bytes more, and {staged.folder} has {free:,} free",
            "fix": "Free some space (playbook prune: old runs, datasets that no run uses), or use fewer objects",
        }
    return {"missing": missing, "bytes": size, "needed": need}


def stage(request: NodeRequest, state: pathlib.Path) -> dict[str, t.Any]:
    """Fetch objects (``urls {number: address}``) for at most ``seconds``; ``checks {number: [address…]}`` tell
    the checksum of one, and the size of the parts in which it was uploaded.

    ``{missing [number], received, unverified}``: what is still missing of them, bytes received in this request, and
    how many have no digest that could be compared. A request for a dataset that another request fetches waits for it.
    """
    staged = StagedDataset(state, request["dataset"])
    until = time.monotonic() + float(request["seconds"])
    wanted = {int(number): url for number, url in request["urls"].items()}
    checks = {int(number): urls for number, urls in request.get("checks", {}).items()}
    with _hold_lock(staged.folder / "lock", until) as is_mine:
        missing = staged.list_missing(wanted)
        if not is_mine or not missing:
            return {"missing": missing, "received": 0, "unverified": staged.count_unverified()}
        work = _Fetching(staged, {number: wanted[number] for number in missing}, checks, until, request)
        work.run()
    if work.error is not None:
        number, exc = work.error
        return {"problem": f"object {staged.rows[number][0]}: {exc.problem}", "fix": exc.fix}
    left = [number for number in missing if number not in work.finished]
    return {"missing": left, "received": work.received_bytes, "unverified": staged.count_unverified()}


def link(request: NodeRequest, state: pathlib.Path) -> dict[str, t.Any]:
    """Give a run (``run_id``) its datasets ``{name: id}`` as links to what is staged."""
    data = files.private_dir(state / "runs" / files.plain_name(request["run_id"]) / "data")
    for name, dataset in request["datasets"].items():
        staged = StagedDataset(state, dataset)
        if staged.list_missing():
            return {"problem": f"dataset {name} is not whole: files of it were changed or removed"}
        (staged.folder / "tree").mkdir(exist_ok=True)
        place = data / files.plain_name(name)
        fresh = place.with_name(f".{place.name}.new")
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(staged.folder / "tree")
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        os.replace(fresh, place)
    return {}


def remove_unused(state: pathlib.Path) -> None:
    """Remove datasets to which no run has a link."""
    used = {os.path.dirname(os.readlink(item)) for item in state.glob("runs/*/data/*") if item.is_symlink()}
    for folder in (state / FOLDER).glob("*"):
        if str(folder) not in used:
            shutil.rmtree(folder, ignore_errors=True)


class StagedDataset:
    """A dataset's folder. ``rows``: ``[path, size, etag]`` of each object."""

    def __init__(self, state: pathlib.Path, identity: str) -> None:
        self.folder = state / FOLDER / files.plain_name(identity)
        self.manifest = self.folder / "manifest.json"
        self._record = self.folder / "record.jsonl"
        # What was received before a power failure may not be on the disk.
        self.boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        self._lock = threading.Lock()
        self._rows: list[list[t.Any]] | None = None

    @property
    def rows(self) -> list[list[t.Any]]:
        """Path, size and ETag of each object, in the order of their numbers."""
        if self._rows is None:
            self._rows = files.read_json(self.manifest) or []
        return self._rows

    def count_unverified(self) -> int:
        """How many files have no digest of the store's that could be compared."""
        return sum(1 for item in self._read_record().values() if not item["verified"])

    def part(self, number: int) -> Part:
        """Return the file of an object that is not whole yet."""
        return Part(self.folder / "parts" / f"{number}-{self.boot[:8]}", int(self.rows[number][1]))

    def target(self, number: int) -> pathlib.Path:
        """Return where an object goes."""
        return self.folder / "tree" / str(self.rows[number][0])

    def list_missing(self, numbers: t.Iterable[int] | None = None) -> list[int]:
        """Return the numbers of objects (of these, else of all) that are not whole here, or were changed."""
        record, asked = self._read_record(), range(len(self.rows)) if numbers is None else numbers
        return [n for n in asked if not self._is_whole(n, record.get(str(self.rows[n][0])))]

    def _is_whole(self, number: int, item: t.Mapping[str, t.Any] | None) -> bool:
        try:
            state = self.target(number).lstat()
        except OSError:
            return False
        if not item or [state.st_size, state.st_mtime_ns] != [self.rows[number][1], item["changed"]]:
            return False
        if item["boot"] not in (self.boot, _DURABLE):
            if not is_unchanged(self.target(number), item["digest"]):
                return False
            self.add_record({**item, "boot": self.boot})
        return True

    def _read_record(self) -> dict[str, dict[str, t.Any]]:
        found = {}
        text = self._record.read_text(errors="replace") if self._record.exists() else ""
        for line in text.splitlines():
            # The last line of a record may be torn, and other pods write into a folder that they share.
            with contextlib.suppress(ValueError, TypeError, KeyError):
                item = json.loads(line)
                found[str(item["path"])] = {name: item[name] for name in _RECORDED}
        return found

    def add_record(self, item: t.Mapping[str, t.Any]) -> None:
        """Take note of a whole file."""
        with self._lock:
            files.append_json(self._record, item)

    def finish(self, number: int, part: Part, check: t.Callable[[], tuple[str, bool | None]], shared: bool) -> None:
        """Verify a received object and give it its name.

        :param check: returns its digest, and whether it is what the store has.
        :param shared: whether other machines use this folder, which were booted at other times. It is written through
            then, so that no later power failure makes it another one: they need not read the whole of it again.
        :raises S3Error: when it is not what the store has; it is fetched anew then.
        """
        if not part.size:
            part.place.touch()
        digest, fits = check()
        if fits is False:
            part.remove()
            what = "its ETag or checksum in the store says"
            fix = "Check proxies and caches on the way; upload it again if its parts have several sizes"
            raise S3Error(f"what was received is not what {what}", fix)
        if shared:
            part.sync()
        target = self.target(number)
        part.put(target)
        row = {"path": self.rows[number][0], "changed": target.lstat().st_mtime_ns, "digest": digest}
        self.add_record({**row, "verified": bool(fits), "boot": _DURABLE if shared else self.boot})


class _Fetching:
    """Threads that fetch segments of objects until all are here, the time is over, or one fails."""

    def __init__(
        self,
        staged: StagedDataset,
        urls: t.Mapping[int, str],
        checks: t.Mapping[int, t.Sequence[str]],
        until: float,
        request: NodeRequest,
    ) -> None:
        self._staged, self._urls, self._checks, self._until = staged, urls, checks, until
        self._ca, self._shared = request.get("ca"), bool(request.get("shared"))
        self._parts = {number: staged.part(number) for number in urls}
        self._had = sum(part.received_bytes for part in self._parts.values())
        self._tasks = iter([(number, item) for number, part in self._parts.items() for item in range(part.count)])
        self._left = {number: part.count for number, part in self._parts.items()}
        self._lock = threading.Lock()
        self.finished: set[int] = set()
        self.error: tuple[int, S3Error] | None = None

    @property
    def received_bytes(self) -> int:
        """Bytes received in this request."""
        parts = self._parts.items()
        return sum(part.size if n in self.finished else part.received_bytes for n, part in parts) - self._had

    def run(self) -> None:
        """Fetch; the error of an object is in ``error``."""
        threads = [threading.Thread(target=self._work, daemon=True) for _number in range(_THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for part in self._parts.values():
            part.close()

    def _go_on(self) -> bool:
        return self.error is None and time.monotonic() < self._until

    def _work(self) -> None:
        store = Store(self._ca)
        try:
            while self._go_on():
                with self._lock:
                    task = next(self._tasks, None)
                if task is None:
                    return
                self._carry_out(store, *task)
        except StoppedError:
            return
        finally:
            store.close()

    def _check(self, store: Store, number: int) -> tuple[str, bool | None]:
        """Return the digest of a received object, and whether it is what the store has: its checksum, else its ETag."""
        part, etag = self._parts[number], str(self._staged.rows[number][2])
        whole, first = [*self._checks.get(number, ()), None, None][:2]
        known = ask_checksum(store, whole, etag) if whole else None
        digest, fits = digest_file(part.place, etag, known)
        if fits is None and first and (part_bytes := ask_part_bytes(store, first, etag, part.size)):
            digest, fits = digest_file(part.place, etag, known, part_bytes)
        # The ETag alone of an encrypted object is not a digest; a checksum is of what is read.
        return digest, None if part.is_opaque and not known and not fits else fits

    def _carry_out(self, store: Store, number: int, segment: int) -> None:
        part, etag = self._parts[number], str(self._staged.rows[number][2])
        try:
            fetch(store, part, segment, self._urls[number], etag, self._go_on)
            with self._lock:
                self._left[number] -= 1
                is_last = not self._left[number]
            if is_last:
                self._staged.finish(number, part, lambda: self._check(store, number), self._shared)
                with self._lock:
                    self.finished.add(number)
        except S3Error as exc:
            self.error = self.error or (number, exc)
        except OSError as exc:
            self.error = self.error or (number, S3Error(f"cannot be written: {exc.strerror or exc}", "Check the disk"))


@contextlib.contextmanager
def _hold_lock(place: pathlib.Path, until: float) -> t.Iterator[bool]:
    """Hold a lock that ends with this process; yield whether it was free before the time was over."""
    with place.open("a") as handle:
        is_mine = False
        while not is_mine:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_mine = True
            except BlockingIOError:
                if time.monotonic() > until:
                    break
                time.sleep(_WAIT_S)
        yield is_mine
