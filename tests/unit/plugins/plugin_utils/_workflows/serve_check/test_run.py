# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A folder and a server together, through the module's workflow."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._secrets.secret import Secret
from ansible_collections.muster.training.plugins.plugin_utils._workflows.serve_check.contract import ModelRequest
from ansible_collections.muster.training.plugins.plugin_utils._workflows.serve_check.run import Server, check_model
from ansible_collections.muster.training.plugins.plugin_utils._workflows.serve_check.servable import ServeRules
from ansible_collections.muster.training.tests.fakes.openai import OpenAi

from .model_folders import write_model

KEY = "key-canary-77aa01"
ASKED = ModelRequest("char-lm", "The licenses")


def test_a_model_and_its_server(tmp_path: pathlib.Path) -> None:
    with OpenAi() as server:
        found = check_model(write_model(tmp_path / "model"), ServeRules(), Server(f"{server.url}/v1", ASKED))
    assert found["ok"] and found["exit_code"] == 0 and len(found["table"]) == len(found["checks"]) == 20
    assert found["table"][0] == "whole: ok" and not found["changed"]


def test_what_fails_is_in_the_table(tmp_path: pathlib.Path) -> None:
    place = write_model(tmp_path / "model")
    (place / "config.json").unlink()
    found = check_model(place, ServeRules(), None)
    assert not found["ok"] and found["failures"] == ["config"]
    assert "config: config.json is missing. Save the model with save_pretrained, which writes it" in found["table"]


def test_a_key_goes_to_the_server_and_nowhere_else() -> None:
    with OpenAi(key=KEY) as server:
        found = check_model(None, ServeRules(), Server(server.url, ASKED, Secret(KEY, "api_key", token=True)))
        without = check_model(None, ServeRules(), Server(server.url, ASKED))
    assert found["ok"] and KEY not in repr(found)
    assert not without["ok"] and "answered 401" in " ".join(without["table"])


def test_bad_input() -> None:
    with pytest.raises(InputError, match="path: is missing. Name the folder of the model"):
        check_model(None, ServeRules(), None)
    with pytest.raises(InputError, match="model: is missing. Name the model as the server calls it"):
        check_model(None, ServeRules(), Server("http://127.0.0.1:1", ModelRequest("", "x")))
    with pytest.raises(InputError, match="url: must use https"):
        server = Server("http://192.0.2.1:8000", ASKED, Secret(KEY, "api_key", token=True))
        check_model(None, ServeRules(), server)
    with pytest.raises(InputError, match="url: must start with https"):
        check_model(None, ServeRules(), Server("192.0.2.1:8000", ASKED))
