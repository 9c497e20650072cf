# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Storing checkpoints in a bucket beside the training: the supervisor does it, without a key and without a
controller.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pathlib
import threading
import time
import typing as t
import zlib

from . import checkpoint_reports, checkpoint_store, checkpoints, files
from .checkpoint_table import Saved
from .pod_log import Tail
from .s3_client import S3Error, Store

_EVERY_S = 1.0
_AGAIN_S = 30.0
# The program's steps come first: beside a process that wants all of a processor this thread gets a tenth of it.
_NICE = 10


class CheckpointSync:
    """Stores the newest complete checkpoint, one at a time, in the slot that holds the oldest.

    :ivar holds: the name of the checkpoint that is being stored, which must not be removed meanwhile.
    """

    def __init__(self, rules: t.Mapping[str, t.Any], run: pathlib.Path, node: str) -> None:
        self.folder, self.form = pathlib.Path(rules["folder"]).expanduser(), str(rules["format"])
        places = run / "metrics.jsonl", run / checkpoint_reports.PRINTED
        adopts = not rules.get("shared") and not rules["first"]
        self._reports = checkpoint_reports.CheckpointReports(self.folder, self.form, *places, adopts=adopts)
        self._addresses = pathlib.Path(rules["store"])
        self._events, self._node, self._attempt = run / "events.jsonl", node, rules.get("attempt")
        # The problem of the last event: it makes another event only after a different one.
        self._told = ""
        self._slots: dict[int, int] | None = None
        self._stored: tuple[str, int] | None = None
        self._failed_at = 0.0
        self.holds: str | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="store-checkpoints", daemon=True)

    def start(self) -> CheckpointSync:
        """Begin to store."""
        self._thread.start()
        return self

    def close(self, wait_s: float) -> bool:
        """Have the last checkpoint stored, and wait for that; return whether it has ended."""
        self._ended.set()
        self._thread.join(wait_s)
        return not self._thread.is_alive()

    def _work(self) -> None:
        with contextlib.suppress(OSError):
            # Linux keeps the priority of each thread by itself.
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        while True:
            last = self._ended.wait(_EVERY_S)
            try:
                self._take_reports(last)
                if last or time.monotonic() - self._failed_at > _AGAIN_S or not self._failed_at:
                    self.step(tries=3 if last else 1)
            except Exception as exc:
                # This thread must not end in silence.
                self._event("checkpoint_not_stored", detail=f"{type(exc).__name__}: {exc}")
            if last:
                return

    def _take_reports(self, last: bool = False) -> None:
        self._reports.take(last)
        problem = self._reports.find_problem(last)
        if problem and problem != self._told:
            self._told = problem
            self._event("checkpoint_not_stored", detail=problem, checkpoint_step=self._reports.newest, missing=True)

    def step(self, tries: int = 1) -> bool:
        """Store the newest checkpoint unless it is stored; return whether something was."""
        for _attempt in range(tries):
            listed = self._reports.list_complete()
            if not listed or (listed[0].name, listed[0].saved_at) == self._stored:
                return False
            try:
                self._store(listed[0])
                return True
            except checkpoint_store.ChangedError:
                # A newer one has taken its place, or will.
                continue
            except Exception as exc:
                # Whatever it is, the program continues, and the events say that its checkpoints are not stored.
                self._failed_at = time.monotonic()
                problem, fix = getattr(exc, "problem", None) or str(exc), getattr(exc, "fix", "")
                name = listed[0].name
                detail = f"{name}: {problem}. {fix}".strip()
                self._event("checkpoint_not_stored", detail=detail, checkpoint_step=self._reports.steps.get(name))
        return False

    def _store(self, saved: Saved) -> None:
        given = json.loads(self._addresses.read_bytes())
        if time.time() > given["expires_at"]:
            raise S3Error("the signed addresses have expired", "Run train again: it follows the run and renews them")
        began, used = time.monotonic(), time.thread_time()
        store = Store(given.get("ca"))
        self.holds = saved.name
        try:
            if self._slots is None:
                self._slots = self._read_slots(store, given["slots"])
            number = min(self._slots, key=lambda slot: (self._slots or {})[slot])
            self._slots[number] = 0
            about = {
                "saved_at": saved.saved_at,
                "step": self._reports.steps.get(saved.name),
                "format": self.form,
                "node": self._node,
                "attempt": self._attempt,
            }
            manifest = checkpoint_store.upload(store, given["slots"][number], self.folder, saved, about)
            self._slots[number], self._stored = saved.saved_at, (saved.name, saved.saved_at)
        finally:
            self.holds = None
            store.close()
        self._failed_at, self._told = 0.0, ""
        seconds = round(time.monotonic() - began, 3)
        self._event(
            "checkpoint_stored",
            detail=saved.name,
            checkpoint_step=about["step"],
            bytes=manifest["bytes"],
            seconds=seconds,
            processor_s=round(time.thread_time() - used, 3),
        )

    def _read_slots(self, store: Store, slots: t.Sequence[t.Mapping[str, t.Any]]) -> dict[int, int]:
        """Return for each slot when the checkpoint in it was saved, 0 for an empty one."""
        found = [checkpoint_store.read_manifest(store, slot["manifest"]["get"]) for slot in slots]
        for manifest in found:
            if manifest and (self._stored is None or manifest["saved_at"] > self._stored[1]):
                self._stored = (manifest["name"], manifest["saved_at"])
        return {number: manifest["saved_at"] if manifest else 0 for number, manifest in enumerate(found)}

    def _event(self, kind: str, **values: t.Any) -> None:
        line = {"at": time.time(), "kind": kind, "node": self._node, **values}
        with contextlib.suppress(OSError):
            files.append_json(self._events, line)


