# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a provider answered last, kept on disk with its age, for speed and for its outages.

One file for each source of hosts: mode 0600, replaced atomically. It holds whitelisted answers, never a credential;
the account is known by its fingerprint.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import tempfile
import typing as t
from collections.abc import Callable, Mapping

from ...module_utils._model.errors import TransportError

SCHEMA = 1
_MAX_BYTES = 256 * 1024 * 1024

Raw = dict[str, t.Any]


@dataclasses.dataclass(frozen=True, slots=True)
class CachedResponse:
    """A listing and its age in seconds; ``problem`` says why an old one is used."""

    listing: list[Raw]
    age_s: float = 0.0
    problem: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class CacheRule:
    """``fresh_s``: younger answers are used without asking. ``stale_s``: older ones only when asking fails."""

    folder: str
    fresh_s: int = 0
    stale_s: int = 0

    @property
    def enabled(self) -> bool:
        """Whether anything is written or read at all."""
        return bool(self.folder) and (self.fresh_s > 0 or self.stale_s > 0)


def default_folder(environ: Mapping[str, str]) -> str:
    """Return the folder for caches of this user (XDG base directories), empty when there is no home."""
    home = environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(home):
        home = os.path.join(environ["HOME"], ".cache") if environ.get("HOME") else ""
    return os.path.join(home, "muster.training", "inventory") if home else ""


def file_name(plugin: str, key: t.Sequence[str]) -> str:
    """Return the file's name for a plugin and everything that decides what it is answered."""
    digest = hashlib.sha256(json.dumps(list(key)).encode()).hexdigest()[:20]
    return f"{plugin.rpartition('.')[2]}-{digest}.json"


def load_response(path: str, now: float) -> CachedResponse | None:
    """Return the kept answer, None when there is none that can be trusted (missing, torn, from the future)."""
    try:
        with open(path, "rb") as stream:
            # Somebody else's file could put hosts into the inventory.
            info = os.fstat(stream.fileno())
            if info.st_uid != os.geteuid() or info.st_mode & 0o022 or info.st_size > _MAX_BYTES:
                return None
            kept = json.loads(stream.read(_MAX_BYTES + 1))
        listing, at = kept["listing"], float(kept["fetched_at"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    sound = (
        kept.get("schema") == SCHEMA and isinstance(listing, list) and all(isinstance(item, dict) for item in listing)
    )
    return CachedResponse(listing, now - at) if sound and at <= now else None


def store_listing(path: str, listing: list[Raw], now: float) -> bool:
    """Keep an answer; false when the folder cannot be written, which is no reason to fail."""
    temporary = ""
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".new-")
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump({"schema": SCHEMA, "fetched_at": now, "listing": listing}, stream, separators=(",", ":"))
        os.replace(temporary, path)
    except (OSError, ValueError, TypeError):
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        return False
    return True


def read_listing(
    rule: CacheRule,
    name: str,
    fetch: Callable[[], list[Raw]],
    now: Callable[[], float],
    *,
    use_fresh: bool = True,
) -> CachedResponse:
    """Return a fresh kept answer, else ask, else use a stale one; raise what ``fetch`` raised when there is none.

    Only an API that could not answer (:class:`TransportError` without a client error) is replaced by an old answer:
    a refused credential is never papered over. ``use_fresh`` false always asks.
    """
    path = os.path.join(rule.folder, name) if rule.enabled else ""
    kept = load_response(path, now()) if path else None
    if kept and use_fresh and kept.age_s < rule.fresh_s:
        return kept
    try:
        listing = fetch()
    except TransportError as exc:
        status = getattr(exc, "status", 0)
        outage = not 300 <= status < 500 or status == 429
        if kept is None or not outage or kept.age_s >= rule.stale_s:
            raise
        return CachedResponse(kept.listing, kept.age_s, str(exc))
    if path:
        store_listing(path, listing, now())
    return CachedResponse(listing)
