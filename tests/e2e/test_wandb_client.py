# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real client of Weights & Biases in a job, with the variables of a binding alone, against a strict stand-in."""

from __future__ import annotations

import os

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import World
from ansible_collections.muster.training.tests.fakes.trackers import FakeWandb
from ansible_collections.muster.training.tests.support import canary

# The client refuses shorter ones, and takes what stands before a hyphen for its kind.
KEY = "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567"
LOGS = """
import os
if os.environ["RANK"] == "0":
    import wandb
    run = wandb.init()
    for step in range(1, 101):
        run.log({"loss": 1 / step}, step=step)
    run.finish()
"""


def test_an_unmodified_program_logs_with_the_real_client(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run of theirs, by the run's own id, in the job's project; each step is there once."""
    python = os.environ.get("MUSTER_WANDB_PYTHON", "")
    if not python:
        pytest.skip("MUSTER_WANDB_PYTHON names no Python with wandb")
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    with FakeWandb(KEY) as server:
        about = {"name": "wb", "kind": "tracking", "mode": "bind", "provider": "wandb", "endpoint": server.url}
        about |= {"secret_ref": {"from": "env"}, "env": {"WANDB_ENTITY": "team"}}
        bound = world.play("services", muster_services=[about])
        assert bound.code == 0, bound.output
        tracking = {"binding": "wb", "experiment": "llm"}
        job = world.job(command=[python, "-c", LOGS], tracking=tracking, env={"WANDB_SILENT": "true"})
        trained = world.play("train", job=job, muster_run_id="wb-1")
        assert trained.code == 0, trained.output
    (run,) = server.runs.items()
    assert run[0] == "wb-1" and {run[1][key] for key in ("project", "entity", "groupName")} == {"llm", "team", "wb-1"}
    rows = server.rows["wb-1"]
    assert [row["_step"] for row in rows.values()] == list(range(1, 101)) and rows[99]["loss"] == 0.01
    shown = bound.output + trained.output
    kept = b"".join(place.read_bytes() for place in world.state.rglob("*") if place.is_file())
    for name, form in canary.encodings(KEY).items():
        assert form.decode() not in shown and form not in kept, name
