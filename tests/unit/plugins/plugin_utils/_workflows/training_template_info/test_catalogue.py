# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The catalogue of folders: every shipped template fills, and what is wrong with a folder is said."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
import yaml

from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.module_utils._model.job_templates import PRESETS
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_template_info.catalogue import (
    TemplateRequest,
    read_catalogue,
)

SHIPPED = {"accelerate": "accelerate", "deepspeed-zero3": "deepspeed_zero3", "pytorch-ddp": "pytorch_ddp"}
OURS = {"name": "ours", "version": "1", "description": "A job", "job": {"name": "x", "template": "our_preset"}}
# The names of variables that training programs commonly read.
NAMES = {"MODEL_NAME", "DATASET_PATH", "OUTPUT_DIR", "BATCH_SIZE", "MLFLOW_TRACKING_URI"}


def read(base: pathlib.Path, *folders: str, **request: t.Any) -> dict[str, t.Any]:
    return read_catalogue(folders, base, TemplateRequest(**request))


def write(folder: pathlib.Path, **change: t.Any) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "ours.yml").write_text(yaml.safe_dump({**OURS, **change}), encoding="utf-8")


def test_the_shipped_templates_are_listed(tmp_path: pathlib.Path) -> None:
    found = read(tmp_path)
    assert [item["name"] for item in found["templates"]] == list(SHIPPED) and len(found["table"]) == len(SHIPPED)
    assert "job" not in found and "survey_spec" not in found


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_template_is_the_job_that_one_writes_by_hand(tmp_path: pathlib.Path, name: str) -> None:
    by_hand: dict[str, t.Any] = {
        "name": name,
        "template": SHIPPED[name],
        "code": {"from": "path", "ref": "./code"},
        "script": "train.py",
    }
    by_hand |= {"args": ["{deepspeed_config}"]} if name == "deepspeed-zero3" else {}
    filled = read(tmp_path, name=name, inputs={"code": "./code"})["job"]
    assert parse_job(filled, PRESETS) == parse_job({**by_hand, "processes_per_node": 1}, PRESETS)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_template_takes_every_input(tmp_path: pathlib.Path, name: str) -> None:
    secrets = {"hf_token": {"from": "env", "key": "H"}, "wandb_api_key": {"from": "file", "path": "/w"}}
    texts = {"model_name": "m", "dataset_path": "/d", "output_dir": "/o", "mlflow_tracking_uri": "http://m:5000"}
    inputs = {"code": "./code", "nnodes": 2, "nproc_per_node": 4, "batch_size": 8, **texts, **secrets}
    job = parse_job(read(tmp_path, name=name, inputs=inputs)["job"], PRESETS)
    assert (job.nodes, job.processes_per_node) == (2, 4) and job.env.keys() == NAMES and job.env["BATCH_SIZE"] == "8"
    assert [ref.name for ref in job.secret_refs] == ["HF_TOKEN", "WANDB_API_KEY"]


def test_own_keys_of_the_job_are_laid_over_the_filled_one(tmp_path: pathlib.Path) -> None:
    inputs, own = {"code": "./code", "nnodes": 2}, {"nodes": 3, "checkpoints": {"keep": 2}}
    job = read(tmp_path, name="pytorch-ddp", inputs=inputs, job=own)["job"]
    assert (job["nodes"], job["checkpoints"], job["script"]) == (3, {"keep": 2}, "train.py")


def test_a_job_that_cannot_be_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(MusterError, match="job.nodez: is not an option"):
        read(tmp_path, name="pytorch-ddp", inputs={"code": "./code"}, job={"nodez": 3})


def test_a_folder_of_ones_own(tmp_path: pathlib.Path) -> None:
    write(tmp_path / "mine")
    found = read(tmp_path, "mine", name="ours", inputs={})
    assert found["job"] == OURS["job"] and found["templates"][-1]["path"] == str(tmp_path / "mine" / "ours.yml")
    digest = found["templates"][-1]["digest"]
    assert read(tmp_path, "mine", name="ours", digest=digest, inputs={})["job"] == OURS["job"]
    write(tmp_path / "mine", version="2")
    with pytest.raises(MusterError, match="digest: template ours 2 has digest [0-9a-f]{64}. Check the template"):
        read(tmp_path, "mine", name="ours", digest=digest, inputs={})


def test_two_sources_of_one_name(tmp_path: pathlib.Path) -> None:
    write(tmp_path / "mine", name="accelerate")
    with pytest.raises(MusterError, match="paths: .*accelerate.yml and .*ours.yml both have template accelerate"):
        read(tmp_path, "mine")


def test_what_is_not_there_is_said(tmp_path: pathlib.Path) -> None:
    with pytest.raises(MusterError, match="paths: .*none is not a folder"):
        read(tmp_path, "none")
    with pytest.raises(
        MusterError, match="name: template 'pytorch-dp' is not in the catalogue. Did you mean 'pytorch-d"
    ):
        read(tmp_path, name="pytorch-dp")
    write(tmp_path / "mine")
    (tmp_path / "mine" / "ours.yml").write_text("a: [", encoding="utf-8")
    with pytest.raises(MusterError, match=r"ours.yml: is not readable as YAML. Fix it"):
        read(tmp_path, "mine")


def test_the_filled_job_comes_with_the_template_to_record(tmp_path: pathlib.Path) -> None:
    secret = {"from": "env", "key": "H"}
    found = read(tmp_path, name="accelerate", inputs={"code": "./c", "hf_token": secret}, job={"nodes": 3})
    shown = next(item for item in found["templates"] if item["name"] == "accelerate")
    assert found["catalogue_template"] == {
        **{key: shown[key] for key in ("name", "version", "digest")},
        "inputs": {"code": "./c", "hf_token": secret},
        "overrides": {"nodes": 3},
    }
