# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What pods get of object stores: one packed file of signed addresses in the run's Secret, credentials only to stream."""

from __future__ import annotations

import dataclasses
import gzip
import json
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding, Reachability
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.job import Job, parse_job
from ansible_collections.muster.training.plugins.module_utils._model.pod_spec import PROGRAM_FILES, PodSpec
from ansible_collections.muster.training.plugins.module_utils._node import host_agent
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs import mpijob, pod_template, rayjob
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs.spec import KubePlan
from ansible_collections.muster.training.plugins.plugin_utils._launch import registry
from ansible_collections.muster.training.plugins.plugin_utils._launch.base import RunContext
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import bindings
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.object_stores import (
    dataset_binding,
    pod_store,
)
from ansible_collections.muster.training.tests.fakes import object_store, s3_signer
from ansible_collections.muster.training.tests.support.run_world import Said

SECRET = "SKcanary-secret-0123"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> t.Iterator[object_store.ObjectStore]:
    s3_signer.use(monkeypatch)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKcanary-access-1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with object_store.running() as found:
        yield found


@pytest.fixture
def home(tmp_path: pathlib.Path, server: object_store.ObjectStore) -> StateHome:
    found = StateHome({"path": str(tmp_path)}, "c")
    resources = [{"purpose": name, "ref": "bucket"} for name in ("checkpoints", "datasets")]
    rows = [{"node": "n1", "vantage": "pod", "ok": True}, {"node": "n2", "vantage": "host", "ok": True}]
    bindings.write_binding(found, Binding.from_dict(
        {"name": "store", "component": "object_store", "mode": "bind", "endpoint": server.url,
         "resources": resources, "reachable_from": rows}))  # fmt: skip
    return found


def job(**values: t.Any) -> Job:
    about = {"name": "j", "nodes": 2, "launcher": "command", "command": ["true"], "image": "i"}
    return parse_job({**about, "placement": {"backend": "kubernetes"}, **values})


class Visits:
    """Short pods that answer in this process."""

    def ask(self, requests: t.Mapping[str, t.Any]) -> t.Any:
        return {name: host_agent.answer_request({"node": name, "state_root": None, **item})
                for name, item in requests.items()}, {}  # fmt: skip


def plan_of(wanted: Job) -> KubePlan:
    spec = PodSpec(run_id="r", attempt=1, nodes=2, port=1, argv=(), env={}, workdir="/", checkpoint_dir="/c")
    return KubePlan(wanted, "r", "c", "team", {"node": spec}, {})


def test_addresses_are_packed_and_the_pod_finds_them(home: StateHome, server: object_store.ObjectStore) -> None:
    server.listed = None
    server.objects |= {"text/a": b"aaa"}
    datasets = [{"name": "text", "binding": "store", "prefix": "text"}]
    wanted = job(checkpoints={"binding": "store"}, datasets=datasets)
    store = pod_store.open_store(home, wanted, ["n1"], "r")
    assert store is not None
    visits: t.Any = Visits()
    values = store.values(visits, Said())
    assert list(values) == [pod_store.FILE] and SECRET.encode() not in gzip.decompress(values[pod_store.FILE])
    given = json.loads(gzip.decompress(values[pod_store.FILE]))
    assert sorted(given["checkpoints"]["ranks"]) == ["0", "1"]
    assert [row[:2] for row in given["datasets"][0]["objects"]] == [["a", 3]]
    plan = store.complete(plan_of(wanted))
    assert plan.secret == "r-secrets" and plan.pods["node"].store == f"/muster/secrets/{pod_store.FILE}"
    assert pod_template.build_secret_sources(plan)[-1] == {
        "secret": {"name": "r-secrets", "items": [{"key": pod_store.FILE, "path": pod_store.FILE}]}
    }


def test_streams_get_credentials_through_the_secret_alone(home: StateHome) -> None:
    wanted = job(datasets=[{"name": "video", "binding": "store", "prefix": "video", "mode": "stream"}])
    store = pod_store.open_store(home, wanted, ["n1"], "r")
    assert store is not None
    visits: t.Any = Visits()
    assert store.values(visits, Said())["AWS_SECRET_ACCESS_KEY"] == SECRET.encode()
    spec = store.complete(plan_of(wanted)).pods["node"]
    assert spec.env["MUSTER_DATASET_VIDEO"] == "s3://bucket/video" and spec.store is None
    assert SECRET not in spec.to_json() and {item["name"] for item in spec.secrets} == {
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
    }


def test_a_node_whose_pods_do_not_reach_it_is_refused_with_the_matrix(home: StateHome) -> None:
    with pytest.raises(RefusedError, match=r"n2 \(pod\): not checked; n1 \(pod\): ok"):
        pod_store.open_store(home, job(checkpoints={"binding": "store"}), ["n1", "n2"], "r")
    assert pod_store.open_store(home, job(), ["n1", "n2"], "r") is None
    assert Reachability("n", "pod", True).describe() == "n (pod): ok"


