# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps that the controller logs: none lost, none twice, whatever the tracker does meanwhile."""

from __future__ import annotations

import json
import pathlib
import sys
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding
from ansible_collections.muster.training.plugins.module_utils._model.run_record import RunRecord
from ansible_collections.muster.training.plugins.plugin_utils._services.tracking.mlflow_runs import MlflowRuns
from ansible_collections.muster.training.plugins.plugin_utils._workflows.services import bind
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.trackers import step_log
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.trackers.step_log import (
    StepLog,
    read_metrics,
)
from ansible_collections.muster.training.tests.fakes.trackers import FakeMlflow
from ansible_collections.muster.training.tests.support.run_world import RunWorld

STEPS = (
    "import json, os, time\n"
    "for step in range(1, 31):\n"
    "    with open(os.environ['MUSTER_METRICS_FILE'], 'a') as out:\n"
    "        print(json.dumps({'at': time.time(), 'step': step, 'loss': 1 / step}), file=out)\n"
)


def line(step: int, **values: t.Any) -> bytes:
    return json.dumps({"at": 1000.0 + step, "step": step, **values}).encode() + b"\n"


def opened(server: FakeMlflow, folder: pathlib.Path) -> StepLog:
    about = {"name": "m", "component": "tracking", "mode": "bind", "endpoint": server.url}
    return StepLog(MlflowRuns(Binding.from_dict(about), {}), folder, "llm", server.url)


def finish(folder: pathlib.Path, outcome: str) -> None:
    record = RunRecord.from_dict({"schema": 1, "run_id": "r", "job": {}, "state": "ended", "outcome": outcome,
                                  "submitted_at": "2026-01-01T00:00:00Z"})  # fmt: skip
    (folder / "run.json").write_text(json.dumps(record.to_dict()))


def test_the_figures_of_a_line() -> None:
    data = line(1, loss=0.5, lr=1, at=2.0, rank=0, note="x", flag=True) + line(2, loss=float("nan")) + b'{"step": 3'
    assert read_metrics(data) == [
        {"key": "loss", "value": 0.5, "timestamp": 2000, "step": 1},
        {"key": "lr", "value": 1, "timestamp": 2000, "step": 1},
        {"key": "loss", "value": "NaN", "timestamp": 1002000, "step": 2},
    ]
    assert read_metrics(b'{"step": 1}\n[1]\n{"at": 1, "checkpoint_step": 5}\n') == []


def test_ten_thousand_points_and_a_tracker_that_goes_away(tmp_path: pathlib.Path) -> None:
    """Batches whose answer is lost are sent again, and a cut line waits for its end."""
    metrics = tmp_path / "metrics.jsonl"
    server = FakeMlflow()
    log = opened(server, tmp_path)
    metrics.write_bytes(b"".join(line(step, loss=step, lr=step) for step in range(2500)))
    assert log.send(), "it is not there"
    with server:
        assert log.send() == ""
        metrics.write_bytes(
            metrics.read_bytes() + b"".join(line(step, loss=step, lr=step) for step in range(2500, 5000)) + b'{"a'
        )
        server.lose = 1
        assert "lost" in log.send() or log.send() == ""
        # A controller of its own: what was sent is known to it.
        assert opened(server, tmp_path).send() == ""
        (run,) = server.runs.values()
        assert (len(run["rows"]), run["name"], run["tags"], run["status"]) == (
            10_000,
            tmp_path.name,
            {"muster.run_id": tmp_path.name},
            "RUNNING",
        )
        finish(tmp_path, "failed")
        assert log.send() == "" and run["status"] == "FAILED"
        asked = len(server.requests)
        assert log.send() == "" and len(server.requests) == asked, "nothing is new"


@pytest.mark.parametrize(
    ("outcome", "status"), [("succeeded", "FINISHED"), ("cancelled", "KILLED"), ("lost", "FAILED")]
)
def test_how_a_run_ended(tmp_path: pathlib.Path, outcome: str, status: str) -> None:
    finish(tmp_path, outcome)
    with FakeMlflow() as server:
        assert opened(server, tmp_path).send() == ""
        assert [run["status"] for run in server.runs.values()] == [status]


def saved(folder: pathlib.Path, step: int, path: str, **more: t.Any) -> None:
    finish(folder, more.pop("outcome", "succeeded"))
    value = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**value, "checkpoint": {"step": step, "path": path}, **more}))


def modelled(server: FakeMlflow, folder: pathlib.Path, stored_at: str = "") -> StepLog:
    about = {"name": "m", "component": "tracking", "mode": "bind", "endpoint": server.url}
    runs = MlflowRuns(Binding.from_dict(about), {})
    return StepLog(runs, folder, "llm", server.url, model=("char-lm", "trained"), stored_at=stored_at)


