# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines that are not the user's own are known by every name and address."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

from ansible_collections.muster.training.plugins.plugin_utils._workflows.services.rented import list_rented
from ansible_collections.muster.training.tests.support.run_world import RunWorld


def test_names_and_addresses_of_rented_machines(tmp_path: pathlib.Path) -> None:
    world = RunWorld(tmp_path)
    request = world.request(None, check=False)
    known: dict[str, t.Any] = {name: dict(request.hostvars[name]) for name in "ab"}
    known["b"] |= {"muster_node": {"name": "b", "ownership": "rented"}, "muster_address": "192.0.2.7"}
    found = list_rented(dataclasses.replace(request, hostvars=known))
    world.close()
    assert found["192.0.2.7"] == found["b"] == "b" and "a" not in found
