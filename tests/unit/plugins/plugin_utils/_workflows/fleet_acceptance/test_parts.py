# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# ruff: noqa: F401, F811  # fixtures are imported
"""The tests of an acceptance: which part of the user's job each takes, where it runs, and how it is judged."""

from __future__ import annotations

import dataclasses
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.plugin_utils._workflows.fabric_verify import run as fabric_verify
from ansible_collections.muster.training.plugins.plugin_utils._workflows.fleet_acceptance import parts
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import kube_connection
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.request import RunRequest
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import run as training_job
from ansible_collections.muster.training.tests.support.scripted_client import scripted_client
from ansible_collections.muster.training.tests.support.scripted_http import Call, Script
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._workflows.fleet_acceptance.test_run import (
    World,
    on_kubernetes,
    world,
)

Dict = dict[str, t.Any]
count_gpus = parts._count_gpus


def build(world: World, request: RunRequest) -> parts.FleetUnderTest:
    return parts.build_fleet(request, StateHome({"path": str(world.root)}, "lab"), "x")


def jobs(world: World) -> list[Dict]:
    return [item.options["job"] for item in world.trained]


def test_a_fleet_takes_only_what_all_tests_need_from_the_users_job(world: World) -> None:
    secrets = [
        {"name": "pull", "from": "kubernetes", "path": "pull", "as": "registry"},
        {"name": "TOKEN", "from": "env"},
    ]
    found = build(world, on_kubernetes(world, env={"A": "1"}, script="/own.py", args=["x"], secret_refs=secrets))
    assert sorted(found.job) == ["env", "image", "placement", "secret_refs"]
    assert found.job["secret_refs"] == secrets[:1], "the image may need its registry's Secret"
    assert found.job["placement"]["allow_slow_network"] is True
    assert (found.on_kubernetes, found.hosts, found.nodes, found.sizes) == (True, [], 2, [1, 2])


def test_a_fleet_of_fewer_hosts_than_the_play(world: World) -> None:
    found = build(world, world.request(nodes=1))
    assert (found.hosts, found.nodes, found.on_kubernetes) == (["a"], 1, False)


@pytest.mark.parametrize(("counts", "expected"), [((8, 4), 4), ((8, None), 0)])
def test_hosts_have_the_gpus_of_the_smallest(
    world: World, monkeypatch: pytest.MonkeyPatch, counts: tuple[int | None, ...], expected: int
) -> None:
    monkeypatch.setattr(parts, "_count_gpus", count_gpus)

    def node(name: str, count: int | None) -> types.SimpleNamespace:
        facts = {"facts": {"gpu": {"count": count} if count else None}}
        return types.SimpleNamespace(name=name, call=lambda _command, **_values: facts)

    nodes: t.Any = [node(name, count) for name, count in zip("ab", counts, strict=True)]
    request = dataclasses.replace(world.request(), connect=lambda _names: nodes)
    assert build(world, request).job["gpus_per_node"] == expected
    assert build(world, dataclasses.replace(request, check=True)).job["gpus_per_node"] == 0, "check mode asks no host"


def test_a_host_that_does_not_answer_has_no_number_of_gpus(world: World) -> None:
    def fail(_command: str, **_values: t.Any) -> t.NoReturn:
        raise MusterError("b: does not answer", "Check it")

    nodes: t.Any = [types.SimpleNamespace(name="b", call=fail)]
    with pytest.raises(MusterError, match="b: does not answer"):
        count_gpus(dataclasses.replace(world.request(), connect=lambda _names: nodes), ["b"])


def islands(monkeypatch: pytest.MonkeyPatch, **outcomes: str) -> None:
    """Let the fabric be verified with these outcomes; an island has its nodes' letters as its name."""
    found = [{"island": name, "outcome": outcome, "nodes": list(name)} for name, outcome in outcomes.items()]
    result = {"fabric": {"islands": found}, "table": ["header", "line"], "file": "f", "exit_code": 0}
    monkeypatch.setattr(fabric_verify, "run", lambda _request: result)


