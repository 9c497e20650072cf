# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Staging on a node: once, resumed where it was cut, verified, and named when an object is no longer what it was."""

from __future__ import annotations

import base64
import hashlib
import os
import pathlib
import random
import shutil
import typing as t
import zlib

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import (
    dataset_parts,
    dataset_stage,
    host_blobs,
    host_s3,
    s3_client,
)
from ansible_collections.muster.training.tests.fakes import object_store

ID = "0123456789abcdef"


class Node:
    """A node's folder, and a bucket with three objects, one of several segments."""

    def __init__(self, root: pathlib.Path, server: object_store.ObjectStore) -> None:
        self.root, self.server = root, server
        server.listed = None
        for name, size in (("a b/ü.txt", 900), ("big", 4500), ("empty", 0)):
            server.objects[f"p/{name}"] = random.Random(name).randbytes(size)
        self.rows = [[key[2:], len(body), server.etag(key)] for key, body in sorted(server.objects.items())]

    def ask(self, step: str, **values: t.Any) -> dict[str, t.Any]:
        return host_s3.answer({"step": step, "dataset": ID, "name": "d", **values}, self.root)

    def plan(self) -> dict[str, t.Any]:
        return self.ask("plan", objects=self.rows)

    def stage(self, numbers: t.Iterable[int] = range(3), seconds: float = 20.0, **more: t.Any) -> dict[str, t.Any]:
        urls = {str(number): self.server.address(f"p/{self.rows[number][0]}") for number in numbers}
        return self.ask("stage", urls=urls, seconds=seconds, **more)

    def content(self) -> dict[str, bytes]:
        tree = self.root / "datasets" / ID / "tree"
        return {f"p/{path.relative_to(tree)}": path.read_bytes() for path in tree.rglob("*") if path.is_file()}


@pytest.fixture
def node(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[Node]:
    monkeypatch.setattr(dataset_parts, "SEGMENT_BYTES", 1000)
    monkeypatch.setattr(s3_client.time, "sleep", lambda _s: None)
    with object_store.running() as server:
        yield Node(tmp_path, server)


def test_all_objects_come_once_and_runs_link_to_them(node: Node) -> None:
    assert node.plan() == {"missing": [0, 1, 2], "bytes": 5400, "needed": 5400}
    assert node.stage() == {"missing": [], "received": 5400, "unverified": 0}
    assert node.content() == node.server.objects
    asked = len(node.server.asked)
    assert node.plan()["missing"] == [] and node.stage()["received"] == 0 and len(node.server.asked) == asked
    for _twice in range(2):
        assert node.ask("link", run_id="r", datasets={"text": ID}) == {}
    place = node.root / "runs" / "r" / "data" / "text"
    assert (place / "big").read_bytes() == node.server.objects["p/big"]
    assert (place / "big").stat().st_mode & 0o222 == 0
    dataset_stage.remove_unused(node.root)
    assert (place / "big").exists()
    place.unlink()
    dataset_stage.remove_unused(node.root)
    assert not (node.root / "datasets" / ID).exists()


def test_what_a_cut_left_is_not_asked_for_again(node: Node) -> None:
    path = "/bucket/p/big"
    node.server.faults[("GET", path)] = ["cut", 503, "cut"]
    node.plan()
    assert node.stage()["missing"] == [] and node.content() == node.server.objects
    ranges = sorted(what for _verb, where, what in node.server.asked if where == path)
    assert len(ranges) == 5 + 3
    # Each cut answer brought half of what was asked for; the next one asks from there (again, if it met the 503).
    starts = {int(what.removeprefix("bytes=").split("-")[0]) for what in ranges}
    assert len([start for start in starts if start % 1000]) == 2, ranges


def test_time_that_is_over_keeps_what_was_received(node: Node) -> None:
    node.plan()
    answer = node.stage(seconds=-1)
    assert answer["missing"] == [0, 1, 2] and node.stage()["missing"] == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("changed", "object big: 127.0.0.1:.*/bucket/p/big answered 412: the object was changed meanwhile"),
        ("deleted", "object big: .* answered 404: the object does not exist"),
        ("same etag", "object big: what was received is not what its ETag or checksum in the store says"),
    ],
)
def test_objects_that_are_no_longer_what_was_listed_are_named(
    node: Node, monkeypatch: pytest.MonkeyPatch, change: str, words: str
) -> None:
    import re

    node.plan()
    node.stage([0])
    if change == "deleted":
        del node.server.objects["p/big"]
    else:
        listed = node.server.etag("p/big")
        node.server.objects["p/big"] = b"x" * 4500
        if change == "same etag":
            monkeypatch.setattr(type(node.server), "etag", lambda _self, _key: listed)
    answer = node.stage()
    assert re.match(words, answer["problem"]), answer
    assert "X-Amz" not in str(answer) and "p/big" not in node.content()
    assert node.ask("link", run_id="r", datasets={"d": ID}).get("problem") is not None


