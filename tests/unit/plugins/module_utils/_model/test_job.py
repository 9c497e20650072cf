# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The job model: every value parses or is refused in one way, and the record's form parses to the same job."""

from __future__ import annotations

import dataclasses
import json
import typing as t

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model import job as jobs
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.job import Job, parse_job, to_yaml_names
from ansible_collections.muster.training.plugins.module_utils._model.job_templates import PRESETS

COMMAND = {"name": "x", "launcher": "command", "command": ["true"]}


SCRIPT = {"name": "x", "script": "train.py", "code": {"from": "path", "ref": "."}}


KUBE = {"backend": "kubernetes"}


PODS = {**SCRIPT, "image": "registry.example/train:1", "nodes": 2, "placement": KUBE}


CLAIM = {"name": "data", "path": "/data", "pvc": "claim"}


WORDS = st.sampled_from(
    ["auto", "hosts", "lan", "path", "git", "env", "file", "stage", "dcp", "files", "never", "wait", "fail", "torchrun"]
    + ["mpi", "command", "x", "A_B", "8Gi", "1", "/abs", "a.py", "(?P<step>[0-9]+)", "pytorch_ddp"]
)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**12) | st.floats() | st.text(max_size=8) | WORDS,
    lambda items: st.lists(items, max_size=3) | st.dictionaries(st.text(max_size=6) | WORDS, items, max_size=3),
    max_leaves=6,
)


def some_of(known: t.Mapping[str, st.SearchStrategy[t.Any]]) -> st.SearchStrategy[dict[str, t.Any]]:
    """Return mappings of a few of the known keys, with values that are right, almost right or anything."""
    pairs = st.one_of([st.tuples(st.just(key), values) for key, values in known.items()])
    return st.lists(pairs, max_size=4).map(dict)


def sections(cls: type[t.Any]) -> st.SearchStrategy[dict[str, t.Any]]:
    return some_of({**{item.name: ANY for item in dataclasses.fields(cls)}, "from": ANY, "as": ANY, "nodse": ANY})


NESTED: dict[str, st.SearchStrategy[t.Any]] = {
    "placement": sections(jobs.Placement),
    "code": sections(jobs.Code),
    "resources": sections(jobs.Resources),
    "secret_refs": st.lists(sections(jobs.SecretRef), max_size=2),
    "datasets": st.lists(sections(jobs.Dataset), max_size=2),
    "checkpoints": sections(jobs.Checkpoints),
    "mounts": st.lists(sections(jobs.Mount), max_size=2),
    "elastic": sections(jobs.Elastic),
    "restart": sections(jobs.Restart),
    "metrics": sections(jobs.Metrics),
    "batch": sections(jobs.Batch),
    "template": WORDS | st.none() | st.integers(),
}


CHANGES = some_of({item.name: NESTED.get(item.name, ANY) for item in dataclasses.fields(Job)})


ONE_LINE = st.text(
    st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_characters="\x7f"), min_size=1, max_size=9
)


ENV_NAMES = st.from_regex(r"[A-Z][A-Z0-9_]{0,5}", fullmatch=True).filter(lambda name: name not in ("RANK",))


VALID = st.fixed_dictionaries(
    {"name": st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True), "nodes": st.integers(1, 99)},
    optional={
        "args": st.lists(ONE_LINE | st.integers(), max_size=3),
        "env": st.dictionaries(ENV_NAMES, ONE_LINE | st.booleans(), max_size=2),
        "python": ONE_LINE,
        "placement": st.fixed_dictionaries({}, optional={"allow_slow_network": st.booleans(), "island": ONE_LINE}),
        "resources": st.fixed_dictionaries({}, optional={"memory": st.sampled_from(["8Gi", "1.5M", 9007199254740993])}),
        "secret_refs": st.just([{"name": "MY_TOKEN", "from": "file", "path": "~/token", "as": "file"}]),
        "datasets": st.just([{"name": "text", "path": "data", "read_only": False}]),
        "checkpoints": st.fixed_dictionaries({}, optional={"path": ONE_LINE, "interval_steps": st.integers(1, 9)}),
        "restart": st.fixed_dictionaries({}, optional={"fatal_exit_codes": st.lists(st.integers(1, 255), max_size=2)}),
        "requires": st.dictionaries(st.sampled_from(["torch", "a.b"]), st.sampled_from(["", ">=2.1"])),
        "metrics": st.just({"step_pattern": "s=(?P<step>[0-9]+)\tl=(?P<loss>[0-9.]+)"}),
        "batch": st.fixed_dictionaries(
            {}, optional={"base_learning_rate": st.floats(0, 1), "per_rank": st.integers(1)}
        ),
        "timeout_s": st.integers(1, 10**6),
    },
)


