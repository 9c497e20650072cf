# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A tracker from its binding to what a program logged: with a fake of MLflow, and with MLflow itself where it is."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import typing as t
import urllib.request

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import Result, World, until
from ansible_collections.muster.training.tests.e2e.service_world import free_port
from ansible_collections.muster.training.tests.fakes.trackers import TOKEN, FakeMlflow

# Two ranks log to one experiment, each with a run of its own, as an unmodified program does.
LOGS = """
import os
import mlflow
with mlflow.start_run(run_name="rank-" + os.environ["RANK"]):
    for step in range(1, 21):
        mlflow.log_metric("loss", 1.0 / step, step=step)
"""
STEPS = """
import json, os, time
for step in range(1, 31):
    with open(os.environ["MUSTER_METRICS_FILE"], "a") as out:
        print(json.dumps({"at": time.time(), "step": step, "loss": 1 / step}), file=out)
"""
SAVES = """
import json, os, pathlib, time
for step in range(1, 31):
    line = {"at": time.time(), "step": step, "loss": 1 / step}
    if step % 10 == 0:
        place = pathlib.Path(os.environ["MUSTER_CHECKPOINT_DIR"], f"step_{step}.pt")
        place.write_text(f"weights {step}")
        line |= {"checkpoint_step": step, "path": str(place)}
    with open(os.environ["MUSTER_METRICS_FILE"], "a") as out:
        print(json.dumps(line), file=out)
"""
SHOWS = "import os; print(os.environ['MLFLOW_TRACKING_URI'], len(os.environ['MLFLOW_TRACKING_TOKEN']), flush=True)"


def bind(world: World, *words: str, **service: t.Any) -> Result:
    about = {"name": "tracker", "kind": "tracking", "mode": "bind", **service}
    return world.play("services", args=words, muster_services=[about])


def test_a_tracker_is_bound_once_and_its_token_reaches_the_ranks(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", TOKEN)
    with FakeMlflow(TOKEN) as server:
        about = {"endpoint": server.url, "secret_ref": {"from": "env"}}
        results = [bind(world, *words, **about) for words in (("--check",), (), ())]
        assert [result.code for result in results] == [0, 0, 0], "\n".join(result.output for result in results)
        assert [result.changed for result in results] == [1, 1, 0]
        job = world.job(command=[sys.executable, "-c", SHOWS], tracking={"binding": "tracker", "experiment": "llm"})
        trained = world.play("train", job=job)
        assert trained.code == 0, trained.output
        for node in ("node-1", "node-2"):
            text = (world.run_folder() / "logs" / f"{node}.log").read_text()
            assert f"{server.url} {len(TOKEN)}" in text
    shown = "".join(result.output for result in (*results, trained))
    assert TOKEN not in shown
    refused = bind(world, endpoint=server.url)
    assert refused.code != 0 and "tracker cannot be used from all nodes: node-1 (host): " in refused.output


@pytest.fixture
def mlflow(tmp_path: pathlib.Path) -> t.Iterator[tuple[str, str]]:
    """A server of MLflow, and the Python that has its client."""
    python = os.environ.get("MUSTER_MLFLOW_PYTHON", "")
    if not python:
        pytest.skip("MUSTER_MLFLOW_PYTHON names no Python with mlflow: it takes 0.9 GB")
    port = free_port()
    url, command = f"http://127.0.0.1:{port}", str(pathlib.Path(python).with_name("mlflow"))
    store = f"sqlite:///{tmp_path}/mlflow.db"
    words = [command, "server", "--port", str(port), "--workers", "1", "--backend-store-uri", store]
    words += ["--artifacts-destination", str(tmp_path / "artifacts")]
    env = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (tmp_path / "mlflow.log").open("wb") as log:
        server = subprocess.Popen(words, env=env, stdout=log, stderr=log)
    try:
        until(lambda: answers(f"{url}/health"), "MLflow", 240)
        yield url, python
    finally:
        server.terminate()
        server.wait(30)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_an_unmodified_program_logs_to_mlflow_itself(world: World, mlflow: tuple[str, str]) -> None:
    url, python = mlflow
    bound = bind(world, endpoint=url)
    assert bound.code == 0, bound.output
    tracking = {"binding": "tracker", "experiment": "llm"}
    job = world.job(command=[python, "-c", LOGS], tracking=tracking)
    trained = world.play("train", job=job)
    assert trained.code == 0, trained.output
    (experiment,) = [item for item in ask(url, "experiments/search", max_results=10) if item["name"] == "llm"]
    runs = ask(url, "runs/search", experiment_ids=[experiment["experiment_id"]])
    assert {run["info"]["run_name"]: run["data"]["metrics"][0]["step"] for run in runs} == {"rank-0": 20, "rank-1": 20}
    steps = world.job(command=[sys.executable, "-c", STEPS], tracking={**tracking, "log": True}, name="steps")
    trained = world.play("train", job=steps, muster_run_id="steps-1")
    assert trained.code == 0, trained.output
    (run,) = [item for item in ask(url, "runs/search", experiment_ids=[experiment["experiment_id"]])
              if item["info"]["run_name"] == "steps-1"]  # fmt: skip
    assert (run["info"]["status"], run["data"]["metrics"][0]["step"]) == ("FINISHED", 30)
    assert {"key": "muster.run_id", "value": "steps-1"} in run["data"]["tags"]
    model = {**tracking, "log": True, "model": "net", "alias": "best"}
    saves = world.job(command=[sys.executable, "-c", SAVES], tracking=model, name="saves", nodes=1)
    trained = world.play("train", job=saves, muster_run_id="saves-1")
    assert trained.code == 0, trained.output
    with urllib.request.urlopen(f"{url}/api/2.0/mlflow/registered-models/alias?name=net&alias=best", timeout=30) as got:
        version = json.loads(got.read())["model_version"]
    assert version["source"] == "muster://local/saves-1/step_30.pt" and version["status"] == "READY"
    fetched = world.play("fetch", muster_fetch_model="net@best", muster_fetch_dest=str(world.root / "model"))
    assert fetched.code == 0, fetched.output
    assert (world.root / "model" / "step_30.pt").read_text() == "weights 30"
    refused = bind(world, endpoint=url.replace("127.0.0.1", "127.0.0.1.nip.invalid"))
    assert refused.code != 0 and "is not known here" in refused.output


def ask(url: str, path: str, **body: t.Any) -> list[dict[str, t.Any]]:
    request = urllib.request.Request(f"{url}/api/2.0/mlflow/{path}", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})  # fmt: skip
    with urllib.request.urlopen(request, timeout=30) as answer:
        return t.cast("list[dict[str, t.Any]]", next(iter(json.loads(answer.read()).values())))
