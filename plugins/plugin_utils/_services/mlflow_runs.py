# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs of MLflow by its REST API: one for each of ours, which gets its figures in batches that are safe to send again.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import time
import typing as t

from ...module_utils._http.messages import json_request
from ...module_utils._model.binding import Binding
from ...module_utils._model.errors import MusterError, RefusedError
from .tracker_access import Keys, call

_API: t.Final = "/api/2.0/mlflow"
Metric = dict[str, t.Any]


class MlflowRuns:
    """The API of one server, with its credentials."""

    def __init__(self, binding: Binding, keys: Keys) -> None:
        self._binding, self._keys = binding, keys

    def find_experiment(self, name: str) -> str:
        """Return the id of an experiment, which is made where there is none.

        :raises RefusedError: one of that name was deleted, and its name is still taken.
        """
        query = [("experiment_name", name)]
        request = json_request("GET", f"{_API}/experiments/get-by-name", query=query)
        answer = call(self._binding, self._keys, request, allow=(404,))
        if answer.status == 404:
            return str(self._post("experiments/create", {"name": name})["experiment_id"])
        found = answer.data["experiment"]
        if found.get("lifecycle_stage") == "deleted":
            fix = "Restore it (mlflow experiments restore), or name another one in job.tracking.experiment"
            raise RefusedError(f"job.tracking: the experiment {name} was deleted, and keeps its name", fix)
        return str(found["experiment_id"])

    def create_run(self, experiment_id: str, name: str, tags: t.Mapping[str, str]) -> str:
        """Return the id of a new run."""
        listed = [{"key": key, "value": value} for key, value in tags.items()]
        body = {"experiment_id": experiment_id, "run_name": name, "start_time": _now(), "tags": listed}
        return str(self._post("runs/create", body)["run"]["info"]["run_id"])

    def log(self, run_id: str, metrics: t.Sequence[Metric]) -> None:
        """Log at most 1000 metrics; the same ones again change nothing there."""
        self._post("runs/log-batch", {"run_id": run_id, "metrics": list(metrics)}, idempotent=True)

    def end_run(self, run_id: str, status: str) -> None:
        """Set how a run ended: ``FINISHED``, ``FAILED`` or ``KILLED``."""
        self._post("runs/update", {"run_id": run_id, "status": status, "end_time": _now()}, idempotent=True)

    def _post(self, path: str, body: t.Mapping[str, t.Any], *, idempotent: bool = False) -> dict[str, t.Any]:
        answer = call(
            self._binding, self._keys, json_request("POST", f"{_API}/{path}", body=body, idempotent=idempotent)
        )
        if not isinstance(answer.data, dict):
            raise MusterError(f"MLflow's answer to {path} is none", "Check the endpoint of the binding")
        return answer.data


def _now() -> int:
    return int(time.time() * 1000)