@settings(max_examples=200)
@given(base=st.sampled_from([COMMAND, SCRIPT, PODS, {}, "job"]), changes=CHANGES)
def test_parse_job_returns_a_job_or_names_the_option(base: t.Any, changes: dict[str, t.Any]) -> None:
    try:
        assert isinstance(parse_job({**base, **changes} if isinstance(base, dict) else base, PRESETS), Job)
    except InputError as exc:
        assert exc.option.startswith("job")


@given(values=VALID, program=st.sampled_from([COMMAND, SCRIPT, {**SCRIPT, "launcher": "mpi", "gpus_per_node": 2}]))
def test_the_recorded_form_parses_to_the_same_job(values: dict[str, t.Any], program: dict[str, t.Any]) -> None:
    try:
        job = parse_job({**program, **values})
    except InputError as exc:
        # base_batch and friends may exceed a bound; then there is nothing to record.
        assert "at most" in str(exc)
        return
    written = json.loads(json.dumps(to_yaml_names(job)))
    assert parse_job(written) == job
    assert to_yaml_names(parse_job(written)) == to_yaml_names(job)


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("enviroment", "env"),
        ("gpus", "gpus_per_node"),
        ("nproc_per_node", "processes_per_node"),
        ("retries", "restart"),
        ("volumes", "mounts"),
        ("node", "nodes"),
        ("checkpoint", "checkpoints"),
    ],
)
def test_the_word_of_another_tool_leads_to_ours(word: str, meant: str) -> None:
    with pytest.raises(InputError, match=rf"job\.{word}: is not an option. Did you mean '{meant}'"):
        parse_job({"name": "a", "script": "/t.py", word: {}})


@pytest.mark.parametrize("word", ["checkpont_dir", "checkpoints_dir", "run-dir", "RUN_DIR", "rundir", " run_dir "])
@pytest.mark.parametrize("option", ["args", "command"])
def test_a_misspelt_placeholder_is_refused(option: str, word: str) -> None:
    program = {"launcher": "command", "command": ["sh"]} | {option: ["--out", f"{{{word}}}/x"]}
    with pytest.raises(InputError, match=rf"job\.{option}\[1\]: {{{word}}} is not a placeholder.*Did you mean"):
        parse_job({"name": "a", **program})


@pytest.mark.parametrize(("group", "meant"), [("los", "loss"), ("tokens_per_sec", "tokens_per_s")])
def test_a_misspelt_figure_is_refused(group: str, meant: str) -> None:
    pattern = rf"step (?P<step>\d+) (?P<{group}>[\d.]+)"
    with pytest.raises(
        InputError, match=rf"job.metrics.step_pattern: its group {group} would be .* Did you mean {meant}"
    ):
        parse_job({"name": "a", "script": "/t.py", "metrics": {"step_pattern": pattern}})
    fine = r"step (?P<step>\d+) (?P<val_loss>[\d.]+) (?P<lr>\S+)"
    assert parse_job({"name": "a", "script": "/t.py", "metrics": {"step_pattern": fine}}).metrics.step_pattern == fine


@pytest.mark.parametrize("word", ["epoch", "run_name", "output_dir", "checkpoint", "0:03d", "", "deep"])
def test_other_braces_are_the_programs_own(word: str) -> None:
    assert parse_job({"name": "a", "script": "/t.py", "args": [f"{{{word}}}"]}).args == (f"{{{word}}}",)


def test_a_placeholder_that_would_not_be_filled_in_is_refused() -> None:
    with pytest.raises(InputError, match=r"job\.args\[0\]: \{checkpoint_dir\} is not filled in with launcher 'ray'"):
        placement = {"placement": {"backend": "kubernetes"}, "image": "x@sha256:" + 64 * "0"}
        parse_job({"name": "a", "script": "/t.py", "launcher": "ray", "args": ["{checkpoint_dir}"], **placement})
    with pytest.raises(InputError, match=r"job\.checkpoints\.resume_args: is not possible with launcher 'ray'"):
        told = {"resume_args": ["--resume"]}
        parse_job({"name": "a", "script": "/t.py", "launcher": "ray", "checkpoints": told, **placement})
    with pytest.raises(InputError, match=r"job\.env\.OUT: \{checkpoint_dir\} is filled in arguments only"):
        parse_job({"name": "a", "script": "/t.py", "env": {"OUT": "{checkpoint_dir}/x"}})
    with pytest.raises(InputError, match=r"job\.args\[0\]: \{deepspeed_config\} needs job\.deepspeed_config"):
        parse_job({"name": "a", "script": "/t.py", "args": ["{deepspeed_config}"]})