def test_the_other_tests_run_on_the_largest_island(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    request = world.request()
    names = ["a", "b", "c"]
    variables = {name: {"muster_address": f"10.0.0.{index}"} for index, name in enumerate(names, 1)}
    found = build(world, dataclasses.replace(request, hosts=names, hostvars=variables))
    islands(monkeypatch, a="pass", bc="unproven")
    part = parts.verify_fabric(found)
    assert (part.outcome, part.reasons) == ("unproven", ("line",)), "the worst of both islands counts"
    assert (found.hosts, found.nodes) == (["b", "c"], 2)
    assert world.said.lines == ["  the other tests run on the largest island (2 nodes)"]


def test_islands_of_other_hosts_do_not_count(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    found = build(world, world.request())
    islands(monkeypatch, ab="pass", xyz="fail")
    assert parts.verify_fabric(found).outcome == "pass" and found.hosts == ["a", "b"]


def test_one_node_with_one_rank_has_no_fabric_that_could_fail(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    islands(monkeypatch)
    part = parts.verify_fabric(build(world, world.request()))
    assert (part.outcome, part.summary) == ("pass", "header; line")


def test_a_benchmark_without_a_result_fails_its_size_only(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(request: RunRequest) -> Dict:
        result = world.train(request)
        if request.options["job"]["nodes"] == 2:
            home = StateHome(request.options["state_home"], request.options["cluster"])
            (home.run_folder(request.options["run_id"]) / "metrics.jsonl").write_text('{"at": 1.0}\n')
        return result

    monkeypatch.setattr(training_job, "run", train)
    part = parts.measure_scaling(found := build(world, world.request()))
    assert part.outcome == "fail" and part.reasons[0].startswith("2 nodes: the benchmark did not write a result. See ")
    assert [point.nodes for point in found.points] == [1]


def test_one_node_has_a_figure_and_nothing_to_scale_over(world: World) -> None:
    part = parts.measure_scaling(build(world, world.request(nodes=1)))
    assert (part.outcome, part.reasons) == ("not_applicable", ()) and part.summary.startswith("1 node (")
    assert len(part.values["points"]) == 1


def test_gangs_have_the_size_that_the_queue_is_tested_with(world: World) -> None:
    request = on_kubernetes(world)
    assert parts.check_queue(build(world, request)).outcome == "pass"
    request.options["queue_nodes"] = 3
    parts.check_queue(build(world, request))
    assert [job["nodes"] for job in jobs(world)] == [2, 2, 3, 3]
    assert {job["launcher"] for job in jobs(world)} == {"command"}


def test_user_ids_of_hosts_are_measured_where_scaling_was_not(world: World) -> None:
    found = build(world, world.request())
    assert parts.check_user_rights(found).outcome == "pass" and [job["nodes"] for job in jobs(world)] == [1]
    parts.measure_scaling(found)
    parts.check_user_rights(found)
    assert [job["nodes"] for job in jobs(world)] == [1, 1, 2], "measured ranks are enough"


def test_the_job_that_is_killed_is_the_users_where_one_is_given(world: World) -> None:
    request = world.request(job={"checkpoints": {"path": "/shared/c"}}, kill_at_step=7)
    assert parts.check_resume(build(world, request)).outcome == "pass"
    request.options["resume_job"] = {"script": "/own.py", "name": "own"}
    parts.check_resume(build(world, request))
    own, users = jobs(world)
    assert own["template"] == "pytorch_ddp" and own["checkpoints"]["path"] == "/shared/c" and own["nodes"] == 2
    assert (users["script"], users["name"]) == ("/own.py", "accept-resume") and "template" not in users
    assert [item.options["drill"] for item in world.trained] == [{"target": "agent", "at_step": 7}] * 2


def test_the_rights_of_a_user_are_what_the_server_says() -> None:
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

    def asked(verb: str, group: str, resource: str, allowed: bool) -> Call:
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        attributes = {"verb": verb, "group": group, "resource": resource}
        body = {**review, "spec": {"resourceAttributes": attributes}}
        return Call("POST", path, 201, {**body, "status": {"allowed": allowed}}, body=body)

    calls = [
        asked("*", "*", "*", False),
        asked("list", "", "secrets", True),
        asked("create", "", "namespaces", False),
        asked("patch", "kueue.x-k8s.io", "clusterqueues", True),
    ]
    with Script(*calls) as script:
        excess = parts.find_excess_rights(scripted_client(script))
    assert excess == ["list secrets everywhere", "patch clusterqueues everywhere"]


@pytest.mark.parametrize(("engine", "kept"), [("mpijob", False), ("rayjob", False), ("indexed_job", True)])
def test_an_engine_that_runs_no_torchrun_is_not_taken_over(world: World, engine: str, kept: bool) -> None:
    request = on_kubernetes(world, placement={"engine": engine})
    found = parts.build_fleet(request, StateHome({"path": str(world.root)}, "lab"), "x")
    assert ("engine" in found.job["placement"]) is kept
    parts.measure_scaling(found)
    assert [parse_job(item.options["job"]).launcher for item in world.trained] == ["torchrun"] * 2


def test_pods_that_share_a_node_prove_no_network(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    real = parts.rules.read_point
    monkeypatch.setattr(parts.rules, "read_point", lambda value: dataclasses.replace(real(value), nodes=1))
    found = parts.build_fleet(on_kubernetes(world), StateHome({"path": str(world.root)}, "lab"), "x")
    part = parts.measure_scaling(found)
    assert part.outcome == "unproven" and "2 pods ran on 1 nodes" in part.reasons[0]


def test_the_users_kubeconfig_has_its_own_context(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube_connection, "open_client", lambda *_args: None)
    monkeypatch.setattr(parts, "find_excess_rights", lambda _client: [])
    request = on_kubernetes(world, placement={"cluster": "rented"})
    request.options["user_kubeconfig"] = "user.yml"
    found = parts.build_fleet(request, StateHome({"path": str(world.root)}, "lab"), "x")
    assert parts.check_user_rights(found).outcome == "pass"
    assert "cluster" not in world.trained[-1].options["job"]["placement"]
    parts.measure_scaling(found)
    assert world.trained[-1].options["job"]["placement"]["cluster"] == "rented"


def test_the_gpus_of_a_cluster_are_proven_in_pods(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Dict] = []
    nodes = [{"node": "a", "outcome": "pass"}, {"node": "b", "outcome": "fail"}]

    def verify(options: Dict, *_words: t.Any) -> Dict:
        asked.append(options)
        return {"nodes": nodes, "table": ["a: PASS", "b: FAIL"]}

    monkeypatch.setattr(parts.gpu_verify, "run", verify)
    part = parts.verify_gpus(build(world, on_kubernetes(world, gpus_per_node=8)))
    assert (part.outcome, part.summary, part.reasons) == ("fail", "pods got the devices of 1 of 2 nodes", ("b: FAIL",))
    assert part.values == {"nodes": nodes} and asked[0]["image"] and asked[0]["allow_unproven"] is True
    without = parts.verify_gpus(build(world, on_kubernetes(world)))
    hosts = parts.verify_gpus(build(world, world.request()))
    assert without.outcome == hosts.outcome == "not_applicable" and len(asked) == 1
