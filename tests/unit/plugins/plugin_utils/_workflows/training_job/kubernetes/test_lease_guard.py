# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of rented machines for runs in pods; whole runs of them are in tests/kube_api."""

from __future__ import annotations

import types
import typing as t

from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes.lease_guard import (
    find_lease,
)

JOB = {"name": "x", "nodes": 1, "script": "/t.py"}


def test_a_node_has_the_lease_of_its_name_its_token_or_its_id() -> None:
    lease: t.Any = types.SimpleNamespace(name="lab-1", token="t1", ids=("i-1",))
    nodes = {"b": {"owner": {"token": "t1"}}, "c": {"id": "i-1"}, "d": {"id": "i-2"}}
    hostvars = {name: {"muster_node": node} for name, node in nodes.items()}
    for name in ("lab-1", "b", "c"):
        assert find_lease(name, hostvars, [lease]) is lease
    assert find_lease("d", hostvars, [lease]) is None and find_lease("e", hostvars, [lease]) is None
