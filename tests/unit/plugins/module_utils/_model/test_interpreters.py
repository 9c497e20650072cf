# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The interpreter of jobs is the one that bootstrap makes, where the inventory names none."""

from __future__ import annotations

import pathlib

import pytest
import yaml

from ansible_collections.muster.training.plugins.module_utils._model.interpreters import (
    DEFAULT_ENV,
    default_interpreter,
)

ROOT = pathlib.Path(__file__).parents[5]


def test_what_a_host_names_counts_first() -> None:
    assert default_interpreter({"muster_training_python": "/v/python", "muster_training_env": "/e"}) == "/v/python"
    assert default_interpreter({"muster_training_env": "/e"}) == "/e/bin/python:python3"
    assert default_interpreter({"muster_training_python": ""}) == "~/.local/share/muster/env/bin/python:python3"


@pytest.mark.parametrize(("role", "option"), [("preflight", "preflight_python"), ("training_env", "training_env_path")])
def test_the_roles_name_the_same_folder(role: str, option: str) -> None:
    values = yaml.safe_load((ROOT / "roles" / role / "defaults" / "main.yml").read_text())
    assert DEFAULT_ENV in values[option]
