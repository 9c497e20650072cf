# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which options of a job each backend supports, and its warnings."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import job_backends
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job

SCRIPT = {"name": "x", "script": "train.py", "code": {"from": "path", "ref": "."}}


KUBE = {"backend": "kubernetes"}


PODS = {**SCRIPT, "image": "registry.example/train:1", "nodes": 2, "placement": KUBE}


CLAIM = {"name": "data", "path": "/data", "pvc": "claim"}


@pytest.mark.parametrize(
    ("changes", "option"),
    [
        ({"placement": {"engine": "jobset"}}, "job.placement.engine"),
        ({"placement": {"cluster": "c"}}, "job.placement.cluster"),
        ({"placement": {"namespace": "n"}}, "job.placement.namespace"),
        ({"placement": {"queue": "q"}}, "job.placement.queue"),
        ({"placement": {"priority": "p"}}, "job.placement.priority"),
        ({"placement": {"network_mode": "pod"}}, "job.placement.network_mode"),
        ({"launcher": "ray"}, "job.launcher"),
        ({"image": "i"}, "job.image"),
        ({"code": {"from": "image", "ref": "/i"}}, "job.code.from"),
        ({"resources": {"cpu": 2}}, "job.resources.cpu"),
        ({"resources": {"shm": "1Gi"}}, "job.resources.shm"),
        ({"resources": {"rdma": True}}, "job.resources.rdma"),
        ({"mounts": [{"name": "m", "path": "/m", "pvc": "c"}]}, "job.mounts.pvc"),
        ({"mounts": [{"name": "m", "path": "/m", "host_path": "/m"}]}, "job.mounts.host_path"),
        ({"elastic": {"min": 1}}, "job.elastic"),
        ({"ttl_after_finished_s": 0}, "job.ttl_after_finished_s"),
    ],
)
def test_what_only_kubernetes_does_is_refused_on_hosts_with_the_way_to_it(
    changes: dict[str, t.Any], option: str
) -> None:
    problem = "is not supported on plain hosts. It needs placement.backend: kubernetes"
    with pytest.raises(InputError, match=problem) as caught:
        parse_job({**SCRIPT, **changes})
    assert caught.value.option == option


BINDINGS = [
    ({"code": {"from": "binding", "ref": "b"}}, "job.code.from"),
]


@pytest.mark.parametrize(("changes", "option"), BINDINGS)
def test_what_hosts_do_not_carry_out_yet_is_refused_by_name(changes: dict[str, t.Any], option: str) -> None:
    with pytest.raises(InputError, match="is not available yet on plain hosts: it comes with") as caught:
        parse_job({**SCRIPT, **changes})
    assert caught.value.option == option


@pytest.mark.parametrize(("changes", "option"), BINDINGS)
def test_what_kubernetes_does_not_carry_out_yet_is_refused_by_name(changes: dict[str, t.Any], option: str) -> None:
    with pytest.raises(InputError, match="is not available yet on Kubernetes: it comes with") as caught:
        parse_job({**PODS, **changes})
    assert caught.value.option == option


