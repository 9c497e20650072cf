# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The catalogue of folders: every shipped template fills, and what is wrong with a folder is said."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.module_utils._model.job_templates import PRESETS
from ansible_collections.muster.training.plugins.module_utils._model.service import parse_services
from ansible_collections.muster.training.plugins.plugin_utils._services.components import require_deployable
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_template_info.catalogue import (
    TemplateRequest,
    read_catalogue,
)

ROOT = pathlib.Path(__file__).parents[6]
SHIPPED = {"accelerate": "accelerate", "deepspeed-zero3": "deepspeed_zero3", "pytorch-ddp": "pytorch_ddp"}
SERVICES = ("dcgm", "grafana", "harbor", "minio", "mlflow", "prometheus", "rustfs", "vault")
DEPLOY, BIND = {"host": "box"}, {"mode": "bind", "endpoint": "https://x.example.org:9000"}
POD = {"namespace": "infra", "node": "n1", "size": "5Gi", "storage_class": "fast", "port": 9999}
LOGIN = {"credentials": {"from": "env"}}
# By template, answers with what the entry then is: its kind, its provider and its mode.
FILLED: list[tuple[str, dict[str, t.Any], tuple[str, str, str]]] = [
    ("minio", {**DEPLOY, "tls": True}, ("object_store", "minio", "deploy")),
    ("minio", POD, ("object_store", "minio", "deploy")),
    ("minio", {**BIND, **LOGIN, "region": "r", "bucket": "data"}, ("object_store", "minio", "bind")),
    ("rustfs", DEPLOY, ("object_store", "rustfs", "deploy")),
    ("rustfs", {**DEPLOY, "state": "absent", "delete_data": True}, ("object_store", "rustfs", "deploy")),
    ("rustfs", BIND, ("object_store", "rustfs", "bind")),
    ("vault", DEPLOY, ("secrets", "vault", "deploy")),
    ("vault", {**BIND, "credentials": {"from": "env", "keys": {"token": "T"}}}, ("secrets", "vault", "bind")),
    ("mlflow", {**DEPLOY, "login": True, "artifacts": "store"}, ("tracking", "mlflow", "deploy")),
    ("mlflow", {**BIND, **LOGIN}, ("tracking", "mlflow", "bind")),
    ("prometheus", {**DEPLOY, "alertmanager": "alerts"}, ("monitoring", "prometheus", "deploy")),
    ("prometheus", BIND, ("monitoring", "prometheus", "bind")),
    ("grafana", {**POD, "prometheus": "metrics"}, ("monitoring", "grafana", "deploy")),
    ("grafana", {**BIND, **LOGIN}, ("monitoring", "grafana", "bind")),
    (
        "harbor",
        {"endpoint": "https://h.example.org", "repository": "team/x", "mirror_of": "docker.io", **LOGIN},
        ("registry", "harbor", "bind"),
    ),
]
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
    kinds = {item["name"]: (item["kind"], item["playbook"]) for item in found["templates"]}
    others = {name: ("services", "exporter_stack" if name == "dcgm" else "services") for name in SERVICES}
    assert kinds == {**dict.fromkeys(SHIPPED, ("job", "train")), **others} and len(found["table"]) == 11
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
        "source": {},
    }


@pytest.mark.parametrize(("name", "answers", "expected"), FILLED)
def test_a_shipped_service_is_an_entry_that_the_playbook_takes(
    tmp_path: pathlib.Path, name: str, answers: dict[str, t.Any], expected: tuple[str, str, str]
) -> None:
    """The filled entry goes to the functions that check it when the playbook services runs."""
    filled = read(tmp_path, name=name, inputs=answers, playbook="services")["services"]
    (service,) = parse_services(filled)
    assert (service.kind, service.provider, service.mode) == expected and service.state == answers.get(
        "state", "present"
    )
    if service.mode == "deploy":
        assert require_deployable(service, "x").provider == service.provider
        place = service.deploy
        assert place is not None and (place.host, place.namespace) == (answers.get("host"), answers.get("namespace"))
        assert (place.size, place.node, place.port) == tuple(map(answers.get, ("size", "node", "port")))
    else:
        assert service.endpoint == answers["endpoint"] and service.deploy is None
        assert (service.secret_ref is not None) == ("credentials" in answers)


