# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a gang may run, and the one line that says why nowhere."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.job import Job
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.kinds import KubeObject
from ansible_collections.muster.training.plugins.plugin_utils._kube.placement import decision
from ansible_collections.muster.training.plugins.plugin_utils._kube.placement.node_fit import NodeFit, judge_nodes
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._kube.jobs.plans import plan
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._kube.placement.nodes import node


def require_room(job: Job, fits: t.Sequence[NodeFit], one_a_node: bool = False) -> None:
    problem = decision.find_shortage(job, fits, one_a_node)
    if problem:
        raise problem


def require_island(job: Job, rooms: t.Mapping[str, int], *, by_queue: bool) -> None:
    problem = decision.find_island_problem(job, rooms, by_queue=by_queue)
    if problem:
        raise problem


def test_a_gang_that_needs_a_node_each_needs_as_many() -> None:
    job = plan(nodes=3).job
    verdicts = judge_nodes(job, [node("a"), node("b"), node("c", ready="False")])
    with pytest.raises(RefusedError, match=r"2 of 3 nodes fit, 3 are needed: a \(fits\); b \(fits\); c \(not ready\)"):
        require_room(job, verdicts, one_a_node=True)
    require_room(job, verdicts)
    many = judge_nodes(job, [node(f"n{index:02}", ready="False") for index in range(20)])
    with pytest.raises(RefusedError, match="; and 8 more"):
        require_room(job, many)
    with pytest.raises(RefusedError, match="no nodes"):
        require_room(job, ())


def test_a_gang_needs_gpus_for_all_its_pods() -> None:
    job = plan(nodes=3, gpus_per_node=6).job
    words = r"2 of 2 nodes fit, with room for 2 of 3 pods: a \(room for 1\); b \(room for 1\)"
    with pytest.raises(RefusedError, match=words):
        require_room(job, judge_nodes(job, [node("a"), node("b")]))
    small = plan(nodes=3, gpus_per_node=4).job
    require_room(small, judge_nodes(small, [node("a"), node("b")]))
    elastic = plan(nodes=3, gpus_per_node=6, elastic={"min": 2, "max": 3}).job
    require_room(elastic, judge_nodes(elastic, [node("a"), node("b")]))


def on_islands(**islands: int) -> list[KubeObject]:
    """Return nodes of these islands: so many of each."""
    return [
        node(f"{name}{number}", labels={"muster.training/island": name})
        for name, count in islands.items()
        for number in range(count)
    ]


@pytest.mark.parametrize(
    ("islands", "by_queue", "rooms", "problem"),
    [
        ({"a": 2}, False, {}, ""),
        ({"a": 2, "b": 1}, False, {"a": 2, "b": 1}, ""),
        ({"a": 2, "b": 3}, False, {"a": 2, "b": 3}, "several islands have room (a, b)"),
        (
            {"a": 1, "b": 1},
            False,
            {"a": 1, "b": 1},
            "no island has room for 2 pods (a has room for 1, b has room for 1)",
        ),
        ({"a": 2, "b": 3}, True, {"a": 2, "b": 3}, ""),
        ({"a": 1, "b": 1}, True, {"a": 1, "b": 1}, "no island has room for 2 pods"),
    ],
)
def test_a_gang_lies_on_one_island(
    islands: dict[str, int], by_queue: bool, rooms: dict[str, int], problem: str
) -> None:
    job = plan(nodes=2, gpus_per_node=8).job
    found = decision.island_capacity(job, judge_nodes(job, on_islands(**islands)), True, by_queue=by_queue)
    assert found == rooms
    if not problem:
        require_island(job, found, by_queue=by_queue)
        return
    with pytest.raises(RefusedError) as caught:
        require_island(job, found, by_queue=by_queue)
    assert problem in caught.value.message
    slow = plan(nodes=2, gpus_per_node=8, placement={"allow_slow_network": True}).job
    assert (
        bool(decision.island_capacity(slow, judge_nodes(slow, on_islands(**islands)), True, by_queue=by_queue))
        is by_queue
    )


@pytest.mark.parametrize("count", [1, 2])
def test_a_queue_of_islands_wants_nodes_that_lie_on_one(count: int) -> None:
    job = plan(nodes=count, gpus_per_node=8).job
    nodes = [node("a"), node("b")]
    for item in nodes:
        del item["metadata"]["labels"]["muster.training/island"]
    rooms = decision.island_capacity(job, judge_nodes(job, nodes), True, by_queue=True)
    with pytest.raises(RefusedError, match=f"room for {count} pods .no node has an island label.") as caught:
        require_island(job, rooms, by_queue=True)
    assert "verify_fabric" in caught.value.fix
    alone = plan(nodes=1, gpus_per_node=8).job
    assert decision.island_capacity(alone, judge_nodes(alone, nodes), True, by_queue=False) == {}


def test_nodes_that_were_never_verified_are_used() -> None:
    """What they are connected to nobody knows: as on hosts, the gang goes on."""
    job = plan(nodes=2, gpus_per_node=8).job
    bare = node("x")
    del bare["metadata"]["labels"]["muster.training/island"]
    nodes = [*on_islands(a=1, b=1), bare]
    assert decision.island_capacity(job, judge_nodes(job, nodes), True, by_queue=False) == {}
    assert decision.island_capacity(job, judge_nodes(job, nodes), True, by_queue=True) == {"a": 1, "b": 1}


def test_a_ray_head_on_the_nodes_own_network_needs_a_node_more() -> None:
    job = plan(launcher="ray", placement={"network_mode": "host"}).job
    with pytest.raises(RefusedError, match="2 workers needs 3 nodes, one for its head, and there are 2"):
        require_room(job, judge_nodes(job, [node("a"), node("b")]), one_a_node=True)
    require_room(job, judge_nodes(job, [node("a"), node("b"), node("c")]), one_a_node=True)