def start_sync(rules: t.Mapping[str, t.Any], run: pathlib.Path, node: str) -> CheckpointSync | None:
    """Begin to store checkpoints as the job's rules say, None where they are not stored or another node does it."""
    if not rules.get("store") or (rules.get("shared") and not rules["first"]):
        return None
    return CheckpointSync(rules, run, node).start()


def list_candidates(request: t.Mapping[str, t.Any], run: pathlib.Path) -> dict[str, t.Any]:
    """Return the checkpoints that a start could use: those in the bucket, and those here with whether they are whole.

    ``{stored: [{slot, name, saved_at, step, bytes, parts}], local: [{name, saved_at, ok}]}``
    """
    store, form = Store(request.get("ca")), str(request["format"])
    folder = pathlib.Path(request["folder"]).expanduser()
    try:
        found = [checkpoint_store.read_manifest(store, url) for url in request["manifests"]]
    except S3Error as exc:
        return {"problem": exc.problem, "fix": exc.fix}
    finally:
        store.close()
    stored = {(item["name"], item["saved_at"]): item for item in found if item}
    reported = [checkpoints.reported_name(folder, line) for line in Tail(run / "metrics.jsonl").lines()]
    names = {*reported, *(name for name, _at in stored)} - {""}
    local = []
    for saved in checkpoint_store.list_local(folder, form, names):
        twin = stored.get((saved.name, saved.saved_at))
        ok = twin is None or checkpoint_store.is_whole(folder, twin)
        local.append({"name": saved.name, "saved_at": saved.saved_at, "ok": ok})
    return {"stored": [_summary(slot, item) for slot, item in enumerate(found) if item], "local": local}


def restore(request: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Fetch the checkpoint of a slot; hide those that other nodes lack. ``{bytes}``, or ``{damaged}`` with a reason."""
    folder, store = pathlib.Path(request["folder"]).expanduser(), Store(request.get("ca"))
    try:
        checkpoint_store.set_aside(folder, request.get("aside", []))
        if not request.get("manifest"):
            return {"bytes": 0}
        manifest = checkpoint_store.read_manifest(store, request["manifest"])
        if manifest is None or manifest["saved_at"] != request["saved_at"]:
            return {"damaged": f"{request['name']}: its manifest was deleted or replaced"}
        damaged = checkpoint_store.download(store, request["parts"], manifest, folder)
        return {"damaged": damaged} if damaged else {"bytes": manifest["bytes"]}
    except S3Error as exc:
        if exc.status == 404:
            return {"damaged": f"{request['name']}: a part of it does not exist"}
        return {"problem": exc.problem, "fix": exc.fix}
    finally:
        store.close()


def read(request: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return ``{data}``: bytes of an object, packed, for a controller that does not reach the store itself.

    :param request: ``url``, ``first`` and ``size`` (null: all of it), ``ca``. Without such an object ``data`` is null.
    """
    store = Store(request.get("ca"))
    try:
        data = checkpoint_store.read_object(store, request["url"], int(request["first"]), request["size"])
    except S3Error as exc:
        return {"problem": exc.problem, "fix": exc.fix}
    finally:
        store.close()
    return {"data": None if data is None else base64.b64encode(zlib.compress(data, 1)).decode()}


def renew(request: t.Mapping[str, t.Any], run: pathlib.Path) -> dict[str, t.Any]:
    """Replace the signed addresses of a running run."""
    place = run / "secrets" / os.path.basename(request["file"])
    if not place.exists():
        return {"renewed": False}
    files.write_atomic(place, request["content"].encode())
    return {"renewed": True}


def _summary(slot: int, manifest: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    parts = -(-manifest["bytes"] // manifest["part_bytes"])
    chosen = {key: manifest.get(key) for key in ("name", "saved_at", "step", "bytes", "node", "attempt")}
    return {"slot": slot, "parts": parts, **chosen}
