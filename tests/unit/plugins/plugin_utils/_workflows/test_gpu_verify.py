# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A pod on every node with GPUs, and the verdict: what is counted, what is asked, what fails the task."""

from __future__ import annotations

import itertools
import json
import pathlib
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import NodeError, RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._workflows import gpu_verify

GPU = "nvidia.com/gpu"
SEEN = {"devices": "device /dev/nvidia0\ndevice /dev/nvidia1\nmemlock unlimited\nend\n", "bare": "end\n"}
READY = [{"type": "Ready", "status": "True"}]
PLUGIN = {
    "metadata": {"name": "plugin", "uid": "ds"},
    "spec": {
        "template": {
            "spec": {
                "containers": [{"image": "nvcr.io/nvidia/k8s-device-plugin:v0.19.3"}],
                "volumes": [{"hostPath": {"path": "/var/lib/kubelet/device-plugins"}}],
            }
        }
    },
}


def node(name: str, offered: int, capacity: int | None = None, **more: t.Any) -> dict[str, t.Any]:
    has = {GPU: str(offered), **more}
    status = {
        "conditions": READY,
        "allocatable": has,
        "capacity": {GPU: str(offered if capacity is None else capacity)},
    }
    return {"kind": "Node", "metadata": {"name": name, "labels": {}}, "status": status}


def pod(name: str, on: str, gpus: int = 0, phase: str = "Running", **more: t.Any) -> dict[str, t.Any]:
    containers = [{"resources": {"limits": {GPU: str(gpus)} if gpus else {}}}, {}]
    meta = {"name": name, "namespace": "x", **more}
    return {
        "kind": "Pod",
        "metadata": meta,
        "spec": {"nodeName": on, "containers": containers},
        "status": {"phase": phase},
    }


class Stream:
    """A watch with the events of a test."""

    def __init__(self, events: list[t.Any]) -> None:
        self.events = events

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_words: object) -> None:
        pass

    def next(self, _limit_s: float) -> t.Any:
        return types.SimpleNamespace(object=self.events.pop(0)) if self.events else None


