# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that follow a request to the node agent, as a test sends them and as the agent reads them."""

from __future__ import annotations

import io
import json
import typing as t
import zlib


def pack(path: str, data: bytes, offset: int = 0) -> bytes:
    """Return one part of a file as it follows a request."""
    packed = zlib.compress(data)
    head = json.dumps({"path": path, "offset": offset}).encode() + b"\n"
    return head + pieces(packed)


def pieces(packed: bytes, size: int = 1 << 20) -> bytes:
    """Return packed bytes as the pieces of a part."""
    cut = [packed[start : start + size] for start in range(0, len(packed), size)]
    return b"".join(b"%d\n%b" % (len(piece), piece) for piece in cut) + b"0\n"


def carry(path: str, data: bytes, offset: int = 0) -> dict[str, t.Any]:
    """Return what a request has that carries one part of a file."""
    return {"body": io.BytesIO(pack(path, data, offset) + b"\n")}


def as_stream(values: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return a request with what follows it as the agent reads it."""
    return {**values, **({"body": io.BytesIO(b"".join(values["body"]))} if "body" in values else {})}
