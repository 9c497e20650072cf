# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RFC 3339 times: the one place that writes them and reads them."""

from __future__ import annotations

import datetime
import typing as t

from . import validators as f
from .errors import InputError

UTC = datetime.timezone.utc


def format_time(seconds: float) -> str:
    """Return a Unix time as ISO 8601 in UTC with milliseconds, as all files of the state home hold it."""
    moment = datetime.datetime.fromtimestamp(seconds, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def format_whole_seconds(seconds: float) -> str:
    """Return a Unix time as Kubernetes writes it: UTC, without a fraction."""
    return datetime.datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def read_time(value: object) -> float | None:
    """Return the Unix time of an ISO 8601 text that a program wrote, else None; without a zone it is UTC."""
    try:
        # Before Python 3.11, fromisoformat does not know the Z.
        moment = datetime.datetime.fromisoformat(str(value).strip().replace("Z", "+00:00"))
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def parse_time(value: t.Any, path: str = "at") -> float:
    """Return the Unix time of an ISO 8601 text with its zone; ``path`` names the option in the error.

    :raises InputError: when it is not a time, or has no zone.
    """
    try:
        moment = datetime.datetime.fromisoformat(f.text(value, path).replace("Z", "+00:00"))
        if moment.tzinfo is None:
            raise ValueError
        return moment.timestamp()
    except (ValueError, OverflowError):
        raise InputError(path, "must be a time such as 2026-11-21T10:00:00Z") from None
