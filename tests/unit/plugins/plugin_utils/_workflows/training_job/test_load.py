# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a job comes from: options, templates of a team, or the record of a run."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, MusterError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.job import Job, parse_job, to_yaml_names
from ansible_collections.muster.training.plugins.module_utils._node import files
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import run_record
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.request import RunRequest
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import load as training_job_load
from ansible_collections.muster.training.tests.support.run_world import Said

JOB = {"name": "x", "script": "/t.py"}


def load(root: pathlib.Path, hosts: t.Sequence[str] = ("gpu-1",), said: Said | None = None, **options: t.Any) -> Job:
    variables: dict[str, t.Any] = {name: {} for name in hosts}
    request = RunRequest(options, hosts, variables, root, False, lambda _names: [], said or Said())
    return training_job_load.load_job(request, StateHome({"path": str(root / "state")}, "lab"))


@pytest.mark.parametrize(
    ("hosts", "options", "image", "backend", "why"),
    [
        (["gpu-1"], {}, None, "hosts", "the play has machines, and no cluster is named"),
        (
            ["localhost"],
            {"kubeconfig": "~/.kube/config"},
            None,
            "kubernetes",
            "a cluster is named, and the play has no",
        ),
        (
            ["gpu-1"],
            {"kubeconfig": "k"},
            "torch:2",
            "kubernetes",
            "machines and a cluster are there, and the job has an",
        ),
        (["gpu-1"], {"context": "lab"}, None, "hosts", "machines and a cluster are there, and the job has no image"),
        (["localhost"], {}, "torch:2", "kubernetes", "no machines and no cluster are named, and the job has an image"),
        (["localhost"], {}, None, "hosts", "no machines and no cluster are named, and the job has no image"),
    ],
)
def test_the_backend_auto_is_what_is_there(
    tmp_path: pathlib.Path, hosts: list[str], options: dict[str, str], image: str | None, backend: str, why: str
) -> None:
    said = Said()
    job = {**JOB, "resources": {"memory": "1Gi"}} | ({"image": image} if image else {})
    if backend == "kubernetes" and image is None:
        with pytest.raises(InputError, match=r"job\.image: is required on Kubernetes"):
            load(tmp_path, hosts, said, job=job, **options)
    else:
        assert load(tmp_path, hosts, said, job=job, **options).placement.backend == backend
    (line,) = said.lines
    assert line.startswith(f"placement.backend: auto is {backend}: {why}")


def test_a_named_backend_is_not_decided_on(tmp_path: pathlib.Path) -> None:
    said = Said()
    found = load(tmp_path, ["localhost"], said, job={**JOB, "placement": {"backend": "hosts"}}, kubeconfig="k")
    assert found.placement.backend == "hosts" and said.lines == []


def templates(root: pathlib.Path, **files: str) -> None:
    folder = root / "templates"
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.yml").write_text(text)


def test_a_teams_template_goes_before_the_collections(tmp_path: pathlib.Path) -> None:
    templates(tmp_path, pytorch_ddp="nodes: 4\nrestart: {max_crashes: 9}\n", ours="launcher: mpi\n", empty="")
    found = load(tmp_path, job={**JOB, "template": "pytorch_ddp"}, template_paths=["templates"])
    assert (found.nodes, found.restart.max_crashes, found.requires) == (4, 9, {})
    assert load(tmp_path, job={**JOB, "template": "ours"}, template_paths=["templates"]).launcher == "mpi"
    assert load(tmp_path, job={**JOB, "template": "empty"}, template_paths=[str(tmp_path / "templates")]).nodes == 1
    assert load(tmp_path, job={**JOB, "template": "pytorch_ddp"}).requires == {"torch": ">=2.1"}


def test_the_first_folder_with_a_name_wins(tmp_path: pathlib.Path) -> None:
    for folder, nodes in (("one", 2), ("two", 3)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "ours.yml").write_text(f"nodes: {nodes}\n")
    assert load(tmp_path, job={**JOB, "template": "ours"}, template_paths=["one", "two", "none"]).nodes == 2


@pytest.mark.parametrize("text", ["a: [1\n", "\t- x: {", "- a list\n", "just text\n", "\udcff"])
def test_a_template_that_is_no_mapping_is_named(tmp_path: pathlib.Path, text: str) -> None:
    templates(tmp_path)
    (tmp_path / "templates" / "ours.yml").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(MusterError, match=r"templates/ours\.yml"):
        load(tmp_path, job=JOB, template_paths=["templates"])


def test_a_recorded_run_names_its_job(tmp_path: pathlib.Path) -> None:
    wanted = parse_job(
        {**JOB, "template": "ours", "nodes": 3, "secret_refs": [{"name": "T", "from": "env"}]}, {"ours": {"nodes": 9}}
    )
    folder = files.private_dir(StateHome({"path": str(tmp_path / "state")}, "lab").run_folder("x-1"))
    run_record.write_record(folder, run_record.new_record("x-1", to_yaml_names(wanted), 1000.0))
    found = load(tmp_path, run_id="x-1")
    assert (found.nodes, found.template, found.secret_refs) == (3, None, wanted.secret_refs)
    assert load(tmp_path, run_id="x-1", job={**JOB, "nodes": 7}).nodes == 7


def test_without_a_job_and_a_record_the_user_is_told_what_to_set(tmp_path: pathlib.Path) -> None:
    nothing: list[dict[str, t.Any]] = [{}, {"run_id": "x-1"}, {"job": {}}]
    for options in nothing:
        with pytest.raises(RefusedError, match="^job: is required. Set muster_job, or muster_run_id"):
            load(tmp_path, **options)
    with pytest.raises(InputError, match="^run_id: "):
        load(tmp_path, run_id="../x")
