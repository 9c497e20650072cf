# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files in pieces to a node's agent, which here writes below a folder."""

from __future__ import annotations

import os
import pathlib

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import host_k3s
from ansible_collections.muster.training.plugins.plugin_utils._hosts import k3s_push
from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import NodeClient


class Node(NodeClient):
    """A node that answers in this process."""

    root = pathlib.Path()

    def call(self, op: str, **values: object) -> dict[str, object]:
        return host_k3s.answer({**values, "root": str(self.root)})


@pytest.mark.parametrize("size", [0, 1, 1 << 16, (1 << 17) + 3])
def test_a_file_arrives_whole_whatever_was_there(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(k3s_push, "PIECE_BYTES", 1 << 16)
    origin = tmp_path / "origin"
    origin.write_bytes(os.urandom(size))
    node = Node("n", lambda command, data: (1, "", ""))
    node.root = tmp_path
    part = tmp_path / "data/.file.part"
    part.parent.mkdir()
    part.write_bytes(b"left by an interrupted transfer" * 10000)
    k3s_push.push_file(node, "/data/file", origin)
    assert part.read_bytes() == origin.read_bytes()