def test_the_last_checkpoint_becomes_a_version_with_the_alias_once(tmp_path: pathlib.Path) -> None:
    """The answer is lost after the version was made; the next send finds it."""
    folder = tmp_path / "lab" / "runs" / "r"
    folder.mkdir(parents=True)
    saved(folder, 30, "/home/u/.local/state/muster/nodes/runs/r/checkpoints/step_30.pt")
    with FakeMlflow() as server:
        server.lose = 1
        assert "answered 400" in modelled(server, folder).send()
        assert modelled(server, folder).send() == "" and modelled(server, folder).send() == ""
        (version,) = server.models["char-lm"]
        assert version["source"] == "muster://lab/r/step_30.pt"
        tags = {"muster.run_id": "r", "muster.checkpoint": "step_30.pt", "muster.step": "30"}
        assert {item["key"]: item["value"] for item in version["tags"]} == tags
        assert server.aliases == {("char-lm", "trained"): "1"}
        assert json.loads((folder / "tracking.json").read_text())["version"] == "1"


def test_of_a_job_with_a_store_the_stored_one_is_the_version(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "lab" / "runs" / "r"
    folder.mkdir(parents=True)
    saved(folder, 30, "/c/step_30.pt", stored={"step": 20, "path": "step_20.pt"})
    with FakeMlflow() as server:
        assert modelled(server, folder, "s3://bucket/ck/r").send() == ""
        assert [item["source"] for item in server.models["char-lm"]] == ["s3://bucket/ck/r/step_20.pt"]


@pytest.mark.parametrize(
    "about", [{"outcome": "failed"}, {"outcome": "cancelled"}, {"checkpoint": None}, {"checkpoint": {"step": 3}}]
)
def test_a_run_without_a_proven_checkpoint_makes_no_version(tmp_path: pathlib.Path, about: dict[str, t.Any]) -> None:
    folder = tmp_path / "lab" / "runs" / "r"
    folder.mkdir(parents=True)
    saved(folder, 30, "/c/step_30.pt", **about)
    with FakeMlflow() as server:
        assert modelled(server, folder).send() == "" and server.models == {}


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/mnt/ck/r-1/step_5", "step_5"),
        ("/s/runs/r-1/checkpoints/deep/step_5.pt", "deep/step_5.pt"),
        ("/elsewhere/step_5.pt", "step_5.pt"),
        ("step_5.pt", "step_5.pt"),
    ],
)
def test_where_a_checkpoint_is_in_its_folder(path: str, name: str) -> None:
    assert step_log.name_in_folder(path, "r-1") == name


def test_an_experiment_that_was_deleted_is_named(tmp_path: pathlib.Path) -> None:
    with FakeMlflow() as server:
        server.experiments["llm"] = "-1"
        assert "the experiment llm was deleted, and keeps its name" in opened(server, tmp_path).send()


def test_a_run_that_was_deleted_there_is_named_and_the_rest_is_sent_when_it_is_restored(tmp_path: pathlib.Path) -> None:
    with FakeMlflow() as server:
        place = tmp_path / "metrics.jsonl"
        place.write_bytes(line(1, loss=1.0))
        log = opened(server, tmp_path)
        assert log.send() == ""
        ((run_id, run),) = server.runs.items()
        run["status"] = "DELETED"
        place.write_bytes(place.read_bytes() + line(2, loss=0.5))
        assert f"was deleted there; restore it with mlflow runs restore --run-id {run_id}" in log.send()
        assert list(server.runs) == [run_id] and len(run["rows"]) == 1
        run["status"] = "RUNNING"
        assert log.send() == "" and len(run["rows"]) == 2


def test_the_steps_of_a_run_are_logged_and_the_rest_by_the_same_command(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = RunWorld(tmp_path)
    monkeypatch.setattr(step_log, "_EVERY_S", 0.2)
    server = FakeMlflow()
    with server:
        about = {"name": "tracker", "kind": "tracking", "mode": "bind", "endpoint": server.url}
        bind.run(world.request(None, services=[about], require_all=True))
        job = world.job(sys.executable, "-c", STEPS, tracking={"binding": "tracker", "log": True})
        server.refuse = 410
        found = world.play(job)
        assert found["run"]["outcome"] == "succeeded" and server.runs == {}
        (warning,) = [text for text in world.said.lines if "steps are not logged to tracker, and are kept" in text]
        assert "410" in warning and any("the same command sends the rest" in text for text in world.said.lines)
        server.refuse = 0
        world.play(job)
        (run,) = server.runs.values()
        kept = json.loads((world.folder() / "tracking.json").read_text())
        assert kept["url"] == f"{server.url}/#/experiments/1/runs/{kept['run_id']}"
        assert run["status"] == "FINISHED" and {row[3] for row in run["rows"] if row[0] == "loss"} == set(range(1, 31))
    world.close()
