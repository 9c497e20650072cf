# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A variable that looks like one of the collection and is none: a warning, and an error where money is behind it."""

from __future__ import annotations

import pathlib
import re
import types

import pytest
import yaml
from ansible.errors import AnsibleError

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.plugin_utils._ansible import variable_names

ROOT = pathlib.Path(__file__).resolve().parents[5]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("muster_runid", "muster_run_id"),
        ("muster_drils", "muster_drill"),
        ("muster_prune_kep", "muster_prune_keep"),
        ("rented_nodes_cout", "rented_nodes_count"),
        ("rented_nodes_max_totl_usd_per_hour", "rented_nodes_max_total_usd_per_hour"),
        ("teardown_timout_s", "teardown_timeout_s"),
        ("team_quata", "team_quota"),
        ("muster_run_id", None),
        ("muster_node_table", None),
        ("muster_my_own", None),
        ("runid", None),
    ],
)
def test_a_misspelt_variable_is_named(name: str, meant: str | None) -> None:
    expected = [f"{name} is not a variable of muster.training. Did you mean {meant}?"] if meant else []
    assert variable_names.find_misspelt([name]) == expected


def test_no_variable_of_the_collection_counts_as_misspelt() -> None:
    specs = ROOT.glob("roles/*/meta/argument_specs.yml")
    options = {
        name
        for place in specs
        for spec in yaml.safe_load(place.read_text())["argument_specs"].values()
        for name in spec["options"]
    }
    words = {
        name
        for place in [*ROOT.glob("plugins/**/*.py"), *ROOT.glob("examples/**/*.y*ml")]
        for name in re.findall(r"\b(?:muster|rented_nodes|teardown)_[a-z0-9_]*[a-z0-9]\b", place.read_text())
    }
    # A key of OpenBao's metadata and of a probe's answer, which is no variable.
    assert variable_names.find_misspelt((options | words) - {"muster_run"}) == []


def test_other_prefixes_are_looked_for_on_the_command_line_alone() -> None:
    variable_names.require_known(["team_quata", "muster_my_own"])


def test_an_error_names_all_of_them() -> None:
    with pytest.raises(InputError, match=r"nothing was done.*mean rented_nodes_count\?.*mean teardown_timeout_s\?"):
        variable_names.require_known(["rented_nodes_cout", "teardown_timout_s"])


@pytest.mark.parametrize(
    ("playbook", "variable", "is_refused"),
    [
        ("prune", "muster_prune_kep=100", True),
        ("rent", "rented_nodes_max_totl_usd_per_hour=5", True),
        ("teardown", "muster_hygine=false", True),
        ("reap", "muster_reap_orfans=delete", True),
        ("cluster_absent", "muster_devices_absnt=true", True),
        ("remove_nodes", "muster_remove_nods=a", True),
        ("team", "team_discrad=true", True),
        ("status", "muster_status_limt=1", False),
        ("status", "muster_run=fit", False),
        ("cancel", "muster_run=fit", True),
        ("train", "muster_extnd=1", False),
    ],
)
def test_a_playbook_that_spends_or_deletes_ends_and_others_warn(
    playbook: str, variable: str, is_refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, _sign, value = variable.partition("=")
    warnings: list[str] = []
    monkeypatch.setattr(variable_names, "load_extra_vars", lambda _loader: {name: value})
    monkeypatch.setattr(variable_names.Display(), "warning", warnings.append)
    for place in (f"muster.training.{playbook}", str(ROOT / "playbooks" / f"{playbook}.yml")):
        arguments = types.SimpleNamespace(CLIARGS={"extra_vars": (variable,), "args": (place,)})
        monkeypatch.setattr(variable_names, "context", arguments)
        if is_refused:
            with pytest.raises(AnsibleError, match=rf"nothing was done: {name} is not a variable .* Did you mean "):
                variable_names.check_command_line()
        else:
            variable_names.check_command_line()
            assert warnings.pop().startswith(f"{name} is not a variable of muster.training. Did you mean ")
        assert warnings == []


def test_an_option_is_named_by_its_own_variable_and_not_by_one_that_decides_whether_it_is_set() -> None:
    (play,) = [play for play in yaml.safe_load((ROOT / "playbooks" / "report.yml").read_text()) if "tasks" in play]
    arguments = next(
        task["muster.training.training_report"] for task in play["tasks"] if "muster.training.training_report" in task
    )
    found = variable_names.find_variables(arguments)
    assert (found["run_id"], found["all"], found["path"]) == (
        "muster_run_id",
        "muster_report_all",
        "muster_report_path",
    )
