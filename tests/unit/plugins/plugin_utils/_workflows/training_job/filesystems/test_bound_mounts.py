# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs on a shared file system that was bound: on hosts with real mounts, and what their pods get."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import validators
from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding, Reachability
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.job import Job, parse_job
from ansible_collections.muster.training.plugins.module_utils._model.job_checkpoints import describe_vanishing
from ansible_collections.muster.training.plugins.module_utils._model.shared_filesystem import Filesystem
from ansible_collections.muster.training.plugins.module_utils._node import pod_preflight
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs import pod_template
from ansible_collections.muster.training.plugins.plugin_utils._launch import base, registry
from ansible_collections.muster.training.plugins.plugin_utils._workflows.services import bind, store_check
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import bindings
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.filesystems import bound_mounts
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.object_stores import pod_store
from ansible_collections.muster.training.tests.support.mount_world import MountWorld, can_mount

Dict = dict[str, t.Any]
POD: t.Final = {"placement": {"backend": "kubernetes"}, "image": "i"}


@pytest.fixture
def world(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[MountWorld]:
    if not can_mount():
        pytest.skip("mounts in namespaces need root")
    monkeypatch.setattr(store_check, "_WAIT_S", {"host": 5, "pod": 5})
    found = MountWorld(tmp_path)
    yield found
    found.close()


@pytest.fixture
def home(tmp_path: pathlib.Path) -> StateHome:
    return StateHome({"path": str(tmp_path / "home")}, "default")


def write_binding(home: StateHome, **changes: t.Any) -> None:
    rows = tuple(Reachability(name, vantage, True) for name in "ab" for vantage in ("host", "pod"))
    made = Binding("scratch", "shared_filesystem", "bind", "/scratch", "path", reachable_from=rows)
    bindings.write_binding(home, dataclasses.replace(made, filesystem=Filesystem("/scratch", marker="m"), **changes))


def parse(home: StateHome, **changes: t.Any) -> Job:
    about = {"name": "x", "launcher": "command", "command": ["true"]}
    mounts = [{"name": "data", "path": "/scratch", "binding": "scratch"}]
    return bound_mounts.resolve(home, parse_job({**about, "mounts": mounts, **changes}))


def test_a_gang_on_hosts_saves_there_and_does_not_start_where_it_is_not_mounted(world: MountWorld) -> None:
    system = world.system("one")
    for name in "ab":
        world.node(name, system)
    entry = {"name": "scratch", "kind": "shared_filesystem", "mode": "bind", "provider": "path"}
    bind.run(world.request(None, services=[{**entry, "filesystem": {"path": str(world.path)}}], require_all=True))
    path = str(world.path)
    job = world.job(
        "sh",
        "-c",
        'echo saved > "$MUSTER_CHECKPOINT_DIR/$RANK"; echo "$MUSTER_DATASET_IMAGES"/*',
        mounts=[{"name": "data", "path": path, "binding": "scratch"}],
        datasets=[{"name": "images", "mode": "mount", "binding": "scratch", "prefix": "images"}],
        checkpoints={"grace_s": 5, "path": f"{path}/checkpoints"},
    )
    world.hold(f"mkdir {system}/images && touch {system}/images/one.jpg")
    world.play(job)
    assert world.hold(f"ls {system}/checkpoints/{world.run_id}").split() == ["0", "1"]
    assert "one.jpg" in (world.folder() / "logs" / "b.log").read_text()
    world.shells["b"].run(f"umount {path}")
    world.run_id += "x"
    with pytest.raises(RefusedError, match=rf"b: {path} is not the shared file system, which is not mounted there"):
        world.play(job)
    assert list(world.path.iterdir()) == [], "nothing was written to the disk of the node"
    world.shells["b"].run(f"mount --bind {world.system('two')} {path} && touch {path}/.muster-filesystem")
    world.shells["b"].run(f"echo 1234 > {path}/.muster-filesystem")
    with pytest.raises(RefusedError, match="b: .* is another shared file system than the one that the binding names"):
        world.play(job)


def test_pods_get_a_folder_that_must_be_there(home: StateHome) -> None:
    write_binding(home)
    job = parse(home, mounts=[{"name": "data", "path": "/data", "binding": "scratch"}], **POD)
    (mount,) = job.mounts
    volume = pod_template.build_data_volume(mount)
    assert volume == {"name": "data-data", "hostPath": {"path": "/scratch", "type": "Directory"}}
    specs = registry.pods(job, base.RunContext("r", 1, 29500, None))
    assert all(spec.mounts == ({"path": "/data", "marker": "m"},) for spec in specs.values())
    pod_store.open_store(home, job, ["a", "b"], "r")
    with pytest.raises(RefusedError, match=r"'scratch' is not reachable from all nodes: c \(pod\): not checked"):
        pod_store.open_store(home, job, ["a", "c"], "r")


def test_pods_get_the_claim_of_their_namespace(home: StateHome) -> None:
    write_binding(home, provider="storage_class")
    about = {"filesystem": Filesystem(storage_class="nfs-csi", claim="corpus")}
    known = bindings.load_binding(home, "scratch", "x")
    bindings.write_binding(home, dataclasses.replace(known, **about))
    dataset = {"name": "d", "mode": "mount", "binding": "scratch", "prefix": "imagenet"}
    mounts = [{"name": "data", "path": "/data", "binding": "scratch", "read_only": True}]
    job = parse(home, mounts=mounts, datasets=[dataset], **POD)
    claim = {"claimName": "corpus", "readOnly": True}
    assert pod_template.build_data_volume(job.mounts[0]) == {"name": "data-data", "persistentVolumeClaim": claim}
    assert all(spec.mounts == () for spec in registry.pods(job, base.RunContext("r", 1, 29500, None)).values())
    assert job.datasets[0].path == "/data/imagenet"
    # The record of a run has what the binding said.
    assert bound_mounts.resolve(home, parse_job(validators.plain_value(job))) == job
    with pytest.raises(InputError, match="of a StorageClass, whose volumes only pods have. Set placement"):
        parse(home)
    with pytest.raises(InputError, match="pvc: is another than that of the binding scratch"):
        parse(home, mounts=[{**mounts[0], "pvc": "other"}], **POD)


def test_a_pod_does_not_start_on_the_disk_of_its_node(tmp_path: pathlib.Path) -> None:
    with pytest.raises(pod_preflight.PodRefusal, match="is not mounted there"):
        pod_preflight.require_mounts([{"path": str(tmp_path), "marker": "m"}])
    pod_preflight.require_mounts([{"path": str(tmp_path), "marker": None}])


def test_a_dataset_that_is_mounted(home: StateHome) -> None:
    write_binding(home)
    dataset = {"name": "d", "mode": "mount", "binding": "scratch", "prefix": "imagenet/"}
    mounts = [{"name": "data", "path": "/data", "binding": "scratch"}]
    assert parse(home, datasets=[dataset], mounts=mounts, **POD).datasets[0].path == "/data/imagenet"
    assert parse(home, datasets=[{**dataset, "prefix": None}]).datasets[0].path == "/scratch"
    with pytest.raises(InputError, match="is /scratch/imagenet by its binding"):
        parse(home, datasets=[{**dataset, "path": "/other"}])


@pytest.mark.parametrize(
    ("bound", "changes", "words"),
    [
        ({}, {"mounts": [{"name": "m", "path": "/x", "binding": "scratch"}]}, "is /scratch on plain hosts"),
        ({}, {"mounts": [{"name": "m", "path": "/x", "binding": "none"}]}, "'none' is not a binding"),
        ({"access_modes": ("read",)}, {}, "must be true: scratch is bound for reading"),
        ({"component": "object_store"}, {}, "is a binding of object_store, not of shared_filesystem"),
        (
            {},
            {"mounts": [{"name": "m", "path": "/scratch", "binding": "scratch", "host_path": "/old"}]},
            "host_path: is another than that of the binding scratch. Leave host_path out",
        ),
        (
            {},
            {"mounts": [{"name": "m", "path": "/scratch", "binding": "scratch", "marker": "old"}]},
            "marker: is another than that of the binding",
        ),
    ],
)
def test_what_does_not_fit(home: StateHome, bound: Dict, changes: Dict, words: str) -> None:
    write_binding(home, **bound)
    with pytest.raises(InputError) as caught:
        parse(home, **changes)
    assert words in str(caught.value)


def test_what_is_there_outlives_rented_machines(home: StateHome) -> None:
    write_binding(home)
    assert describe_vanishing(parse(home, checkpoints={"path": "/scratch/c"}), {"a": 2.0}) == ""
    assert describe_vanishing(parse(home, checkpoints={"path": "/other"}), {"a": 2.0})
