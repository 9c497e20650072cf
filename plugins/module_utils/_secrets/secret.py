# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A secret as a value that does not show itself."""

from __future__ import annotations

import hashlib
import hmac
import re
import typing as t

from .._model.errors import InputError
from .scrubber import remember

MIN_LENGTH = 8
MIN_VARIETY = 4
MAX_LENGTH = 64 * 1024
HIDDEN = "********"

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ufeff\ufffe\u2028\u2029\ud800-\udfff]")
_TOKEN = re.compile(r"[\x21\x23-\x26\x28-\x7e]+\Z")


def _check(value: t.Any, option: str, token: bool) -> str:
    """Return the text of a secret or raise :class:`InputError` without showing any of it."""
    if not isinstance(value, str):
        raise InputError(option, "must be text")
    # Files and command substitutions end with one newline, which is not part of the secret.
    text = str(value).removesuffix("\n").removesuffix("\r")
    if not text:
        raise InputError(option, "is empty")
    if _CONTROL.search(text):
        raise InputError(option, "holds a line break, byte order mark or control character", "Store the bare value")
    if token and not _TOKEN.match(text):
        raise InputError(option, "holds a space, quote or non-ASCII character", "Store the bare token")
    # Short or trivial values would be masked inside ordinary words and corrupt every output.
    if len(text) < MIN_LENGTH or len(set(text)) < MIN_VARIETY:
        raise InputError(option, f"is too short or too simple for a secret (at least {MIN_LENGTH} varied characters)")
    if len(text) > MAX_LENGTH:
        raise InputError(option, f"is longer than {MAX_LENGTH} characters")
    return text


class Secret:
    """One secret value. Its ``repr``, ``str`` and format show only where it came from; it cannot be pickled.

    :param value: the text; one final line break is dropped.
    :param origin: the option, variable or file it came from, for errors and ``repr``.
    :param token: whether it must be a bare token (visible ASCII, no space or quote), as HTTP headers need.

    Raises :class:`InputError`. Every secret is remembered by the scrubber of this process.
    """

    __slots__ = ("_value", "origin")

    def __init__(self, value: str, origin: str, *, token: bool = False) -> None:
        self._value = _check(value, origin, token)
        self.origin = origin
        remember(self._value)

    def reveal(self) -> str:
        """Return the value, for the one place that sends it."""
        return self._value

    def fingerprint(self) -> str:
        """Return 12 hex digits that tell two credentials apart and cannot be turned back.

        Only for tokens that a provider made (long and random); a person's password could be guessed from it.
        """
        return hashlib.sha256(b"muster.training account\0" + self._value.encode()).hexdigest()[:12]

    def __repr__(self) -> str:
        return f"Secret({HIDDEN} from {self.origin})"

    __str__ = __repr__

    def __format__(self, _spec: str) -> str:
        return repr(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._value.encode(), other._value.encode())

    def __hash__(self) -> int:
        return hash(("muster.training secret", self._value))

    def __reduce__(self) -> t.NoReturn:
        raise TypeError("a Secret cannot be pickled or copied")