def test_more_than_a_secret_holds_is_refused(home: StateHome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_store, "_LARGEST", 100)
    store = pod_store.open_store(home, job(checkpoints={"binding": "store"}), ["n1"], "r")
    assert store is not None
    visits: t.Any = Visits()
    with pytest.raises(InputError, match="KiB of signed addresses.*put checkpoints on one mount of all pods"):
        store.values(visits, Said())
    mount = {"name": "c", "path": "/c", "pvc": "c"}
    on_a_mount = job(mounts=[mount], checkpoints={"path": "/c/x"})
    assert pod_store.open_store(home, on_a_mount, ["n1"], "r") is None
    streamed = job(datasets=[{"name": "text", "binding": "store", "prefix": "text", "mode": "stream"}])
    store = pod_store.open_store(home, streamed, ["n1"], "r")
    assert store is not None and store.values(visits, Said())


def test_addresses_of_checksums_stay_out_where_a_secret_has_no_room(
    home: StateHome, server: object_store.ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset_binding, "_CHECKED_BYTES", 2)
    server.listed = None
    server.objects |= {"text/a": b"aaa", "text/b": b"b"}
    store = pod_store.open_store(
        home, job(datasets=[{"name": "text", "binding": "store", "prefix": "text"}]), ["n1"], "r"
    )
    assert store is not None
    visits: t.Any = Visits()

    def checks() -> t.Any:
        return json.loads(gzip.decompress(store.values(visits, Said())[pod_store.FILE]))["datasets"][0]["checks"]

    assert [(number, len(urls), "Signature=HEAD" in urls[0]) for number, urls in checks().items()] == [("0", 1, True)]
    monkeypatch.setattr(pod_store, "_LARGEST", len(store.values(visits, Said())[pod_store.FILE]) - 1)
    assert checks() == {}


ENGINES = {"ray": "rayjob", "mpi": "mpijob"}


def engine_job(launcher: str, **values: t.Any) -> Job:
    """Return a job of an engine whose pods an operator makes from more than one template."""
    program: dict[str, t.Any] = {"script": "/p.py", "command": None} if launcher == "ray" else {}
    claim = [{"name": "c", "path": "/c", "pvc": "p"}]
    about = {"launcher": launcher, "mounts": claim, "placement": {"backend": "kubernetes", "engine": ENGINES[launcher]}}
    return job(**{**about, **program, **values})