def test_the_recorded_form_of_a_job_in_pods_parses_to_the_same_job() -> None:
    rich = {
        "placement": {**KUBE, "engine": "jobset", "namespace": "team-a", "queue": "gpus", "priority": "high"},
        "resources": {"cpu": 0.5, "memory": "1.5Gi", "shm": "1Gi", "rdma": False},
        "mounts": [CLAIM, {"name": "scratch", "path": "/scratch", "host_path": "/mnt/nvme"}],
        "secret_refs": [{"name": "PULL", "from": "kubernetes", "path": "registry", "as": "registry"}],
        "checkpoints": {"path": "/data/run"},
        "elastic": {"min": 1, "max": 2},
        "ttl_after_finished_s": 60,
    }
    job = parse_job({**PODS, **rich})
    assert parse_job(json.loads(json.dumps(to_yaml_names(job)))) == job


def test_the_keys_of_the_recorded_form_are_those_that_users_write() -> None:
    written = to_yaml_names(parse_job({**SCRIPT, "secret_refs": [{"name": "T", "from": "env", "as": "file"}]}))
    assert written["code"]["from"] == "path" and "source" not in written["code"]
    assert written["secret_refs"][0]["as"] == "file" and "deliver" not in written["secret_refs"][0]


@pytest.mark.parametrize(
    ("changes", "nproc", "world"),
    [
        ({}, 1, 3),
        ({"processes_per_node": 4}, 4, 12),
        ({"gpus_per_node": 8}, 8, 24),
        ({"gpus_per_node": 8, "processes_per_node": 2}, 2, 6),
    ],
)
def test_the_world_size_follows_from_nodes_and_processes(changes: dict[str, t.Any], nproc: int, world: int) -> None:
    job = parse_job({**SCRIPT, "nodes": 3, **changes})
    assert (job.nproc, job.world_size) == (nproc, world)


@pytest.mark.parametrize(
    ("changes", "option"),
    [
        ({"script": None}, "job.script"),
        ({"module": "m"}, "job.script"),
        ({"launcher": "command"}, "job.command"),
        ({"script": None, "command": ["x"]}, "job.command"),
        ({"code": None}, "job.code"),
        ({"deepspeed_config": {"a": 1}}, "job.deepspeed_config"),
        ({"deepspeed_config": {"a": 1}, "launcher": "accelerate"}, "job.deepspeed_config"),
        ({"gpus_per_node": 2, "processes_per_node": 3}, "job.processes_per_node"),
        ({"launcher": "mpi", "restart": {"on_lost_node": "fail"}}, "job.restart.max_lost_nodes"),
        ({"groups": [{"nodes": 1}]}, "job.groups"),
        ({"env": {"RANK": "0"}}, "job.env.RANK"),
        ({"env": {"T": "x"}, "secret_refs": [{"name": "T", "from": "env"}]}, "job.env.T"),
        ({"secret_refs": [{"name": "T", "from": "env"}] * 2}, "job.secret_refs"),
        ({"secret_refs": [{"name": "a b", "from": "env"}]}, "job.secret_refs[0].name"),
        ({"datasets": [{"name": "d"}]}, "job.datasets.d.path"),
        ({"metrics": {"step_pattern": "("}}, "job.metrics.step_pattern"),
        ({"metrics": {"step_pattern": "(?P<loss>.)"}}, "job.metrics.step_pattern"),
        ({"nodse": 2}, "job.nodse"),
        ({"template": "pytorch_dpd"}, "job.template"),
    ],
)
def test_what_contradicts_itself_is_refused_at_its_option(changes: dict[str, t.Any], option: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_job({**SCRIPT, **changes}, PRESETS)
    assert caught.value.option == option


@pytest.mark.parametrize("base", [SCRIPT, PODS])
@pytest.mark.parametrize(("policy", "more"), [("replace", {}), ("shrink", {"elastic": {"min": 1}})])
def test_what_heal_carries_out_is_taken(base: dict[str, t.Any], policy: str, more: dict[str, t.Any]) -> None:
    """On hosts any gang may shrink: its hosts are chosen anew at each start."""
    own = more if base is PODS else {}
    assert parse_job({**base, **own, "restart": {"on_lost_node": policy}}).restart.on_lost_node == policy


@pytest.mark.parametrize("amount", ["8 Gi", "-1", "8gb", "", "0", "0m", "10E", "1e19", "1e3Gi", "99999999P"])
@pytest.mark.parametrize("key", ["memory", "shm"])
def test_a_quantity_that_is_none_is_refused_in_one_line(key: str, amount: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_job({**PODS, "resources": {key: amount}})
    assert caught.value.option == f"job.resources.{key}" and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "engine"),
    [
        ({}, "jobset"),
        ({"launcher": "mpi"}, "mpijob"),
        ({"launcher": "ray"}, "rayjob"),
        ({"launcher": "deepspeed"}, "jobset"),
    ],
)
def test_a_launcher_brings_its_engine(changes: dict[str, t.Any], engine: str) -> None:
    assert parse_job({**PODS, **changes}).engine == engine