class Lab:
    """A cluster whose pods print what a test says; ``asked``: the Jobs that were made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, **kinds: t.Any) -> None:
        self.kinds, self.state = kinds, tmp_path
        self.asked: list[t.Any] = []
        self.said: dict[str, t.Any] = {}
        self.clock = itertools.count()
        self.watched: list[t.Any] = []
        stats = types.SimpleNamespace(up_s=lambda: float(next(self.clock)))
        catalog = types.SimpleNamespace(serves=lambda _version: "DeviceClass" in self.kinds)
        client = types.SimpleNamespace(
            catalog=catalog,
            list=self.list,
            watch=lambda *_words: Stream(self.watched),
            transport=types.SimpleNamespace(stats=stats),
        )
        monkeypatch.setattr(gpu_verify, "open_client", lambda *_words: client)
        monkeypatch.setattr(gpu_verify, "run_jobs", self.run_jobs)
        monkeypatch.setattr(gpu_verify, "read_log", lambda _client, _space, pod, container: pod["said"][container])

    def list(self, kind: str, *_words: t.Any, **_how: t.Any) -> t.Any:
        return types.SimpleNamespace(items=self.kinds.get(kind.rpartition("/")[2], []))

    def run_jobs(
        self, _client: t.Any, _space: str, objects: t.Any, _selector: str, jobs: t.Any, read: t.Any, limit_s: int
    ) -> t.Any:
        assert limit_s == 60
        self.asked = objects
        answers, errors = {}, {}
        for name in jobs:
            said = self.said.get(name, SEEN)
            if isinstance(said, Exception):
                errors[name] = said
            else:
                answers[name] = read(name, said if "status" in said else {"metadata": {"name": "p"}, "said": said})
        return answers, errors

    def run(self, check: bool = False, **options: t.Any) -> dict[str, t.Any]:
        given = {
            "image": "train:1",
            "namespace": "kube-system",
            "timeout_s": 60,
            "allow_unproven": False,
            "cluster": "c",
        }
        given |= {"state_home": {"path": str(self.state)}, **options}
        return gpu_verify.run(given, pathlib.Path(), check, lambda _line: None)


def test_every_node_with_gpus_is_tested_with_those_that_are_free(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    pods = [pod("job", "b", 2), pod("old", "b", 1, "Succeeded"), pod("other", "cpu")]
    lab = Lab(
        monkeypatch, tmp_path, Node=[node("a", 2, None, **{"rdma/roce": "63"}), node("b", 4), node("cpu", 0)], Pod=pods
    )
    lab.said["a"] = {
        **SEEN,
        "devices": "verbs /dev/infiniband/uverbs0\ngid mlx5_0/ports/1 0 fe80::1\n" + SEEN["devices"],
    }
    result = lab.run(records=[{"name": "a", "gpu": {"count": 2}}, {"name": "cpu", "gpu": {"count": 0}}])
    assert "failed" not in result and result["ok"] and [item["outcome"] for item in result["nodes"]] == ["pass", "pass"]
    limits = [item["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] for item in lab.asked]
    assert limits == [{"memory": "512Mi", GPU: "2", "rdma/roce": "1"}, {"memory": "512Mi", GPU: "2"}]
    assert ["hostNetwork" in item["spec"]["template"]["spec"] for item in lab.asked] == [True, False]
    written = json.loads((tmp_path / "c" / "gpus.json").read_text())
    assert written["nodes"] == result["nodes"] and written["schema"] == 1
    assert result["table"] == ["a: PASS · a pod got 2 GPUs and rdma/roce", "b: PASS · a pod got 2 GPUs"]


def test_a_node_with_hcas_and_no_gpu_is_tested_by_its_rdma_resource(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    facts = {"kind": "ib", "entry": {"resourceName": "ib"}, "hcas": ["mlx5_0"]}
    silent = node("c", 0)
    silent["metadata"]["annotations"] = {"muster.training/rdma-facts": json.dumps(facts)}
    lab = Lab(monkeypatch, tmp_path, Node=[node("a", 0, 0, **{"rdma/ib": "63"}), node("cpu", 0), silent])
    lab.said["a"] = {
        "devices": "verbs /dev/infiniband/uverbs0\ngid mlx5_0/ports/1 0 fe80::1\nmemlock unlimited\nsmi_rc 9\nend\n",
        "bare": "end\n",
    }
    result = lab.run()
    assert [(item["node"], item["outcome"]) for item in result["nodes"]] == [("a", "pass"), ("c", "fail")]
    (job,) = lab.asked
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"] == {"memory": "512Mi", "rdma/ib": "1"}
    assert container["securityContext"]["capabilities"]["add"] == ["IPC_LOCK"]
    assert result["table"][0] == "a: PASS · a pod got rdma/ib" and result["failures"] == ["rdma_missing"]
    assert "c: its facts have 1 HCAs for jobs, and it offers no RDMA resource" in result["msg"]
    lab.said["a"] = {**lab.said["a"], "devices": "memlock unlimited\nend\n"}
    assert "a: its pod got rdma/ib and sees no /dev/infiniband/uverbs*" in lab.run(nodes=["a"])["msg"]


def test_each_node_that_fails_is_in_the_message(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    sets = [{**PLUGIN}]
    waiting = {
        "phase": "Pending",
        "containerStatuses": [{"name": "p", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}],
    }
    crashed = {**pod("plugin-b", "b", ownerReferences=[{"uid": "ds"}]), "status": waiting}
    lab = Lab(
        monkeypatch,
        tmp_path,
        Node=[node("a", 2), node("b", 0, 2), node("c", 2), node("d", 2)],
        Pod=[crashed],
        DaemonSet=sets,
    )
    lab.said = {
        "a": {**SEEN, "devices": "end\n"},
        "c": NodeError("c", 'FailedCreatePodSandBox: no runtime for "nvidia" is configured', ""),
        "d": {"metadata": {}, "status": {"reason": "UnexpectedAdmissionError", "message": "Allocate failed due to x"}},
    }
    result = lab.run()
    assert result["failed"] and result["failures"] == ["cdi_off", "plugin_failed", "runtime_missing", "plugin_stale"]
    for words in (
        "a: its pod got 2 GPUs and sees no device",
        "b: offers no",
        "plugin-b does not run",
        "c: its pod did not",
    ):
        assert words in result["msg"]
    assert [item["metadata"]["name"].rpartition("-")[2] for item in lab.asked] == ["0", "1", "2"], "b offers none"


def test_what_could_not_be_tested_fails_unless_it_may_be(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    lab = Lab(monkeypatch, tmp_path, Node=[node("a", 2)], Pod=[pod("job", "a", 2)])
    result = lab.run()
    assert result["failed"] and "a: all 2 GPUs are used by pods" in result["msg"] and lab.asked == []
    allowed = lab.run(allow_unproven=True)
    assert "failed" not in allowed and not allowed["ok"] and allowed["nodes"][0]["outcome"] == "unproven"


def test_without_gpus_nothing_is_run_and_a_check_runs_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    lab = Lab(monkeypatch, tmp_path, Node=[node("cpu", 0)])
    assert lab.run(image=None)["ok"] and lab.asked == []
    lab = Lab(monkeypatch, tmp_path / "b", Node=[node("a", 1)])
    checked = lab.run(check=True)
    assert (checked["ok"], checked["nodes"], lab.asked) == (None, [{"node": "a"}], []) and not (tmp_path / "b").exists()
    with pytest.raises(RefusedError, match="no image is named"):
        lab.run(image=None)


def test_a_plugin_that_offers_nothing_is_told_from_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    runs = {
        **pod("plugin-a", "a", ownerReferences=[{"uid": "ds"}]),
        "status": {"phase": "Running", "conditions": READY},
    }
    lab = Lab(monkeypatch, tmp_path, Node=[node("a", 0, 0)], Pod=[runs], DaemonSet=[PLUGIN])
    assert lab.run(records=[{"name": "a", "gpu": {"count": 1}}])["failures"] == ["plugin_stale"]
    lab = Lab(monkeypatch, tmp_path, Node=[node("a", 0, 0)])
    assert lab.run(records=[{"name": "a", "gpu": {"count": 1}}])["failures"] == ["plugin_missing"]


def cordon(it: dict[str, t.Any]) -> dict[str, t.Any]:
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    return {**it, "spec": {"unschedulable": True, "taints": [taint]}}


def test_named_nodes_alone_are_tested_and_the_file_keeps_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    lab = Lab(monkeypatch, tmp_path, Node=[node("a", 2), node("b", 2)])
    lab.said["a"] = {**SEEN, "devices": "end\n"}
    assert lab.run()["failures"] == ["cdi_off"]
    result = lab.run(nodes=["B"])
    assert [item["node"] for item in result["nodes"]] == ["b"] and result["ok"]
    written = json.loads((tmp_path / "c" / "gpus.json").read_text())
    assert [(item["node"], item["outcome"]) for item in written["nodes"]] == [("a", "fail"), ("b", "pass")]
    assert (written["ok"], written["failures"], written["exit_code"]) == (False, ["cdi_off"], 1)
    lab.said.clear()
    lab.run(nodes=["a"])
    assert json.loads((tmp_path / "c" / "gpus.json").read_text())["ok"]
    with pytest.raises(RefusedError, match="c is not a Node of the cluster"):
        lab.run(nodes=["c"])


def test_a_cordoned_node_is_tested_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    lab = Lab(monkeypatch, tmp_path, Node=[cordon(node("a", 2))])
    assert lab.run()["failures"] == ["closed"] and lab.asked == []
    result = lab.run(nodes=["a"], cordoned=True)
    assert result["ok"]
    keys = [item["key"] for item in lab.asked[0]["spec"]["template"]["spec"]["tolerations"]]
    assert keys == [GPU, "node.kubernetes.io/unschedulable"]


def test_a_named_node_that_offers_nothing_is_not_proven(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    lab = Lab(monkeypatch, tmp_path, Node=[node("a", 0)])
    assert lab.run(nodes=["a"])["failures"] == ["plugin_missing"]


def test_a_plugin_that_registers_after_a_boot_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    lab = Lab(monkeypatch, tmp_path, Node=[node("a", 2)])
    lab.watched = [
        node("a", 0),
        node("b", 2),
        None,
        {**node("a", 2), "status": {"allocatable": {GPU: "2"}}},
        node("a", 2),
    ]
    records = [{"name": "a", "gpu": {"count": 2}}]
    assert lab.run(nodes=["a"], records=records, ready_s=60)["ok"] and lab.watched == []
    lab.watched = [node("a", 1)]
    assert lab.run(nodes=["a"], records=records, ready_s=10)["ok"], "after its time it is judged as it is"


def test_gpus_that_pods_claim_are_counted_by_slices_and_claims_and_tested_by_a_claim(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    gpus = [{"name": f"gpu-{number}", "attributes": {"type": {"string": "gpu"}}} for number in range(4)]
    slices = [
        {"metadata": {"name": name}, "spec": {"driver": "gpu.nvidia.com", "nodeName": name, "devices": gpus}}
        for name in ("a", "b")
    ]
    held = {"devices": {"results": [{"driver": "gpu.nvidia.com"}, {"driver": "gpu.nvidia.com"}]}}
    claim = {"metadata": {"name": "c"}, "status": {"allocation": held, "reservedFor": [{"uid": "u"}]}}
    lab = Lab(
        monkeypatch,
        tmp_path,
        Node=[node("a", 0), node("b", 0), node("cpu", 0), node("hca", 0, **{"rdma/ib": "63"})],
        Pod=[pod("job", "b", uid="u"), pod("other", "b", uid="v")],
        DeviceClass=[{"metadata": {"name": "gpu.nvidia.com"}}],
        ResourceSlice=slices,
        ResourceClaim=[claim],
    )
    lab.said["a"] = {**SEEN, "devices": "".join(f"device /dev/nvidia{number}\n" for number in range(4)) + "end\n"}
    result = lab.run(nodes=["a", "b", "hca"], ready_s=9)
    assert result["table"][:2] == ["a: PASS · a pod got 4 GPUs", "b: PASS · a pod got 2 GPUs"]
    templates, jobs, without = lab.asked[:2], lab.asked[2:4], lab.asked[4:]
    assert without == [] or "resourceClaims" not in without[0]["spec"]["template"]["spec"]
    counts = [item["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"] for item in templates]
    names = [item["spec"]["template"]["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] for item in jobs]
    assert counts == [4, 2] and names == [item["metadata"]["name"] for item in templates]
    with_devices, bare = jobs[0]["spec"]["template"]["spec"]["containers"]
    assert with_devices["resources"]["claims"] == [{"name": "gpus"}] and "claims" not in bare["resources"]
    assert GPU not in json.dumps(with_devices["resources"]["limits"])


def test_a_proof_holds_for_its_age_while_the_node_is_what_it_was(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    runs = pod("plugin-a", "a", ownerReferences=[{"uid": "ds"}])
    runs["status"]["conditions"] = READY
    lab = Lab(monkeypatch, tmp_path, Node=[node("a", 2), node("b", 2)], Pod=[runs], DaemonSet=[PLUGIN])
    lab.said["b"] = {**SEEN, "devices": "end\n"}
    assert lab.run(max_age_s=60)["failures"] == ["cdi_off"] and len(lab.asked) == 2
    again = lab.run(max_age_s=60)
    assert len(lab.asked) == 1 and [item["outcome"] for item in again["nodes"]] == ["pass", "fail"], "b was not proven"
    lab.said.clear()
    lab.run(max_age_s=60)
    written = (tmp_path / "c" / "gpus.json").read_bytes()
    lab.asked = []
    kept = lab.run(max_age_s=60)
    assert lab.asked == [] and kept["ok"] and (tmp_path / "c" / "gpus.json").read_bytes() == written
    assert kept["table"] == ["a: PASS · a pod got 2 GPUs", "b: PASS · a pod got 2 GPUs"]
    lab.run()
    assert len(lab.asked) == 2, "without an age every node is tested"
    fewer, other = node("a", 1, 2), node("b", 2)
    other["status"]["nodeInfo"] = {"bootID": "another"}
    for changed in ([fewer, node("b", 2)], [node("a", 2), other]):
        lab.run(max_age_s=60)
        lab.kinds["Node"], lab.asked = changed, []
        lab.run(max_age_s=60)
        assert len(lab.asked) == 1
        lab.kinds["Node"] = [node("a", 2), node("b", 2)]
    lab.run()
    lab.kinds["Pod"], lab.asked = [{**runs, "metadata": {**runs["metadata"], "name": "plugin-new"}}], []
    lab.run(max_age_s=60)
    assert len(lab.asked) == 1, "another pod of the plugin"
    monkeypatch.setattr(gpu_verify.time, "time", lambda: 1e10)
    lab.asked = []
    lab.run(max_age_s=60)
    assert len(lab.asked) == 2
