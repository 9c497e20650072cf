# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The launch file of a recorded run is read back as the same job; its link is the address with the digest."""

from __future__ import annotations

import hashlib
import json
import pathlib
import typing as t

import pytest
import yaml

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, MusterError
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job, to_yaml_names
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_template_info.make_launch import (
    make_launch,
)

JOB = {"name": "lm", "nodes": 2, "code": {"ref": "./lm"}, "script": "train.py", "args": ["--lr", "0.1"]}


@pytest.fixture
def home(tmp_path: pathlib.Path) -> StateHome:
    found = StateHome({"path": str(tmp_path / "state")}, "default")
    write(found, "lm-1", code_sha256="c" * 64)
    return found


def write(home: StateHome, run_id: str, job: t.Any = JOB, **values: t.Any) -> None:
    folder = home.run_folder(run_id)
    folder.mkdir(parents=True)
    known = {"schema": 1, "run_id": run_id, "job": to_yaml_names(parse_job(job)), "state": "ended"}
    (folder / "run.json").write_text(json.dumps({**known, "submitted_at": "2026-01-01T00:00:00Z", **values}))


def test_the_file_names_its_run_and_goes_where_it_is_asked_for(home: StateHome, tmp_path: pathlib.Path) -> None:
    made: dict[str, t.Any] = make_launch(home, None, tmp_path, None, None)
    assert made["path"] == str(tmp_path / "lm-1.launch.yml") and "link" not in made
    assert made["sha256"] == hashlib.sha256(made["text"].encode()).hexdigest()
    values = yaml.safe_load(made["text"])
    assert values["run"] == "lm-1" and values["job"]["code"] == {"sha256": "c" * 64}
    other: dict[str, t.Any] = make_launch(home, "lm-1", tmp_path / "mine.yml", "https://x.example.org/l.yml", None)
    assert other["path"] == str(tmp_path / "mine.yml") and other["text"] == made["text"]
    assert other["link"] == f"https://x.example.org/l.yml#sha256={made['sha256']}"
    assert sorted(place.name for place in tmp_path.iterdir()) == ["state"]


def test_the_code_of_a_repository_is_of_the_commit_that_ran(home: StateHome, tmp_path: pathlib.Path) -> None:
    job = {**JOB, "code": {"from": "git", "ref": "git@git.example.org:team/lm.git@main"}}
    write(home, "lm-2", job, code_sha256="c" * 64, versions={"commit": "a" * 40})
    made: dict[str, t.Any] = make_launch(home, "lm-2", tmp_path, None, None)
    assert yaml.safe_load(made["text"])["job"]["code"]["ref"] == f"git@git.example.org:team/lm.git@{'a' * 40}"


@pytest.mark.parametrize("url", ["http://x.example.org/l.yml", "https://me:word77@x.example.org/l.yml", "l.yml"])
def test_a_link_is_behind_https_and_has_no_credential(home: StateHome, tmp_path: pathlib.Path, url: str) -> None:
    with pytest.raises(InputError) as caught:
        make_launch(home, None, tmp_path, url, None)
    assert caught.value.option == "url" and "word77" not in caught.value.message


def test_a_run_that_is_not_there_is_named(home: StateHome, tmp_path: pathlib.Path) -> None:
    with pytest.raises(MusterError, match="run lm-9 does not exist"):
        make_launch(home, "lm-9", tmp_path, None, None)


def test_a_dev_container_is_below_the_project(home: StateHome, tmp_path: pathlib.Path) -> None:
    image = f"r.example.org/x@sha256:{'d' * 64}"
    job = {"name": "lm", "image": image, "module": "x", "placement": {"backend": "kubernetes"}}
    write(home, "lm-3", job)
    made: dict[str, t.Any] = make_launch(home, "lm-3", tmp_path, None, tmp_path / "project")
    assert made["devcontainer_path"] == str(tmp_path / "project/.devcontainer/devcontainer.json")
    assert json.loads(made["devcontainer_text"]) == {"name": "lm", "image": image}
