# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether this node can use a bucket: listed, written, read, read in part, read as others wrote it, and deleted.

Nothing is written before the bucket is known to exist: some stores create a bucket that is misspelt.
"""

from __future__ import annotations

import email.utils
import hashlib
import threading
import time
import typing as t

from . import http_check, mount_check
from .s3_client import S3Error, Store

NodeRequest = t.Mapping[str, t.Any]
_PROBE_BYTES: t.Final = 4 << 20
_RANGE: t.Final = (1000, 1999)
_AGAIN_S: t.Final = 0.2
# Less than the controller waits for an answer: a slow store must not cost the others theirs.
_VISIT_S: t.Final = 150.0


def probe_content(seed: str) -> bytes:
    """Return what a node writes: bytes that no other node writes, and that are not compressed on the way."""
    return hashlib.shake_256(seed.encode()).digest(_PROBE_BYTES)


def write_probe(request: NodeRequest) -> dict[str, t.Any]:
    """Look at the bucket; then, unless it is only read, write an object and read it back.

    A failure has ``left`` where an object may be there all the same.
    """
    store = Store(request.get("ca"))
    is_listed = False
    try:
        answer = store.send("GET", request["list"])
        if b"<ListBucketResult" not in answer.body[:2000]:
            kind = answer.headers.get("content-type", "no content type").split(";")[0][:60]
            fix = "Check the endpoint: something else answers there, such as a console or a proxy"
            return _failure(S3Error(f"the answer is not S3's list of a bucket ({kind})", fix))
        began = time.monotonic()
        answer = store.send("GET", request["list"])
        is_listed = True
        found: dict[str, t.Any] = {
            "ok": True,
            "latency_ms": (time.monotonic() - began) * 1000,
            "server_time": _server_time(answer.headers.get("date", "")),
        }
        if request.get("put"):
            found |= _write_and_read(store, request)
            # Only then may another node delete the object.
            store.send("PUT", request["done"], b"done")
        return found
    except S3Error as exc:
        return {**_failure(exc), **({"left": True} if is_listed and request.get("put") else {})}
    finally:
        store.close()


def read_probe(request: NodeRequest) -> dict[str, t.Any]:
    """Read what another node wrote and has read itself (``done``), delete it, and see that it is gone."""
    store = Store(request.get("ca"))
    try:
        store.send("GET", request["done"])
        body = _read_all(store, request["get"])
        if body != probe_content(request["seed"]):
            return _failure(S3Error(f"reads {len(body)} other bytes than {request['writer']} wrote"))
        for url in request["delete"]:
            store.send("DELETE", url)
        gone = store.send("GET", request["get"], headers={"Range": "bytes=0-0"}, allow=(404,))
        if gone.status != 404:
            return _failure(S3Error("a deleted object is still there", "Check versioning and locks of the bucket"))
        return {"ok": True}
    except S3Error as exc:
        return _failure(exc)
    finally:
        store.close()


def visit(request: NodeRequest) -> dict[str, t.Any]:
    """Check several stores at once, beside other nodes that do the same: all that a node is asked of services.

    ``stores``: for each its ``ca``, the buckets to ``make`` first, and ``checks``: for each bucket a ``write`` and,
    where objects are written, a ``read`` of what another node writes. ``wait_s``: how long to wait for that one.
    An answer has ``wrote`` when an object was written, and ``unread`` when what another node writes did not come. A
    store that takes too long, or whose address cannot be used at all, fails alone. ``servers``: other services, each a
    request of ``http_check.py``; ``mounts``: file systems, each a request of ``mount_check.py``.
    """
    began = time.monotonic()
    # Children of a process that has no threads yet.
    children = [mount_check.start(mount) for mount in request.get("mounts", ())]
    stores: list[dict[str, t.Any]] = [{} for _store in request["stores"]]
    servers: list[dict[str, t.Any]] = [{} for _server in request.get("servers", ())]

    def work(number: int, store: NodeRequest) -> None:
        try:
            stores[number] = _visit_store(store, began + float(request["wait_s"]))
        except (TypeError, ValueError) as exc:
            failure = S3Error(f"cannot be asked ({type(exc).__name__})", "Check endpoint and ca")
            stores[number] = _fail_store(store, failure)

    def ask(number: int, server: NodeRequest) -> None:
        servers[number] = http_check.ask(server)

    threads = [threading.Thread(target=work, args=pair, daemon=True) for pair in enumerate(request["stores"])]
    threads += [threading.Thread(target=ask, args=pair, daemon=True) for pair in enumerate(request.get("servers", ()))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, began + _VISIT_S - time.monotonic()))
    mounts = [
        child.answer(began + float(mount["limit_s"]) + float(request["wait_s"]))
        for child, mount in zip(children, request.get("mounts", ()), strict=True)
    ]
    late = S3Error(f"its check was not over after {_VISIT_S:.0f} s", "Check the network to it, or name fewer buckets")
    found = zip(list(stores), request["stores"], strict=True)
    return {
        "stores": [answer or _fail_store(store, late, left=True) for answer, store in found],
        "servers": [answer or {"failed": late.problem, "fix": late.fix} for answer in list(servers)],
        "mounts": mounts,
    }


def _fail_store(store: NodeRequest, exc: S3Error, *, left: bool = False) -> dict[str, t.Any]:
    answer = {**_failure(exc), **({"left": True} if left else {})}
    return {"made": [], "answers": [answer for _check in store["checks"]]}


def _visit_store(store: NodeRequest, until: float) -> dict[str, t.Any]:
    made = make_buckets({"ca": store["ca"], "buckets": store["make"]})
    if not made["ok"]:
        return {"made": made["made"], "answers": [made for _check in store["checks"]]}
    answers = [write_probe({"ca": store["ca"], **check["write"]}) for check in store["checks"]]
    for check, answer in zip(store["checks"], answers, strict=True):
        if answer["ok"] and check.get("read"):
            read = _read_until_there({"ca": store["ca"], **check["read"]}, until)
            # Whether that is this node's fault or the writer's, who sees both decides.
            answer |= {"wrote": True, **({"unread": True} if read.get("code") == "NoSuchKey" else read)}
    return {"made": made["made"], "answers": answers}


def _read_until_there(request: NodeRequest, until: float) -> dict[str, t.Any]:
    """Read what another node writes; while it is not there, try again."""
    while True:
        answer = read_probe(request)
        if answer.get("code") != "NoSuchKey" or time.monotonic() > until:
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
