# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads messages of the kernel since it booted, those with certain words; only root may."""

from __future__ import annotations

import os
import time
import typing as t

GPU_WORDS: t.Final = ("Xid", "fallen off the bus")
_MAX_RECORDS = 200_000
_MAX_LINES = 200


def read_messages(words: t.Sequence[str], since: float | None = None, path: str = "/dev/kmsg") -> list[str]:
    """Return the newest messages that have one of ``words``; none where they cannot be read.

    :param since: a Unix time, before which messages are left out.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return []
    boot = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)
    found: list[str] = []
    try:
        for _count in range(_MAX_RECORDS):
            try:
                data = os.read(descriptor, 8192)
            except BrokenPipeError:
                # The record was overwritten during the read: the next read continues after it.
                continue
            if not data:
                break
            # One record a read, whose lines after the first say of which device it is.
            for line in data.decode(errors="replace").splitlines():
                at, text = _split(line, boot)
                if any(word in text for word in words) and (since is None or at is None or at >= since - 1):
                    found.append(text)
    except OSError:
        # EAGAIN: everything was read.
        pass
    finally:
        os.close(descriptor)
    return found[-_MAX_LINES:]


def _split(line: str, boot: float) -> tuple[float | None, str]:
    """Return when a record was written, and its text; empty for a line that is none."""
    head, found, text = line.partition(";")
    fields = head.split(",")
    if not found or len(fields) < 3 or not fields[2].isdecimal():
        return None, ""
    return boot + int(fields[2]) / 1e6, text
