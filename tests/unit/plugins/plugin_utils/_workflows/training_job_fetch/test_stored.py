# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of checkpoints in a bucket: the newest that all nodes have, by patterns, across parts, and through a node."""

from __future__ import annotations

import json
import pathlib
import random
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding, BindingResource
from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.module_utils._node import checkpoint_store, host_s3, s3_client
from ansible_collections.muster.training.plugins.module_utils._node.checkpoint_layouts import Saved
from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import NodeClient
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import bindings
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.object_stores import (
    checkpoint_binding,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job_fetch import remote_file, stored
from ansible_collections.muster.training.tests.fakes import object_store, s3_signer

NOBODY: t.Callable[[], NodeClient | None] = lambda: None  # noqa: E731


class Bucket:
    """A bucket with the checkpoints of a run of two nodes."""

    def __init__(self, root: pathlib.Path, server: object_store.ObjectStore) -> None:
        self.root, self.server = root, server
        self.home = StateHome({"path": str(root / "home")}, "default")
        resource = BindingResource("checkpoints", "bucket/p")
        bindings.write_binding(self.home, Binding("store", "object_store", "bind", server.url, resources=(resource,)))
        about = {"name": "j", "script": "/t.py", "nodes": 2, "checkpoints": {"binding": "store", "keep": 2}}
        self.bound = checkpoint_binding.open_for_reading(self.home, parse_job(about), "r")

    def save(self, rank: int, slot: int, name: str, saved_at: int, **held: bytes) -> None:
        place = self.root / f"{rank}-{saved_at}" / name
        for path, data in held.items():
            (place / path.replace("__", "/")).parent.mkdir(parents=True, exist_ok=True)
            (place / path.replace("__", "/")).write_bytes(data)
        given = json.loads(self.bound.addresses(rank))["slots"][slot]
        about = {"saved_at": saved_at, "step": saved_at, "format": "files", "node": "ab"[rank]}
        checkpoint_store.upload(s3_client.Store(), given, place.parent, Saved(name, saved_at), about)

    def fetch(self, *patterns: str, find_proxy: t.Any = NOBODY) -> dict[str, bytes]:
        found, _there = stored.list_stored(self.bound, patterns, find_proxy)
        dest = self.root / "here"
        for file in found:
            remote_file.fetch_file(file, dest / file.target)
        return {file.target: (dest / file.target).read_bytes() for file in found}


@pytest.fixture
def bucket(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[Bucket]:
    s3_signer.use(monkeypatch)
    monkeypatch.setattr(checkpoint_store, "PART_BYTES", 1000)
    monkeypatch.setattr(stored, "_PIECE", 300)
    monkeypatch.setattr(s3_client.time, "sleep", lambda _s: None)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKcanary-access-1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SKcanary-secret-0123")
    with object_store.running() as server:
        yield Bucket(tmp_path, server)


def test_the_newest_that_both_nodes_have_with_what_differs_below_the_node(bucket: Bucket) -> None:
    large = random.Random(1).randbytes(2500)
    for rank in (0, 1):
        bucket.save(rank, 0, "step-1", 1, model=b"old", part=b"old")
        bucket.save(rank, 1, "step-2", 2, a=b"", model=large, sub__part=bytes([rank]))
    bucket.save(0, 2, "step-3", 3, model=b"the other node has none")
    assert bucket.fetch() == {
        "step-2/a": b"", "step-2/model": large, "step-2/sub/part": b"\0", "b/step-2/sub/part": b"\1"
    }  # fmt: skip
    # Only what is missing, by ranges that end with the parts.
    ranges = [asked[2] for asked in bucket.server.asked if asked[0] == "GET" and "slot-1/part" in asked[1]]
    assert ranges[:4] == ["bytes=0-299", "bytes=300-599", "bytes=600-899", "bytes=900-999"]


def test_patterns_are_those_of_paths_and_reach_older_ones(bucket: Bucket) -> None:
    bucket.save(0, 0, "step-1", 1, model=b"1", sub__x=b"x")
    bucket.save(0, 1, "step-2", 2, model=b"2")
    assert bucket.fetch("step-1") == {"step-1/model": b"1", "step-1/sub/x": b"x"}
    assert sorted(bucket.fetch("*/model")) == ["step-1/model", "step-2/model"]
    assert bucket.fetch("**/x") == {"step-1/sub/x": b"x"}
    # A later attempt has saved the same step again.
    bucket.save(0, 2, "step-1", 3, model=b"3")
    assert bucket.fetch("step-1") == {"step-1/model": b"3"}
    found, there = stored.list_stored(bucket.bound, ["model"], NOBODY)
    assert (found, there) == ([], ["step-1/model", "step-2/model"])


@pytest.mark.parametrize(
    ("path", "pattern", "fits"),
    [
        ("a/b", "a", True), ("a/b", "b", False), ("a/b", "*/b", True), ("a/b/c", "*/c", False),
        ("a/b/c", "**/c", True), ("c", "**/c", True), ("a/b", "a/b/c", False), ("A", "a", False),
    ],
)  # fmt: skip
def test_a_glob_fits_a_path_or_a_folder_above_it(path: str, pattern: str, fits: bool) -> None:
    assert stored.matches(path.split("/"), pattern.split("/")) is fits
    # As the nodes' own globs do.
    assert (any(place.full_match(pattern) for place in (pathlib.PurePath(path), *pathlib.PurePath(path).parents))
            if hasattr(pathlib.PurePath, "full_match") else fits) is fits  # fmt: skip


def test_a_node_reads_where_the_controller_has_no_connection(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket.save(0, 0, "step-1", 1, model=b"weights")
    asked: list[str] = []

    class Node(NodeClient):
        def call(self, op: str, **values: t.Any) -> dict[str, t.Any]:
            asked.append(values["step"])
            with monkeypatch.context() as there:
                there.setattr(s3_client.Store, "send", send)
                return host_s3.answer(values, bucket.root)

    send = s3_client.Store.send

    def refuse(*_args: t.Any, **_values: t.Any) -> t.Any:
        raise s3_client.S3Error("the name store.team.svc is not known here", "Check the endpoint")

    monkeypatch.setattr(s3_client.Store, "send", refuse)
    node = Node("a", lambda _command, _data: (0, "", ""))
    assert bucket.fetch(find_proxy=lambda: node) == {"step-1/model": b"weights"} and set(asked) == {"read"}
    with pytest.raises(MusterError, match="the controller does not reach the object store store: .* is not known here"):
        bucket.fetch()


def test_a_store_that_refuses_is_not_asked_again_through_a_node(bucket: Bucket) -> None:
    bucket.server.refusals["GET"] = (403, "AccessDenied")
    with pytest.raises(MusterError, match="store: .*the credentials lack a permission"):
        bucket.fetch(find_proxy=lambda: pytest.fail("it has answered"))


def test_parts_that_are_damaged_or_gone_are_told_with_what_to_do(bucket: Bucket) -> None:
    bucket.save(0, 0, "step-1", 1, model=b"weights")
    (part,) = [key for key in bucket.server.objects if key.endswith("part-0000")]
    bucket.server.objects[part] = b"wEights"
    with pytest.raises(RefusedError, match="store: step-1/model is not what was listed.*name an older checkpoint"):
        bucket.fetch()
    del bucket.server.objects[part]
    with pytest.raises(RefusedError, match="a part of step-1 does not exist any more. Run again if"):
        bucket.fetch()
    assert not [place for place in (bucket.root / "here").rglob("*") if place.is_file() and place.stat().st_size]
