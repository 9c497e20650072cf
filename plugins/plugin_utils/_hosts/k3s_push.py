# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of the controller brought beside their places on a node, in pieces; the node places them when they are whole.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import base64
import pathlib
import zlib

from .node_client import PIECE_BYTES, NodeClient


def push_file(remote: NodeClient, path: str, origin: pathlib.Path) -> None:
    """Send ``origin`` beside ``path`` of the node; what an interrupted transfer has left there is replaced.

    :raises NodeError: the node could not write it.
    """
    with origin.open("rb") as source:
        offset = 0
        while (data := source.read(PIECE_BYTES)) or not offset:
            packed = base64.b64encode(zlib.compress(data, 1)).decode()
            offset = remote.call("k3s", step="piece", path=path, offset=offset, data=packed)["size"]
            if not data:
                break
