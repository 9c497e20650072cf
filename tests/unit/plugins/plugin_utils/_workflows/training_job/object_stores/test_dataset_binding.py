# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""datasets[].binding on hosts: two real nodes and a store in memory."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import pathlib
import sys
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError
from ansible_collections.muster.training.plugins.plugin_utils._workflows.services import bind
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.object_stores import (
    dataset_binding,
)
from ansible_collections.muster.training.tests.fakes import object_store, s3_signer
from ansible_collections.muster.training.tests.support.run_world import RunWorld

# Notes what it finds beside its checkpoints.
PROGRAM = """
import os, pathlib
place = os.environ["MUSTER_DATASET_TEXT"]
folder = pathlib.Path(os.environ["MUSTER_CHECKPOINT_DIR"]).parent
names = sorted(str(path.relative_to(place)) for path in pathlib.Path(place).rglob("*") if path.is_file())
keys = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "AWS_REGION")
seen = [place, " ".join(names), *(os.environ.get(key, "-") for key in keys)]
bundle = os.environ.get("AWS_CA_BUNDLE")
(folder / "found").write_text(chr(10).join([*seen, pathlib.Path(bundle).read_text() if bundle else "-"]))
"""
SECRET = "SKcanary-secret-0123"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> t.Iterator[object_store.ObjectStore]:
    s3_signer.use(monkeypatch)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKcanary-access-1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setattr(dataset_binding, "_PAGE", 2)
    monkeypatch.setattr(dataset_binding, "_BATCH", 2)
    with object_store.running() as found:
        yield found


@pytest.fixture
def world(tmp_path: pathlib.Path) -> t.Iterator[RunWorld]:
    found = RunWorld(tmp_path)
    yield found
    found.close()


def bind_store(world: RunWorld, server: object_store.ObjectStore, name: str = "store") -> None:
    resources = [{"purpose": "datasets", "ref": "bucket/p"}]
    about = {"kind": "object_store", "mode": "bind", "endpoint": server.url, "region": "eu-1"}
    services = [{"name": name, "resources": resources, **about}]
    bind.run(world.request(None, services=services, require_all=True))
    server.listed = None
    server.objects = {f"p/text/{key}": os.urandom(50) for key in ("a", "b c/ü", "b c/z", "d", "e")}


def job(world: RunWorld, *datasets: dict[str, t.Any]) -> dict[str, t.Any]:
    named = [{"name": "text", "binding": "store", **item} for item in datasets]
    return world.job(sys.executable, "-I", "-S", "-c", PROGRAM, datasets=named)


def found(world: RunWorld, node: str) -> list[str]:
    (place,) = world.root.glob(f"**/{node}/runs/{world.run_id}/found")
    return place.read_text().split("\n")


def test_all_nodes_have_all_objects_before_the_program_starts(
    world: RunWorld, server: object_store.ObjectStore
) -> None:
    bind_store(world, server)
    world.play(job(world, {"prefix": "text"}))
    for node in ("a", "b"):
        assert found(world, node)[1:3] == ["a b c/z b c/ü d e", "-"]
    lines = [line for line in world.said.lines if line.startswith("dataset text")]
    assert lines[0] == "dataset text: 5 objects, 0.0 MiB; staging 0.0 MiB to a, b"
    asked = [path for verb, path, _range in server.asked if verb == "GET" and path.endswith("/text/d")]
    assert len(asked) == 2


def test_the_store_is_asked_for_checksums_of_larger_objects(
    world: RunWorld, server: object_store.ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset_binding, "_CHECKED_BYTES", 60)
    bind_store(world, server)
    server.objects["p/text/large"] = bytes(70)
    server.headers["x-amz-checksum-sha256"] = base64.b64encode(hashlib.sha256(bytes(70)).digest()).decode()
    world.play(job(world, {"prefix": "text"}))
    assert [path for verb, path, _range in server.asked if verb == "HEAD"] == ["/bucket/p/text/large"] * 2
    for record in world.root.rglob("record.jsonl"):
        kinds = {row["path"]: row["digest"][:8] for row in map(json.loads, record.read_text().splitlines())}
        assert kinds["large"] == "sha256/0" and kinds["a"] == "md5/0:" + kinds["a"][6:]


def test_an_object_of_parts_is_asked_for_its_first_one(
    world: RunWorld, server: object_store.ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of the sizes with which programs upload fits its ETag, and the store does not tell: it is said."""
    etag = object_store.ObjectStore.etag
    odd = f'"{"0" * 32}-2"'
    monkeypatch.setattr(
        object_store.ObjectStore, "etag", lambda self, key: odd if key.endswith("/d") else etag(self, key)
    )
    bind_store(world, server)
    world.play(job(world, {"prefix": "text"}))
    assert [path for verb, path, _range in server.asked if verb == "HEAD"] == ["/bucket/p/text/d"] * 4
    assert [line for line in world.said.lines if "1 objects were compared by size alone" in line]


def test_a_streamed_one_is_variables_alone(world: RunWorld, server: object_store.ObjectStore) -> None:
    bind_store(world, server)
    world.play(job(world, {"prefix": "text", "mode": "stream"}))
    assert found(world, "a") == ["s3://bucket/p/text", "", server.url, "AKcanary-access-1", "-", "eu-1", "-"]
    kept = [path.read_bytes() for path in world.root.rglob("*") if path.is_file()]
    assert not [data for data in kept if SECRET.encode() in data]


def test_the_stores_own_ca_comes_along_and_goes_with_the_run(world: RunWorld, server: object_store.ObjectStore) -> None:
    bind_store(world, server)
    (place,) = world.root.glob("**/bindings/store.json")
    ca = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    place.write_text(json.dumps({**json.loads(place.read_text()), "ca": ca}))
    world.play(job(world, {"mode": "stream"}))
    assert "\n".join(found(world, "b")[6:]) == ca
    assert not list(world.root.glob("**/stream-ca.pem"))


def test_two_stores_are_not_streamed_from(world: RunWorld, server: object_store.ObjectStore) -> None:
    bind_store(world, server)
    server.listed = object_store.LISTED
    bind_store(world, server, "other")
    datasets = {"mode": "stream"}, {"mode": "stream", "name": "second", "binding": "other"}
    with pytest.raises(MusterError, match=r"job.datasets.second.binding.*streams from one store"):
        world.play(job(world, *datasets))


def test_an_object_that_is_gone_ends_the_start_with_nothing_left(
    world: RunWorld, server: object_store.ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    bind_store(world, server)
    sign = dataset_binding.BoundDataset.sign

    def lose(self: dataset_binding.BoundDataset, key: str) -> str:
        server.objects.pop("p/text/d", None)
        return sign(self, key)

    monkeypatch.setattr(dataset_binding.BoundDataset, "sign", lose)
    with pytest.raises(MusterError, match="object d: .* the object does not exist"):
        world.play(job(world, {"prefix": "text"}))
    assert not list(world.root.glob(f"**/runs/{world.run_id}"))
