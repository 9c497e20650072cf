# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A service must be usable from the nodes of the job; where these are not known, from one."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding
from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.object_stores.job_nodes import (
    JobNodes,
)


def binding(**rows: bool) -> Binding:
    reachable: list[dict[str, t.Any]] = [
        {"node": node, "vantage": "host", "ok": ok, "problem": None if ok else "refused"} for node, ok in rows.items()
    ]
    values = {"schema": 1, "name": "s3", "component": "object_store", "mode": "bind", "provider": "s3"}
    return Binding.from_dict({**values, "endpoint": "http://127.0.0.1:9", "reachable_from": reachable})


def test_every_node_of_the_job_counts() -> None:
    JobNodes(("a",)).require_reachable(binding(a=True, b=False), "checkpoints")
    with pytest.raises(MusterError, match="b"):
        JobNodes(("a", "b")).require_reachable(binding(a=True, b=False), "checkpoints")


def test_nodes_that_are_not_known_need_one_that_can_use_it() -> None:
    JobNodes(None).require_reachable(binding(a=True, b=False), "checkpoints")
    with pytest.raises(MusterError):
        JobNodes(None).require_reachable(binding(b=False), "checkpoints")
