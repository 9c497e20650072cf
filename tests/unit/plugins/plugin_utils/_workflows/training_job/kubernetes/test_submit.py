# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether an object that exists is the run that was requested."""

from __future__ import annotations

import base64
import dataclasses
import json
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job, to_yaml_names
from ansible_collections.muster.training.plugins.module_utils._model.run_record import BackendRef, RunRecord
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs.spec import DIGEST, RUN_LABEL
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import run_record
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.job_secrets import (
    values as secrets,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import submit
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.source import (
    CodeSource,
    job_digest,
)

JOB = parse_job({"name": "x", "nodes": 2, "script": "/t.py", "env": {"A": "1"}})
SOURCE = CodeSource((), "ab", None)


def live(run_id: str | None = "x-1", digest: str = "") -> dict[str, t.Any]:
    labels = {RUN_LABEL: run_id} if run_id else {}
    return {"kind": "JobSet", "metadata": {"name": "x-1", "labels": labels, "annotations": {DIGEST: digest}}}


def record(**changes: t.Any) -> RunRecord:
    return run_record.new_record("x-1", to_yaml_names(JOB), 1.0, code_sha256="ab", **changes)


def test_the_same_job_with_the_same_code_is_the_run() -> None:
    assert submit.compare_job(live(), "x-1", record(), JOB, SOURCE) is None
    assert submit.compare_job(live(digest=job_digest(JOB, SOURCE)), "x-1", None, JOB, SOURCE) is None


def test_what_differs_is_named_with_both_values_and_variables_without() -> None:
    other = dataclasses.replace(JOB, nodes=3, env={"A": "2"})
    problem = str(submit.compare_job(live(), "x-1", record(), other, SOURCE))
    assert "is already running with another job: env.A, nodes (2 recorded, 3 requested)" in problem
    changed = submit.compare_job(live(), "x-1", record(), JOB, CodeSource((), "cd", None))
    assert "with another job: the content of job.code" in str(changed)


def test_objects_of_others_are_refused() -> None:
    foreign = submit.compare_job(live(run_id=None), "x-1", None, JOB, SOURCE)
    assert "JobSet x-1 already exists and does not belong to run x-1" in str(foreign)
    assert "was started by another controller" in str(
        submit.compare_job(live(digest="other"), "x-1", None, JOB, SOURCE)
    )


def test_a_run_whose_end_was_not_recorded_is_not_started_again() -> None:
    lost = record(backend_ref=BackendRef("jobset.x-k8s.io/v1alpha2", "JobSet", "x-1", "team", "u1"))
    with pytest.raises(RefusedError, match="JobSet x-1 of run x-1 no longer exists, and its result was not recorded"):
        submit.require_recorded_end("x-1", lost, None, False)
    for before, found, recreate in (
        (lost, live(), False),
        (lost, None, True),
        (record(), None, False),
        (None, None, False),
    ):
        submit.require_recorded_end("x-1", before, found, recreate)


def test_the_registries_of_a_run_are_in_one_secret() -> None:
    made = t.cast(t.Any, types.SimpleNamespace(pull_secret="r1-pull", secret=None, namespace="team", labels={}))
    configs = {name: json.dumps({"auths": {name: {"auth": "bm8="}}}).encode() for name in ("a.example", "b.example")}
    (found,) = submit.build_run_secrets(made, secrets.JobSecrets(registries=configs))
    data = t.cast(t.Any, found)["data"][".dockerconfigjson"]
    assert sorted(json.loads(base64.b64decode(data))["auths"]) == ["a.example", "b.example"]
    assert t.cast(t.Any, found)["type"] == "kubernetes.io/dockerconfigjson"
    none = t.cast(t.Any, types.SimpleNamespace(pull_secret=None, secret=None))
    assert submit.build_run_secrets(none, secrets.JobSecrets()) == []
