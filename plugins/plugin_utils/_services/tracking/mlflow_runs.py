# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs of MLflow by its REST API: one for each of ours, which gets its figures in batches that are safe to
send again.
"""

from __future__ import annotations

import time
import typing as t

from ....module_utils._http.messages import json_request
from ....module_utils._model.binding import Binding
from ....module_utils._model.errors import InputError, MusterError, RefusedError
from ..keyed_call import Keys, call

_API: t.Final = "/api/2.0/mlflow"
# What is said of a run that was deleted.
_DELETED: t.Final = "must be in the 'active' state"
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
        """Log at most 1000 metrics; the same ones again change nothing there.

        :raises RefusedError: the run was deleted there, which keeps it for a time.
        """
        body = {"run_id": run_id, "metrics": list(metrics)}
        request = json_request("POST", f"{_API}/runs/log-batch", body=body, idempotent=True)
        answer = call(self._binding, self._keys, request, allow=(400,))
        if answer.status == 400:
            said = str((answer.data or {}).get("message"))
            if _DELETED in said:
                fix = f"mlflow runs restore --run-id {run_id}"
                raise RefusedError(f"its run {run_id} was deleted there; restore it with {fix}", fix)
            raise MusterError(f"MLflow refuses the figures: {said[:200]}")

    def end_run(self, run_id: str, status: str) -> None:
        """Set how a run ended: ``FINISHED``, ``FAILED`` or ``KILLED``."""
        self._post("runs/update", {"run_id": run_id, "status": status, "end_time": _now()}, idempotent=True)

    def register_model(self, model: str, alias: str, run_id: str, source: str, tags: t.Mapping[str, str]) -> str:
        """Make what ``source`` leads to a version of a registered model, and give it the alias; return its number.

        A version of this run with the same source is used again: an answer may have been lost.
        """
        body = json_request("POST", f"{_API}/registered-models/create", body={"name": model})
        answer = call(self._binding, self._keys, body, allow=(400,))
        if answer.status == 400 and (answer.data or {}).get("error_code") != "RESOURCE_ALREADY_EXISTS":
            raise MusterError(f"MLflow refuses the model {model}: {(answer.data or {}).get('message')}")
        query = [("filter", f"name='{model}' and run_id='{run_id}'")]
        found = call(self._binding, self._keys, json_request("GET", f"{_API}/model-versions/search", query=query)).data
        same = [item for item in (found or {}).get("model_versions") or [] if item.get("source") == source]
        if same:
            version = str(same[0]["version"])
        else:
            listed = [{"key": key, "value": value} for key, value in tags.items()]
            made = {"name": model, "source": source, "run_id": run_id, "tags": listed}
            version = str(self._post("model-versions/create", made)["model_version"]["version"])
        self._post("registered-models/alias", {"name": model, "alias": alias, "version": version}, idempotent=True)
        return version

    def find_model(self, model: str, alias: str, option: str) -> dict[str, t.Any]:
        """Return ``{version, source, tags {key: value}}`` of the version that has an alias.

        :raises InputError: when there is no such model, or no version of it has the alias.
        """
        request = json_request("GET", f"{_API}/registered-models/alias", query=[("name", model), ("alias", alias)])
        answer = call(self._binding, self._keys, request, allow=(400, 404))
        if answer.status != 200:
            what = f"no model {model}" if answer.status == 404 else f"no version of {model} with the alias {alias}"
            raise InputError(option, f"{self._binding.name} has {what}", "Look at the models of the tracker")
        found = answer.data["model_version"]
        tags = {str(item["key"]): str(item["value"]) for item in found.get("tags") or []}
        return {"version": str(found["version"]), "source": str(found.get("source") or ""), "tags": tags}

    def _post(self, path: str, body: t.Mapping[str, t.Any], *, idempotent: bool = False) -> dict[str, t.Any]:
        answer = call(
            self._binding, self._keys, json_request("POST", f"{_API}/{path}", body=body, idempotent=idempotent)
        )
        if not isinstance(answer.data, dict):
            raise MusterError(f"MLflow's answer to {path} is none", "Check the endpoint of the binding")
        return answer.data


def _now() -> int:
    return int(time.time() * 1000)
