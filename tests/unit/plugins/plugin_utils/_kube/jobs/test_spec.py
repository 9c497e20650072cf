# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of a run's objects and their owner."""

from __future__ import annotations

import json
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs import spec as jobs_spec
from ansible_collections.muster.training.tests.support.kube_schemas import problems
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._kube.jobs.plans import (
    build,
)


def test_supporting_objects_belong_to_the_live_object() -> None:
    objects = build()
    live = {**objects[-1], "metadata": {**objects[-1]["metadata"], "uid": "u-1"}}
    made = jobs_spec.set_owner(objects[:-1], live)
    assert all(item["metadata"]["ownerReferences"][0]["uid"] == "u-1" for item in made)
    assert all(not problems(item) for item in made) and "ownerReferences" not in json.dumps(objects)


@settings(max_examples=300)
@given(run_id=st.text(min_size=1, max_size=80) | st.from_regex(r"[a-z0-9-]{35,80}", fullmatch=True))
def test_a_runs_name_is_always_one_that_engines_can_append_to(run_id: str) -> None:
    name = jobs_spec.object_name(run_id)
    assert len(name) <= 40 and re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", name)
    assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", jobs_spec.label_value(run_id))


def test_runs_that_differ_have_names_that_differ() -> None:
    ids = ["a" * 48, "a" * 47 + "b", "A", "a", "run-a", "1", "run-1", "x_y", "x-y", "é", "è"]
    assert len({jobs_spec.object_name(item) for item in ids}) == len(ids)
    assert jobs_spec.object_name("char-lm-0a1b2c3d") == "char-lm-0a1b2c3d"
