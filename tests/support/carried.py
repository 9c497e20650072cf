# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that follow a request to the node agent, as a test sends them and as the agent reads them."""

from __future__ import annotations

import io
import typing as t
import zlib


def carry(path: str, data: bytes, offset: int = 0) -> dict[str, t.Any]:
    """Return what a request has that carries one part of a file."""
    packed = zlib.compress(data)
    return {"parts": [{"path": path, "offset": offset, "size": len(packed)}], "body": io.BytesIO(packed)}


def as_stream(values: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return a request with what follows it as the agent reads it."""
    return {**values, **({"body": io.BytesIO(values["body"])} if values.get("body") else {})}
