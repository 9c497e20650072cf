# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fakes of trackers, from what MLflow 3.17 and the client of Weights & Biases were seen to say; strict on credentials."""

from __future__ import annotations

import base64
import functools
import json
import re
import typing as t
from collections.abc import Mapping

from ansible_collections.muster.training.tests.support.loopback import Api

Handled = tuple[int, t.Any, Mapping[str, str]]
TEXT = {"Content-Type": "text/plain; charset=utf-8"}
TOKEN, API_KEY = "canary-mlflow-token-0001", "canary-wandb-key-0123456789abcdef01234567"


class _Routes(dict[str, t.Any]):
    """All files have one handler."""

    def __init__(self, server: FakeMlflow, routes: t.Mapping[str, t.Any]) -> None:
        super().__init__(routes)
        self._server = server

    def get(self, key: str, default: t.Any = None) -> t.Any:
        if "/mlflow-artifacts/artifacts/" not in key:
            return super().get(key, default)
        return functools.partial(self._server.handle_file, key)


class FakeMlflow(Api):
    """MLflow behind a bearer token or a login (``USER:PASSWORD``), or open to all.

    ``asked`` are the requests that carried a credential.
    """

    def __init__(self, token: str = "", hosts: tuple[str, ...] = ("127.0.0.1",), login: str = "") -> None:
        basic = f"Basic {base64.b64encode(login.encode()).decode()}" if login else ""
        self._wanted, self._hosts = f"Bearer {token}" if token else basic, hosts
        self.asked: list[str] = []
        self.experiments: dict[str, str] = {}
        # By run: its tags, its rows (a set, as MLflow keeps them), and its status.
        self.runs: dict[str, dict[str, t.Any]] = {}
        # By model: its versions, and the number of the one that has an alias.
        self.models: dict[str, list[dict[str, t.Any]]] = {}
        self.aliases: dict[tuple[str, str], str] = {}
        # An answer that is lost: the batch is taken, and the client learns nothing.
        self.lose = 0
        # A status with which all of the API is refused, 0 for none.
        self.refuse = 0
        # The requests for files, and the status with which they are refused, 0 for none.
        self.stored: list[str] = []
        self.stores = 0
        api = "/api/2.0/mlflow"
        routes = {
            "GET /health": self._health,
            f"POST {api}/experiments/search": self._search,
            f"GET {api}/experiments/get-by-name": self._guarded(self._get_experiment),
            f"POST {api}/experiments/create": self._guarded(self._create_experiment),
            f"POST {api}/runs/create": self._guarded(self._create_run),
            f"POST {api}/runs/log-batch": self._guarded(self._log_batch),
            f"POST {api}/runs/update": self._guarded(self._update_run),
            f"POST {api}/registered-models/create": self._guarded(self._create_model),
            f"GET {api}/registered-models/alias": self._guarded(self._get_alias),
            f"POST {api}/registered-models/alias": self._guarded(self._set_alias),
            f"GET {api}/model-versions/search": self._guarded(self._search_versions),
            f"POST {api}/model-versions/create": self._guarded(self._create_version),
        }
        super().__init__(_Routes(self, routes))

    def handle_file(self, key: str, _query: t.Any, headers: Mapping[str, str], _body: bytes) -> Handled:
        """Answer a request for a file."""
        if self._wanted and headers.get("authorization") != self._wanted:
            return 401, b"You are not authenticated", TEXT
        self.stored.append(key)
        return (self.stores, b"Internal Server Error", TEXT) if self.stores else (200, {}, {})

    def _guarded(self, handler: t.Callable[..., Handled]) -> t.Callable[..., Handled]:
        def handle(query: t.Any, headers: Mapping[str, str], body: bytes) -> Handled:
            if self.refuse:
                return self.refuse, {}, {}
            if self._wanted and headers.get("authorization") != self._wanted:
                return 401, b"You are not authenticated", TEXT
            return handler(dict(query), json.loads(body or b"{}"))

        return handle

    def _get_experiment(self, query: dict[str, str], _body: t.Any) -> Handled:
        found = self.experiments.get(query["experiment_name"])
        if found is None:
            return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no such experiment"}, {}
        stage = "deleted" if found.startswith("-") else "active"
        return 200, {"experiment": {"experiment_id": found, "lifecycle_stage": stage}}, {}

    def _create_experiment(self, _query: t.Any, body: t.Any) -> Handled:
        self.experiments[body["name"]] = str(len(self.experiments) + 1)
        return 200, {"experiment_id": self.experiments[body["name"]]}, {}

    def _create_run(self, _query: t.Any, body: t.Any) -> Handled:
        run_id = f"{len(self.runs):032x}"
        tags = {item["key"]: item["value"] for item in body["tags"]}
        self.runs[run_id] = {"name": body["run_name"], "tags": tags, "rows": set(), "status": "RUNNING"}
        return 200, {"run": {"info": {"run_id": run_id}}}, {}

    def _log_batch(self, _query: t.Any, body: t.Any) -> Handled:
        metrics = body["metrics"]
        if len(metrics) > 1000:
            return 400, {"error_code": "INVALID_PARAMETER_VALUE", "message": "at most 1000 metrics"}, {}
        if self.runs[body["run_id"]]["status"] == "DELETED":
            said = f"The run {body['run_id']} must be in the 'active' state. Current state is deleted."
            return 400, {"error_code": "INVALID_PARAMETER_VALUE", "message": said}, {}
        rows = {(item["key"], str(item["value"]), item["timestamp"], item["step"]) for item in metrics}
        self.runs[body["run_id"]]["rows"] |= rows
        if self.lose:
            self.lose -= 1
            return 400, {"error_code": "TEMPORARILY_UNAVAILABLE", "message": "lost"}, {}
        return 200, {}, {}

    def _update_run(self, _query: t.Any, body: t.Any) -> Handled:
        self.runs[body["run_id"]]["status"] = body["status"]
        return 200, {"run_info": {}}, {}

    def _create_model(self, _query: t.Any, body: t.Any) -> Handled:
        if body["name"] in self.models:
            return 400, {"error_code": "RESOURCE_ALREADY_EXISTS", "message": "Registered Model already exists."}, {}
        self.models[body["name"]] = []
        return 200, {"registered_model": {"name": body["name"]}}, {}

    def _create_version(self, _query: t.Any, body: t.Any) -> Handled:
        assert body["run_id"] in self.runs and body["source"]
        versions = self.models[body["name"]]
        versions.append({**body, "version": str(len(versions) + 1), "status": "READY"})
        if self.lose:
            self.lose -= 1
            return 400, {"error_code": "TEMPORARILY_UNAVAILABLE", "message": "lost"}, {}
        return 200, {"model_version": versions[-1]}, {}

    def _search_versions(self, query: dict[str, str], _body: t.Any) -> Handled:
        wanted = re.fullmatch(r"name='([^']+)' and run_id='([0-9a-f]+)'", query["filter"])
        assert wanted
        found = [item for item in self.models.get(wanted[1], []) if item["run_id"] == wanted[2]]
        return 200, {"model_versions": found} if found else {}, {}

    def _set_alias(self, _query: t.Any, body: t.Any) -> Handled:
        self.aliases[body["name"], body["alias"]] = body["version"]
        return 200, {}, {}

    def _get_alias(self, query: dict[str, str], _body: t.Any) -> Handled:
        if query["name"] not in self.models:
            return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "Registered Model not found"}, {}
        number = self.aliases.get((query["name"], query["alias"]))
        if number is None:
            return 400, {"error_code": "INVALID_PARAMETER_VALUE", "message": "Registered model alias not found."}, {}
        return 200, {"model_version": self.models[query["name"]][int(number) - 1]}, {}

    def _refuse_host(self, headers: Mapping[str, str]) -> Handled | None:
        if headers.get("host", "").partition(":")[0] in self._hosts:
            return None
        return 403, b"Invalid Host header - possible DNS rebinding attack detected", TEXT

    def _health(self, _query: t.Any, headers: Mapping[str, str], _body: bytes) -> Handled:
        return self._refuse_host(headers) or (200, b"OK", TEXT)

    def _search(self, _query: t.Any, headers: Mapping[str, str], body: bytes) -> Handled:
        refused = self._refuse_host(headers)
        if refused:
            return refused
        if self._wanted:
            self.asked.append(headers.get("authorization", ""))
            if headers.get("authorization") != self._wanted:
                return 401, b"You are not authenticated", TEXT
        assert json.loads(body) == {"max_results": 1}
        return 200, {"experiments": []}, {}


