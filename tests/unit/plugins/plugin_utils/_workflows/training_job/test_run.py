# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The entry of training_job: which backend carries a request out, and what is refused before any of them."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job, to_yaml_names
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import run_record
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import run as training_job
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.hosts import run as hosts_run
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import (
    run as kubernetes_run,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes.ending import (
    cancel as kubernetes_cancel,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job_info.read import read_runs
from ansible_collections.muster.training.tests.support.run_world import Said

JOB = {"name": "x", "nodes": 1, "script": "/t.py"}


def request(root: pathlib.Path, **options: t.Any) -> training_job.RunRequest:
    common = {"cluster": "lab", "state": "present", "template_paths": [], "wait": True}
    return training_job.RunRequest(
        {**common, "state_home": {"path": str(root)}, **options}, ["a"], {}, root, False, lambda names: [], Said()
    )


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    calls: list[tuple[str, str]] = []
    backends: tuple[tuple[str, t.Any, t.Any], ...] = (
        ("hosts", hosts_run, hosts_run),
        ("kubernetes", kubernetes_run, kubernetes_cancel),
    )
    for name, running, ending in backends:
        monkeypatch.setattr(running, "run", lambda *_args, name=name: calls.append((name, "run")) or {})
        monkeypatch.setattr(ending, "cancel", lambda *_args, name=name: calls.append((name, "cancel")) or {})
    return calls


@pytest.mark.parametrize("backend", ["hosts", "kubernetes"])
def test_the_job_names_its_backend(tmp_path: pathlib.Path, calls: list[tuple[str, str]], backend: str) -> None:
    image = {"image": "i:1"} if backend == "kubernetes" else {}
    training_job.run(request(tmp_path, job={**JOB, **image, "placement": {"backend": backend}}))
    assert calls == [(backend, "run")]


@pytest.mark.parametrize("backend", ["hosts", "kubernetes"])
def test_the_record_names_the_backend_of_what_is_cancelled(
    tmp_path: pathlib.Path, calls: list[tuple[str, str]], backend: str
) -> None:
    folder = StateHome({"path": str(tmp_path)}, "lab").run_folder("x-1")
    folder.mkdir(parents=True)
    run_record.write_record(folder, run_record.new_record("x-1", to_yaml_names(parse_job(JOB)), 1.0, backend=backend))
    training_job.run(request(tmp_path, state="cancelled", run_id="x-1"))
    assert calls == [(backend, "cancel")]


@pytest.mark.parametrize(("module", "backend"), [(hosts_run, "hosts"), (kubernetes_run, "kubernetes")])
@pytest.mark.parametrize("outcome", ["succeeded", "cancelled"])
def test_a_run_that_was_cancelled_elsewhere_has_not_trained(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, module: t.Any, backend: str, outcome: str
) -> None:
    """What comes after it, such as an evaluation, needs its model."""
    ended = {"run_id": "x-1", "run": {"outcome": outcome, "detail": "stopped on b"}}
    monkeypatch.setattr(module, "run", lambda *_args: dict(ended))
    image = {"image": "i:1"} if backend == "kubernetes" else {}
    found = training_job.run(request(tmp_path, job={**JOB, **image, "placement": {"backend": backend}}))
    said = {"failed": True, "msg": "run x-1 cancelled: stopped on b"} if outcome == "cancelled" else {}
    assert found == {**ended, **said}


def test_cancelling_needs_a_run_that_exists(tmp_path: pathlib.Path, calls: list[tuple[str, str]]) -> None:
    with pytest.raises(InputError, match="^run_id: is required to cancel"):
        training_job.run(request(tmp_path, state="cancelled"))
    with pytest.raises(RefusedError, match="run x-1 does not exist in .*lab. List the runs"):
        training_job.run(request(tmp_path, state="cancelled", run_id="x-1"))
    assert calls == []


def test_a_state_home_that_cannot_be_used_is_named(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: t.Any) -> t.Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(hosts_run, "run", full)
    with pytest.raises(RefusedError, match="cannot be used: No space left on device. Set muster_state.path"):
        training_job.run(request(tmp_path, job=JOB))


def test_a_cut_in_pods_is_refused(tmp_path: pathlib.Path, calls: list[tuple[str, str]]) -> None:
    job = {**JOB, "image": "img", "placement": {"backend": "kubernetes"}}
    with pytest.raises(InputError, match=r"drill.target: cut is for plain hosts"):
        training_job.run(request(tmp_path, job=job, drill={"target": "cut", "at_step": 1}))
    assert calls == []


def test_a_run_that_is_listed_is_cancelled(tmp_path: pathlib.Path, calls: list[tuple[str, str]]) -> None:
    home = StateHome({"path": str(tmp_path)}, "lab")
    folder = home.run_folder("x-1")
    folder.mkdir(parents=True)
    run_record.write_record(folder, run_record.new_record("x-1", to_yaml_names(parse_job(JOB)), 1.0, backend="hosts"))
    with pytest.raises(RefusedError, match="run x-2 does not exist in .*List the runs with the status playbook"):
        training_job.run(request(tmp_path, state="cancelled", run_id="x-2"))
    (listed,) = [record["run_id"] for record in t.cast(t.Any, read_runs(home, None)["runs"])]
    training_job.run(request(tmp_path, state="cancelled", run_id=listed))
    assert calls == [("hosts", "cancel")]
