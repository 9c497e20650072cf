# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The acceptance runner: which jobs it starts, what it makes of their ends, and what it leaves.

The runners of fabric and training are replaced here; tests/e2e runs the whole for real.
"""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import job_templates
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, MusterError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.module_utils._node import files
from ansible_collections.muster.training.plugins.plugin_utils._workflows.fabric_verify import run as fabric_verify
from ansible_collections.muster.training.plugins.plugin_utils._workflows.fleet_acceptance import parts
from ansible_collections.muster.training.plugins.plugin_utils._workflows.fleet_acceptance import run as subject
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import kube_connection
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import run as training_job
from ansible_collections.muster.training.tests.support.run_world import Said
from ansible_collections.muster.training.tests.unit.plugins.action.test_options_match_docs import compare, documented
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._fabric.bench.test_scaling import document

Dict = dict[str, t.Any]
RECORD: Dict = {
    "schema": 1,
    "state": "ended",
    "outcome": "succeeded",
    "detail": "d",
    "submitted_at": "x",
    "job": {},
    "attempts": [{"n": 1, "started_at": "1", "ended_at": "2"}],
    "world_size": {"asked": 2, "seen": 2},
    "drill": {"resumed": True, "seconds_to_resume": 1.0, "world_size": 2, "steps_lost": 3, "problem": ""},
}


class World:
    """Replaces the runners; ``trained`` are the requests for runs, ``steps`` seconds a step by nodes."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root, self.said = root, Said()
        self.trained: list[training_job.RunRequest] = []
        self.steps = {1: 0.1, 2: 0.11}
        self.outcome = "pass"
        self.end: BaseException | None = None
        self.failed = ""

    def request(self, check: bool = False, **options: t.Any) -> training_job.RunRequest:
        usual = {"tests": list(subject.ORDER), "job": {}, "seconds": 1.0, "bench_args": [], "kill_at_step": 50}
        gates = {"efficiency_pass": 0.85, "efficiency_fail": 0.6, "allow_unproven": False}
        home = {"state_home": {"path": str(self.root)}, "cluster": "lab"}
        hosts = {name: {"muster_address": f"10.0.0.{index}"} for index, name in enumerate("ab", 1)}
        return training_job.RunRequest(
            {**usual, **gates, **home, **options}, ["a", "b"], hosts, self.root, check, lambda names: [], self.said
        )

    def fabric(self, request: training_job.RunRequest) -> Dict:
        entry = {"island": "i", "outcome": self.outcome, "nodes": ["a", "b"]}
        labelled = bool(request.options["job"])
        return {
            "fabric": {"islands": [entry]},
            "changed": labelled,
            "table": [f"island i: {self.outcome}"],
            "file": "f",
        }

    def train(self, request: training_job.RunRequest) -> Dict:
        self.trained.append(request)
        options = request.options
        if options["state"] == "cancelled":
            return {}
        if self.end:
            raise self.end
        job = parse_job(options["job"], job_templates.PRESETS)
        if self.failed and self.failed in str(options["run_id"]):
            return {"failed": True, "msg": "run x failed: why"}
        folder = files.private_dir(StateHome(options["state_home"], options["cluster"]).run_folder(options["run_id"]))
        value = {**RECORD, "run_id": options["run_id"]}
        if options["run_id"].endswith("gang-b"):
            value["attempts"] = [{"n": 1, "started_at": "3", "ended_at": "4"}]
        files.write_json(folder / "run.json", value)
        line = {"at": 1.0, "acceptance": document(job.nodes, self.steps.get(job.nodes, 0.1))}
        (folder / "metrics.jsonl").write_text(json.dumps(line) + "\n")
        return {}