class _Streams(dict[str, t.Any]):
    """All streams of files have one handler; what the client tells of itself is taken."""

    def __init__(self, server: FakeWandb) -> None:
        super().__init__({"POST /graphql": server.answer_query})
        self._server = server

    def get(self, key: str, default: t.Any = None) -> t.Any:
        if "/sdk/otel/" in key:
            return lambda *_request: (200, {}, {})
        return functools.partial(self._server.take_stream, key) if "/file_stream" in key else super().get(key, default)


class FakeWandb(Api):
    """Weights & Biases as its client 0.31 talks to it: who nobody knows is nobody, with status 200.

    ``runs`` are what was asked for of each run (its project, group and entity), ``rows`` the lines of its history by
    their numbers: a line that comes twice must be the same, and none may be left out.
    """

    def __init__(self, key: str = API_KEY) -> None:
        self._key = key
        self.runs: dict[str, dict[str, t.Any]] = {}
        self.rows: dict[str, dict[int, dict[str, t.Any]]] = {}
        super().__init__(_Streams(self))

    def _knows(self, headers: Mapping[str, str]) -> bool:
        given = base64.b64decode(headers.get("authorization", "").removeprefix("Basic ")).decode()
        return given == f"api:{self._key}"

    def answer_query(self, _query: t.Any, headers: Mapping[str, str], body: bytes) -> Handled:
        """Answer a question in GraphQL; those that are not known have no data."""
        asked = json.loads(body)
        if "createRunFiles" in asked["query"] and self._knows(headers):
            return 200, {"data": {"createRunFiles": {"runID": "b", "uploadHeaders": [], "files": []}}}, {}
        if "upsertBucket" not in asked["query"]:
            viewer = {"id": "1", "entity": "team", "username": "u", "flags": "{}", "teams": {"edges": []}}
            known = viewer if self._knows(headers) else None
            return 200, {"data": {"viewer": known} if "viewer" in asked["query"] else {}}, {}
        if not self._knows(headers):
            return 401, {"errors": [{"message": "user is not logged in"}]}, {}
        given = asked["variables"]
        self.runs.setdefault(given["name"], {}).update({key: value for key, value in given.items() if value})
        project = {"id": "p", "name": given["project"], "entity": {"id": "e", "name": given["entity"]}}
        # Its core ends without a word where one of these is missing.
        empty = dict.fromkeys(("description", "sweepName"), "")
        bucket = {**empty, "id": "b", "name": given["name"], "displayName": given["name"], "project": project}
        bucket |= {"config": "{}"}
        return 200, {"data": {"upsertBucket": {"bucket": {**bucket, "historyLineCount": 0}, "inserted": True}}}, {}

    def take_stream(self, key: str, _query: t.Any, headers: Mapping[str, str], body: bytes) -> Handled:
        """Take lines of a run's history."""
        if not self._knows(headers):
            return 401, {}, {}
        sent = json.loads(body).get("files", {}).get("wandb-history.jsonl", {"offset": 0, "content": []})
        rows = self.rows.setdefault(key.split("/")[-2], {})
        assert sent["offset"] <= len(rows), "lines were left out"
        for number, line in enumerate(sent["content"], sent["offset"]):
            assert rows.setdefault(number, json.loads(line)) == json.loads(line)
        return 200, {}, {}
