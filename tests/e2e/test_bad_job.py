# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs that must not start because of what was written: one clear error, nothing started, nothing left behind."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import ROOT, World, assert_refused

EXAMPLE = {"launcher": "torchrun", "command": [], "script": "train.py", "code": {"ref": str(ROOT / "examples/char_lm")}}
GPU_JOB = {**EXAMPLE, "gpus_per_node": 1, "processes_per_node": 2}

# name of the case: (keys of the job, words of the error)
WRITTEN: dict[str, tuple[dict[str, t.Any], tuple[str, ...]]] = {
    "misspelt option": ({"nodse": 2}, ("job.nodse", "is not an option", "Did you mean 'nodes'?")),
    "unknown option": ({"colour": "red"}, ("job.colour", "is not an option", "Known are: name, nodes")),
    "misspelt nested option": (
        {"restart": {"max_crash": 1}},
        ("job.restart.max_crash", "is not an option", "Did you mean 'max_crashes'?"),
    ),
    "misspelt option of a list item": (
        {"datasets": [{"name": "text", "pth": "x"}]},
        ("job.datasets[0].pth", "Did you mean 'path'?"),
    ),
    "misspelt word": ({"launcher": "torchrum"}, ("job.launcher", "must be one of", "Did you mean 'torchrun'?")),
    "misspelt template": ({"template": "pytorch_dpp"}, ("job.template", "Did you mean 'pytorch_ddp'?")),
    "no nodes": ({"nodes": 0}, ("job.nodes", "must be at least 1, not 0")),
    "negative nodes": ({"nodes": -1}, ("job.nodes", "must be at least 1, not -1")),
    "nodes as text": ({"nodes": "2x"}, ("job.nodes", "must be a whole number", "2x")),
    "more nodes than hosts": ({"nodes": 3}, ("job.nodes", "3 nodes", "2 hosts", "Add hosts or request fewer nodes")),
    "more processes than GPUs": (GPU_JOB, ("job.processes_per_node", "2 processes", "1 GPUs")),
    "long name": ({"name": "n" * 41}, ("job.name", "has 41 characters, at most 40")),
    "upper case in name": ({"name": "Llama"}, ("job.name", "must be lower-case letters")),
    "emoji in name": ({"name": "llama-🦙"}, ("job.name", "must be lower-case letters")),
    "missing script": ({**EXAMPLE, "script": "trian.py"}, ("job.script", "trian.py does not exist in the code")),
    "missing code": ({**EXAMPLE, "code": {"ref": "/nowhere/code"}}, ("job.code.ref", "/nowhere/code does not exist")),
    "missing dataset": (
        {"datasets": [{"name": "text", "path": "/nowhere/data"}]},
        ("job.datasets.text.path", "/nowhere/data does not exist"),
    ),
    "rank in env": ({"env": {"RANK": "0"}}, ("job.env.RANK", "is set by the launcher")),
    "bad step pattern": ({"metrics": {"step_pattern": "("}}, ("job.metrics.step_pattern", "regular expression")),
    "later feature": ({"code": {"from": "binding", "ref": "b"}}, ("job.code.from", "is not available yet")),
    "no such tracker": ({"tracking": "mlflow"}, ("job.tracking.binding", "'mlflow' is not a binding")),
    "only on Kubernetes": ({"image": "x"}, ("job.image", "is not supported on plain hosts", "kubernetes")),
}


@pytest.mark.parametrize("case", WRITTEN)
def test_a_wrong_job_is_refused(world: World, case: str) -> None:
    """The error names the option, the problem and, for a misspelling, the nearest word."""
    values, words = WRITTEN[case]
    error = assert_refused(world, world.play(job=world.job(**values)), *words)
    assert world.digest() == {}, "a job that cannot be parsed must not touch any state"
    assert "node-" not in error, "no node was asked"


