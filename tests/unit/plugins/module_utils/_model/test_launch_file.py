# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A launch file has the job with its digests and nothing of the person who made it; answers complete it or are refused."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import job_templates
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.job import Job, parse_job, to_yaml_names
from ansible_collections.muster.training.plugins.module_utils._model.launch_file import (
    LaunchAnswers,
    LaunchFile,
    build_devcontainer,
    build_launch,
    complete_launch,
    is_filled_from,
    list_needs,
    parse_launch,
    to_values,
)
from ansible_collections.muster.training.plugins.module_utils._model.run_record import RecordedTemplate, RunRecord
from ansible_collections.muster.training.plugins.module_utils._model.validators import plain_value

Dict = dict[str, t.Any]
CODE, IMAGE = "c" * 64, "sha256:" + "d" * 64
COMMIT = "4f2c1e9d0b6a7c8e1f20314253647586970a1b2c"
WHOLE: Dict = {
    "name": "lm",
    "nodes": 2,
    "image": "registry.example.org/team/train:v3",
    "code": {"from": "path", "ref": "/home/me/lm"},
    "script": "train.py",
    "args": ["--lr", "0.1"],
    "env": {"MODEL_NAME": "small"},
    "gpus_per_node": 2,
    "resources": {"cpu": 8, "memory": "32Gi", "shm": "4Gi"},
    "placement": {"backend": "kubernetes", "namespace": "mine"},
    "python": "/opt/mine/bin/python",
    "max_cost_usd": 20,
    "release": "always",
    "secret_refs": [
        {"name": "HF_TOKEN", "from": "file", "path": "/home/me/.token"},
        {"name": "KEY", "from": "env", "key": "MINE", "as": "file"},
    ],
    "datasets": [
        {"name": "corpus", "path": "/home/me/corpus"},
        {"name": "images", "binding": "minio", "prefix": "images"},
    ],
    "checkpoints": {"binding": "minio"},
}
ANSWERS = LaunchAnswers(
    code="/mnt/hers",
    datasets={"corpus": "/data/corpus"},
    secrets={"HF_TOKEN": {"from": "env", "key": "HERS"}, "KEY": {"from": "env", "key": "KEY"}},
)


def job_of(**changes: t.Any) -> Job:
    options = {key: value for key, value in {**WHOLE, **changes}.items() if value is not None}
    return parse_job(options, job_templates.PRESETS)


def record_of(job: Job, **values: t.Any) -> RunRecord:
    known: Dict = {"code_sha256": CODE, "image_digest": f"registry.example.org/team/train@{IMAGE}"}
    content: Dict = {"schema": 1, "run_id": "lm-1", "job": to_yaml_names(job), "state": "ended", "submitted_at": "x"}
    return RunRecord.from_dict({**content, **known, **values})


def launch_of(**changes: t.Any) -> LaunchFile:
    job = job_of(**changes)
    return build_launch(record_of(job), job)


def test_it_has_the_digests_and_nothing_of_who_made_it() -> None:
    launch = launch_of()
    values = to_values(launch)
    assert values["job"]["image"] == f"registry.example.org/team/train:v3@{IMAGE}"
    assert values["job"]["code"] == {"sha256": CODE}
    assert values["secrets"] == [{"name": "HF_TOKEN"}, {"name": "KEY", "as": "file"}]
    assert values["run"] == "lm-1" and values["launch"] == 1
    shown = str(values)
    assert not [word for word in ("/home/me", "MINE", "mine", "/opt/mine", "max_cost", "release") if word in shown]
    assert parse_launch(values, "x.yml") == launch


def test_what_is_each_persons_is_listed_with_the_variable_that_gives_it() -> None:
    assert list_needs(launch_of()) == [
        f"muster_launch_code: a folder with the code (SHA-256 {CODE})",
        "muster_launch_datasets.corpus: a folder with the dataset",
        "muster_launch_secrets.HF_TOKEN: where their own is",
        "muster_launch_secrets.KEY: where their own is",
        "the service minio, bound under this name",
    ]


