# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""checkpoints.binding on hosts: two real nodes and a store in memory."""

from __future__ import annotations

import json
import pathlib
import shutil
import sys
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.module_utils._node import checkpoint_store
from ansible_collections.muster.training.plugins.plugin_utils._workflows.services import bind
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.object_stores import (
    checkpoint_binding,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.object_stores.job_nodes import (
    JobNodes,
)
from ansible_collections.muster.training.tests.fakes import object_store, s3_signer
from ansible_collections.muster.training.tests.support.run_world import RunWorld

# Says what it finds, saves its number and reports it.
PROGRAM = """
import json, os, pathlib
folder = pathlib.Path(os.environ["MUSTER_CHECKPOINT_DIR"]); folder.mkdir(exist_ok=True)
(folder.parent / "found").write_text(" ".join(path.name for path in folder.iterdir() if path.name[0] != "."))
(folder / "s.tmp").write_text(os.environ["NODE_RANK"]); (folder / "s.tmp").rename(folder / "step-1")
with open(os.environ["MUSTER_METRICS_FILE"], "a") as handle:
    handle.write(json.dumps({"checkpoint_step": 1, "path": str(folder / "step-1")}) + chr(10))
"""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> t.Iterator[object_store.ObjectStore]:
    s3_signer.use(monkeypatch)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKcanary-access-1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SKcanary-secret-0123")
    with object_store.running() as found:
        yield found


@pytest.fixture
def world(tmp_path: pathlib.Path) -> t.Iterator[RunWorld]:
    found = RunWorld(tmp_path)
    yield found
    found.close()


def bind_store(world: RunWorld, server: object_store.ObjectStore, **changes: t.Any) -> None:
    resources = [{"purpose": "checkpoints", "ref": "bucket/p"}]
    about = {"name": "store", "kind": "object_store", "mode": "bind", "endpoint": server.url, "resources": resources}
    bind.run(world.request(None, services=[{**about, **changes}], require_all=True))


def job(world: RunWorld, **checkpoints: t.Any) -> dict[str, t.Any]:
    return world.job(
        sys.executable, "-I", "-S", "-c", PROGRAM, checkpoints={"binding": "store", "grace_s": 5, **checkpoints}
    )


def folder(world: RunWorld, node: str) -> pathlib.Path:
    (found,) = world.root.glob(f"**/{node}/runs/{world.run_id}")
    return found


def test_each_node_stores_its_part_and_gets_it_back(world: RunWorld, server: object_store.ObjectStore) -> None:
    bind_store(world, server)
    world.play(job(world))
    stored = {key: json.loads(body) for key, body in server.objects.items() if key.endswith("manifest.json")}
    assert {key.split("/")[2]: item["name"] for key, item in stored.items()} == {"node-0": "step-1", "node-1": "step-1"}
    assert not list(world.root.glob("**/secrets/checkpoints.json"))
    shutil.rmtree(folder(world, "a"))
    shutil.rmtree(world.folder())
    world.play(job(world, resume="required"))
    for node, rank in (("a", "0"), ("b", "1")):
        assert (folder(world, node) / "found").read_text() == "step-1"
        assert (folder(world, node) / "checkpoints" / "step-1").read_text() == rank
    assert [line for line in world.said.lines if "fetched" in line] == [
        "a: fetched checkpoint step-1 from store (0.0 MiB)"
    ]


@pytest.mark.parametrize(
    ("service", "checkpoints", "words"),
    [
        ({}, {"binding": "stor"}, "did you mean 'store'"),
        ({"access_modes": ["read"]}, {}, "is read-only"),
        ({"resources": [{"purpose": "datasets", "ref": "bucket"}]}, {}, "has no bucket for checkpoints"),
        ({}, {"resume": "required"}, "neither the nodes nor store have a checkpoint"),
    ],
)
def test_what_cannot_store_a_checkpoint_is_refused(
    world: RunWorld, server: object_store.ObjectStore, service: t.Any, checkpoints: t.Any, words: str
) -> None:
    bind_store(world, server, **service)
    with pytest.raises(MusterError, match=words):
        world.play(job(world, **checkpoints))
    assert not list(world.root.glob(f"**/runs/{world.run_id}"))


def test_a_store_that_is_gone_when_a_run_starts_refuses_it(world: RunWorld, server: object_store.ObjectStore) -> None:
    bind_store(world, server)
    server.buckets.clear()
    with pytest.raises(MusterError, match="the bucket does not exist"):
        world.play(job(world))
    assert not list(world.root.glob(f"**/runs/{world.run_id}"))


def test_addresses_are_for_all_slots_of_a_rank_and_a_week(world: RunWorld, server: object_store.ObjectStore) -> None:
    bind_store(world, server)
    wanted = parse_job({**job(world, keep=2, path="/shared"), "nodes": 2})
    home = StateHome({"path": str(world.root / "home")}, "default")
    bound = checkpoint_binding.open_bound(home, wanted, JobNodes(["a", "b"]), "r")
    assert bound is not None and bound.slots == 3 and [bound.stores(rank) for rank in (0, 1)] == [True, False]
    value = json.loads(bound.addresses(1))
    assert len(value["slots"]) == 3 and {len(slot["parts"]) for slot in value["slots"]} == {128}
    assert f"{server.url}/bucket/p/r/node-1/slot-2/part-0127?X-Amz-Signature=PUT-" in value["slots"][2]["parts"][127]
    assert checkpoint_store.part_size(1, 128) == 64 << 20
    assert checkpoint_binding.open_bound(home, parse_job(world.job("true")), JobNodes(["a"]), "r") is None
