# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pushing an image: blobs that are not there, in chunks that continue after a cut, then the manifests, its tag last.

OCI Distribution Specification 1.1, "Push". Until the last request the tag stands for what it did.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import time
import typing as t
import urllib.parse

from ....module_utils._model.errors import ApiError, InputError, MusterError, RefusedError, TransportError
from .client import ACCEPT, INDEXES, MANIFESTS, Registry, digest_of
from .image_source import ImageSource, Manifest

_CHUNK = 8 << 20
_ATTEMPTS = 5
_PAUSE_S = 0.5
_TRANSIENT: t.Final = (408, 429, 500, 502, 503, 504)


@dataclasses.dataclass(frozen=True, slots=True)
class PushPlan:
    """What a push sends. ``blobs``: the sizes of all blobs by digest; ``children``: the manifests of an index."""

    root: Manifest
    children: tuple[Manifest, ...]
    blobs: t.Mapping[str, int]

    @property
    def digest(self) -> str:
        """The digest that the tag stands for afterwards."""
        return digest_of(self.root[0])


def plan_push(source: ImageSource) -> PushPlan:
    """Return what an image consists of.

    :raises InputError: when it is of a kind that is not known here.
    """
    content, kind = source.root()
    children: list[Manifest] = []
    if kind in INDEXES:
        children = [source.manifest(str(item["digest"])) for item in json.loads(content)["manifests"]]
    elif kind not in MANIFESTS:
        raise InputError("name", f"the image is of the kind {kind}", "Use one in the format of OCI or of Docker")
    blobs = {}
    for text, _kind in children or [(content, kind)]:
        parsed = json.loads(text)
        for item in (parsed["config"], *parsed.get("layers", ())):
            # Layers with addresses of their own are not distributed.
            if not item.get("urls"):
                blobs[str(item["digest"])] = int(item["size"])
    return PushPlan((content, kind), tuple(children), blobs)


def find_digest(registry: Registry) -> str | None:
    """Return the digest that the tag of a repository stands for now, None for a tag that is not there."""
    try:
        content, _kind = registry.manifest(registry.name.reference)
    except ApiError as exc:
        if exc.status == 404:
            return None
        raise
    return digest_of(content)


def push(registry: Registry, source: ImageSource, plan: PushPlan, say: t.Callable[[str], object]) -> list[str]:
    """Send what is not there; return the digests of the blobs that were sent.

    :raises RefusedError: when the credentials may not push.
    """
    sent = []
    try:
        for digest, size in plan.blobs.items():
            if _has(registry, f"blobs/{digest}"):
                continue
            say(f"{registry.name.repository}: sending {digest[:19]} ({size / 1e6:.1f} MB)")
            with source.open(digest) as file:
                _upload(registry, digest, file, size)
            sent.append(digest)
        for content, kind in plan.children:
            _put(registry, digest_of(content), content, kind)
        _put(registry, registry.name.reference, *plan.root)
    except ApiError as exc:
        if exc.status in (401, 403):
            problem = f"{registry.base}: the credentials may not push (HTTP {exc.status})"
            raise RefusedError(problem, "Use those of a user that may write in this repository") from exc
        raise
    return sent


def _has(registry: Registry, path: str) -> bool:
    try:
        registry.send("HEAD", path, accept=ACCEPT).close()
    except ApiError as exc:
        if exc.status == 404:
            return False
        raise
    return True


def _put(registry: Registry, reference: str, content: bytes, kind: str) -> None:
    _again(lambda: registry.send("PUT", f"manifests/{reference}", content, headers={"Content-Type": kind}).close())


def _upload(registry: Registry, digest: str, file: t.IO[bytes], size: int) -> None:
    """Send a blob in chunks; after a failure the registry says how much of it has arrived."""
    place = _again(lambda: _location(registry, registry.send("POST", "blobs/uploads/", b"")))
    at, failures = 0, 0
    while at < size:
        file.seek(at)
        data = file.read(_CHUNK)
        if not data:
            raise RefusedError(f"{digest} has {at} bytes, and its manifest says {size}", "Write the archive again")
        headers = {"Content-Type": "application/octet-stream", "Content-Range": f"{at}-{at + len(data) - 1}"}
        try:
            place = _location(registry, registry.send("PATCH", place, data, headers=headers))
            at, failures = at + len(data), 0
        except TransportError as exc:
            failures += 1
            if failures == _ATTEMPTS or not _may_pass(exc, 416):
                raise
            time.sleep(_PAUSE_S * failures)
            place, at = _again(functools.partial(_read_progress, registry, place))
    query = "&" if urllib.parse.urlsplit(place).query else "?"
    _finish(registry, f"{place}{query}digest={urllib.parse.quote(digest, safe='')}", digest)


def _finish(registry: Registry, place: str, digest: str) -> None:
    """End an upload; one whose answer was lost is there all the same."""

    def end() -> None:
        try:
            registry.send("PUT", place, b"", headers={"Content-Type": "application/octet-stream"}).close()
        except TransportError:
            if not _has(registry, f"blobs/{digest}"):
                raise

    _again(end)


def _read_progress(registry: Registry, place: str) -> tuple[str, int]:
    """Return where an upload continues, and how many bytes of it have arrived."""
    answer = registry.send("GET", place)
    last = str(answer.headers.get("Range") or "").rpartition("-")[2]
    location = _location(registry, answer) if answer.headers.get("Location") else place
    # Nothing that has arrived is written as 0-0, as is one byte: the chunk is then sent again from its begin.
    return location, int(last) + 1 if last.isdigit() and last != "0" else 0


def _location(registry: Registry, answer: t.Any) -> str:
    """Return where an upload continues; behind a proxy that ends TLS a registry names HTTP."""
    with answer:
        location = urllib.parse.urljoin(f"{registry.base}/", str(answer.headers.get("Location") or ""))
    parts, own = urllib.parse.urlsplit(location), urllib.parse.urlsplit(registry.access.endpoint)
    return urllib.parse.urlunsplit(parts._replace(scheme=own.scheme)) if parts.netloc == own.netloc else location


def _may_pass(exc: MusterError, *more: int) -> bool:
    return exc.status in (*_TRANSIENT, *more) if isinstance(exc, ApiError) else isinstance(exc, TransportError)


def _again[T](act: t.Callable[[], T]) -> T:
    """Do what may be repeated; a failure that may pass is tried again, after a growing while."""
    for attempt in range(1, _ATTEMPTS):
        try:
            return act()
        except TransportError as exc:
            if not _may_pass(exc):
                raise
            time.sleep(_PAUSE_S * attempt)
    return act()