def test_a_dataset_that_cannot_be_read_is_refused(world: World) -> None:
    """It is noticed on the controller, before a node is asked."""
    place = world.root / "dataset"
    if os.geteuid() == 0:
        # Root may read any file; reading this one at offset 0 fails with an I/O error for everybody.
        place.symlink_to("/proc/self/mem")
    else:
        place.write_text("closed")
        place.chmod(0)
    job = world.job(datasets=[{"name": "text", "path": str(place)}])
    assert_refused(world, world.play(job=job), "job.datasets.text.path", f"cannot read {place}")


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"muster_state": {"pth": "/tmp"}}, ("muster_state.pth", "is not an option", "Did you mean 'path'?")),
        ({"muster_cluster": "My Cluster"}, ("muster_cluster", "must be lower-case letters")),
        ({"muster_drill": {"target": "wroker", "at_step": 3}}, ("drill.target", "Did you mean 'worker'?")),
        (
            {"muster_drill": {"at_step": 5, "after_s": 5}},
            ("drill.at_step", "set either at_step or after_s, and not both"),
        ),
        ({"muster_train_hosts": "nobody"}, ("No host of the inventory matches nobody", "muster_train_hosts")),
    ],
    ids=["state option", "cluster name", "drill target", "drill time", "no hosts"],
)
def test_wrong_variables_beside_the_job_are_refused(
    world: World, extra: dict[str, t.Any], words: tuple[str, ...]
) -> None:
    """Every variable that a user sets is checked as the job is."""
    assert_refused(world, world.play(job=world.job(), **extra), *words)


def test_no_job_at_all_is_refused(world: World) -> None:
    """The error says which variable to set."""
    assert_refused(world, world.play(job={}), "job: is required", "muster_job")


def test_a_job_that_is_no_mapping_is_refused_by_its_name(world: World) -> None:
    """The error is one line in our words, not one of Ansible's check of types."""
    assert_refused(world, world.play(job=["train.py"]), "job: must be a mapping, not a list")


@pytest.mark.parametrize("run_id", ["../../elsewhere", "two words", "Über"])
def test_a_run_id_that_is_no_name_is_refused(world: World, run_id: str) -> None:
    """A run id becomes a folder on the controller and on every node, so it must not be a path."""
    result = world.play(job=world.job(), muster_run_id=run_id)
    assert_refused(world, result, "run_id", "must be lower-case letters")
    assert not [path for path in world.root.rglob("*") if "elsewhere" in path.name]


def test_two_datasets_of_one_name_are_refused(world: World) -> None:
    """Both would be placed in one folder."""
    both = [{"name": "text", "path": str(ROOT / name)} for name in ("LICENSE", "galaxy.yml")]
    assert_refused(world, world.play(job=world.job(datasets=both)), "job.datasets", "'text' is listed twice")


def test_a_state_home_that_is_a_file_is_refused_by_its_name(world: World) -> None:
    """The error names the variable that is wrong."""
    world.state.write_text("not a folder")
    error = assert_refused(world, world.play(job=world.job()), str(world.state), "muster_state")
    assert "damaged" not in error


def test_a_state_home_on_a_full_disk_is_refused_by_its_name(world: World, small_disk: pathlib.Path) -> None:
    """A controller without room cannot keep the record of a run, so it must not start one."""
    fill(small_disk)
    result = world.play(job=world.job(), muster_state={"path": str(small_disk / "state")})
    assert_refused(world, result, str(small_disk), "muster_state")


def fill(disk: pathlib.Path, leave: int = 0) -> None:
    """Fill a small file system up to ``leave`` bytes."""
    with open(disk / "fill", "wb", buffering=0) as handle:
        try:
            while True:
                handle.write(b"\0" * 4096)
        except OSError:
            handle.truncate(max(0, handle.tell() - leave))


@pytest.mark.parametrize("playbook", ["cancel", "status", "logs", "report"])
def test_a_run_that_is_not_there_is_named(world: World, playbook: str) -> None:
    """Every playbook about a run says that there is none of this name, and where it looked."""
    error = assert_refused(world, world.play(playbook), f"run {world.run_id} does not exist", str(world.state))
    assert "status playbook" in error or "The newest runs are: none" in error


def test_a_run_that_does_not_exist_is_said_before_anything_is_waited_for(world: World) -> None:
    result = world.play("watch", muster_run_id="nope")
    assert "run nope does not exist" in result.errors[0], result.output
    assert result.code == 2 and "Wait for a notice" not in result.output