def test_answers_complete_it_to_the_same_job() -> None:
    job = parse_job(complete_launch(launch_of(), ANSWERS), choose_backend=lambda _has_image: "kubernetes")
    assert job.code is not None and (job.code.ref, job.code.sha256) == ("/mnt/hers", CODE)
    assert [item.path for item in job.datasets] == ["/data/corpus", None]
    assert [(item.name, item.key, item.deliver) for item in job.secret_refs] == [
        ("HF_TOKEN", "HERS", "env"),
        ("KEY", "KEY", "file"),
    ]
    mine = job_of()
    assert (job.args, job.env, job.nodes, job.checkpoints, job.resources) == (
        *(mine.args, mine.env, mine.nodes, mine.checkpoints, mine.resources),
    )


@pytest.mark.parametrize(
    ("changes", "option"),
    [
        ({"code": None}, "launch_code: is needed"),
        ({"datasets": {}}, "launch_datasets.corpus: is asked for"),
        ({"datasets": {"corpus": "/x", "corpsu": "/y"}}, "launch_datasets.corpsu: is not asked for"),
        ({"secrets": {}}, "launch_secrets.HF_TOKEN: is asked for"),
        ({"secrets": {**ANSWERS.secrets, "HF_TOKEN": "hf_value77"}}, "launch_secrets.HF_TOKEN: takes a reference"),
        ({"secrets": {**ANSWERS.secrets, "HF_TOKEN": {"from": "envy"}}}, "launch_secrets.HF_TOKEN.from"),
        ({"overrides": {"args": ["--lr", "9"]}}, "job.args: would make it another job"),
        ({"overrides": {"env": {}}}, "job.env: would make it another job"),
    ],
)
def test_an_answer_that_is_not_right_is_named(changes: Dict, option: str) -> None:
    values: Dict = {"code": ANSWERS.code, "datasets": ANSWERS.datasets, "secrets": ANSWERS.secrets, **changes}
    with pytest.raises(InputError) as caught:
        complete_launch(launch_of(), LaunchAnswers(**values))
    assert caught.value.message.startswith(option)
    assert "hf_value77" not in f"{caught.value.message} {caught.value.fix}"


def test_code_of_git_is_of_the_commit_that_ran() -> None:
    job = job_of(code={"from": "git", "ref": "https://git.example.org/lm.git@main"})
    record = record_of(job, versions={"commit": COMMIT})
    launch = build_launch(record, job, "https://git.example.org/lm.git")
    assert launch.code == {"from": "git", "ref": f"https://git.example.org/lm.git@{COMMIT}", "sha256": CODE}
    with pytest.raises(InputError, match="launch_code: is not asked for"):
        complete_launch(launch, ANSWERS)


@pytest.mark.parametrize(
    ("changes", "values", "said"),
    [
        ({}, {"code_sha256": None}, "the digest of its code is not known"),
        ({}, {"image_digest": None}, "no registry's digest of the image"),
        # What containerd calls an image that was imported: no registry has it under this name.
        ({}, {"image_digest": IMAGE}, "no registry's digest of the image"),
        ({"env": {"WANDB_API_KEY": "value77"}}, {}, "job.env.WANDB_API_KEY has a secret's name"),
        ({"args": ["{{ x }}"]}, {}, "has text that Jinja would evaluate"),
    ],
)
def test_a_run_that_cannot_be_given_away_is_refused_with_the_way_on(changes: Dict, values: Dict, said: str) -> None:
    job = job_of(**changes)
    with pytest.raises(RefusedError) as caught:
        build_launch(record_of(job, **values), job)
    assert said in caught.value.message and caught.value.fix and "value77" not in str(caught.value)