@pytest.mark.parametrize(
    ("changes", "option", "problem"),
    [
        ({"image": None}, "job.image", "is required on Kubernetes"),
        ({"placement": {**KUBE, "engine": "jobsets"}}, "job.placement.engine", "Did you mean 'jobset'"),
        ({"placement": {**KUBE, "engine": "mpijob"}}, "job.placement.engine", "does not run the launcher 'torchrun'"),
        ({"launcher": "ray", "placement": {**KUBE, "engine": "jobset"}}, "job.placement.engine", "Use engine: rayjob"),
        ({"placement": {**KUBE, "namespace": "Team"}}, "job.placement.namespace", "must be lower-case"),
        ({"placement": {**KUBE, "queue": "q"}}, "job.resources", "a quota counts the requests of pods"),
        ({"code": {"from": "image", "ref": "src"}}, "job.code.ref", "absolute folder inside the image"),
        (
            {
                "launcher": "mpi",
                "placement": {**KUBE, "engine": "mpijob"},
                "checkpoints": {"binding": "store"},
                "metrics": {"checkpoint_pattern": r"saved (?P<step>\d+)"},
            },
            "job.metrics.checkpoint_pattern",
            "cannot be followed with checkpoints.binding and the engine mpijob",
        ),
        ({"elastic": {"max": 2}}, "job.elastic.min", "is required"),
        ({"elastic": {"min": 1, "max": 3}}, "job.elastic.max", "must be the job's nodes"),
        ({"elastic": {"min": 4}}, "job.elastic.min", "is more than"),
        ({"launcher": "mpi", "elastic": {"min": 1}}, "job.elastic", "is not possible"),
        ({"restart": {"on_lost_node": "shrink"}}, "job.restart.on_lost_node", "shrink needs elastic"),
        ({"secret_refs": [{"name": "T", "from": "kubernetes"}]}, "job.secret_refs.path", "Name the Secret"),
        ({"secret_refs": [{"name": "T", "from": "infisical"}]}, "job.secret_refs.path", "Name its place there"),
        (
            {"secret_refs": [{"name": "T", "from": "kubernetes", "path": "theirs/s"}]},
            "job.secret_refs.path",
            "another namespace",
        ),
        (
            {"secret_refs": [{"name": "T", "from": "external_secrets", "path": "s"}]},
            "job.secret_refs.T.store",
            "is required with from: external_secrets",
        ),
        (
            {"secret_refs": [{"name": "T", "from": "external_secrets", "path": "s", "store": "Cluster/x"}]},
            "job.secret_refs.T.store",
            "'Cluster/x' is not the name of a store",
        ),
        (
            {"secret_refs": [{"name": "T", "from": "external_secrets", "store": "s"}]},
            "job.secret_refs.path",
            "Name its place there",
        ),
        (
            {"secret_refs": [{"name": "T", "from": "external_secrets", "path": "p", "store": "s", "as": "registry"}]},
            "job.secret_refs.T.as",
            "from: kubernetes, path: SECRET",
        ),
        (
            {"secret_refs": [{"name": "T", "from": "external_secrets", "path": "p", "store": "s", "binding": "b"}]},
            "job.secret_refs.T.binding",
            "has no effect with from: external_secrets",
        ),
        (
            {"secret_refs": [{"name": "T", "from": "env", "store": "s"}]},
            "job.secret_refs.T.store",
            "has no effect with from: env",
        ),
        (
            {"secret_refs": [{"name": "T", "from": "env", "binding": "bao"}]},
            "job.secret_refs.T.binding",
            "has no effect with from: env",
        ),
        ({"resources": {"memory": "8Gi", "shm": "9Gi"}}, "job.resources.shm", "must be less than job.resources.memory"),
        ({"mounts": [{"name": "m", "path": "/m"}]}, "job.mounts[0]", "exactly one of binding, pvc and host_path"),
        ({"mounts": [{**CLAIM, "host_path": "/x"}]}, "job.mounts[0]", "exactly one of binding, pvc and host_path"),
        ({"mounts": [{**CLAIM, "path": "data"}]}, "job.mounts[0].path", "absolute path below /"),
        ({"mounts": [{**CLAIM, "path": "/"}]}, "job.mounts[0].path", "absolute path below /"),
        ({"mounts": [{**CLAIM, "path": "/muster/run"}]}, "job.mounts[0].path", "must not be in"),
        ({"mounts": [{**CLAIM, "pvc": None, "host_path": "x"}]}, "job.mounts[0].host_path", "absolute"),
        ({"mounts": [CLAIM, {**CLAIM, "name": "other"}]}, "job.mounts[1]", "the same path /data as job.mounts[0]"),
        ({"mounts": [CLAIM, {**CLAIM, "path": "/b"}]}, "job.mounts[1]", "the same name data as job.mounts[0]"),
        ({"checkpoints": {"path": "here"}}, "job.checkpoints.path", "must be absolute"),
        (
            {"mounts": [{**CLAIM, "read_only": True}], "checkpoints": {"path": "/data/run"}},
            "job.checkpoints.path",
            "is on the mount 'data', which is read_only",
        ),
    ],
)
def test_what_pods_cannot_be_is_refused_at_its_option(changes: dict[str, t.Any], option: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_job({**PODS, **changes})
    assert caught.value.option == option and problem in str(caught.value)


def test_a_user_who_writes_gigabytes_is_told_what_they_are() -> None:
    told = job_backends.backend_warnings(parse_job({**PODS, "resources": {"cpu": 1, "memory": "64G", "shm": "8Gi"}}))
    assert told[0] == "job.resources.memory is 64G, which is 59.60Gi: write Gi where you mean GiB"
    assert not any("shm" in line for line in told)


def test_the_mount_of_the_checkpoints_is_the_one_that_holds_their_path() -> None:
    kept = parse_job({**PODS, "mounts": [CLAIM], "checkpoints": {"path": "/data/run"}})
    assert job_backends.checkpoint_mount(kept) == "data"
    elsewhere = parse_job({**PODS, "mounts": [CLAIM], "checkpoints": {"path": "/database/run"}})
    assert job_backends.checkpoint_mount(elsewhere) is None
    assert job_backends.backend_warnings(parse_job(SCRIPT)) == ()


@pytest.mark.parametrize(
    ("resources", "named"),
    [
        ({}, "job.resources.cpu and job.resources.memory not set"),
        ({"cpu": 8}, "job.resources.memory not set"),
        ({"memory": "64Gi"}, "job.resources.cpu not set"),
    ],
)
def test_a_gpu_job_without_requests_is_told(resources: dict[str, t.Any], named: str) -> None:
    told = job_backends.backend_warnings(parse_job({**PODS, "gpus_per_node": 8, "resources": resources}))
    assert told[0].startswith(f"{named} for a job with GPUs")
    both = {"cpu": 8, "memory": "64Gi"}
    told = job_backends.backend_warnings(parse_job({**PODS, "gpus_per_node": 8, "resources": both}))
    assert not any("not set" in line for line in told)
    assert not any("not set" in line for line in job_backends.backend_warnings(parse_job(PODS)))


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/opt/x/topo.xml", "/a/topo.xml"),
        ("/opt/x/deep/topo.xml", "/b/topo.xml"),
        ("/opt/y/topo.xml", None),
        ("/data/topo.xml", None),
    ],
)
def test_a_file_of_a_node_is_in_a_pod_below_its_mount(path: str, found: str | None) -> None:
    mounts = [
        CLAIM,
        {"name": "a", "path": "/a", "host_path": "/opt/x"},
        {"name": "b", "path": "/b", "host_path": "/opt/x/deep"},
    ]
    assert job_backends.find_in_pod(parse_job({**PODS, "mounts": mounts}), path) == found


@pytest.mark.parametrize(
    ("rule", "option"), [({"release": "always"}, "release"), ({"max_cost_usd": 3}, "max_cost_usd")]
)
def test_rules_need_a_follower(rule: dict[str, t.Any], option: str) -> None:
    with pytest.raises(InputError, match=f"^job.{option}: requires wait: true on Kubernetes"):
        job_backends.require_follower(parse_job({**PODS, **rule}), wait=False)
    job_backends.require_follower(parse_job({**PODS, **rule}), wait=True)
    job_backends.require_follower(parse_job(PODS), wait=False)