@pytest.fixture
def world(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> World:
    found = World(tmp_path)
    monkeypatch.setattr(fabric_verify, "run", found.fabric)
    monkeypatch.setattr(training_job, "run", found.train)
    monkeypatch.setattr(parts, "_count_gpus", lambda request, names: 0)
    return found


def outcomes(result: Dict, world: World) -> Dict:
    value = json.loads((world.root / "lab" / "accept.json").read_text())
    assert value == result.get("acceptance") or result.get("failed")
    return {part["name"]: part["outcome"] for part in value["parts"]}


def test_a_good_fleet_of_hosts(world: World) -> None:
    result = subject.accept_fleet(world.request())
    assert "failed" not in result and result["exit_code"] == 0 and not result["changed"]
    expected = {"gpus": "not_applicable", "fabric": "pass", "scaling": "pass", "queue": "not_applicable"}
    expected |= {"user": "pass", "resume": "pass"}
    assert outcomes(result, world) == expected
    runs = [(item.options["job"]["nodes"], list(item.hosts)) for item in world.trained]
    assert runs == [(1, ["a", "b"]), (2, ["a", "b"]), (2, ["a", "b"])]
    assert {item.options["cluster"] for item in world.trained} == {"acceptance"}, "the cluster's own runs stay apart"
    assert world.trained[-1].options["drill"] == {"target": "agent", "at_step": 50}
    assert "Accepted" in pathlib.Path(result["html"]).read_text()


def test_a_part_that_fails_does_not_hide_the_others(world: World) -> None:
    world.failed = "n2"
    result = subject.accept_fleet(world.request())
    assert (
        result["failed"] and "scaling fail: a size could not be measured: 2 nodes: run x failed: why" in result["msg"]
    )
    assert outcomes(result, world)["resume"] == "pass"


def test_more_nodes_that_do_less_are_not_accepted(world: World) -> None:
    world.steps = {1: 0.1, 2: 0.3}
    result = subject.accept_fleet(world.request())
    assert result["failed"] and "negative_scaling: 2 nodes do" in result["msg"] and result["exit_code"] == 1


@pytest.mark.parametrize(("allowed", "failed"), [(False, True), (True, False)])
def test_what_is_unproven_is_said_either_way(world: World, allowed: bool, failed: bool) -> None:
    world.outcome = "unproven"
    result = subject.accept_fleet(world.request(allow_unproven=allowed))
    assert bool(result.get("failed")) is failed and result["exit_code"] == 1
    world.outcome = "fail"
    assert subject.accept_fleet(world.request(allow_unproven=True))["failed"], "a failure is never waved through"


def test_loopback_proves_no_network(world: World) -> None:
    request = world.request()
    for index, values in enumerate(t.cast("dict[str, Dict]", request.hostvars).values(), 1):
        values["muster_address"] = f"127.0.0.{index}"
    assert outcomes(subject.accept_fleet(request), world)["scaling"] == "unproven"
    world.failed = "n1"
    assert outcomes(subject.accept_fleet(request), world)["scaling"] == "fail"


KUBE: Dict = {"image": "x", "placement": {"backend": "kubernetes"}, "resources": {"cpu": 1}}


def test_a_cluster(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two gangs go off together; a plain user's kubeconfig is used for one job only after its rights were asked."""
    monkeypatch.setattr(parts, "find_excess_rights", lambda client: [])
    monkeypatch.setattr(kube_connection, "open_client", lambda options, base: None)
    options: Dict = {"nodes": 2, "job": KUBE, "kubeconfig": "admin", "context": "c", "user_kubeconfig": "plain"}
    result = subject.accept_fleet(world.request(**options))
    # Its job asks for no GPUs.
    assert {name for name, outcome in outcomes(result, world).items() if outcome != "pass"} == {"gpus"}, result
    assert result["changed"], "the nodes were labelled"
    by_run = {item.options["run_id"].split("-", 2)[2]: item.options for item in world.trained}
    assert sorted(by_run) == ["gang-a", "gang-b", "n1", "n2", "resume", "user-n1"]
    assert by_run["user-n1"]["kubeconfig"] == "plain" and by_run["user-n1"]["context"] is None
    assert {by_run[name]["kubeconfig"] for name in by_run if name != "user-n1"} == {"admin"}
    monkeypatch.setattr(parts, "find_excess_rights", lambda client: ["list secrets everywhere"])
    result = subject.accept_fleet(world.request(**options))
    assert result["failed"] and "it may list secrets everywhere" in result["msg"]


def test_a_cluster_without_a_users_kubeconfig_is_unproven(world: World) -> None:
    result = subject.accept_fleet(world.request(nodes=2, job=KUBE, tests=["user"]))
    assert outcomes(result, world) == {"user": "unproven"} and "the role team creates one" in result["msg"]


def test_check_mode_starts_and_writes_nothing(world: World) -> None:
    result = subject.accept_fleet(world.request(check=True))
    assert result["sizes"] == [1, 2] and result["tests"] == list(subject.ORDER)
    assert world.trained == [] and list(world.root.iterdir()) == []


def test_a_test_that_cannot_run_is_a_failure_of_its_own(world: World) -> None:
    world.end = MusterError("no way", "Do this")
    result = subject.accept_fleet(world.request(tests=["resume"]))
    assert result["failed"] and "resume fail: the test could not run: no way. Do this" in result["msg"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"job": KUBE}, "nodes: is required on Kubernetes"),
        ({"job": {"placement": 3}}, "job: must be a mapping"),
        ({"tests": []}, "tests: does not name a test"),
    ],
)
def test_wrong_options(world: World, options: Dict, said: str) -> None:
    with pytest.raises(InputError, match=said):
        subject.accept_fleet(world.request(**options))


