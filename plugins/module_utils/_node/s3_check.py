# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether this node can use a bucket: listed, written, read, read in part, read as others wrote it, and deleted.

Nothing is written before the bucket is known to exist: some stores create a bucket that is misspelt.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import email.utils
import hashlib
import time
import typing as t

from .s3_client import S3Error, Store

NodeRequest = t.Mapping[str, t.Any]
_PROBE_BYTES: t.Final = 4 << 20
_RANGE: t.Final = (1000, 1999)
_AGAIN_S: t.Final = 0.2


def probe_content(seed: str) -> bytes:
    """Return what a node writes: bytes that no other node writes, and that are not compressed on the way."""
    return hashlib.shake_256(seed.encode()).digest(_PROBE_BYTES)


def write_probe(request: NodeRequest) -> dict[str, t.Any]:
    """Look at the bucket; then, unless it is only read, write an object and read it back."""
    store = Store(request.get("ca"))
    try:
        answer = store.send("GET", request["list"])
        if b"<ListBucketResult" not in answer.body[:2000]:
            kind = answer.headers.get("content-type", "no content type").split(";")[0][:60]
            fix = "Check the endpoint: something else answers there, such as a console or a proxy"
            return _failure(S3Error(f"the answer is not S3's list of a bucket ({kind})", fix))
        began = time.monotonic()
        answer = store.send("GET", request["list"])
        found: dict[str, t.Any] = {
            "ok": True,
            "latency_ms": (time.monotonic() - began) * 1000,
            "server_time": _server_time(answer.headers.get("date", "")),
        }
        return {**found, **_write_and_read(store, request)} if request.get("put") else found
    except S3Error as exc:
        return _failure(exc)
    finally:
        store.close()


def read_probe(request: NodeRequest) -> dict[str, t.Any]:
    """Read what another node wrote, delete it, and see that it is gone."""
    store = Store(request.get("ca"))
    try:
        body = _read_all(store, request["get"])
        if body != probe_content(request["seed"]):
            return _failure(S3Error(f"reads {len(body)} other bytes than {request['writer']} wrote"))
        store.send("DELETE", request["delete"])
        gone = store.send("GET", request["get"], headers={"Range": "bytes=0-0"}, allow=(404,))
        if gone.status != 404:
            return _failure(S3Error("a deleted object is still there", "Check versioning and locks of the bucket"))
        return {"ok": True}
    except S3Error as exc:
        return _failure(exc)
    finally:
        store.close()


def visit(request: NodeRequest) -> dict[str, t.Any]:
    """Carry out a whole check by itself, beside other nodes that do the same: for pods, which are asked once.

    ``checks``: for each bucket a ``write`` and, where objects are written, a ``read`` of what another node writes.
    ``make``: the buckets to make first; the other nodes wait for those. ``wait_s``: how long to wait for others.
    An answer has ``unread`` when what another node should have written did not come.
    """
    until = time.monotonic() + float(request["wait_s"])
    made = make_buckets({"ca": request.get("ca"), **request["make"]}) if request.get("make") else {"ok": True}
    if not made["ok"]:
        return {"answers": [made for _check in request["checks"]], "made": made["made"]}
    answers = []
    for check in request["checks"]:
        missing = "NoSuchBucket" if request.get("awaits") else ""
        found = _ask_until_there(lambda check=check: write_probe(check["write"]), missing, until)  # type: ignore[misc]
        if found["ok"] and check.get("read"):
            read = _ask_until_there(lambda check=check: read_probe(check["read"]), "NoSuchKey", until)  # type: ignore[misc]
            # Whether that is this node's fault or the writer's, who sees both decides.
            found |= {"unread": True} if read.get("code") == "NoSuchKey" else read
        answers.append(found)
    return {"answers": answers, "made": made.get("made", [])}


def _ask_until_there(ask: t.Callable[[], dict[str, t.Any]], missing: str, until: float) -> dict[str, t.Any]:
    """Return an answer; while what another node makes is missing, ask again."""
    while True:
        answer = ask()
        if answer["ok"] or not missing or answer.get("code") != missing or time.monotonic() > until:
            return answer
        time.sleep(_AGAIN_S)


def make_buckets(request: NodeRequest) -> dict[str, t.Any]:
    """Make the buckets that are not there (``{name, look, make}``), of a store that was deployed for them."""
    store = Store(request.get("ca"))
    made = []
    try:
        for bucket in request["buckets"]:
            if store.send("GET", bucket["look"], allow=(404,)).status == 404:
                # Another run may have made it a moment ago.
                store.send("PUT", bucket["make"], allow=(409,))
                made.append(bucket["name"])
        return {"ok": True, "made": made}
    except S3Error as exc:
        return {**_failure(exc), "made": made}
    finally:
        store.close()


def clean_up(request: NodeRequest) -> dict[str, t.Any]:
    """Delete what probes left, as far as that is possible."""
    store = Store(request.get("ca"))
    left = 0
    for url in request["delete"]:
        try:
            store.send("DELETE", url, allow=(404,))
        except S3Error:
            left += 1
    store.close()
    return {"left": left}


def _write_and_read(store: Store, request: NodeRequest) -> dict[str, t.Any]:
    content = probe_content(request["seed"])
    began = time.monotonic()
    store.send("PUT", request["put"], content)
    body = _read_all(store, request["get"])
    seconds = time.monotonic() - began
    if body != content:
        raise S3Error("an object reads otherwise than it was written", "Check proxies and caches on the way")
    first, last = _RANGE
    part = store.send("GET", request["get"], headers={"Range": f"bytes={first}-{last}"})
    if part.status != 206 or part.body != content[first : last + 1]:
        raise S3Error("the store does not answer requests for a part of an object (Range)")
    return {"mb_per_s": 2 * _PROBE_BYTES / 1e6 / max(seconds, 1e-6)}


def _read_all(store: Store, url: str) -> bytes:
    body = bytearray()
    store.send("GET", url, sink=body.extend)
    return bytes(body)


def _server_time(value: str) -> float | None:
    try:
        return email.utils.parsedate_to_datetime(value).timestamp()
    except (TypeError, ValueError):
        return None


def _failure(exc: S3Error) -> dict[str, t.Any]:
    return {"ok": False, "failed": exc.problem, "fix": exc.fix, "code": exc.code}
