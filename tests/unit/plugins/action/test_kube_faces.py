# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documentation of the kube modules says what their actions take; credentials and values are marked."""

from __future__ import annotations

import importlib

import pytest

from ansible_collections.muster.training.tests.unit.plugins.action.test_rent_faces import PACKAGE, compare, documented

NAMES = ("kube_apply", "kube_wait", "kube_info", "kube_node", "kube_secret")


@pytest.mark.parametrize("name", NAMES)
def test_documentation_and_action_agree(name: str) -> None:
    action = importlib.import_module(f"{PACKAGE}.action.{name}").ActionModule
    assert compare(documented(name), action.OPTIONS) == []


@pytest.mark.parametrize("name", NAMES)
def test_what_is_secret_is_marked(name: str) -> None:
    options = importlib.import_module(f"{PACKAGE}.action.{name}").ActionModule.OPTIONS
    assert options["token"]["no_log"] is True
    for key in ("data", "data_base64"):
        assert key not in options or options[key]["no_log"] is True
