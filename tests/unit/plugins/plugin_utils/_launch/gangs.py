# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs and nodes for the tests of launchers."""

from __future__ import annotations

import typing as t

from ansible_collections.muster.training.plugins.module_utils._model.job import Job, parse_job
from ansible_collections.muster.training.plugins.plugin_utils._launch.base import NodeSlot, RunContext

RUN = RunContext(run_id="x-1", port=20_000, attempt=3, checkpoint_dir=None)


def job(**changes: t.Any) -> Job:
    return parse_job({"name": "x", "nodes": 2, "script": "train.py", "code": {"from": "path", "ref": "."}, **changes})


def slots(count: int = 2, **changes: t.Any) -> tuple[NodeSlot, ...]:
    """Return nodes a, b, …; each has its own folder, address and interpreter."""
    return tuple(
        NodeSlot(
            **{
                "name": "abcdef"[index],
                "rank": index,
                "address": f"10.0.0.{index + 1}",
                "interface": f"eth{index}",
                "python": f"/py{index}",
                "run_dir": f"/state/{'abcdef'[index]}/runs/x-1",
                "agent_python": "/usr/bin/python3",
                **changes,
            }
        )
        for index in range(count)
    )
