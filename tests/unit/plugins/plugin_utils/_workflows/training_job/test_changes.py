# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is said of a job that has changed under its run id."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.job import Job, parse_job, to_yaml_names
from ansible_collections.muster.training.plugins.module_utils._model.run_record import RecordedTemplate, RunRecord
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import run_record
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.changes import (
    describe_changes,
    find_template,
)

ROOT = pathlib.Path(__file__).parents[6]


def made(**values: t.Any) -> Job:
    return parse_job({"name": "x", "nodes": 4, "script": "/t.py", **values})


def recorded(code: str | None = "c1", **values: t.Any) -> RunRecord:
    begun = run_record.new_record("x-1", to_yaml_names(made(**values)), 1000.0, code_sha256=code)
    return RunRecord.from_dict(json.loads(json.dumps(begun.to_dict())))


def test_the_same_job_with_the_same_code_has_no_changes() -> None:
    values = {"args": ["--iters", "100"], "env": {"A": "1"}, "checkpoints": {"interval_steps": 5}}
    assert describe_changes(recorded(**values), made(**values), "c1") == []
    assert describe_changes(recorded(None), made(), "c1") == []


def test_an_option_that_is_newer_than_the_record_differs_only_from_its_default() -> None:
    """A run of the version before is followed by this one: what that did not know has the default's meaning."""
    tracked = {"tracking": {"binding": "m", "log": True}}
    old = recorded(**tracked)
    for section, name in (("checkpoints", "copy_every_s"), ("tracking", "alias")):
        del t.cast("dict[str, t.Any]", old.job[section])[name]
    assert describe_changes(old, made(**tracked), "c1") == []
    found = describe_changes(old, made(**tracked, checkpoints={"copy_every_s": 5}), "c1")
    assert found == ["checkpoints.copy_every_s (30 recorded, 5 requested)"]


def test_a_default_that_has_changed_is_no_change_of_the_job() -> None:
    """A run goes on under a newer version: its job did not say the value that has changed."""
    old = recorded(checkpoints={"format": "files"})
    assert describe_changes(old, made(), "c1") == []
    asked = describe_changes(old, made(checkpoints={"format": "dcp"}), "c1")
    assert asked == ['checkpoints.format ("files" recorded, "dcp" requested)']
    back = describe_changes(recorded(checkpoints={"format": "dcp"}), made(), "c1")
    assert back == ['checkpoints.format ("dcp" recorded, "auto" requested)']


def test_runs_recorded_with_the_defaults_of_the_first_version_are_followed_by_this_one() -> None:
    """What fails here has changed a default, or removed an option, without a word for runs that were begun before."""
    first = json.loads((ROOT / "tests" / "fixtures" / "job-0.1.0.json").read_text())
    old = recorded()
    old = RunRecord.from_dict({**old.to_dict(), "job": first})
    assert describe_changes(old, made(), "c1") == []


@pytest.mark.parametrize("warm", [True, False])
def test_an_option_that_was_removed_is_no_change(warm: bool) -> None:
    old = recorded()
    t.cast("dict[str, t.Any]", old.job["restart"])["warm"] = warm
    assert describe_changes(old, made(), "c1") == []


def test_each_option_is_named_with_both_values_and_variables_without() -> None:
    found = describe_changes(
        recorded(args=["100"], env={"A": "1"}), made(args=["200"], env={"A": "2"}, restart={"wait_s": 9}), "c2"
    )
    assert found == [
        'args (["100"] recorded, ["200"] requested)',
        "env.A",
        "restart.wait_s (600 recorded, 9 requested)",
    ]
    assert describe_changes(recorded(), made(), "c2") == ["the content of job.code"]


def test_a_gang_that_shrinks_by_its_own_rule_is_the_same_job() -> None:
    shrinking = {"restart": {"on_lost_node": "shrink"}}
    assert describe_changes(recorded(**shrinking), made(nodes=3, **shrinking), "c1") == []
    assert describe_changes(recorded(), made(nodes=3), "c1") == ["nodes (4 recorded, 3 requested)"]
    assert describe_changes(recorded(**shrinking), made(nodes=5, **shrinking), "c1") != []


def test_of_long_values_the_difference_is_shown() -> None:
    args = ["--out", "{checkpoint_dir}", "--data", "/mnt/shared/some/where", "--seed", "17", "--iters"]
    (found,) = describe_changes(recorded(args=[*args, "100"]), made(args=[*args, "2000", "--more", "x" * 80]), "c1")
    assert found.startswith('args (…, "17", "--iters", "100"] recorded, …, "17", "--iters", "2000", "--more", "xxxx')
    assert found.endswith("x… requested)")


TEMPLATE = RecordedTemplate("ours", "1.0.0", "d" * 64, {"nodes": 4}, {})


def test_the_template_is_that_of_the_options_or_of_the_same_job_before() -> None:
    asked = {"name": "theirs", "version": "2", "digest": "e" * 64}
    before = dataclasses.replace(recorded(), catalogue_template=TEMPLATE)
    assert find_template(asked, before, made(), "c1") == RecordedTemplate("theirs", "2", "e" * 64)
    assert find_template({}, before, made(), "c1") == find_template(None, before, made(), "c1") == TEMPLATE
    assert find_template(None, before, made(nodes=3), "c1") is None, "another job is not of that template"
    assert find_template(None, recorded(), made(), "c1") is None is find_template(None, None, made(), "c1")
    with pytest.raises(InputError, match="catalogue_template.digest: is required"):
        find_template({"name": "x", "version": "1"}, None, made(), None)


def test_the_template_is_written_and_read_and_is_no_part_of_the_job() -> None:
    before = dataclasses.replace(recorded(), catalogue_template=TEMPLATE)
    assert RunRecord.from_dict(json.loads(json.dumps(before.to_dict()))).catalogue_template == TEMPLATE
    assert describe_changes(before, made(), "c1") == [] and "catalogue_template" not in recorded().to_dict()
