# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that run different images or versions are named: on hosts by a whole run, in pods by what the cluster tells."""

from __future__ import annotations

import json
import pathlib
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.run_history import RunHistory
from ansible_collections.muster.training.plugins.module_utils._model.run_record import RunRecord
from ansible_collections.muster.training.plugins.module_utils._node.pod_log import MARK
from ansible_collections.muster.training.plugins.plugin_utils._report.data.load import load_run
from ansible_collections.muster.training.plugins.plugin_utils._report.data.run_model import build_run_model
from ansible_collections.muster.training.plugins.plugin_utils._report.rules.verdict import judge_run
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import run_record
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.software import (
    add_software,
    find_differences,
    read_devices,
)
from ansible_collections.muster.training.tests.support.run_world import RunWorld
from ansible_collections.muster.training.tests.support.told_cluster import Told, follow, stamped

Dict = dict[str, t.Any]


@pytest.fixture
def world(tmp_path: pathlib.Path) -> t.Iterator[RunWorld]:
    world = RunWorld(tmp_path)
    yield world
    world.close()


def interpreter(world: RunWorld, name: str, version: str) -> str:
    place = world.root / name
    place.write_text(f"#!/bin/sh\necho '{json.dumps({'version': version, 'packages': {'torch': '2.9.0'}})}'\n")
    place.chmod(0o755)
    return str(place)


def test_hosts_with_different_interpreters_are_named_and_the_run_is_not_all_proven(world: RunWorld) -> None:
    job = {key: value for key, value in world.job("true").items() if key != "python"}
    request, pythons = world.request, {"a": "3.12.1", "b": "3.11.9"}

    def with_pythons(*args: t.Any, **more: t.Any) -> t.Any:
        found = request(*args, **more)
        for name, version in pythons.items():
            found.hostvars[name]["muster_training_python"] = interpreter(world, f"python-{name}", version)
        return found

    world.request = with_pythons  # type: ignore[method-assign]
    run = world.play(job)["run"]
    words = "python differs between nodes: 3.12.1 on a; 3.11.9 on b"
    assert run["differences"] == [words] and run["detail"] == f"all ranks exited with code 0; {words}", world.said.lines
    assert any(line.startswith(f"warning: {words}") for line in world.said.lines)
    verdict = judge_run(build_run_model(load_run(world.folder())))
    assert verdict.word.startswith("Succeeded · ") and "same image and versions" in verdict.sentence


def tell_versions(told: Told, uid: str, number: int, node: str, **versions: str) -> None:
    data = {"at": time.time(), "kind": "pod_ready", "node": node, "attempt": 1, "versions": versions}
    told.heard.put(("line", (uid, stamped(number), (MARK + json.dumps({"stream": "events", "data": data})).encode())))


def followed(tmp_path: pathlib.Path, images: dict[str, str], torch: dict[str, str]) -> RunRecord:
    told = Told()
    for rank, (node, image) in enumerate(images.items()):
        status = [{"name": "node", "imageID": image, "state": {"running": {}}}]
        told.tell_pod(node, node=node, containerStatuses=status)
        tell_versions(told, node, 1, node, python="3.12.1", torch=torch[node])
        told.tell_rank(node, 2, rank, node=node, world_size=2)
    told.tell_main("Completed")
    _outcome, follower, _said = follow(tmp_path, told, nodes=2)
    record = run_record.new_record("r", {"nodes": 2}, time.time())
    return add_software(record, follower.story, follower.image_ids)


def test_pods_of_one_tag_and_two_images_are_named(tmp_path: pathlib.Path) -> None:
    one, other = "registry/train@sha256:aa", "registry/train@sha256:bb"
    found = followed(tmp_path, {"n1": one, "n2": other}, {"n1": "2.9.0", "n2": "2.8.0"})
    assert found.differences == (
        f"image differs between nodes: {one} on n1; {other} on n2",
        "torch differs between nodes: 2.9.0 on n1; 2.8.0 on n2",
    )
    assert found.versions == {"python": "3.12.1", "torch": "2.9.0"}


def test_pods_that_are_alike_have_no_difference(tmp_path: pathlib.Path) -> None:
    assert (
        followed(tmp_path, dict.fromkeys(("n1", "n2"), "x@sha256:a"), dict.fromkeys(("n1", "n2"), "2.9")).differences
        == ()
    )


def test_the_rarest_value_is_named_first_and_what_is_unknown_is_no_difference() -> None:
    found = {f"n{number}": {"torch": "2.9"} for number in range(6)}
    assert find_differences({**found, "bare": {}}) == ()
    (line,) = find_differences({**found, "odd": {"torch": "2.8"}})
    assert line == "torch differs between nodes: 2.8 on odd; 2.9 on n0, n1, n2, n3 and 2 more"


