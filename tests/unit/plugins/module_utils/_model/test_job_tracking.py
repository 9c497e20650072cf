# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job's tracker: by name, or with an experiment; what would say the same in two places is refused."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job, to_yaml_names
from ansible_collections.muster.training.plugins.module_utils._model.job_tracking import Tracking

JOB: dict[str, t.Any] = {"name": "x", "launcher": "command", "command": ["true"]}


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("mlflow", Tracking("mlflow")),
        ({"binding": "mlflow", "experiment": "llm"}, Tracking("mlflow", "llm")),
        ({"binding": "mlflow", "log": True}, Tracking("mlflow", None, log=True)),
        ({"binding": "m", "log": True, "model": "lm"}, Tracking("m", None, log=True, model="lm", alias="trained")),
        (None, None),
    ],
)
def test_the_tracker_of_a_job(value: t.Any, found: Tracking | None) -> None:
    job = parse_job({**JOB, "tracking": value} if value else JOB)
    assert job.tracking == found
    # As it is recorded, it is read again.
    assert parse_job({key: item for key, item in to_yaml_names(job).items() if item is not None}).tracking == found


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tracking": {"experiment": "llm"}}, "job.tracking.binding: is required"),
        ({"tracking": {"bindings": "m"}}, "Did you mean 'binding'"),
        ({"tracking": "Not A Name"}, "job.tracking.binding"),
        ({"tracking": {"binding": "m", "model": "char-lm"}}, "job.tracking.model: needs log: true"),
        ({"tracking": {"binding": "m", "model": "a/b", "log": True}}, "'a/b' cannot be a model's name"),
        ({"tracking": {"binding": "m", "alias": "latest"}}, "job.tracking.alias: 'latest' is MLflow's own"),
        (
            {"tracking": "m", "env": {"MLFLOW_TRACKING_URI": "http://x"}},
            "job.env.MLFLOW_TRACKING_URI: is set by job.track",
        ),
        (
            {"tracking": "m", "secret_refs": [{"name": "WANDB_API_KEY", "from": "env", "key": "K"}]},
            "job.secret_refs.WANDB_API_KEY: is set by job.tracking",
        ),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, t.Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_job({**JOB, **changes})
    assert words in str(caught.value)


def test_without_a_tracker_the_variables_are_the_users() -> None:
    assert parse_job({**JOB, "env": {"MLFLOW_TRACKING_URI": "http://x"}}).tracking is None
