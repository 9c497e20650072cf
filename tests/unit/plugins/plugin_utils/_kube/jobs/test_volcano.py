# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Volcano Job: the order of its failure policies."""

from __future__ import annotations

from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._kube.jobs.plans import (
    build,
)


def test_a_volcano_jobs_first_fitting_rule_is_the_fatal_one() -> None:
    spec = build(
        placement={"engine": "volcano", "queue": "research"}, restart={"fatal_exit_codes": [3]}, resources={"cpu": 1}
    )[-1]["spec"]
    assert [(rule.get("exitCode"), rule.get("event"), rule["action"]) for rule in spec["policies"]] == [
        (3, None, "AbortJob"),
        (78, None, "AbortJob"),
        (None, "PodEvicted", "RestartJob"),
        (None, "PodFailed", "RestartJob"),
    ]
    assert (
        spec["maxRetry"] == 3 + 3
        and spec["minAvailable"] == 2
        and spec["queue"] == "research"
        and spec["plugins"]["env"] == []
    )
    assert spec["tasks"][0]["template"]["spec"]["schedulerName"] == "volcano"