def test_the_version_that_nccl_logs_counts() -> None:
    from ansible_collections.muster.training.plugins.module_utils._model.run_history import fold

    lines: list[Dict] = []
    for rank, version in enumerate(("2.27.5", "2.26.2")):
        about = {"at": 1.0 + rank, "rank": rank, "node": f"n{rank}", "gang": "1/a:1", "attempt": 1}
        lines.append({**about, "kind": "worker_started", "world_size": 2})
        lines.append(
            {**about, "kind": "transport", "lines": [f"n{rank}:1:1 [0] NCCL INFO NCCL version {version}+cuda12"]}
        )
    record = add_software(run_record.new_record("r", {"nodes": 2}, 1.0), fold(lines, []))
    assert record.differences == ("nccl differs between nodes: 2.27.5+cuda12 on n0; 2.26.2+cuda12 on n1",)


def test_pods_that_run_another_image_than_the_run_was_started_with_are_named() -> None:
    story = RunHistory()
    for rank, node in enumerate("abc"):
        about = {"at": 1.0, "rank": rank, "node": node, "attempt": 1, "gang": "1/x"}
        story.event({"kind": "worker_started", **about})
    record = run_record.new_record("r", {"nodes": 3}, 1.0, image="r.example/t@sha256:1")
    same = dict.fromkeys("abc", "r.example/t@sha256:1")
    assert add_software(record, story, same).differences == ()
    # One that was imported from an archive has no digest of a registry.
    assert not any("pods do not run" in line for line in add_software(record, story, {"a": "sha256:9"}).differences)
    found = add_software(record, story, {**same, "c": "r.example/t@sha256:2"}).differences
    assert "pods do not run r.example/t@sha256:1: sha256:2 on c" in found


def test_an_image_that_changed_between_attempts_is_named() -> None:
    """Its tag leads to another one since: the record keeps the first, and the run is not all of one program."""
    story = RunHistory()
    story.event({"kind": "worker_started", "at": 1.0, "rank": 0, "node": "a", "attempt": 1, "gang": "1/x"})
    record = run_record.new_record("r", {"nodes": 1}, 1.0, image_digest="sha256:1")
    assert add_software(record, story, {"a": "sha256:1"}).differences == ()
    # The node of an earlier attempt tells nothing of this one.
    found = add_software(record, story, {"a": "sha256:2", "z": "sha256:1"})
    assert found.differences == ("the image changed between attempts: sha256:1 before, sha256:2 now",)
    assert found.image_digest == "sha256:1"


def devices_of(lines: list[Dict], nodes: dict[str, list[int]]) -> dict[str, t.Any]:
    from ansible_collections.muster.training.plugins.module_utils._model.run_history import fold

    started = [
        {"at": 2.0 + rank, "kind": "worker_started", "node": node, "rank": rank, "attempt": 2, "world_size": 9}
        for node, ranks in nodes.items()
        for rank in ranks
    ]
    return read_devices(fold([*lines, *started], ()))


H100 = {"gpu_model": "NVIDIA H100 80GB HBM3", "driver": "595.91.07"}


def test_pods_say_which_gpus_and_rdma_devices_they_have_and_pods_of_one_node_are_added() -> None:
    def ready(node: str, rank: int, gpus: int | None, rdma: list[str], attempt: int = 2) -> Dict:
        about = {"at": 1.0, "kind": "pod_ready", "node": node, "rank": rank, "attempt": attempt, "versions": {}}
        return {**about, **H100, "gpus": gpus, "rdma": rdma}

    lines = [
        ready("n1", 0, 8, ["uverbs0"], attempt=1),
        ready("n1", 0, 2, ["uverbs0"]),
        ready("n1", 1, 2, ["uverbs1"]),
        ready("n2", 2, None, []),
        ready("gone", 7, 8, []),
    ]
    found = devices_of(lines, {"n1": [0, 1], "n2": [2], "n3": [3]})
    about = {"model": H100["gpu_model"], "driver": "595.91.07"}
    assert found == {
        "n1": {"gpus": 4, **about, "rdma": ["uverbs0", "uverbs1"]},
        "n2": {"gpus": None, **about, "rdma": []},
        "n3": None,
    }


def test_hosts_say_it_by_their_facts() -> None:
    line: Dict = {"at": 1.0, "kind": "versions", "node": "a", "versions": {}, **H100, "gpus": 8, "rdma": None}
    silent = {"at": 1.0, "kind": "versions", "node": "b", "versions": {}}
    found = devices_of([line, silent], {"a": [0], "b": [1]})
    assert found["a"] == {"gpus": 8, "model": H100["gpu_model"], "driver": "595.91.07", "rdma": None}
    assert found["b"] is None
