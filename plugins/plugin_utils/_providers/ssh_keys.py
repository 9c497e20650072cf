# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Register a public key at a provider that knows keys by name: found by its blob, else added once."""

from __future__ import annotations

import hashlib
import re
import threading
import typing as t

from ...module_utils._model.errors import InputError

_KEY = re.compile(r"(ssh-(rsa|ed25519)|ecdsa-sha2-[a-z0-9-]+|sk-[a-z0-9@.-]+) [A-Za-z0-9+/=]{16,8192}( [^\n\r]*)?\Z")


def public_key(value: str, option: str = "ssh_public_key") -> str:
    """Return one public key line, or raise InputError; a private key is refused without being shown."""
    line = value.strip()
    if "PRIVATE KEY" in line:
        raise InputError(option, "is a private key", "Give the line of the .pub file")
    if not _KEY.match(line):
        raise InputError(option, "is not one line such as 'ssh-ed25519 AAAA… comment'")
    return line


def blob(key: str) -> str:
    """Return type and blob of a key line: the comment tells nothing."""
    return " ".join(key.split()[:2])


def key_name(key: str) -> str:
    """Return the name under which a key is added; the same key has the same name everywhere."""
    return f"muster-{hashlib.sha256(blob(key).encode()).hexdigest()[:12]}"


class KeyRing:
    """Finds or adds a key once per process, whatever number of orders need it at the same time.

    :param find: returns the provider's name or id of the key with this blob, None when there is none.
    :param add: adds the key under a name and returns the provider's name or id.
    """

    def __init__(self, find: t.Callable[[str], str | None], add: t.Callable[[str, str], str]) -> None:
        self._find = find
        self._add = add
        self._lock = threading.Lock()
        self._names: dict[str, str] = {}

    def ensure(self, key: str) -> str:
        """Return the provider's name or id for ``key``. Raises TransportError."""
        want = blob(key)
        with self._lock:
            if want not in self._names:
                self._names[want] = self._find(want) or self._add(key_name(key), key)
            return self._names[want]
