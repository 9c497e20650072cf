# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Templates of the catalogue: what is refused, and that answers are put in as they are."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.job_catalogue import (
    build_survey,
    fill_template,
    join_answers,
    parse_template,
)

JOBS = {"name": "x"}
CANARY = "hf_c4n4ry0123456789"
INPUTS: dict[str, t.Any] = {
    "data": {"type": "text", "required": True, "help": "Folder of the data"},
    "nodes": {"type": "int", "default": 2, "min": 1, "max": 8},
    "rate": {"type": "float", "default": 0.1, "min": 0},
    "mode": {"type": "text", "default": "fast", "choices": ["fast", "exact"]},
    "tag": {"type": "text", "pattern": "v[0-9]+"},
    "debug": {"type": "bool", "default": False},
    "hub": {"type": "secret", "name": "HF_TOKEN"},
}
JOB: dict[str, t.Any] = {
    "name": "x",
    "nodes": "${inputs.nodes}",
    "args": ["--data=${inputs.data}", "${inputs.rate}", "${inputs.tag}", "{run_dir}"],
    "env": {"MODE": "${inputs.mode}", "TAG": "${inputs.tag}"},
    "flag": "${inputs.debug}",
}
TEMPLATE: dict[str, t.Any] = {"name": "ours", "version": "1", "description": "A job", "inputs": INPUTS, "job": JOB}


def fill(**answers: t.Any) -> dict[str, t.Any]:
    return t.cast("dict[str, t.Any]", fill_template(parse_template(TEMPLATE, "ours.yml"), answers)["job"])


def test_a_whole_placeholder_keeps_its_type_and_what_has_no_answer_is_left_out() -> None:
    filled = fill(data="/d", nodes="3")
    assert filled == {
        "name": "x",
        "nodes": 3,
        "args": ["--data=/d", 0.1, "{run_dir}"],
        "env": {"MODE": "fast"},
        "flag": False,
    }


