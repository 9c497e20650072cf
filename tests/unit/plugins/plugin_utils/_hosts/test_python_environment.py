# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the module asks the host for, in both of its modes."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._hosts import python_environment
from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import NodeClient

WANTED = ["-i https://me:s3cr3t@index.example.com/simple", "torch"]


class Node(NodeClient):
    def call(self, op: str, **values: t.Any) -> dict[str, t.Any]:
        self.asked = {"op": op, **values}
        return {"python": "/e/bin/python", "made": not values["check"], "folder": "/e"}


@pytest.mark.parametrize(
    ("wait", "check", "background"), [(True, False, False), (False, False, True), (False, True, False)]
)
def test_one_request(wait: bool, check: bool, background: bool) -> None:
    node = Node("a", lambda command, data: (0, "", ""))
    options = {"path": "~/e", "requirements": WANTED, "base_python": "python3", "wait": wait}
    said: list[str] = []
    result = python_environment.ensure_environment(node, options, check, said.append)
    assert said == (["a: installing torch into /e; PyTorch takes minutes"] if background else [])
    assert result == {"changed": True, "python": "/e/bin/python"}
    assert node.asked == {
        "op": "environment",
        "python": "python3",
        "requirements": WANTED,
        "folder": "~/e",
        "check": check,
        "background": background,
    }
