# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a job's checkpoints go, when all nodes must see one folder, and which options cannot take effect."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import job_checkpoints
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.job import Job, parse_job

PODS: dict[str, t.Any] = {"placement": {"backend": "kubernetes"}, "image": "i"}
CLAIM: dict[str, t.Any] = {**PODS, "mounts": [{"name": "m", "path": "/mnt", "pvc": "c"}]}


def job(**values: t.Any) -> Job:
    return parse_job({"name": "x", "nodes": 2, "script": "/t.py", **values})


@pytest.mark.parametrize(
    ("values", "shared", "words"),
    [
        ({}, False, "in each node's own run folder"),
        ({"nodes": 1}, False, ""),
        ({"checkpoints": {"path": "/mnt/c"}}, True, ""),
        ({"nodes": 1, "checkpoints": {"path": "/mnt/c"}}, False, ""),
        ({"checkpoints": {"path": "/mnt/c", "shared": False}}, False, "its part of the checkpoints in /mnt/c"),
        ({**CLAIM, "checkpoints": {"path": "/mnt/c"}}, True, ""),
        ({**CLAIM, "checkpoints": {"path": "/mnt/c", "shared": False}}, False, "(checkpoints.shared: false)"),
        # A warning says that these are lost with their pod.
        ({**PODS, "checkpoints": {"path": "/c"}}, False, ""),
        ({**PODS}, False, ""),
        ({**CLAIM, "launcher": "ray", "checkpoints": {"path": "/mnt/c"}}, True, "not tested"),
    ],
)
def test_a_named_folder_of_several_nodes_must_be_one(values: dict[str, t.Any], shared: bool, words: str) -> None:
    found = job(**values)
    assert job_checkpoints.must_be_shared(found) is shared
    said = job_checkpoints.describe_folder(found)
    assert words in said and bool(words) == bool(said)
    copied = found.nodes > 1 and not found.on_kubernetes and not shared
    assert job_checkpoints.are_copied(found) is copied is ("is copied to the others before a restart" in said)


def test_the_folders_of_a_run() -> None:
    found = job(**CLAIM, checkpoints={"path": "/mnt/c/"})
    assert job_checkpoints.checkpoint_folder(found, "x-1") == "/mnt/c/x-1"
    assert job_checkpoints.kept_logs_folder(found, "x-1") == "/mnt/c/.muster/x-1/logs"
    assert job_checkpoints.folder_of_start(found, 3) == ""
    assert job_checkpoints.folder_of_start(job(checkpoints={"resume": "never"}), 3) == "attempt-3"
    assert job_checkpoints.checkpoint_folder(job(), "x-1") is None
    assert job_checkpoints.kept_logs_folder(job(checkpoints={"path": "/c"}), "x-1") is None


def test_a_checkpoint_that_a_new_pod_cannot_have_is_not_required() -> None:
    with pytest.raises(InputError, match="job.checkpoints.resume: required needs checkpoints on a mount"):
        job(**PODS, checkpoints={"path": "/c", "resume": "required"})
    assert job(**CLAIM, checkpoints={"path": "/mnt/c", "resume": "required"}).checkpoints.keep is None


@pytest.mark.parametrize(
    ("job", "rented", "words"),
    [
        (
            {},
            {"a": 6.2, "b": 6.2},
            ("the folder of the run on a and b", "$12.40 an hour is lost", "when they are deleted:"),
        ),
        ({"release": "success"}, {"a": 2.0}, ("are deleted after the run (release: success)",)),
        ({"timeout_s": 7200}, {"a": 2.0}, ("$2.00 an hour, up to $4.00 until timeout_s",)),
        ({}, {"a": 2.0, "b": None, "c": 1.0}, ("on a and 2 more", "at least $3.00 an hour")),
        ({"checkpoints": {"path": "/scratch"}, "nodes": 1}, {"a": 2.0}, ("are in /scratch on a,",)),
        ({"checkpoints": {"path": "/scratch", "shared": False}}, {"a": 2.0}, ("are in /scratch on a,",)),
        ({}, {}, ()),
        ({"checkpoints": {"binding": "store"}}, {"a": 2.0}, ()),
        # Proven to be one folder for all nodes.
        ({"checkpoints": {"path": "/nfs"}}, {"a": 2.0}, ()),
    ],
)
def test_checkpoints_that_go_with_rented_machines_are_said_with_their_price(
    job: dict[str, t.Any], rented: dict[str, float | None], words: tuple[str, ...]
) -> None:
    said = job_checkpoints.describe_vanishing(parse_job({"name": "x", "script": "/t.py", "nodes": 2, **job}), rented)
    assert bool(said) is bool(words) and all(word in said for word in words), said


