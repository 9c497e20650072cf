# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a deployed service answers."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.node import Node
from ansible_collections.muster.training.plugins.module_utils._model.service import Service
from ansible_collections.muster.training.plugins.plugin_utils._workflows.services import deploy_address
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome


@pytest.mark.parametrize(
    ("service", "variables", "address"),
    [
        ({}, {}, "n"),
        ({}, {"ansible_host": "10.0.0.1"}, "10.0.0.1"),
        ({}, {"ansible_host": "10.0.0.1", "muster_address": "10.9.0.1"}, "10.9.0.1"),
        ({"address": "fd00::1"}, {"muster_address": "10.9.0.1"}, "[fd00::1]"),
    ],
)
def test_the_address_is_the_one_that_nodes_use(service: t.Any, variables: t.Any, address: str) -> None:
    made = Service("store", "object_store", "deploy", host="n", port=9000, **service)
    assert deploy_address.endpoint_of(made, Node("n"), {"n": variables}) == f"http://{address}:9000"


def test_an_address_of_all_interfaces_is_refused() -> None:
    made = Service("store", "object_store", "deploy", host="n", address="0.0.0.0")
    with pytest.raises(InputError, match="is not an address that others reach"):
        deploy_address.endpoint_of(made, Node("n"), {"n": {}})


def test_its_own_keys_are_in_the_state_home(tmp_path: pathlib.Path) -> None:
    home = StateHome({"path": str(tmp_path)}, "lab")
    assert deploy_address.own_pointer(home, "store").path == str(tmp_path / "lab" / "secrets" / "store.keys")
