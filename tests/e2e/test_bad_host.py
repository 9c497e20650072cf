# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts on which a job must not start: one clear error that names the node, nothing started, nothing left behind."""

from __future__ import annotations

import os
import pathlib
import shutil
import socket
import subprocess
import sys
import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import source as code_source
from ansible_collections.muster.training.tests.e2e.playbook_world import NODES, ROOT, World, assert_refused, script
from ansible_collections.muster.training.tests.e2e.test_bad_job import fill

TORCH_JOB = {
    "name": "e2e",
    "nodes": 2,
    "template": "pytorch_ddp",
    "script": "train.py",
    "code": {"ref": str(ROOT / "examples/char_lm")},
}
# Runs the code of a request as "python -c CODE" would, with a changed clock or version.
STAND_IN = """#!{python} -IS
import sys, time
{change}
place = sys.argv.index("-c") + 1
code, sys.argv = sys.argv[place], ["-c", *sys.argv[place + 1 :]]
exec(code, {{"__name__": "__main__"}})
"""


def stand_in(world: World, change: str) -> str:
    """Return an interpreter for a node that differs from ours by one line of Python."""
    return script(world.root / "stand-in", STAND_IN.format(python=sys.executable, change=change))


def test_a_port_that_is_taken_is_named(world: World) -> None:
    """The rendezvous port follows from the run id, so another run id is a way out."""
    port = code_source.rendezvous_port(world.run_id)
    with socket.create_server(("127.0.0.1", port)):
        result = world.play(job=world.job())
    assert_refused(world, result, "node-1", f"port {port} cannot be used", "Address already in use", "muster_run_id")


def test_a_host_without_python_is_named(world: World) -> None:
    """The error says what to install or to set."""
    hosts = {"node-2": {"ansible_python_interpreter": "/nowhere/python3"}}
    result = world.play(job=world.job(), hosts=hosts)
    assert_refused(world, result, "node-2", "python3 is not installed", "Python 3.10", "ansible_python_interpreter")


def old_python() -> str | None:
    """Return a Python 3 before 3.10 on this machine."""
    names = [f"python3.{minor}" for minor in (9, 8, 7)]
    found = [shutil.which(name) for name in names]
    kept = pathlib.Path.home() / ".pyenv" / "versions"
    found += [str(path) for name in names for path in sorted(kept.glob(f"*/bin/{name}"))]
    runs = (path for path in found if path and not subprocess.run([path, "-c", ""], capture_output=True).returncode)
    return next(runs, None)


def test_a_host_with_an_old_python_is_named(world: World) -> None:
    """A real old interpreter where there is one, else ours that says it is old."""
    python = old_python() or stand_in(world, "sys.version_info = (3, 9, 18, 'final', 0)")
    result = world.play(job=world.job(), hosts={"node-2": {"ansible_python_interpreter": python}})
    assert_refused(world, result, "node-2", "Python 3.", "is too old", "Install Python 3.10 or newer")


def test_an_interpreter_without_torch_is_named(world: World, tmp_path: pathlib.Path) -> None:
    """The error holds the command that installs it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    python = str(tmp_path / "bare" / "bin" / "python")
    result = world.play(job=TORCH_JOB, muster_training_python=python)
    assert_refused(
        world, result, "node-", f"package torch is not installed for {python}", f"{python} -m pip install 'torch>=2.1'"
    )


def test_an_interpreter_that_is_not_there_is_named(world: World) -> None:
    """The error names the variable to change."""
    result = world.play(job=TORCH_JOB, muster_training_python="/nowhere/bin/python")
    assert_refused(world, result, "node-", "/nowhere/bin/python does not exist", "muster_training_python")


def fake_torch(world: World, version: str) -> str:
    """Return an interpreter whose metadata says that this version of torch is installed."""
    folder = world.root / f"torch-{version}" / f"torch-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
    text = f'#!/bin/sh\nPYTHONPATH={folder.parent} exec {sys.executable} "$@"\n'
    return script(world.root / f"python-{version}", text)


def test_different_versions_of_torch_are_named(world: World) -> None:
    """Both nodes and both versions are in the error."""
    hosts = {
        node: {"muster_training_python": fake_torch(world, version)}
        for node, version in zip(NODES, ("2.9.1", "2.10.0"), strict=True)
    }
    result = world.play(job=TORCH_JOB, hosts=hosts, muster_training_python=None)
    assert_refused(world, result, "different versions of torch", "node-1 has 2.9.1", "node-2 has 2.10.0", "Install one")


def test_a_clock_that_is_off_is_named(world: World) -> None:
    """The node's clock as its Python tells it, two minutes ahead."""
    python = stand_in(world, "real = time.time; time.time = lambda: real() + 120")
    result = world.play(job=world.job(), hosts={"node-2": {"ansible_python_interpreter": python}})
    assert_refused(world, result, "node-2", "the clock is 1", "s ahead of the controller's", "time synchronisation")


def test_a_host_that_cannot_be_reached_is_named(world: World) -> None:
    """An address where nothing listens, over Ansible's own ssh connection."""
    result = world.play(job=world.job(), hosts={"node-2": {"ansible_connection": "ssh", "ansible_port": 1}})
    assert_refused(world, result, "node-2", "Connection refused", "Check its address, port and key")


