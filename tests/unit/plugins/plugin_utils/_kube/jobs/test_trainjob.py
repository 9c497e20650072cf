# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""TrainJob: its runtime sets what the defaults would lose."""

from __future__ import annotations

import json

from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._kube.jobs.plans import (
    ENGINES,
    RUN_ID,
    build,
)


def test_a_trainjob_leaves_nothing_to_the_defaults_that_lose_it() -> None:
    objects = build(**ENGINES["trainjob"], timeout_s=60)
    runtime, job = objects[-2:]
    assert job["spec"] == {
        "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": RUN_ID},
        "activeDeadlineSeconds": 60,
    }
    assert runtime["spec"]["mlPolicy"] == {"numNodes": 2}
    inside = runtime["spec"]["template"]["spec"]
    # Nobody hears how often the JobSet of a TrainJob started again: one bound for all.
    assert "RestartJobSetAndIgnoreMaxRestarts" not in json.dumps(inside)
    assert inside["failurePolicy"]["maxRestarts"] == 6 and "ttlSecondsAfterFinished" not in json.dumps(runtime)
    group = inside["replicatedJobs"][0]["template"]
    assert group["metadata"]["labels"] == {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
