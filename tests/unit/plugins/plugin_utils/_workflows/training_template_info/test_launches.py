# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A launch file gives its job; its template is believed where the catalogue has that very one and it makes that job."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
import yaml

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.launch_file import LaunchAnswers
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_template_info.catalogue import (
    TemplateRequest,
    read_catalogue,
)

Dict = dict[str, t.Any]
INPUTS = {"code": "./lm", "nnodes": 2, "model_name": "small", "job_name": "lm"}


def read(base: pathlib.Path, launch: str, **request: t.Any) -> Dict:
    given: Dict = {"answers": LaunchAnswers(code="./mine"), "playbook": "train", "launch": launch, **request}
    return t.cast(Dict, read_catalogue([], base, TemplateRequest(**given)))


@pytest.fixture
def launch(tmp_path: pathlib.Path) -> Dict:
    """Return the launch file of a job that the shipped template makes."""
    filled: Dict = t.cast(Dict, read_catalogue([], tmp_path, TemplateRequest(name="pytorch-ddp", inputs=INPUTS)))
    job = {**filled["job"], "code": {"sha256": "c" * 64}}
    return {"launch": 1, "job": job, "template": filled["catalogue_template"]}


def write(folder: pathlib.Path, values: t.Any) -> str:
    (folder / "x.yml").write_text(values if isinstance(values, str) else yaml.safe_dump(values))
    return "x.yml"


def test_its_job_is_the_templates_with_the_code_of_who_launches_it(launch: Dict, tmp_path: pathlib.Path) -> None:
    found = read(tmp_path, write(tmp_path, launch), job={"placement": {"namespace": "hers"}})
    assert found["job"]["code"] == {"sha256": "c" * 64, "ref": "./mine"}
    assert found["job"]["placement"] == {"namespace": "hers"} and found["job"]["nodes"] == 2
    assert found["catalogue_template"]["name"] == "pytorch-ddp" and "warnings" not in found
    assert found["launch_needs"] == [f"muster_launch_code: a folder with the code (SHA-256 {'c' * 64})"]


@pytest.mark.parametrize(
    ("part", "why"),
    [
        ("digest", "the catalogue has another one of this name"),
        ("job", "the template makes another job of its answers"),
        ("inputs", "the template makes another job of its answers"),
        ("name", "the catalogue has none of this name"),
    ],
)
def test_a_template_that_does_not_make_the_job_is_not_recorded_and_that_is_said(
    launch: Dict, tmp_path: pathlib.Path, part: str, why: str
) -> None:
    changes: Dict = {"digest": "0" * 64, "inputs": {**INPUTS, "nnodes": 3}, "name": "not-there"}
    if part == "job":
        launch["job"]["args"] = ["--other"]
    else:
        launch["template"] = {**launch["template"], part: changes[part]}
    found = read(tmp_path, write(tmp_path, launch))
    assert "catalogue_template" not in found and found["job"]["code"]["ref"] == "./mine"
    (warning,) = found["warnings"]
    assert why in warning and "recorded without a template" in warning


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("away.yml", "launch: away.yml cannot be read (no such file or directory)"),
        ("https://x.example.org/l.yml", "launch: is a link without the digest"),
        ("https://x.example.org/l.yml#sha256=12", "launch: must be the SHA-256 of the file"),
        (f"http://x.example.org/l.yml#sha256={'0' * 64}", "launch: must be the address of a file behind HTTPS"),
        (f"https://me:word77@x.example.org/l#sha256={'0' * 64}", "launch: must not contain a user"),
    ],
)
def test_a_place_that_is_not_one_is_named(tmp_path: pathlib.Path, place: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, place)
    assert caught.value.message.startswith(said) and "word77" not in caught.value.message


@pytest.mark.parametrize(("text", "said"), [("{", "not readable as YAML"), ("[1]", "must be a mapping"), ("", "x.yml")])
def test_a_file_that_is_no_launch_file_is_named(tmp_path: pathlib.Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read(tmp_path, write(tmp_path, text))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"name": "pytorch-ddp"}, "launch: has its own job"),
        ({"inputs": {"nnodes": 3}, "inputs_path": "muster_inputs"}, "muster_inputs: is for a template"),
        ({"job": {"nodes": 3}}, "job.nodes: would make it another job"),
    ],
)
def test_what_would_make_it_another_job_is_refused(launch: Dict, tmp_path: pathlib.Path, more: Dict, said: str) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, write(tmp_path, launch), **more)
    assert caught.value.message.startswith(said)
