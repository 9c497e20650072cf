# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Unpacking compressed bodies without trusting their size."""

from __future__ import annotations

import zlib

from .errors import ExchangeError


def too_large(limit: int) -> ExchangeError:
    """Return the error of a response that is larger than ``limit``."""
    return ExchangeError(f"the response is larger than {limit} bytes")


class Gunzip:
    """Unpacks gzip piecewise, so that a small body cannot grow past ``limit`` unnoticed."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._decoder = zlib.decompressobj(16 + zlib.MAX_WBITS)

    def feed(self, data: bytes) -> bytes:
        """Return what a piece unpacks to. Raises :class:`ExchangeError`."""
        try:
            piece = self._decoder.decompress(data, self._limit - self._size + 1)
        except zlib.error:
            raise ExchangeError("the compression of the response is damaged") from None
        self._size += len(piece)
        if self._size > self._limit or self._decoder.unconsumed_tail:
            raise too_large(self._limit)
        return piece

    def finish(self) -> None:
        """Raise :class:`ExchangeError` when the end is missing."""
        if not self._decoder.eof:
            raise ExchangeError("the response was cut short", transient=True)