def test_a_secret_is_a_reference() -> None:
    reference = {"from": "env", "key": "HF_TOKEN"}
    assert fill(data="/d", hub=reference)["secret_refs"] == [{"name": "HF_TOKEN", **reference}]


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({}, "inputs.data: is required by template ours. Folder of the data"),
        ({"data": "/d", "node": 2}, "inputs.node: is not an input of template ours. Did you mean 'nodes'?"),
        ({"data": "/d", "nodes": "two"}, "inputs.nodes: must be a whole number"),
        ({"data": "/d", "nodes": True}, "inputs.nodes: must be a whole number"),
        ({"data": "/d", "nodes": 0}, "inputs.nodes: must be at least 1, not 0"),
        ({"data": "/d", "nodes": 9}, "inputs.nodes: must be at most 8, not 9"),
        ({"data": "/d", "rate": "nan"}, "inputs.rate: must be a number"),
        ({"data": "/d", "mode": "slow"}, "inputs.mode: must be one of fast, exact"),
        ({"data": "/d", "tag": "7"}, "inputs.tag: does not match the pattern v[0-9]+"),
        ({"data": "/d", "debug": "perhaps"}, "inputs.debug: must be true or false"),
        ({"data": ["/d"]}, "inputs.data: must be text, not a list"),
        ({"data": "a\nb"}, "inputs.data: must not contain control characters"),
        ({"data": "{{ 1 + 1 }}"}, "inputs.data: must not contain text that Jinja would evaluate"),
        ({"data": "{% raw %}"}, "inputs.data: must not contain text that Jinja would evaluate"),
        ({"data": "/d", "hub": CANARY}, "inputs.hub: takes a reference, not the secret itself"),
        ({"data": "/d", "hub": {"from": "env", "value": CANARY}}, "inputs.hub: is a reference with from and any of"),
        ({"data": "/d", "hub": {"from": "env", "key": "{{ x }}"}}, "inputs.hub.key: must not contain text that Jinja"),
    ],
)
def test_a_bad_answer_is_one_line(answers: dict[str, t.Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        fill(**answers)
    assert str(caught.value).startswith(said) and "\n" not in str(caught.value) and CANARY not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": None}, "ours.yml.version: is required"),
        ({"body": {}}, "ours.yml.body: is not an option"),
        ({"inputs": {"hf_token": {"type": "text"}}}, "ours.yml.inputs.hf_token: asks for the value of a secret"),
        ({"inputs": {"hub": {"type": "secret"}}}, "ours.yml.inputs.hub: of type secret needs a name"),
        ({"inputs": {"N": {"type": "int"}}}, "ours.yml.inputs.N: must be lower-case letters"),
        ({"inputs": {"n": {"type": "number"}}}, "ours.yml.inputs.n.type: must be one of"),
        ({"inputs": {"n": {"type": "int", "default": 9, "max": 8}}}, "ours.yml.inputs.n.default: must be at most 8"),
        ({"inputs": {"n": {"type": "text", "pattern": "("}}}, "ours.yml.inputs.n.pattern: is not a regular"),
        ({"job": {"name": "${inputs.other}"}}, "ours.yml.job.name: 'other' is not an input"),
        ({"job": {"name": "${inputs.hub}"}}, "ours.yml.job.name: 'hub' is not an input"),
        ({"job": {"name": "${inputs.tag}-x"}}, "ours.yml.job.name: 'tag' stands inside text and may be missing"),
        ({"job": {"args": ["${inputs.Bad}"]}}, "ours.yml.job.args[0]: has a placeholder that cannot be read"),
        ({"job": {}}, "ours.yml: of kind job needs job, and no other body"),
        ({"services": [{"name": "x"}]}, "ours.yml: of kind job needs job, and no other body"),
        ({"kind": "services"}, "ours.yml: of kind services needs services or variables, and no other body"),
        ({"job": {"name": "{{ x }}"}}, "ours.yml.job.name: has text of Jinja"),
    ],
)
def test_a_bad_template_is_one_line(change: dict[str, t.Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_template({**TEMPLATE, **change}, "ours.yml")
    assert str(caught.value).startswith(said)


@given(st.text(st.characters(min_codepoint=32, exclude_categories=("Cs", "Cc")), min_size=1))
def test_an_answer_stands_in_the_job_as_it_was_written_or_is_refused(answer: str) -> None:
    try:
        filled = fill(data=answer)
    except InputError:
        assert any(mark in answer for mark in ("{{", "{%", "{#"))
        return
    assert filled["args"][0] == f"--data={answer}" and filled["nodes"] == 2


def test_a_placeholder_in_an_answer_is_not_filled() -> None:
    assert fill(data="${inputs.nodes}")["args"][0] == "--data=${inputs.nodes}"


def test_the_digest_is_of_the_content() -> None:
    digest = parse_template(TEMPLATE, "a").digest
    assert digest == parse_template(dict(reversed(TEMPLATE.items())), "b").digest
    assert digest != parse_template({**TEMPLATE, "version": "2"}, "a").digest


def test_the_answers_of_a_survey_are_joined() -> None:
    variables = {"answers": {"nodes": 2}, "answers_data": "/d", "answers_tag": "", "other": 1}
    assert join_answers("answers", variables) == {"nodes": 2, "data": "/d"}
    assert join_answers("answers", {}) == {}
    with pytest.raises(InputError, match="answers.nodes: is also set as answers_nodes. Leave one of them out"):
        join_answers("answers", {**variables, "answers_nodes": 3})
    with pytest.raises(InputError, match="answers: must be a mapping, not text"):
        join_answers("answers", {"answers": "{{ x }}"})


def test_the_survey_asks_for_all_but_secrets() -> None:
    survey = build_survey(parse_template(TEMPLATE, "ours.yml"))
    questions = {item["question_name"]: item for item in survey["spec"]}
    assert questions.keys() == INPUTS.keys() - {"hub"}
    assert questions["nodes"] == {
        "variable": "muster_inputs_nodes",
        "question_name": "nodes",
        "question_description": "",
        "type": "integer",
        "required": False,
        "default": 2,
        "choices": [],
        "min": 1,
        "max": 8,
    }
    assert (questions["debug"]["type"], questions["debug"]["default"]) == ("multiplechoice", "false")
    assert questions["mode"]["choices"] == ["fast", "exact"] and questions["data"]["required"] is True


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ({"type": "float", "default": 1}, {"default": 1.0, "type": "float"}),
        ({"type": "int", "default": "3"}, {"default": 3, "type": "integer"}),
        ({"type": "int", "default": 1, "choices": [1, 2]}, {"default": "1", "choices": ["1", "2"]}),
        ({"type": "bool", "default": True}, {"default": "true", "type": "multiplechoice"}),
        ({"type": "float", "min": 0.1, "max": 0.9}, {"default": "", "min": 0, "max": 1}),
    ],
)
def test_a_question_has_a_default_and_limits_that_awx_takes(
    field: dict[str, object], expected: dict[str, object]
) -> None:
    """AWX wants the default in the type of the question, a choice as text, and whole limits."""
    value = {"name": "own", "version": "1", "description": "d", "inputs": {"x": {"help": "h", **field}}, "job": JOBS}
    (question,) = build_survey(parse_template(value, "own.yml"))["spec"]
    assert {name: question[name] for name in expected} == expected
    assert all(type(question[name]) is type(wanted) for name, wanted in expected.items())