def test_a_host_without_a_connection_of_its_own_is_not_reached_as_the_first_one_is(world: World) -> None:
    """The first host is this machine; the second one names no connection, so that it is reached as the play says."""
    hosts: dict[str, dict[str, object]] = {
        "this-one": {"ansible_connection": "local", "muster_address": "127.0.0.1"},
        "that-one": {"ansible_host": "127.0.0.9", "ansible_port": 1},
    }
    result = world.play(job=world.job(), hosts=hosts, muster_train_hosts="this-one,that-one")
    assert_refused(world, result, "that-one", "Connection refused", "Check its address, port and key")


def test_gpus_that_are_not_there_are_named(world: World) -> None:
    """Asked for more GPUs than any machine of ours has."""
    result = world.play(job=world.job(gpus_per_node=64))
    assert_refused(world, result, "node-", "GPUs were found, 64 are needed", "nvidia-smi")


def test_a_node_state_that_is_a_file_is_named(world: World) -> None:
    """The second node cannot keep state; the first one is not started either."""
    world.nodes.mkdir()
    (world.nodes / "node-2").write_text("in the way")
    assert_refused(world, world.play(job=world.job()), "node-2", "is not a folder", "muster_node_state")


def test_a_node_state_on_a_full_disk_is_named(world: World, small_disk: pathlib.Path) -> None:
    """The node's own state folder is checked before anything is sent."""
    fill(small_disk)
    hosts = {"node-1": {"muster_node_state": str(world.nodes)}, "node-2": {"muster_node_state": str(small_disk)}}
    result = world.play(job=world.job(), hosts=hosts, muster_node_state=None)
    assert_refused(world, result, "node-2", str(small_disk), "full file system", "muster_node_state")


def checkpoints(place: pathlib.Path) -> dict[str, t.Any]:
    """Return the part of a job that puts its checkpoints below ``place``."""
    return {"checkpoints": {"path": str(place)}}


def test_checkpoints_on_a_full_disk_are_refused(world: World, small_disk: pathlib.Path) -> None:
    """The path and the way out are in the error."""
    fill(small_disk)
    result = world.play(job=world.job(**checkpoints(small_disk / "ckpt")))
    assert_refused(world, result, "node-", f"{small_disk}/ckpt is on a full file system", "checkpoints.path")


def test_checkpoints_on_a_read_only_disk_are_refused(world: World, small_disk: pathlib.Path) -> None:
    """The path and the way out are in the error."""
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    result = world.play(job=world.job(**checkpoints(small_disk / "ckpt")))
    assert_refused(world, result, "node-", f"{small_disk}/ckpt is on a read-only file system", "checkpoints.path")


def test_checkpoints_on_a_disk_that_is_nearly_full_are_refused(world: World, small_disk: pathlib.Path) -> None:
    """Room for a folder but not for a file: only really writing there shows it, and it must not take the last room."""
    fill(small_disk, leave=16384)
    result = world.play(job=world.job(**checkpoints(small_disk / "ckpt")))
    assert_refused(world, result, "node-", f"{small_disk}/ckpt", "cannot be written: No space left on device")
    assert [path.name for path in small_disk.rglob("*") if path.is_file()] == ["fill"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_checkpoints_in_a_closed_folder_are_refused(world: World, tmp_path: pathlib.Path) -> None:
    """A folder of somebody else."""
    place = tmp_path / "closed"
    place.mkdir(mode=0o500)
    assert_refused(world, world.play(job=world.job(**checkpoints(place))), "node-1", f"{place} is not writable")


def test_a_job_that_hosts_refuse_leaves_no_folder(world: World) -> None:
    """Nothing of a run that never began is in the state home."""
    result = world.play(job=TORCH_JOB, muster_training_python="/nowhere/bin/python")
    assert result.code != 0
    assert list(world.state.glob("*/runs/*")) == []


def test_the_first_host_is_named_first(world: World) -> None:
    """The same mistake gives the same error each time: in the order of the inventory, however slow a host is."""
    text = f'#!/bin/sh\nsleep 1\nexec {sys.executable} "$@"\n'
    hosts = {"node-1": {"ansible_python_interpreter": script(world.root / "slow-python", text)}}
    result = world.play(job=TORCH_JOB, hosts=hosts, muster_training_python="/nowhere/bin/python")
    assert_refused(world, result, "node-1: /nowhere/bin/python does not exist")


@pytest.mark.parametrize("playbook", ["cluster", "cluster_absent", "devices", "bootstrap", "preflight", "status"])
def test_an_inventory_without_machines_is_refused_by_every_playbook_that_needs_them(
    tmp_path: pathlib.Path, playbook: str
) -> None:
    """Nothing to do would look as if it had been done."""
    (tmp_path / "typo.yml").write_text("all: {children: {muster_node: {hosts: {gpu-1: {}}}}}\n")
    program = pathlib.Path(sys.executable).parent / "ansible-playbook"
    argv = [str(program), "-i", "typo.yml", f"muster.training.{playbook}"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    said = done.stdout + done.stderr
    assert done.returncode == 2 and "No host of the inventory matches muster_nodes. Name an inventory with -i" in said