def test_lost_nodes_are_made_good_unless_a_loss_is_to_fail() -> None:
    restarts = {"max_lost_nodes": 2}
    assert parse_job({**COMMAND, "restart": restarts}).lost_budget == 0
    command = {**PODS, "code": None, "script": None, "launcher": "command", "command": ["true"]}
    assert parse_job({**command, "restart": restarts}).lost_budget == 2
    assert parse_job({**command, "restart": {**restarts, "on_lost_node": "fail"}}).lost_budget == 0


def test_a_template_is_merged_key_by_key_and_the_own_keys_win() -> None:
    job = parse_job({**SCRIPT, "template": "pytorch_ddp", "restart": {"max_crashes": 7}}, PRESETS)
    assert (job.restart.max_crashes, job.restart.max_lost_nodes) == (7, 3)
    assert job.requires == {"torch": ">=2.1"} and job.template == "pytorch_ddp"
    with pytest.raises(InputError, match="template 'pytorch_dpd' does not exist. Did you mean 'pytorch_ddp'"):
        parse_job({**SCRIPT, "template": "pytorch_dpd"}, PRESETS)


@pytest.mark.parametrize(("name", "known"), [(["a"], {}), ({"a": 1}, {}), ("mine", {"mine": ["nodes"]})])
def test_a_template_of_the_wrong_kind_is_refused(name: t.Any, known: t.Any) -> None:
    with pytest.raises(InputError):
        parse_job({**SCRIPT, "template": name}, known)


@pytest.mark.parametrize("pattern", ["(?P<step>a{99999999999999})", "(?:" * 5000 + "(?P<step>a)" + ")" * 5000])
def test_a_pattern_that_cannot_be_compiled_is_refused(pattern: str) -> None:
    with pytest.raises(InputError):
        parse_job({**SCRIPT, "metrics": {"step_pattern": pattern}})


@pytest.mark.parametrize(
    ("changes", "option"),
    [
        ({"code": {"from": "ftp", "ref": "."}}, "job.code.from"),
        ({"secret_refs": [{"name": "T"}]}, "job.secret_refs[0].from"),
        ({"secret_refs": [{"name": "T", "from": "env", "as": "x"}]}, "job.secret_refs[0].as"),
    ],
)
def test_an_error_names_the_key_that_the_user_wrote(changes: dict[str, t.Any], option: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_job({**SCRIPT, **changes})
    assert caught.value.option == option


def test_two_datasets_of_one_name_are_refused() -> None:
    with pytest.raises(InputError):
        parse_job({**SCRIPT, "datasets": [{"name": "d", "path": "a"}, {"name": "d", "path": "b"}]})


def test_the_launcher_command_has_one_rank_a_node_however_many_gpus() -> None:
    assert parse_job({**COMMAND, "nodes": 2, "gpus_per_node": 8}).world_size == 2


def test_what_a_run_may_cost_and_when_its_nodes_go_back_are_the_jobs_own() -> None:
    job = parse_job({**SCRIPT, "release": "success", "max_cost_usd": 2.5})
    assert (job.release, job.max_cost_usd) == ("success", 2.5)


@pytest.mark.parametrize("value", [True, False])
def test_a_removed_option_is_refused_as_one_and_a_record_that_has_it_is_read(value: bool) -> None:
    written = {**SCRIPT, "restart": {"warm": value, "wait_s": 9}}
    with pytest.raises(InputError, match=r"^job\.restart\.warm: was removed\. Leave it out"):
        parse_job(written)
    assert parse_job(jobs.drop_removed(written)).restart.wait_s == 9
    assert jobs.drop_removed({"restart": None}) == {"restart": None}
