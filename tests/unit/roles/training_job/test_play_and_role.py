# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook train and the role training_job are two ways to one task: both hand the same values to the module."""

from __future__ import annotations

import copy
import dataclasses
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
# The playbook's name says what it does; playbooks/cancel.yml is the other one.
ROLE_ALONE = {"state"}
OMIT = "omitted"
Dict = dict[str, t.Any]


@dataclasses.dataclass(frozen=True)
class Ways:
    """What the playbook's task and the role's task hand to the module, and what the role says of its variables."""

    play: Dict
    role: Dict
    defaults: Dict
    documented: tuple[str, ...]

    def names(self) -> set[str]:
        """All variables that either way looks at."""
        text = str([self.play, self.role, self.defaults])
        return {*re.findall(r"\b(?:muster|training_job)_\w+", text), *self.defaults}


def ways() -> Ways:
    plays = yaml.safe_load((ROOT / "playbooks" / "train.yml").read_text())
    tasks = [task for play in plays for task in play.get("tasks", []) if MODULE in task]
    assert len(tasks) == 1
    (role,) = yaml.safe_load((ROLE / "tasks" / "main.yml").read_text())
    specs = yaml.safe_load((ROLE / "meta" / "argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
    defaults = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text())
    return Ways(tasks[0][MODULE], role[MODULE], defaults, tuple(specs))


def trusted(value: t.Any) -> t.Any:
    return trust_as_template(value) if isinstance(value, str) else value


def handed(task: Dict, variables: Dict) -> Dict:
    """Return what the module gets; what is omitted is left out."""
    known = {name: trusted(value) for name, value in {**variables, "omit": OMIT}.items()}
    templar = Templar(loader=DataLoader(), variables=known)
    found = {key: templar.template(trusted(value)) for key, value in task.items()}
    return {key: value for key, value in found.items() if value != OMIT}


def differences(given: Ways) -> t.Iterator[str]:
    """Yield the cases in which the two ways hand over different values."""
    names = sorted(given.names())
    cases: dict[str, Dict] = {"nothing is set": {}, "all is set": {name: f"value of {name}" for name in names}}
    cases |= {f"{name} is set": {name: f"value of {name}"} for name in names}
    if set(given.defaults) != set(given.documented):
        yield "defaults and argument_specs differ"
    for case, variables in cases.items():
        by_play = handed(given.play, variables)
        by_role = handed(given.role, {**given.defaults, **variables})
        for key in ROLE_ALONE:
            by_role.pop(key, None)
        yield from (f"{key} when {case}" for key in {*by_play, *by_role} if by_play.get(key) != by_role.get(key))


def test_both_hand_the_same_to_the_module() -> None:
    assert list(differences(ways())) == []


def test_what_is_the_roles_alone_is_there() -> None:
    given = ways()
    assert set(given.role) - set(given.play) == ROLE_ALONE and not set(given.play) - set(given.role)


def more(name: str, key: str, value: str) -> Ways:
    given = copy.deepcopy(ways())
    getattr(given, name)[key] = value
    return given


@pytest.mark.parametrize(
    "altered",
    [
        more("play", "new", "{{ training_job_new | default(muster_new | default(omit)) }}"),
        more("role", "new", "{{ training_job_wait }}"),
        more("defaults", "training_job_new", "x"),
        more("play", "wait", "{{ training_job_wait | default(muster_wait | default(true)) }}"),
        more("play", "wait", "{{ training_job_wait | default(false) }}"),
        more("defaults", "training_job_context", "{{ muster_context | default('') }}"),
        more("role", "context", "{{ training_job_kubeconfig or omit }}"),
    ],
    ids=["play", "role", "defaults", "fallback", "value", "another variable", "exchanged"],
)
def test_what_is_added_to_one_alone_is_found(altered: Ways) -> None:
    assert any(differences(altered))
