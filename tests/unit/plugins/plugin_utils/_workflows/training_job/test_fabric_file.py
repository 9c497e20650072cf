# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file of verdicts: a damaged one costs a warning, and a run keeps the verdict on its own nodes."""

from __future__ import annotations

import json
import pathlib
import typing as t

from ansible_collections.muster.training.plugins.module_utils._model.network_plan import (
    NetworkPlan,
    plan_hosts_network,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import fabric_file
from ansible_collections.muster.training.tests.unit.plugins.module_utils._model.test_network_plan import pod_job


def test_a_damaged_file_costs_a_warning_and_nothing_else(tmp_path: pathlib.Path) -> None:
    (tmp_path / "fabric.json").write_text('{"islands": {"torn": 1}}')
    planned = plan_hosts_network(pod_job(), ["a", "b"], fabric_file.read_verdicts(tmp_path))
    assert planned.verdict is None and planned.environment == {} and "damaged" in planned.warnings[0]


def test_a_run_keeps_the_verdict_on_its_nodes_once_it_is_known_which_one_it_is(tmp_path: pathlib.Path) -> None:
    first, second = ({"island": name, "nodes": [f"{name}-1", f"{name}-2"]} for name in "ab")
    planned = NetworkPlan(verdicts=t.cast(t.Any, (first, second)))
    fabric_file.write_verdict(tmp_path, planned)
    assert fabric_file.read_verdicts(tmp_path) == []
    fabric_file.write_verdict(tmp_path, planned.on_nodes(["b-2"]))
    assert fabric_file.read_verdicts(tmp_path) == [second]
    (tmp_path / "fabric.json").write_text(json.dumps([first]))
    assert fabric_file.read_verdicts(tmp_path) == [first]
