# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The templates that the collection ships: each makes a job that a backend accepts."""

from __future__ import annotations

import json
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model import validators
from ansible_collections.muster.training.plugins.module_utils._model.checks import satisfies
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.module_utils._model.job_templates import PRESETS, merge
from ansible_collections.muster.training.plugins.module_utils._model.launchers import LAUNCHERS
from ansible_collections.muster.training.tests.support import preset_jobs


@pytest.mark.parametrize("name", PRESETS)
def test_a_template_makes_a_job_that_can_resume(name: str) -> None:
    job = parse_job({"name": "x", "template": name, "script": "/t.py"}, PRESETS)
    assert job.launcher in LAUNCHERS and job.checkpoints.resume == "auto"
    assert job.restart.max_crashes >= 1 and job.restart.max_lost_nodes >= 1
    assert set(PRESETS[name]) <= set(validators.dictionary(PRESETS[name], name))


@pytest.mark.parametrize("name", PRESETS)
def test_what_a_template_requires_is_a_version_rule(name: str) -> None:
    for wanted in PRESETS[name]["requires"].values():
        assert satisfies("99.0", wanted)


def test_a_template_is_not_changed_by_the_jobs_made_from_it() -> None:
    before = str(PRESETS)
    own: dict[str, t.Any] = {"deepspeed_config": {"bf16": {"enabled": False}}}
    job = parse_job({"name": "x", "template": "deepspeed_zero3", "script": "/t.py", **own}, PRESETS)
    assert job.deepspeed_config["bf16"] == {"enabled": False} and job.deepspeed_config["gradient_clipping"] == 1.0
    assert str(PRESETS) == before


def test_every_template_is_run_by_tests() -> None:
    """On hosts and in pods, with its real library: the demo's, and those that these tests train, kill and resume."""
    assert {preset.name for preset in preset_jobs.PRESETS} | {"pytorch_ddp"} == set(PRESETS)
    assert all((preset_jobs.ROOT / "examples" / item.folder / item.script).is_file() for item in preset_jobs.PRESETS)


@pytest.mark.parametrize(("name", "instead"), [("horovod", "pytorch_ddp")])
def test_a_template_that_there_is_no_longer_says_what_to_use(name: str, instead: str) -> None:
    with pytest.raises(InputError, match=f"{name} is no longer a template.*{instead}") as caught:
        parse_job({"name": "x", "template": name, "script": "/t.py"}, PRESETS)
    assert caught.value.option == "job.template" and "\n" not in str(caught.value)
    own = {**PRESETS, name: {"launcher": "mpi"}}
    assert parse_job({"name": "x", "template": name, "script": "/t.py"}, own).launcher == "mpi", "a team's own wins"


MAPPINGS = st.recursive(
    st.integers(), lambda items: st.dictionaries(st.sampled_from("abc"), items), max_leaves=6
).filter(lambda value: isinstance(value, dict))


@given(base=MAPPINGS, own=MAPPINGS)
def test_merging_keeps_all_of_the_own_values_and_changes_neither_side(base: t.Any, own: t.Any) -> None:
    before = json.dumps([base, own])
    merged = merge(base, own)
    assert merge(merged, own) == merged and set(merged) == set(base) | set(own)
    assert all(merged[key] == value for key, value in own.items() if not isinstance(value, dict))
    assert json.dumps([base, own]) == before