STORE: dict[str, t.Any] = {
    "name": "store",
    "version": "1",
    "description": "A store",
    "kind": "services",
    "inputs": {"host": {"type": "text"}, "bucket": {"type": "text", "default": "b"}, "login": {"type": "secret"}},
    "services": [
        {
            "name": "store",
            "deploy": {"host": "${inputs.host}", "namespace": "${inputs.host}"},
            "secret_ref": "${inputs.login}",
            "resources": [{"ref": "${inputs.bucket}/x"}],
        }
    ],
}


def test_services_are_filled_and_a_mapping_without_answers_is_left_out() -> None:
    template = parse_template(STORE, "store.yml")
    assert (template.body, template.playbook) == ("services", "services")
    assert fill_template(template, {}) == {"services": [{"name": "store", "resources": [{"ref": "b/x"}]}]}
    login = {"from": "env", "keys": {"token": "T"}}
    (entry,) = fill_template(template, {"host": "a", "login": login})["services"]
    assert entry["deploy"] == {"host": "a", "namespace": "a"} and entry["secret_ref"] == login


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (CANARY, "inputs.login: takes a reference, not the secret itself"),
        ({"from": "env", "keys": {"token": "{{ x }}"}}, "inputs.login.keys: must not contain text that Jinja"),
        ({"from": "env", "keys": "x"}, "inputs.login.keys: must be a mapping"),
        ({"from": "env", "binding": "b"}, "inputs.login: is a reference with from and any of path, keys"),
    ],
)
def test_the_credential_of_a_service_is_a_reference(value: t.Any, said: str) -> None:
    with pytest.raises(InputError) as caught:
        fill_template(parse_template(STORE, "store.yml"), {"login": value})
    assert str(caught.value).startswith(said) and CANARY not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"services": [{"name": "x-${inputs.login}"}]}, "x.services[0].name: 'login' is not an input that can stand"),
        ({"inputs": {"login": {"type": "secret", "name": "T"}}}, "x.inputs.login: of type secret has neither name"),
        ({"variables": {"exporter_stack_dcgm": True}}, "x: of kind services needs services or variables, and no"),
        (
            {"services": [], "variables": {"other": 1}},
            "x.variables.other: is not a variable of the role exporter_stack",
        ),
        ({"services": ["x"]}, "x.services[0]: must be a mapping"),
        ({"kind": "jobs"}, "x.kind: must be one of job, services"),
    ],
)
def test_a_bad_template_of_services_is_one_line(change: dict[str, t.Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_template({**STORE, **change}, "x")
    assert str(caught.value).startswith(said)


def test_the_survey_of_services_has_variables_of_its_own() -> None:
    survey = build_survey(parse_template(STORE, "store.yml"))
    assert [item["variable"] for item in survey["spec"]] == [
        "muster_service_inputs_host",
        "muster_service_inputs_bucket",
    ]