@pytest.mark.parametrize(
    ("checkpoints", "pattern", "words"),
    [
        ({"keep": 2}, "saved (?P<step>[0-9]+)", "checkpoints.keep: 2 removes only checkpoints of a known layout ("),
        ({"keep": 2, "format": "files"}, "saved (?P<step>[0-9]+)", "checkpoints.keep: 2 removes no file that metrics."),
        ({"keep": 2, "format": "megatron"}, "saved (?P<step>[0-9]+)", ""),
        ({"keep": 2}, None, ""),
        ({}, "saved (?P<step>[0-9]+)", ""),
    ],
)
def test_a_limit_that_has_no_effect_is_said(checkpoints: dict[str, t.Any], pattern: str | None, words: str) -> None:
    job = parse_job(
        {"name": "x", "script": "/t.py", "checkpoints": checkpoints, "metrics": {"checkpoint_pattern": pattern}}
    )
    said = job_checkpoints.describe_unlimited(job)
    assert said.startswith(words) and bool(said) is bool(words)


VOLUME = {"name": "data", "path": "/data", "pvc": "data"}
DISK = {"name": "disk", "path": "/disk", "host_path": "/var/disk"}
IN_POD = ("is not on a mount", "do not survive a lost or replaced pod, and go with the pods after the run")


@pytest.mark.parametrize(
    ("job", "rented", "words"),
    [
        ({}, {}, (*IN_POD, "after the run. Name a claim")),
        ({"mounts": [VOLUME], "checkpoints": {"path": "/database/run"}}, {}, IN_POD),
        # Of more rented nodes than the job takes, it may get the dearest ones.
        ({}, {"a": 2.0, "b": 3.0, "c": 1.0}, (*IN_POD, "training for up to $5.00 an hour is lost with them")),
        ({"timeout_s": 7200}, {"a": 2.0}, (*IN_POD, "for $2.00 an hour, up to $4.00 until timeout_s is lost")),
        ({}, {"a": None}, (*IN_POD, "training for a price that is not known is lost")),
        (
            {"mounts": [DISK], "checkpoints": {"path": "/disk/run", "shared": False}},
            {"a": 2.0},
            ("are in /disk/run on a, rented machines, and go with them", "$2.00 an hour is lost"),
        ),
        ({"mounts": [DISK], "checkpoints": {"path": "/disk/run"}, "nodes": 1}, {"a": 2.0}, ("are in /disk/run on a",)),
        # Nodes that are owned stay, and a claim is not of a node.
        ({"mounts": [DISK], "checkpoints": {"path": "/disk/run", "shared": False}}, {}, ()),
        ({"mounts": [DISK], "checkpoints": {"path": "/disk/run"}}, {"a": 2.0}, ()),
        ({"mounts": [VOLUME], "checkpoints": {"path": "/data/run"}, "nodes": 1}, {"a": 2.0}, ()),
        ({"checkpoints": {"binding": "store"}}, {"a": 2.0}, ()),
    ],
)
def test_checkpoints_that_go_with_pods_or_rented_nodes_are_said(
    job: dict[str, t.Any], rented: dict[str, float | None], words: tuple[str, ...]
) -> None:
    pods = {"name": "x", "script": "t.py", "code": {"ref": "/c"}, "nodes": 2, "image": "i:1"}
    asked = parse_job({**pods, "placement": {"backend": "kubernetes"}, **job})
    said = job_checkpoints.describe_vanishing(asked, rented)
    assert bool(said) is bool(words) and all(word in said for word in words), said
