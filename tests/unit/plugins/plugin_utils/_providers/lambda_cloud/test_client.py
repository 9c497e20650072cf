# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The client of Lambda Cloud against scripted answers."""

from __future__ import annotations

import json

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import ApiError
from ansible_collections.muster.training.plugins.plugin_utils._providers.lambda_cloud.client import LambdaClient
from ansible_collections.muster.training.tests.support.listings import CANARY, listing
from ansible_collections.muster.training.tests.support.scripted_http import Call, Script
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._providers.connections import (
    BEARER,
    TOKEN,
    access,
)


def test_lambda_lists_without_notebook_tokens() -> None:
    with Script(Call("GET", "/api/v1/instances", answer=listing("lambda"), query=[], headers=BEARER)) as script:
        found = LambdaClient(access(script)).instances()
    assert [item["status"] for item in found] == ["active", "booting", "unhealthy", "terminated"]
    assert CANARY not in json.dumps(found) and "jupyter_url" not in found[0]
    assert str(script.origins[0]) == "https://cloud.lambda.ai"


def test_lambda_names_its_errors_by_code() -> None:
    body = {"error": {"code": "global/invalid-api-key", "message": "API key was invalid.", "suggestion": "x"}}
    with Script(Call("GET", "/api/v1/instances", status=401, answer=body)) as script, pytest.raises(ApiError) as caught:
        LambdaClient(access(script)).instances("c-1")
    assert "global/invalid-api-key: API key was invalid." in str(caught.value) and TOKEN not in str(caught.value)
