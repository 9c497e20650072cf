# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cache the last listing of a provider on disk with its age, for speed and for outages.

One file for each source of hosts: mode 0600, replaced atomically. It holds whitelisted answers, never a credential;
the account is known by its fingerprint.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import tempfile
import typing as t
from collections.abc import Callable, Mapping

from ...module_utils._model.errors import TransportError
from ...module_utils._node.files import clear_left

SCHEMA = 1
_MAX_BYTES = 256 * 1024 * 1024

JsonObject = dict[str, object]


@dataclasses.dataclass(frozen=True, slots=True)
class CachedResponse:
    """A listing and its age in seconds; ``problem`` says why an old listing is used."""

    listing: list[JsonObject]
    age_s: float = 0.0
    problem: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class CacheRule:
    """``fresh_s``: younger answers are used without asking. ``stale_s``: older ones only when asking fails."""

    folder: str
    fresh_s: int = 0
    stale_s: int = 0

    @property
    def is_enabled(self) -> bool:
        """Return whether the cache is read or written at all."""
        return bool(self.folder) and (self.fresh_s > 0 or self.stale_s > 0)


def default_folder(environ: Mapping[str, str]) -> str:
    """Return the folder for caches of this user (XDG base directories), empty when there is no home."""
    home = environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(home):
        home = os.path.join(environ["HOME"], ".cache") if environ.get("HOME") else ""
    return os.path.join(home, "muster.training", "inventory") if home else ""


def file_name(plugin: str, key: t.Sequence[str]) -> str:
    """Return the file's name for a plugin and everything on which its listing depends."""
    digest = hashlib.sha256(json.dumps(list(key)).encode()).hexdigest()[:20]
    return f"{plugin.rpartition('.')[2]}-{digest}.json"


def load_response(path: str, now: float) -> CachedResponse | None:
    """Return the cached listing, None when it cannot be trusted (missing, torn, from the future)."""
    try:
        with open(path, "rb") as stream:
            # A file of another user could put hosts into the inventory.
            info = os.fstat(stream.fileno())
            if info.st_uid != os.geteuid() or info.st_mode & 0o022 or info.st_size > _MAX_BYTES:
                return None
            cached = json.loads(stream.read(_MAX_BYTES + 1))
        listing, at = cached["listing"], float(cached["fetched_at"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    is_valid = (
        cached.get("schema") == SCHEMA and isinstance(listing, list) and all(isinstance(item, dict) for item in listing)
    )
    return CachedResponse(listing, now - at) if is_valid and at <= now else None


def store_listing(path: str, listing: list[JsonObject], now: float) -> bool:
    """Store a listing; false when the folder cannot be written, which is not an error."""
    temporary = ""
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        clear_left(pathlib.Path(path).parent, ".new-", "")
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
    fetch: Callable[[], list[JsonObject]],
    now: Callable[[], float],
    *,
    use_fresh: bool = True,
) -> CachedResponse:
    """Return a fresh cached listing, else fetch one, else a stale one; raise what ``fetch`` raised when there is none.

    Only an API that could not answer (:class:`TransportError` without a client error) is replaced by an old listing:
    a refused credential is always an error. ``use_fresh`` false always fetches.
    """
    path = os.path.join(rule.folder, name) if rule.is_enabled else ""
    cached = load_response(path, now()) if path else None
    if cached and use_fresh and cached.age_s < rule.fresh_s:
        return cached
    try:
        listing = fetch()
    except TransportError as exc:
        status = getattr(exc, "status", 0)
        is_outage = not 300 <= status < 500 or status == 429
        if cached is None or not is_outage or cached.age_s >= rule.stale_s:
            raise
        return CachedResponse(cached.listing, cached.age_s, str(exc))
    if path:
        store_listing(path, listing, now())
    return CachedResponse(listing)
