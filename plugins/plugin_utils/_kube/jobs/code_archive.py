# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packs the code of a job into one archive: the same files give the same bytes, on any machine and at any time."""

from __future__ import annotations

import gzip
import io
import tarfile
import typing as t


def pack(files: t.Iterable[tuple[str, int, bytes]]) -> bytes:
    """Return a tar.gz of (path, permission bits, content), in the order of their paths."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, mode, content in sorted(files):
            item = tarfile.TarInfo(path)
            item.size, item.mode, item.mtime = len(content), mode, 0
            tar.addfile(item, io.BytesIO(content))
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, compresslevel=9, filename="") as handle:
        handle.write(raw.getvalue())
    return packed.getvalue()