def test_every_shipped_service_was_filled() -> None:
    assert {name for name, _answers, _expected in FILLED} == {*SERVICES} - {"dcgm"}


@pytest.mark.parametrize(
    ("name", "answers", "said"),
    [
        ("minio", {}, "muster_services.minio.deploy: does not say where the service runs"),
        ("minio", {"host": "a", "namespace": "b"}, "muster_services.minio.deploy: names a host and a namespace"),
        ("minio", {**DEPLOY, "region": "r"}, "muster_services.minio.region: is for mode: bind"),
        ("rustfs", {**BIND, "host": "a"}, "muster_services.rustfs.deploy: is for mode: deploy"),
        ("grafana", {"namespace": "a"}, "muster_services.grafana.deploy.prometheus: is required"),
        ("grafana", {"host": "a"}, "inputs.host: is not an input of template grafana"),
        ("harbor", {"endpoint": "https://h/x", "repository": "r"}, "muster_services.harbor.endpoint: has a path"),
        ("harbor", {"endpoint": "https://h"}, "inputs.repository: is required by template harbor"),
        ("minio", {**BIND, "endpoint": "https://u:p4ss@h"}, "muster_services.minio.endpoint: must not contain a user"),
    ],
)
def test_a_bad_answer_of_a_service_is_one_line(
    tmp_path: pathlib.Path, name: str, answers: dict[str, t.Any], said: str
) -> None:
    with pytest.raises(MusterError) as caught:
        read(tmp_path, name=name, inputs=answers)
    assert str(caught.value).startswith(said) and "p4ss" not in str(caught.value)


@pytest.mark.parametrize("answers", [{}, {"image": "r/x:1", "runtime_class": "nvidia", "node_exporter": "false"}])
def test_the_variables_of_dcgm_are_ones_of_its_role(tmp_path: pathlib.Path, answers: dict[str, t.Any]) -> None:
    """Ansible checks them so when the playbook exporter_stack begins."""
    filled = read(tmp_path, name="dcgm", inputs=answers, playbook="exporter_stack")["variables"]
    specs = yaml.safe_load((ROOT / "roles" / "exporter_stack" / "meta" / "argument_specs.yml").read_text())
    checked = ArgumentSpecValidator(specs["argument_specs"]["main"]["options"]).validate(filled)
    assert not checked.error_messages
    assert filled["exporter_stack_dcgm"] is True and filled["exporter_stack_node_exporter"] is not bool(answers)


def test_a_template_is_run_by_its_own_playbook(tmp_path: pathlib.Path) -> None:
    with pytest.raises(MusterError, match="template minio is not for the playbook train. Run muster.training.services"):
        read(tmp_path, name="minio", inputs={}, playbook="train")
    with pytest.raises(MusterError, match="accelerate is not for the playbook services. Run muster.training.train"):
        read(tmp_path, name="accelerate", inputs={}, playbook="services")
    with pytest.raises(MusterError, match="job: template minio has services and no job. Leave it out"):
        read(tmp_path, name="minio", inputs=DEPLOY, job={"nodes": 2})


def test_a_template_that_asks_for_nothing_has_no_survey(tmp_path: pathlib.Path) -> None:
    """AWX refuses a survey without questions."""
    write(tmp_path / "mine", inputs={"hub": {"type": "secret", "name": "HF_TOKEN"}})
    assert "survey_spec" not in read(tmp_path, "mine", name="ours")
    assert read(tmp_path, name="minio")["survey_spec"]["spec"]


def test_the_guide_shows_the_digest_of_the_template(tmp_path: pathlib.Path) -> None:
    """Teams pin it: it changes with the content of the template alone."""
    (found,) = (item for item in read(tmp_path)["templates"] if item["name"] == "pytorch-ddp")
    page = (ROOT / "docs" / "docsite" / "rst" / "guide_catalogue.rst").read_text()
    assert f"pytorch-ddp {found['version']}, digest {found['digest']}" in page
