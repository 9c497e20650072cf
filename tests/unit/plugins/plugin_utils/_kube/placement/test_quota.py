# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the quotas of a queue and a namespace have left for a gang, and what they lack."""

from __future__ import annotations

import typing as t
from decimal import Decimal

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._kube.placement import quota

Dict = dict[str, t.Any]


def cluster_queue(flavors: t.Sequence[Dict], reserved: t.Sequence[Dict] | None = (), **spec: t.Any) -> Dict:
    """Return a ClusterQueue of one group. ``flavors``: {name: {resource: nominal}}, ``reserved`` the same in use."""
    covered = sorted({name for flavor in flavors for name in flavor["has"]})
    group = {
        "coveredResources": covered,
        "flavors": [
            {
                "name": flavor["name"],
                "resources": [
                    {"name": name, "nominalQuota": value, **flavor.get("more", {})}
                    for name, value in flavor["has"].items()
                ],
            }
            for flavor in flavors
        ],
    }
    status: Dict = {"pendingWorkloads": 0}
    if reserved is not None:
        status["flavorsReservation"] = [
            {"name": row["name"], "resources": [{"name": n, "total": v} for n, v in row["has"].items()]}
            for row in reserved
        ]
    return {"metadata": {"name": "vision"}, "spec": {"resourceGroups": [group], **spec}, "status": status}


PLAIN = [{"name": "muster", "has": {"cpu": "8", "memory": "16Gi"}}]


@pytest.mark.parametrize(
    ("queue", "asked", "text", "never"),
    [
        (cluster_queue(PLAIN), {"cpu": "8"}, "", False),
        (
            cluster_queue(PLAIN),
            {"cpu": "10", "memory": "1Gi"},
            "10 CPU asked, ClusterQueue vision has 8 (0 in use, 8 left)",
            True,
        ),
        (
            cluster_queue(PLAIN, [{"name": "muster", "has": {"cpu": "6500m", "memory": "1Gi"}}]),
            {"cpu": "2", "memory": "2Gi"},
            "2 CPU asked, ClusterQueue vision has 8 (6.5 in use, 1.5 left)",
            False,
        ),
        (
            cluster_queue(PLAIN, [{"name": "muster", "has": {"memory": "15Gi"}}]),
            {"memory": "2Gi"},
            "2 GiB memory asked, ClusterQueue vision has 16 GiB (15 GiB in use, 1 GiB left)",
            False,
        ),
        (cluster_queue(PLAIN), {"nvidia.com/gpu": "1"}, "ClusterQueue vision has no quota for nvidia.com/gpu", True),
        # In a cohort more than its own may be borrowed, unless its limit is nothing.
        (
            cluster_queue(PLAIN, cohortName="all"),
            {"cpu": "10"},
            "10 CPU asked, ClusterQueue vision has 8 (0 in use, 8 left)",
            False,
        ),
        (
            cluster_queue([{**PLAIN[0], "more": {"borrowingLimit": "0"}}], cohortName="all"),
            {"cpu": "10"},
            "10 CPU asked, ClusterQueue vision has 8 (0 in use, 8 left)",
            True,
        ),
        # A gang goes to one flavor: two halves are no whole.
        (
            cluster_queue([{"name": "a", "has": {"cpu": "4"}}, {"name": "b", "has": {"cpu": "6"}}]),
            {"cpu": "8"},
            "8 CPU asked, ClusterQueue vision has 6 (0 in use, 6 left)",
            True,
        ),
        (
            cluster_queue(PLAIN, None),
            {"cpu": "10"},
            "10 CPU asked, ClusterQueue vision has 8 (how much of it is in use is not known)",
            True,
        ),
        (cluster_queue(PLAIN, None), {"cpu": "8"}, "", False),
        (
            cluster_queue([{"name": "muster", "has": {"pods": "1", "cpu": "8"}}]),
            {"cpu": "1"},
            "2 pods asked, ClusterQueue vision has 1 (0 in use, 1 left)",
            True,
        ),
    ],
)
def test_a_queue_has_room_or_lacks_it(queue: Dict, asked: Dict, text: str, never: bool) -> None:
    amounts = quota.sum_requests(1, asked)
    found = quota.find_shortage(quota.parse_cluster_queue(queue), amounts, 2)
    assert (found.text if found else "", bool(found and found.never)) == (text, never)


def test_a_full_flavor_leaves_the_other_one() -> None:
    flavors = [{"name": "a", "has": {"cpu": "8"}}, {"name": "b", "has": {"cpu": "6"}}]
    queue = cluster_queue(flavors, [{"name": "a", "has": {"cpu": "8"}}])
    assert quota.find_shortage(quota.parse_cluster_queue(queue), {"cpu": Decimal(6)}, 2) is None
    over = quota.find_shortage(quota.parse_cluster_queue(queue), {"cpu": Decimal(7)}, 2)
    assert over is not None and not over.never, "the larger flavor takes it once it is empty"


def resource_quota(hard: Dict, used: Dict | None = None, **spec: t.Any) -> Dict:
    return {"metadata": {"name": "team"}, "spec": {"hard": hard, **spec}, "status": {"used": used or {}}}


@pytest.mark.parametrize(
    ("item", "text", "never"),
    [
        (resource_quota({"requests.cpu": "4"}, {"requests.cpu": "0"}), "", False),
        (
            resource_quota({"cpu": "4"}, {"cpu": "1"}),
            "4 CPU asked, ResourceQuota team has 4 (1 in use, 3 left)",
            False,
        ),
        (
            resource_quota({"requests.nvidia.com/gpu": "1"}, {"requests.nvidia.com/gpu": "0"}),
            "2 nvidia.com/gpu asked, ResourceQuota team has 1 (0 in use, 1 left)",
            True,
        ),
        (
            resource_quota({"pods": "1"}),
            "2 pods asked, ResourceQuota team has 1 (how much of it is in use is not known)",
            True,
        ),
        # Others do not count the pods of a gang.
        (resource_quota({"requests.storage": "1", "count/secrets": "0", "limits.cpu": "1"}), "", False),
        (resource_quota({"pods": "1"}, scopes=["Terminating"]), "", False),
        (resource_quota({"pods": "1"}, scopeSelector={"matchExpressions": []}), "", False),
    ],
)
def test_a_namespace_has_room_or_lacks_it(item: Dict, text: str, never: bool) -> None:
    known = quota.parse_resource_quota(item)
    asked = quota.sum_requests(2, {"cpu": "2", "nvidia.com/gpu": "1"})
    found = quota.find_shortage(known, asked, 2) if known else None
    assert (found.text if found else "", bool(found and found.never)) == (text, never)


def test_what_a_limit_range_adds_counts() -> None:
    rules = {"limits": [{"type": "Container", "defaultRequest": {"cpu": "100m"}}, {"type": "Pod"}]}
    ranges = [{"spec": rules}]
    assert quota.sum_requests(3, {"memory": "1Gi"}, ranges) == {"cpu": Decimal("0.3"), "memory": Decimal(3 * 2**30)}
    assert quota.sum_requests(3, {"cpu": "2"}, ranges) == {"cpu": Decimal(6)}


def test_a_quantity_that_is_none_is_an_error() -> None:
    with pytest.raises(ValueError, match="'many' is not a quantity"):
        quota.parse_resource_quota(resource_quota({"pods": "many"}))
