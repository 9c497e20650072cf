# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ranks that end differently: one with success while another fails, as with uneven data or a wrong branch."""

from __future__ import annotations

import typing as t

from ansible_collections.muster.training.tests.e2e.playbook_world import World

PROGRAM = """
import os, sys, time
rank = int(os.environ["RANK"])
time.sleep(2 + rank)
sys.exit(0 if rank == 0 else 3)
"""


def uneven_job(world: World, python: str, **values: t.Any) -> dict[str, t.Any]:
    code = world.root / "code"
    code.mkdir(exist_ok=True)
    (code / "uneven.py").write_text(PROGRAM)
    source = {"from": "path", "ref": str(code)}
    return {"name": "e2e", "nodes": 2, "python": python, "code": source, "script": "uneven.py", **values}


def test_a_rank_that_fails_after_others_succeeded_is_the_cause(world: World, torch_python: str) -> None:
    """With the default budgets: torchrun's exit barrier waits five minutes, and its store is gone for a restart."""
    result = world.play(job=uneven_job(world, torch_python), limit_s=150)
    print(result.seconds, result.output[-3000:])
    assert result.code != 0 and "exited with code 3" in result.errors[0], result.output
    record = world.record()
    assert (record["outcome"], record["exit_code"]) == ("failed", 3) and result.seconds < 90
