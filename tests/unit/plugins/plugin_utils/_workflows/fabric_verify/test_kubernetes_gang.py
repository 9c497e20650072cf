# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The bench as a gang of pods: the builders of jobs make it, it runs on the named nodes, its log holds its result."""

from __future__ import annotations

import importlib.util
import json
import pathlib
import threading
import time
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.plugin_utils._fabric.bench.plan import BenchStage
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs.spec import EligibleNodes, Queue
from ansible_collections.muster.training.plugins.plugin_utils._workflows.fabric_verify import (
    bench_group,
    kubernetes_gang,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.fabric_verify.bench_group import Bench
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import source as code_source
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import follower
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import (
    plan as kubernetes_plan,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes.cluster_facts import (
    ClusterFacts,
)
from ansible_collections.muster.training.tests.support.kube_schemas import problems
from ansible_collections.muster.training.tests.support.run_world import Said
from ansible_collections.muster.training.tests.support.told_cluster import Told

STAGE = BenchStage("island", ((("n1", "n2"),),), 8, (1 << 27, 1 << 30), 0.5, 60.0, {"NCCL_ALGO": "RING"})
GIVEN: dict[str, t.Any] = {
    "name": "char-lm",
    "nodes": 64,
    "image": "registry.example/train:1",
    "script": "train.py",
    "args": ["--steps", "9"],
    "timeout_s": 9,
    "env": {"PYTHONPATH": "/opt/torch", "NCCL_DEBUG": "WARN"},
    "mounts": [{"name": "torch", "path": "/opt/torch", "host_path": "/opt/torch", "read_only": True}],
    "placement": {"backend": "kubernetes", "namespace": "team-a", "island": "old", "network_mode": "host"},
    "secret_refs": [
        {"name": "PULL", "from": "kubernetes", "path": "pull", "as": "registry"},
        {"name": "TOKEN", "from": "env"},
    ],
}


def job(backend: str = "nccl", stage: BenchStage = STAGE) -> dict[str, t.Any]:
    user_job = kubernetes_gang.UserJob.from_dict(GIVEN)
    return kubernetes_gang.build_gang_job(user_job, ("n1", "n2"), stage, Bench(backend, "all_reduce"), {})


def test_the_users_image_and_place_run_the_benchs_own_program() -> None:
    made = job()
    assert (made["image"], made["nodes"], made["script"]) == ("registry.example/train:1", 2, "allreduce_bench.py")
    assert made["args"][-2:] == ["--out", "-"] and "--steps" not in made["args"]
    # The Job's own deadline begins when it is created: a first pod waits for the last one for as long as that may take.
    assert (made["timeout_s"], made["restart"]["wait_s"]) == (60 + 5 + 120, 120)
    # The proof needs NCCL's own lines, whatever the job says.
    assert made["env"]["PYTHONPATH"] == "/opt/torch" and made["env"]["NCCL_DEBUG"] == "INFO"
    assert made["env"]["NCCL_ALGO"] == "RING" and "NCCL_DEBUG_FILE" not in made["env"]
    assert made["placement"] == {
        "backend": "kubernetes",
        "namespace": "team-a",
        "network_mode": "host",
        "engine": "indexed_job",
        # A network that failed must be testable again.
        "allow_slow_network": True,
    }
    # Secrets of the job are no business of a test.
    assert [item["name"] for item in made["secret_refs"]] == ["PULL"]
    assert parse_job(made).gpus_per_node == 8
    # A user's job is not changed.
    assert GIVEN["placement"]["island"] == "old"


def test_an_api_server_takes_the_gang_and_it_runs_on_these_nodes_alone() -> None:
    made = parse_job(job("gloo"))
    source = code_source.read_source(made, bench_group.BENCH, bench_group.BENCH)
    facts = ClusterFacts([], (), None, {}, [])
    known = {"n1": {"GLOO_SOCKET_IFNAME": "eth1"}}
    decision = kubernetes_plan.decide(made, "team-a", facts, environment=known)
    plan = kubernetes_plan.build_plan(decision, source, "lan-0a1b-island-0-0", "fabric", 1)
    (classes,) = plan.pods["node"].network
    assert classes == {"nodes": ["n1"], "variables": {"GLOO_SOCKET_IFNAME": "eth1"}}
    fleet = kubernetes_gang.restrict_to_nodes(plan.fleet, ["n1", "n2"])
    *supporting, main = kubernetes_plan.build_objects(
        t.cast(t.Any, plan).__class__(**{**_fields(plan), "fleet": fleet})
    )
    for item in (*supporting, main):
        assert problems(item) == []
    pod = main["spec"]["template"]["spec"]
    assert main["kind"] == "Job" and main["spec"]["completionMode"] == "Indexed" and main["spec"]["completions"] == 2
    (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1", "n2"]} in term["matchExpressions"]
    (apart,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["topologyKey"] == "kubernetes.io/hostname"
    assert main["spec"]["activeDeadlineSeconds"] == 185 and pod["hostNetwork"] is True


def _fields(value: t.Any) -> dict[str, t.Any]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def test_a_queue_that_chooses_islands_does_not_get_the_test_that_finds_them() -> None:
    given = {**job("gloo"), "placement": {"backend": "kubernetes", "queue": "main", "priority": "high"}}
    given["resources"] = {"cpu": 1, "memory": "1Gi"}
    parsed = parse_job(given)
    for queue, kept in ((Queue("main"), "main"), (Queue("main", topology=True, island_level="x/island"), None)):
        facts = ClusterFacts(nodes=[], queues=("main",), queue=queue, claims=None, policies=[])
        left, without = kubernetes_gang.leave_island_queue(parsed, facts)
        assert (left.placement.queue, without.queue and without.queue.name) == (kept, kept)
        assert (left.placement.priority is None) is (kept is None)


def test_other_expressions_of_the_fleet_stay() -> None:
    ours = {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["H100"]}
    found = kubernetes_gang.restrict_to_nodes(EligibleNodes((ours,), rdma_resource="rdma/ib"), ["n1"])
    assert found.expressions[0] == ours and found.rdma_resource == "rdma/ib" and found.whole_node


def bench_module() -> t.Any:
    """Return the bench's own function for a log."""
    spec = importlib.util.spec_from_file_location("bench_output", bench_group.BENCH / "bench_output.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.pieces


@given(st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126), max_size=40_000), st.integers(0, 3))
def test_a_document_comes_out_of_a_log_as_it_went_in(text: str, noise: int) -> None:
    document = json.dumps({"evidence": text})
    lines = []
    for line in bench_module()(document):
        assert len(line) < 16_384
        # torchrun puts a prefix before each line of a rank, and others write in between.
        lines += [f"[default0]:{line}", *["n2:77:90 [1] NCCL INFO Channel 00/0 : 0[0] -> 1[0] via NET/IB/0"] * noise]
    assert kubernetes_gang.read_documents({"n1": "\n".join(lines), "n2": "no result here\n"}) == [document]


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_document_without_one_of_its_lines_is_none(lost: int) -> None:
    lines = bench_module()(json.dumps({"x": "y" * 20_000}))
    assert len(lines) == 3
    assert kubernetes_gang.read_documents({"n1": "\n".join(lines[:lost] + lines[lost + 1 :])}) == []


def test_the_bench_is_found_where_the_role_has_it() -> None:
    assert (pathlib.Path(bench_group.BENCH) / "allreduce_bench.py").is_file()


RECORDED = pathlib.Path(__file__).parents[5] / "fixtures" / "fabric" / "nccltests-good-h100-8nodes-ib-coreweave.txt"
NCCL_TESTS = Bench("nccl", "all_reduce", "nccl_tests", "/opt/nccl-tests")


def test_nccl_tests_run_as_an_mpijob_on_these_nodes() -> None:
    user_job = kubernetes_gang.UserJob.from_dict(GIVEN)
    made = parse_job(kubernetes_gang.build_gang_job(user_job, ("n1", "n2"), STAGE, NCCL_TESTS, {}))
    assert (made.engine, made.launcher, made.gpus_per_node) == ("mpijob", "mpi", 8)
    source = code_source.read_source(made, bench_group.BENCH, bench_group.BENCH)
    facts, known = ClusterFacts([], (), None, {}, []), {"n1": {"NCCL_IB_HCA": "=mlx5_0"}}
    decision = kubernetes_plan.decide(made, "t", facts, environment=known)
    plan = kubernetes_plan.build_plan(decision, source, "lan-0a1b-island-0-0", "fabric", 1)
    main = kubernetes_plan.build_objects(plan)[-1]
    replicas = main["spec"]["mpiReplicaSpecs"]
    assert main["kind"] == "MPIJob" and replicas["Worker"]["replicas"] == 2
    container = replicas["Worker"]["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "8"
    spec = json.loads(plan.pods["worker"].to_json())
    assert (
        "/opt/nccl-tests/all_reduce_perf" in " ".join(spec["ssh"]["argv"]) and spec["user_env"]["NCCL_DEBUG"] == "INFO"
    )


def mpirun_log(text: str) -> str:
    """Return what mpirun prints of rank 0's output, with lines of NCCL from both ranks between those of the table."""
    lines = []
    for number, line in enumerate(text.splitlines()):
        lines.append(f"[1,0]<stdout>:{line}")
        lines.append(f"[1,{number % 2}]<stdout>:x-worker-{number % 2}:9:9 [0] NCCL INFO Trees [0] 1/-1/-1->0->-1")
    return "\n".join(lines) + "\n"


def rank_events(ranks: int) -> list[dict[str, t.Any]]:
    return [{"kind": "worker_started", "rank": rank, "node": f"n{rank % 2}"} for rank in range(ranks)]


def test_what_mpirun_printed_in_its_pod_is_the_result() -> None:
    logs = {"n1": "muster: an sshd\n", "n2": mpirun_log(RECORDED.read_text())}
    result, problem, _notes = kubernetes_gang.read_gang_result(logs, rank_events(64), NCCL_TESTS, 64, "")
    assert problem == "" and result is not None and result.largest_row is not None
    assert result.largest_row.busbw_gb_s == 386.56 and {item.node for item in result.evidence} == {"n0", "n1"}
    # Ranks that hung after the table did not finish the test.
    result, problem, _notes = kubernetes_gang.read_gang_result(logs, rank_events(64), NCCL_TESTS, 64, "timeout")
    assert result is None and problem == "not all ranks finished the test (timeout)"


def test_a_gang_without_a_table_says_why() -> None:
    missing = {"n1": "[1,0]<stderr>:muster: nccl-tests is not installed: all_reduce_perf\n"}
    result, problem, _notes = kubernetes_gang.read_gang_result(missing, [], NCCL_TESTS, 2, "exit code 127")
    assert result is None and problem.startswith("nccl-tests is not installed: all_reduce_perf. Install nccl-tests")
    assert problem.endswith("(exit code 127)")


def gang(tmp_path: pathlib.Path, told: Told) -> kubernetes_gang._GangFollower:
    given = parse_job({"name": "r", "nodes": 2, "image": "i", "command": ["true"], "launcher": "command",
                       "placement": {"backend": "kubernetes"}})  # fmt: skip
    return kubernetes_gang._GangFollower(given, "r", tmp_path, t.cast(t.Any, told), Said(), lambda _line: None, None)


@pytest.mark.parametrize("late_s", [0.0, 0.4])
def test_a_test_s_time_begins_when_all_its_pods_run(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, late_s: float
) -> None:
    """A pod that starts late takes nothing of it."""
    monkeypatch.setattr(follower, "_IDLE_S", 0.01)
    told = Told()
    given = gang(tmp_path, told)
    given.start_s, given.test_s = 30.0, 0.2
    told.tell_pod("a")
    told.tell_pod("b", "waiting", node="node-2", phase="Pending")
    began = time.monotonic()
    threading.Timer(late_s, lambda: told.tell_pod("b", node="node-2")).start()
    outcome = given.run()
    assert (outcome.outcome, outcome.cause, outcome.detail) == (
        "failed",
        "timeout",
        "the test did not end within 0.2 s",
    )
    assert time.monotonic() - began >= late_s + 0.2


def test_a_gang_that_does_not_start_is_given_up(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "_IDLE_S", 0.01)
    told = Told()
    given = gang(tmp_path, told)
    given.start_s, given.test_s = 0.1, 30.0
    told.tell_pod("a")
    told.tell_pod("b", "waiting", node="node-2", phase="Pending")
    assert given.run().detail == "the test's pods were not all running after 0.1 s"
