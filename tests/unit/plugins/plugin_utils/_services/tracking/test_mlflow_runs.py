# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs of MLflow by its API, against the strict fake."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding
from ansible_collections.muster.training.plugins.module_utils._model.errors import ApiError, MusterError, RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._services.tracking.mlflow_runs import MlflowRuns
from ansible_collections.muster.training.tests.fakes.trackers import TOKEN, FakeMlflow
from ansible_collections.muster.training.tests.support.loopback import Api


def opened(server: FakeMlflow, token: str = TOKEN) -> MlflowRuns:
    about = {"name": "m", "component": "tracking", "mode": "bind", "endpoint": server.url}
    return MlflowRuns(Binding.from_dict(about), {"token": token})


def test_an_experiment_is_made_once_and_a_run_gets_its_figures_and_its_end() -> None:
    with FakeMlflow(TOKEN) as server:
        runs = opened(server)
        assert [runs.find_experiment("llm"), runs.find_experiment("llm"), runs.find_experiment("b")] == ["1", "1", "2"]
        run_id = runs.create_run("1", "r-1", {"muster.run_id": "r-1"})
        metric = {"key": "loss", "value": 0.5, "timestamp": 1000, "step": 1}
        runs.log(run_id, [metric])
        runs.log(run_id, [metric])
        runs.end_run(run_id, "FINISHED")
        assert server.runs[run_id]["rows"] == {("loss", "0.5", 1000, 1)}
        assert (server.runs[run_id]["name"], server.runs[run_id]["status"]) == ("r-1", "FINISHED")


def test_what_is_refused() -> None:
    with FakeMlflow(TOKEN) as server:
        with pytest.raises(ApiError) as caught:
            opened(server, "another-token-0001").find_experiment("llm")
        assert caught.value.status == 401 and "another-token" not in str(caught.value)
        server.experiments["llm"] = "-1"
        with pytest.raises(RefusedError, match="the experiment llm was deleted"):
            opened(server).find_experiment("llm")
        rows = [{"key": "loss", "value": 0.5, "timestamp": 1000, "step": step} for step in range(1001)]
        with pytest.raises(MusterError, match="MLflow refuses the figures: at most 1000 metrics"):
            opened(server).log(opened(server).create_run("1", "r", {}), rows)


def test_what_is_no_mlflow_is_told() -> None:
    """An endpoint that answers something else, and the same call with the right one."""

    def answer(*_words: object) -> tuple[int, object, dict[str, str]]:
        return 200, ["not", "mlflow"], {}

    with Api({"POST /api/2.0/mlflow/runs/create": answer}) as other:
        about = {"name": "m", "component": "tracking", "mode": "bind", "endpoint": other.url}
        with pytest.raises(MusterError, match="MLflow's answer to runs/create is none. Check the endpoint"):
            MlflowRuns(Binding.from_dict(about), {"token": TOKEN}).create_run("1", "r", {})
    with FakeMlflow(TOKEN) as server:
        runs = opened(server)
        assert runs.create_run(runs.find_experiment("llm"), "r", {})