def test_no_host_at_all(world: World) -> None:
    request = world.request()
    t.cast("list[str]", request.hosts).clear()
    with pytest.raises(RefusedError, match="no hosts to accept"):
        subject.accept_fleet(request)


def test_documentation_and_action_agree() -> None:
    from ansible_collections.muster.training.plugins.action import fleet_acceptance as face

    assert compare(documented("fleet_acceptance"), face.ActionModule.OPTIONS) == []


def on_kubernetes(world: World, **job: t.Any) -> training_job.RunRequest:
    placement = {"backend": "kubernetes", **job.pop("placement", {})}
    return world.request(job={"image": "i", "placement": placement, **job}, nodes=2, tests=["scaling"])


def test_paths_of_the_user_are_looked_for_where_the_user_is(world: World) -> None:
    """A relative kubeconfig, or a relative folder of the job that is killed and resumes."""
    subject.accept_fleet(on_kubernetes(world))
    assert {item.base for item in world.trained} == {world.root}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"job": {"gpu_per_node": 8}}, "job.gpu_per_node: is not an option"),
        ({"job": {"placement": {"backend": "kubernets"}}}, "job.placement.backend"),
        ({"job": {"placement": {"backend": "kubernetes"}}}, "job.image"),
        ({"resume_job": {"script": "/x.py", "argz": []}}, "job.argz: is not an option"),
        ({"nodes": -1}, "nodes: must be at least 1"),
    ],
)
@pytest.mark.parametrize("check", [True, False])
def test_a_job_that_says_something_else_than_was_meant_is_refused(
    world: World, changes: Dict, words: str, check: bool
) -> None:
    with pytest.raises(InputError, match=words):
        subject.accept_fleet(world.request(check, **changes))
    assert not world.trained


@pytest.mark.parametrize(
    "job",
    [
        {"processes_per_node": 2},
        {"gpus_per_node": 8, "processes_per_node": 4},
        {"launcher": "torchrun"},
        {"launcher": "command"},
        {"template": "a-teams-own"},
        {"placement": {"backend": "kubernetes"}, "image": "i", "elastic": {"min": 1}},
    ],
)
def test_a_job_that_says_only_how_large_it_is_is_one(world: World, job: Dict) -> None:
    assert subject.accept_fleet(world.request(True, job=job, nodes=2))["nodes"] == 2
