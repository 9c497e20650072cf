# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook train and the role training_job run one task; each variable has one place and one default."""

from __future__ import annotations

import pathlib
import re
import typing as t

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROOT = pathlib.Path(__file__).resolve().parents[4]
ROLE = ROOT / "roles" / "training_job"
MODULE = "muster.training.training_job"
OMIT = "omitted"
Dict = dict[str, t.Any]

(TASK,) = yaml.safe_load((ROLE / "tasks" / "main.yml").read_text())
OPTIONS: Dict = TASK[MODULE]
SPECS: Dict = yaml.safe_load((ROLE / "meta" / "argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
# What the module gets when no variable is set.
UNSET = {"state": "present", "cluster": "default", "state_home": {}, "template_paths": [], "wait": True}
UNSET |= {"take_over": False, "recreate": False, "extend": False}


def variables_of(option: str) -> list[str]:
    """The variables that the value of an option is taken from, the first that is set wins."""
    return re.findall(r"\b(?:muster|training_job)_\w+", OPTIONS[option])


def trusted(value: t.Any) -> t.Any:
    return trust_as_template(value) if isinstance(value, str) else value


def handed(variables: Dict) -> Dict:
    """What the module gets; what is omitted is left out."""
    known = {name: trusted(value) for name, value in {**variables, "omit": OMIT}.items()}
    templar = Templar(loader=DataLoader(), variables=known)
    values = {key: templar.template(trusted(value)) for key, value in OPTIONS.items()}
    return {key: value for key, value in values.items() if value != OMIT}


def test_the_playbook_runs_the_task_of_the_role() -> None:
    play = yaml.safe_load((ROOT / "playbooks" / "train.yml").read_text())[0]
    template, task = play["tasks"]
    assert template["when"] == "muster_template is defined or muster_launch is defined"
    file = (ROOT / "playbooks" / task["ansible.builtin.import_tasks"]).resolve()
    assert file == ROLE / "tasks" / "main.yml"


def test_the_role_documents_the_variables_of_its_task() -> None:
    assert {variables_of(option)[0] for option in OPTIONS} == set(SPECS)


def test_nothing_is_set() -> None:
    assert handed({}) == UNSET


@pytest.mark.parametrize("option", OPTIONS)
def test_each_variable_is_handed_over(option: str) -> None:
    names = variables_of(option)
    for name in names:
        assert handed({name: f"value of {name}"}) == {**UNSET, option: f"value of {name}"}
    assert handed({name: f"value of {name}" for name in names})[option] == f"value of {names[0]}"


@pytest.mark.parametrize("option", sorted({"job", "run_id", "drill", "kubeconfig", "context", "cluster_id"}))
def test_an_empty_value_is_left_out(option: str) -> None:
    assert option not in handed({variables_of(option)[0]: ""})