def ray_groups(plan: KubePlan) -> list[dict[str, t.Any]]:
    """Return the pods of a Ray cluster: the head's and the workers'."""
    built: t.Any = rayjob.build(plan)[-1]
    cluster = built["spec"]["rayClusterSpec"]
    assert SECRET not in json.dumps(built)
    return [group["template"]["spec"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]


def complete_ray(home: StateHome, wanted: Job) -> KubePlan:
    """Return the plan of a Ray job with what its pods find of its stores."""
    store = pod_store.open_store(home, wanted, ["n1"], "r")
    assert store is not None
    plan = plan_of(wanted)
    program = dict.fromkeys(PROGRAM_FILES, "")
    return store.complete(dataclasses.replace(plan, pods={"driver": plan.pods["node"]}, program=program))


@pytest.mark.parametrize("resume", ["never", "required"])
def test_ray_train_looks_for_its_checkpoints_by_itself(resume: str) -> None:
    with pytest.raises(InputError, match=f"{resume} is not possible with checkpoints.binding and the engine") as caught:
        engine_job("ray", checkpoints={"binding": "store", "resume": resume})
    assert caught.value.option == "job.checkpoints.resume" and "another muster_run_id" in str(caught.value.fix)


def test_ray_train_stores_checkpoints_in_the_bucket_by_itself(home: StateHome) -> None:
    """No signed addresses: its storage path is in the bucket, and all its processes have what reaches it."""
    wanted = engine_job("ray", checkpoints={"binding": "store"}, mounts=[])
    store = pod_store.open_store(home, wanted, ["n1"], "r")
    assert store is not None and store.checkpoints is None and not store.needs_file
    pods = registry.pods(wanted, RunContext("r", 29500, 1, None))
    program = dict.fromkeys(PROGRAM_FILES, "")
    plan = store.complete(dataclasses.replace(plan_of(wanted), pods=pods, program=program))
    assert plan.pods["driver"].env["MUSTER_RAY_STORAGE_PATH"] == "s3://bucket/r"
    assert plan.pods["driver"].store is None and plan.secret
    for pod in ray_groups(plan):
        found = {item["name"]: item for item in pod["containers"][0]["env"]}
        assert found["MUSTER_RAY_STORAGE_PATH"]["value"] == "s3://bucket/r" and found["AWS_ENDPOINT_URL"]["value"]
        assert found["AWS_SECRET_ACCESS_KEY"]["valueFrom"]["secretKeyRef"]["name"] == plan.secret
        assert len(found) == len(pod["containers"][0]["env"])
    visits: t.Any = Visits()
    assert set(store.values(visits, Said())) == {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}


def test_ray_train_does_not_learn_of_a_stores_own_ca(home: StateHome) -> None:
    ca = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    bindings.write_binding(home, dataclasses.replace(bindings.load_binding(home, "store", "o"), ca=ca))
    with pytest.raises(InputError, match="store has a CA of its own, which the S3 client of Ray Train"):
        pod_store.open_store(home, engine_job("ray", checkpoints={"binding": "store"}), ["n1"], "r")


def test_ray_train_stores_where_its_data_is_streamed_from(home: StateHome) -> None:
    """One set of variables names one store."""
    other = dataclasses.replace(bindings.load_binding(home, "store", "o"), name="other")
    bindings.write_binding(home, other)
    video = {"name": "video", "prefix": "video", "mode": "stream"}
    with pytest.raises(InputError, match="a job streams from one store, and job.datasets.video is in other") as caught:
        wanted = engine_job("ray", datasets=[{**video, "binding": "other"}], checkpoints={"binding": "store"})
        pod_store.open_store(home, wanted, ["n1"], "r")
    assert caught.value.option == "job.checkpoints.binding"
    same = engine_job("ray", datasets=[{**video, "binding": "store"}], checkpoints={"binding": "store"})
    found = pod_store.open_store(home, same, ["n1"], "r")
    assert found is not None and found.env["MUSTER_DATASET_VIDEO"] == "s3://bucket/video"
    assert found.env["MUSTER_RAY_STORAGE_PATH"] == "s3://bucket/r"


def test_an_mpi_job_stores_checkpoints_when_its_launcher_is_not_started_again(home: StateHome) -> None:
    with pytest.raises(InputError, match="must be 0 with checkpoints.binding and the engine mpijob") as caught:
        engine_job("mpi", checkpoints={"binding": "store"})
    assert caught.value.option == "job.restart.max_crashes" and "restart: {max_crashes: 0}" in str(caught.value.fix)
    wanted = engine_job("mpi", nodes=2, checkpoints={"binding": "store"}, restart={"max_crashes": 0})
    store = pod_store.open_store(home, wanted, ["n1"], "r")
    assert store is not None and store.checkpoints is not None
    # Each worker has places of its own: the folders are in the pods.
    assert set(store.checkpoints.pod_addresses()["ranks"]) == {"0", "1"}
    plan = plan_of(wanted)
    pods = registry.pods(wanted, RunContext("r", 29500, 1, None))
    plan = store.complete(dataclasses.replace(plan, pods=pods, program=dict.fromkeys(PROGRAM_FILES, "")))
    built: t.Any = mpijob.build(plan)[-1]
    assert built["spec"]["runPolicy"]["backoffLimit"] == 0
    assert plan.pods["worker"].store and plan.pods["launcher"].store is None


def test_ray_streams_with_the_credentials_of_the_runs_secret(home: StateHome) -> None:
    """Processes that Ray starts inherit the container's variables, its driver those of the pod's program."""
    video = [{"name": "video", "binding": "store", "prefix": "video", "mode": "stream"}]
    wanted = engine_job("ray", datasets=video, checkpoints={"path": "/c"})
    plan = complete_ray(home, wanted)
    for pod in ray_groups(plan):
        (main,) = pod["containers"]
        found = {item["name"]: item for item in main["env"]}
        assert found["AWS_ENDPOINT_URL"]["value"] and found["MUSTER_DATASET_VIDEO"]["value"] == "s3://bucket/video"
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            assert found[name]["valueFrom"]["secretKeyRef"] == {"name": plan.secret, "key": name}
        assert len(found) == len(main["env"])


def test_workers_of_an_mpi_job_stage_and_its_launcher_does_not(home: StateHome) -> None:
    wanted = engine_job("mpi", datasets=[{"name": "text", "binding": "store"}])
    store = pod_store.open_store(home, wanted, ["n1"], "r")
    assert store is not None
    plan = plan_of(wanted)
    plan = store.complete(dataclasses.replace(plan, pods=dict.fromkeys(("launcher", "worker"), plan.pods["node"])))
    assert plan.pods["launcher"].store is None and plan.pods["worker"].store == f"/muster/secrets/{pod_store.FILE}"


def test_init_containers_of_a_ray_job_have_the_addresses(home: StateHome) -> None:
    wanted = engine_job("ray", datasets=[{"name": "text", "binding": "store"}], checkpoints={"path": "/c"})
    plan = complete_ray(home, wanted)
    for pod in ray_groups(plan):
        (init,) = pod["initContainers"]
        assert "/muster/secrets" in {item["mountPath"] for item in init["volumeMounts"]}
        assert pod_store.FILE in json.dumps(pod["volumes"])