def test_the_digest_that_was_resolved_at_the_start_comes_before_that_of_the_pods() -> None:
    job, other = job_of(), "sha256:" + "e" * 64
    pinned = f"registry.example.org/team/train:v3@{other}"
    assert build_launch(record_of(job, image=pinned), job).job["image"] == pinned


@pytest.mark.parametrize(
    ("part", "value", "said"),
    [
        ("launch", 2, "x.yml.launch: is 2; this version reads 1"),
        ("extra_vars", {"ansible_python_interpreter": "/tmp/x"}, "x.yml.extra_vars"),
        (
            "job.secret_refs",
            [{"name": "A", "from": "file", "path": "~/.ssh/id_rsa"}],
            "x.yml.job.secret_refs: has no pl",
        ),
        ("job.placement", {"namespace": "kube-system"}, "x.yml.job.placement: has no place"),
        ("job.datasets", [{"name": "d", "path": "~/.ssh"}], "x.yml.job.datasets.d.path: is a folder of the controller"),
        (
            "job.code",
            {"ref": "~/.ssh", "sha256": CODE},
            "x.yml.job.code.ref: is a folder of the person who launches it",
        ),
        (
            "job.code",
            {"from": "git", "ref": "https://git.example.org/x@main"},
            "x.yml.job.code.sha256: must be the SHA",
        ),
        ("job.image", "train:v3", "x.yml.job.image: must have a digest"),
        ("job.args", ["{{ lookup('pipe', 'id') }}"], "x.yml.job.args[0]: has text that Jinja"),
        ("job.argz", ["x"], "x.yml.job.argz"),
    ],
)
def test_a_file_of_a_stranger_takes_nothing_of_this_machine(part: str, value: t.Any, said: str) -> None:
    values = to_values(launch_of())
    section, _dot, key = part.rpartition(".")
    (values[section] if section else values)[key] = value
    with pytest.raises(InputError) as caught:
        parse_launch(values, "x.yml")
    assert caught.value.message.startswith(said)


def test_a_template_is_kept_without_references_and_is_believed_where_it_makes_the_job() -> None:
    job = job_of(template="pytorch_ddp")
    inputs = {"model": "small", "token": {"from": "env", "key": "MINE"}}
    template = RecordedTemplate("ours", "1", "e" * 64, inputs, {"placement": {"namespace": "mine"}, "nodes": 2})
    launch = build_launch(record_of(job, catalogue_template=plain_value(template)), job)
    assert launch.template is not None
    assert (launch.template.inputs, launch.template.overrides) == ({"model": "small"}, {"nodes": 2})
    mine = {key: value for key, value in WHOLE.items() if key not in ("secret_refs", "placement", "image")}
    assert is_filled_from(launch, {**mine, "template": "pytorch_ddp"})
    assert not is_filled_from(launch, {**mine, "template": "pytorch_ddp", "args": ["--lr", "9"]})
    assert not is_filled_from(launch, {**mine, "template": "not_there"})
    assert not is_filled_from(launch, {**mine, "template": "pytorch_ddp", "datasets": []})


def test_a_dev_container_has_the_image_and_asks_the_person_for_secrets() -> None:
    assert build_devcontainer(launch_of()) == {
        "name": "lm",
        "image": f"registry.example.org/team/train:v3@{IMAGE}",
        "containerEnv": {"MODEL_NAME": "small"},
        "remoteEnv": {"HF_TOKEN": "${localEnv:HF_TOKEN}"},
        "hostRequirements": {"gpu": True, "cpus": 8, "memory": "32gb"},
        "runArgs": [f"--shm-size={4 * 2**30}", "--gpus=all"],
    }


def test_a_job_without_an_image_has_no_dev_container() -> None:
    job = job_of(image=None, placement=None, resources=None, datasets=None, checkpoints=None)
    with pytest.raises(RefusedError, match="its job has no image"):
        build_devcontainer(build_launch(record_of(job), job))
