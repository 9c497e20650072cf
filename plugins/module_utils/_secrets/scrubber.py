# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Removes the secrets of this process from text for people and files, in every form in which they may appear."""

from __future__ import annotations

import base64
import json
import re
import typing as t
import urllib.parse
from collections.abc import Iterable, Mapping

MASK = "********"
# In text of programs that is not ours: what stands behind a name that says so, and values that are known by their form.
_NAMED = re.compile(
    r"""((?:password|passwd|secret|token|api[_-]?key|access[_-]?key)["']?[ ]{0,2}[=:][ ]{0,2})"""
    r"""(?:"[^"]{6,}"|'[^']{6,}'|(?![0-9.,]+(?:\s|$|[,;}\])]))[^\s"',;&}\])]{6,})""",
    re.IGNORECASE,
)
_FORMED = re.compile(
    r"(?<![A-Za-z0-9])(?:hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|nvapi-[A-Za-z0-9_-]{20,}|gh[pousr]_[A-Za-z0-9]{20,}"
    r"|AKIA[A-Z0-9]{16}|xox[abp]-[A-Za-z0-9-]{10,})"
)
_BEARER = re.compile(r"((?:Bearer|Basic)\s+)[A-Za-z0-9._~+/=-]{8,}")
_IN_URL = re.compile(r"(\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@]{0,100}:)[^\s/@]{1,200}(?=@)", re.IGNORECASE)
_MIN_BASE64 = 8
_SHORTEST_LINE = 8


def _base64_forms(data: bytes) -> set[str]:
    """Return how ``data`` looks inside base64, whatever stands before and after it.

    Three bytes become four characters, so there are three alignments; the characters at the seams, which depend on
    the neighbours, are left out.
    """
    forms: set[str] = set()
    for shift in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            text = encode(b"\0" * shift + data).decode().rstrip("=")
            first = (shift * 8 + 5) // 6
            last = (shift + len(data)) * 8 // 6
            forms.add(text[first:last])
    return {form for form in forms if len(form) >= _MIN_BASE64}


def _forms(secret: str) -> set[str]:
    """Return all spellings of one secret that are searched for."""
    data = secret.encode("utf-8", "surrogatepass")
    quoted = {urllib.parse.quote(secret, safe=""), urllib.parse.quote(secret), urllib.parse.quote_plus(secret)}
    lower = {re.sub(r"%[0-9A-F]{2}", lambda match: match.group().lower(), form) for form in quoted}
    escaped = {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1]}
    # Shells and YAML double or escape quotes in their own ways; JSON inside JSON escapes twice.
    twice = {json.dumps(form)[1:-1] for form in escaped}
    forms = {secret, data.hex(), data.hex().upper()} | quoted | lower | escaped | twice | _base64_forms(data)
    return {form for form in forms if form}


def list_forms(text: str) -> set[str]:
    """Return all spellings of a secret, and its lines, but for those that are too short to be told from other text."""
    lines = {line for line in text.splitlines() if len(line) >= _SHORTEST_LINE}
    return lines | (_forms(text.rstrip("\n")) if len(text.rstrip("\n")) >= _SHORTEST_LINE else set())


class Scrubber:
    """Replaces secrets by ``********``. Longer spellings go first, so that a shorter one leaves no tail of a longer."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms: set[str] = set()
        for secret in secrets:
            forms |= _forms(secret)
        ordered = sorted(forms, key=lambda form: (-len(form), form))
        self._pattern = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def scrub(self, text: str) -> str:
        """Return ``text`` without any of the secrets."""
        return self._pattern.sub(MASK, text) if self._pattern else text

    def scrub_value(self, value: t.Any) -> t.Any:
        """Return a copy of plain data (mappings, lists, text) with keys and text scrubbed, the rest unchanged."""
        if isinstance(value, str):
            return self.scrub(value)
        if isinstance(value, bytes):
            return self.scrub(value.decode("utf-8", "replace")).encode()
        if isinstance(value, Mapping):
            return {self.scrub_value(key): self.scrub_value(item) for key, item in value.items()}
        if isinstance(value, (list, tuple, set, frozenset)):
            return [self.scrub_value(item) for item in value]
        return value


def mask_likely(text: str) -> str:
    """Return text of a program with what looks like a credential masked: this process need never have held it.

    By a name beside it (``api_key=…``), by its form (``hf_…``), behind ``Bearer``, or before ``@`` in an address.
    Numbers alone stay: ``max_token: 2048``.
    """
    for pattern in (_NAMED, _BEARER, _IN_URL):
        text = pattern.sub(rf"\1{MASK}", text)
    return _FORMED.sub(MASK, text)


class _Registry:
    """The secrets of this process; the pattern is built when it is first needed."""

    def __init__(self) -> None:
        self._values: set[str] = set()
        self._built: Scrubber | None = None

    def add(self, value: str) -> None:
        if value not in self._values:
            self._values.add(value)
            self._built = None

    def has(self, value: str) -> bool:
        return value in self._values

    def scrubber(self) -> Scrubber:
        if self._built is None:
            self._built = Scrubber(self._values)
        return self._built


_registry = _Registry()


def remember(value: str) -> None:
    """Add ``value`` to the secrets that :func:`scrub` removes, until this process ends."""
    _registry.add(value)


def is_remembered(value: str) -> bool:
    """Return whether a value is one of the secrets that :func:`scrub` removes."""
    return _registry.has(value)


def scrub(text: str) -> str:
    """Return ``text`` without any secret that this process has held. For the error boundary."""
    return _registry.scrubber().scrub(text)


def scrub_value(value: t.Any) -> t.Any:
    """Return a copy of plain data without any secret that this process has held."""
    return _registry.scrubber().scrub_value(value)
