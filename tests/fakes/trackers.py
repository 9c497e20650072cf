# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fakes of trackers, from what MLflow 3.17 and the client of Weights & Biases were seen to say; strict on credentials."""

from __future__ import annotations

import base64
import json
import typing as t
from collections.abc import Mapping

from ansible_collections.muster.training.tests.support.loopback import Api

Handled = tuple[int, t.Any, Mapping[str, str]]
TEXT = {"Content-Type": "text/plain; charset=utf-8"}
TOKEN, API_KEY = "canary-mlflow-token-0001", "canary-wandb-key-0123456789abcdef01234567"


class FakeMlflow(Api):
    """MLflow behind a bearer token, or open to all. ``asked`` are the requests that carried a credential."""

    def __init__(self, token: str = "", hosts: tuple[str, ...] = ("127.0.0.1",)) -> None:
        self._token, self._hosts = token, hosts
        self.asked: list[str] = []
        super().__init__({"GET /health": self._health, "POST /api/2.0/mlflow/experiments/search": self._search})

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
        if self._token:
            self.asked.append(headers.get("authorization", ""))
            if headers.get("authorization") != f"Bearer {self._token}":
                return 401, b"You are not authenticated", TEXT
        assert json.loads(body) == {"max_results": 1}
        return 200, {"experiments": []}, {}


class FakeWandb(Api):
    """The GraphQL of Weights & Biases: who nobody knows is nobody, with status 200."""

    def __init__(self, key: str = API_KEY) -> None:
        self._key = key
        super().__init__({"POST /graphql": self._graphql})

    def _graphql(self, _query: t.Any, headers: Mapping[str, str], body: bytes) -> Handled:
        assert "viewer" in json.loads(body)["query"]
        given = base64.b64decode(headers.get("authorization", "").removeprefix("Basic ")).decode()
        viewer = {"entity": "team", "username": "u"} if given == f"api:{self._key}" else None
        return 200, {"data": {"viewer": viewer}}, {}