def test_an_encrypted_object_is_compared_by_size(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = f'"{hashlib.md5(b"other", usedforsecurity=False).hexdigest()}"'
    monkeypatch.setattr(type(node.server), "etag", lambda _self, _key: odd)
    node.server.headers["x-amz-server-side-encryption"] = "aws:kms"
    node.rows = [[path, size, odd] for path, size, _etag in node.rows if size]
    node.plan()
    assert node.stage(range(2)) == {"missing": [], "received": 5400, "unverified": 2}


def test_files_that_were_changed_are_fetched_again(node: Node) -> None:
    node.plan()
    node.stage()
    tree = node.root / "datasets" / ID / "tree"
    os.chmod(tree / "big", 0o600)
    (tree / "big").write_bytes(b"y" * 4500)
    os.utime(tree / "big", ns=(1, 1))
    (tree / "empty").unlink()
    assert node.plan()["missing"] == [1, 2]
    node.stage()
    assert node.content() == node.server.objects


def test_after_a_restart_of_the_node_digests_decide(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a power failure took from a file leaves its size and time."""
    node.plan()
    node.stage()
    place = node.root / "datasets" / ID / "tree" / "big"
    state = place.stat()
    os.chmod(place, 0o600)
    place.write_bytes(bytes(4500))
    os.utime(place, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert node.plan()["missing"] == []
    begin = dataset_stage.StagedDataset.__init__

    def restarted(self: dataset_stage.StagedDataset, *args: t.Any) -> None:
        begin(self, *args)
        self.boot = "another-boot"

    monkeypatch.setattr(dataset_stage.StagedDataset, "__init__", restarted)
    assert node.plan()["missing"] == [1]


def test_machines_that_share_a_folder_do_not_read_it_again(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a boot of its own; what is there was on its disk, or with its server, before it was noted."""
    synced: list[int] = []
    sync = os.fsync

    def note(handle: int) -> None:
        synced.append(handle)
        sync(handle)

    monkeypatch.setattr(os, "fsync", note)
    node.plan()
    node.stage(shared=True)
    assert len(synced) >= 3
    begin = dataset_stage.StagedDataset.__init__

    def another(self: dataset_stage.StagedDataset, *args: t.Any) -> None:
        begin(self, *args)
        self.boot = "another-boot"

    monkeypatch.setattr(dataset_stage.StagedDataset, "__init__", another)
    monkeypatch.setattr(dataset_stage, "is_unchanged", lambda *_args: pytest.fail("it was read again"))
    assert node.plan()["missing"] == []
    place = node.root / "datasets" / ID / "tree" / "big"
    os.chmod(place, 0o600)
    place.write_bytes(bytes(4500))
    assert node.plan()["missing"] == [1]


def test_the_checksum_of_the_store_decides(node: Node) -> None:
    """Where it is not asked for, or refused, the ETag does."""
    crc = zlib.crc32(node.server.objects["p/big"]).to_bytes(4, "big")
    node.server.headers["x-amz-checksum-crc32"] = base64.b64encode(crc).decode()
    checks = {"1": [node.server.address("p/big")]}
    node.plan()
    assert node.stage(checks=checks)["missing"] == []
    record = (node.root / "datasets" / ID / "record.jsonl").read_text()
    assert f'"crc32/0:{crc.hex()}"' in record and record.count("crc32/") == 1
    assert [what for what in node.server.asked if what[0] == "HEAD"] == [("HEAD", "/bucket/p/big", "")]
    node.server.headers["x-amz-checksum-crc32"] = "AAAAAA=="
    shutil.rmtree(node.root / "datasets")
    node.plan()
    answer = node.stage(checks=checks)
    assert answer["problem"] == "object big: what was received is not what its ETag or checksum in the store says"
    assert "p/big" not in node.content()
    node.server.refusals["HEAD"] = (403, "AccessDenied")
    assert node.stage(checks=checks)["missing"] == [] and node.content() == node.server.objects


def test_a_disk_without_room_is_named_before_anything_is_fetched(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_blobs, "free_bytes", lambda _path: 1000)
    answer = node.plan()
    assert "dataset d needs 5,400 bytes more" in answer["problem"] and "1,000 free" in answer["problem"]
    assert node.server.asked == []


def test_a_bucket_is_listed_page_by_page(node: Node) -> None:
    first = node.ask("list", list=f"{node.server.url}/bucket?prefix=p/&max-keys=2")
    assert [row[0] for row in first["objects"]] == ["p/a b/ü.txt", "p/big"] and first["next"] == "2"
    last = node.ask("list", list=f"{node.server.url}/bucket?prefix=p/&max-keys=2&continuation-token=2")
    assert last == {"objects": [["p/empty", 0, node.server.etag("p/empty")]], "next": None}
    node.server.listed = b"<html>login</html>"
    assert "not S3's list" in node.ask("list", list=f"{node.server.url}/bucket?prefix=p/")["problem"]


def test_a_record_that_others_have_written_into_stops_nobody(node: Node) -> None:
    node.plan()
    node.stage()
    record = node.root / "datasets" / ID / "record.jsonl"
    with record.open("a") as handle:
        handle.write('{"path": "big"}\n[1]\n{"path": "empty", "changed":')
    assert node.plan()["missing"] == []
