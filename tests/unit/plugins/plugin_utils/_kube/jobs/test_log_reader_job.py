# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Job that reads logs from the checkpoints."""

from __future__ import annotations

import json

from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs import (
    log_reader_job,
)
from ansible_collections.muster.training.tests.support.kube_schemas import problems
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._kube.jobs.plans import (
    plan,
)


def test_the_reader_mounts_the_checkpoints_and_nothing_else() -> None:
    shared = {"name": "shared", "path": "/ckpt", "pvc": "claim"}
    other = {"name": "other", "path": "/data", "pvc": "claim2"}
    value = plan(mounts=[shared, other], checkpoints={"path": "/ckpt/x"})
    made = log_reader_job.build(value)
    assert made is not None and [problem for item in made for problem in problems(item)] == []
    pod = made[-1]["spec"]["template"]["spec"]
    claims = [item["persistentVolumeClaim"]["claimName"] for item in pod["volumes"] if "persistentVolumeClaim" in item]
    told = json.loads(made[0]["data"]["reader.json"])
    assert claims == ["claim"] and told["mode"] == "kept" and told["keep_logs"].startswith("/ckpt/x/.muster/")
    assert log_reader_job.build(plan()) is None, "what lies in a pod is gone with it"
