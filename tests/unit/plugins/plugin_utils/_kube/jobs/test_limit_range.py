# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Small pods of ours in a namespace with a LimitRange."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs import limit_range, network_test_job
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._kube.jobs.plans import plan

Dict = dict[str, t.Any]


def ranges(kind: str = "Container", **rules: Dict) -> tuple[Dict, ...]:
    return ({"spec": {"limits": [{"type": kind, **rules}]}},)


@pytest.mark.parametrize(
    ("given", "requests", "limits"),
    [
        ((), {"cpu": "10m", "memory": "64Mi"}, {"memory": "256Mi"}),
        (ranges(min={"cpu": "100m", "memory": "32Mi"}), {"cpu": "100m", "memory": "64Mi"}, {"memory": "256Mi"}),
        (ranges("Pod", min={"memory": "1Gi"}), {"cpu": "10m", "memory": "1Gi"}, {"memory": "1Gi"}),
        (ranges(max={"memory": "128Mi"}), {"cpu": "10m", "memory": "64Mi"}, {"memory": "128Mi"}),
        (ranges(maxLimitRequestRatio={"memory": "2"}), {"cpu": "10m", "memory": "64Mi"}, {"memory": "64Mi"}),
        (ranges("PersistentVolumeClaim", min={"memory": "1Gi"}), {"cpu": "10m", "memory": "64Mi"}, {"memory": "256Mi"}),
    ],
    ids=["none", "a minimum", "a minimum of pods", "a maximum", "a ratio", "of claims"],
)
def test_amounts_keep_to_the_ranges(given: tuple[Dict, ...], requests: Dict, limits: Dict) -> None:
    assert limit_range.apply_limits(limit_range.SMALL_POD, given) == {"requests": requests, "limits": limits}


def test_a_probe_keeps_to_them() -> None:
    """It would be forbidden, and the job, which asks for enough, with it."""
    built = network_test_job.build(plan({"ranges": ranges(min={"cpu": "250m"})}))
    (container,) = built[-1]["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["requests"]["cpu"] == "250m"
