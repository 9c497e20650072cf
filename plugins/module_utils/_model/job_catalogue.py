# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Templates of the catalogue: a job, or entries of services, with typed inputs, filled by plain substitution.

``${inputs.NAME}`` in a value of the body stands for an answer. A value that is exactly one placeholder keeps the type
of the answer. What was put in is not read again, and text that Jinja would evaluate is refused.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
import typing as t

from . import validators as f
from .errors import InputError

Dict = dict[str, t.Any]
_PLACEHOLDER = re.compile(r"\$\{inputs\.([a-z][a-z0-9_]*)\}")
_INPUT_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
_JINJA = ("{{", "{%", "{#")
_SECRET_WORDS = re.compile(r"(?:\A|_)(?:token|password|passwd|secret|api_key|private_key|credentials?)(?:\Z|_)")
_REFERENCE_KEYS = ("from", "path", "key", "binding", "store")
_SURVEY_TYPES = {"text": "text", "int": "integer", "float": "float", "bool": "multiplechoice"}
# The answers of a survey are variables of their own, by the kind of the template.
ANSWERS: t.Final = {"job": "muster_inputs", "services": "muster_service_inputs"}
_LIMITS = 2**53
_SURVEY_LENGTH = 1024
# What a template is run by, by what it fills: variables are those of a role with a playbook of its name.
_PLAYBOOKS = {"job": "train", "services": "services", "variables": "exporter_stack"}
# Those that templates of jobs do not have; they came later and change no digest where they are not set.
_OTHER_BODIES = ("kind", "services", "variables")
_SERVICE_REFERENCE_KEYS = ("from", "path", "keys")


def is_jinja(text: str) -> bool:
    """Return whether Jinja would evaluate a part of the text."""
    return any(mark in text for mark in _JINJA)


def is_secret_name(name: str) -> bool:
    """Return whether what has this name is usually a secret, such as ``HF_TOKEN``."""
    return _SECRET_WORDS.search(name.lower()) is not None


def _scalar(value: t.Any, _path: str) -> t.Any:
    return value


@dataclasses.dataclass(frozen=True, slots=True)
class TemplateInput:
    """One field of a template. ``name``: of a job's secret, the variable or file in which the program gets it."""

    type: str = f.field(f.choice("text", "int", "float", "bool", "secret"))
    default: t.Any = f.field(_scalar, None)
    required: bool = f.field(f.boolean, False)
    min: float | None = f.field(f.decimal(-_LIMITS), None)
    max: float | None = f.field(f.decimal(-_LIMITS), None)
    choices: tuple[t.Any, ...] = f.field(f.list_of(_scalar), ())
    pattern: str | None = f.field(f.text, None)
    help: str = f.field(f.text, "")
    name: str | None = f.field(f.text, None)


@dataclasses.dataclass(frozen=True, slots=True)
class CatalogueTemplate:
    """A job or services, with inputs.

    ``job`` has the keys of ``muster_job``, ``services`` the entries of ``muster_services``. ``variables`` are those of
    a role that runs a service which is not bound.
    """

    name: str = f.field(f.name(63))
    version: str = f.field(f.text)
    description: str = f.field(f.text)
    kind: str = f.field(f.choice("job", "services"), "job")
    job: Dict = f.field(f.dictionary, {})
    services: tuple[Dict, ...] = f.field(f.list_of(f.dictionary), ())
    variables: Dict = f.field(f.dictionary, {})
    inputs: Dict = f.field(f.dictionary, {})

    @property
    def body(self) -> str:
        """What is filled: ``job``, ``services`` or ``variables``."""
        return next(name for name in _PLAYBOOKS if getattr(self, name))

    @property
    def playbook(self) -> str:
        """The playbook that takes what is filled."""
        return _PLAYBOOKS[self.body]

    @property
    def digest(self) -> str:
        """SHA-256 of the content, the same for every way of writing it as YAML."""
        content = f.plain_value(self)
        if self.kind == "job":
            content = {key: value for key, value in content.items() if key not in _OTHER_BODIES}
        return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()

    @property
    def fields(self) -> dict[str, TemplateInput]:
        """The inputs by name, as :func:`parse_template` has checked them."""
        parse = f.section(TemplateInput)
        return {name: parse(value, f"{self.name}.inputs.{name}") for name, value in self.inputs.items()}


def parse_template(value: t.Any, path: str) -> CatalogueTemplate:
    """Return the template that a file holds.

    :param path: what messages name it by.
    :raises InputError: for what is wrong in it; a template that asks for the value of a secret is refused.
    """
    template = f.section(CatalogueTemplate)(value, path)
    parse = f.section(TemplateInput)
    fields = {name: parse(item, f"{path}.inputs.{name}") for name, item in template.inputs.items()}
    _check_kind(template, path)
    for name, item in fields.items():
        _check_field(name, item, f"{path}.inputs.{name}", template.kind)
    # A service's entry says where its credential is; those of a job are its secret_refs.
    known = {name: item for name, item in fields.items() if template.kind == "services" or item.type != "secret"}
    for place, text in walk_texts(f.plain_value(getattr(template, template.body)), f"{path}.{template.body}"):
        _check_text(text, known, place)
    return template


def _check_kind(template: CatalogueTemplate, path: str) -> None:
    allowed = ("job",) if template.kind == "job" else ("services", "variables")
    held = [name for name in _PLAYBOOKS if getattr(template, name)]
    if len(held) != 1 or held[0] not in allowed:
        raise InputError(path, f"of kind {template.kind} needs {' or '.join(allowed)}, and no other body")
    prefix = f"{_PLAYBOOKS['variables']}_"
    for name in template.variables:
        if not name.startswith(prefix):
            raise InputError(f"{path}.variables.{name}", f"is not a variable of the role {prefix[:-1]}")


def _check_field(name: str, item: TemplateInput, path: str, kind: str) -> None:
    if not _INPUT_NAME.match(name):
        raise InputError(path, "must be lower-case letters, digits and '_', and start with a letter")
    if item.type != "secret" and is_secret_name(name):
        raise InputError(path, "asks for the value of a secret", "Use type: secret, which takes a reference")
    if item.type == "secret" and kind == "job" and (item.name is None or item.default is not None):
        raise InputError(path, "of type secret needs a name and has no default", "For example: name: HF_TOKEN")
    if item.type == "secret" and kind == "services" and (item.name is not None or item.default is not None):
        raise InputError(path, "of type secret has neither name nor default in a template of services", "Leave it out")
    if item.pattern is not None:
        try:
            re.compile(item.pattern)
        except re.error as exc:
            raise InputError(f"{path}.pattern", f"is not a regular expression ({exc})") from exc
    if item.default is not None:
        _parse_answer(item.default, item, f"{path}.default")


def walk_texts(value: t.Any, path: str) -> t.Iterator[tuple[str, str]]:
    """Yield (path, text) of each text in mappings and lists."""
    if isinstance(value, t.Mapping):
        for key, item in value.items():
            yield from walk_texts(item, f"{path}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from walk_texts(item, f"{path}[{index}]")
    elif isinstance(value, str):
        yield path, value


def _check_text(value: str, fields: t.Mapping[str, TemplateInput], path: str) -> None:
    if is_jinja(value):
        raise InputError(path, "has text of Jinja, which is not evaluated here", "Write ${inputs.NAME}")
    for name in _PLACEHOLDER.findall(value):
        item = fields.get(name)
        if item is None or (item.type == "secret" and not _PLACEHOLDER.fullmatch(value)):
            raise InputError(path, f"'{name}' is not an input that can stand in a value", "Declare it under inputs")
        if not _PLACEHOLDER.fullmatch(value) and not item.required and item.default is None:
            raise InputError(path, f"'{name}' stands inside text and may be missing", "Give it a default")
    if "${inputs" in _PLACEHOLDER.sub("", value):
        raise InputError(path, "has a placeholder that cannot be read", "Write ${inputs.NAME}")


def fill_template(template: CatalogueTemplate, answers: t.Any, path: str = "inputs") -> Dict:
    """Return ``{job}``, ``{services}`` or ``{variables}`` of a template with its inputs filled in.

    Keys and items whose input has no answer and no default are left out, and mappings that thus have none.

    :raises InputError: for an input that is unknown, missing, of another type or out of its range.
    """
    given, fields = f.dictionary(answers, path), template.fields
    for name in given.keys() - fields.keys():
        near = f.find_nearest(name, fields)
        hint = f"Did you mean '{near}'?" if near else f"Inputs are: {', '.join(fields)}"
        raise InputError(f"{path}.{name}", f"is not an input of template {template.name}", hint)
    values: Dict = {}
    for name, item in fields.items():
        value = given.get(name)
        value = item.default if value is None else value
        if value is None and item.required:
            raise InputError(f"{path}.{name}", f"is required by template {template.name}", item.help)
        values[name] = None if value is None else _parse_answer(value, item, f"{path}.{name}", template.kind)
    filled = _fill(f.plain_value(getattr(template, template.body)), values)
    return {template.body: _add_secrets(filled or {}, fields, values) if template.kind == "job" else filled}


def _add_secrets(job: Dict, fields: t.Mapping[str, TemplateInput], values: Dict) -> Dict:
    secrets = {name: item for name, item in fields.items() if item.type == "secret" and values[name] is not None}
    references = [{"name": item.name, **values[name]} for name, item in secrets.items()]
    return {**job, "secret_refs": [*job.get("secret_refs", []), *references]} if references else job


def _parse_answer(value: t.Any, item: TemplateInput, path: str, kind: str = "job") -> t.Any:
    if item.type == "secret":
        return _parse_reference(value, path, _REFERENCE_KEYS if kind == "job" else _SERVICE_REFERENCE_KEYS)
    if isinstance(value, str) and is_jinja(value):
        raise InputError(
            path, "must not contain text that Jinja would evaluate ({{, {% or {#)", "Give the value itself"
        )
    parsers: dict[str, f.Parser[t.Any]] = {
        "text": f.text,
        "int": f.integer(-_LIMITS, _LIMITS),
        "float": f.decimal(-_LIMITS),
        "bool": f.boolean,
    }
    answer = parsers[item.type](value, path)
    if item.choices and answer not in item.choices:
        raise InputError(path, f"must be one of {', '.join(map(str, item.choices))}")
    if item.type in ("int", "float"):
        if item.min is not None and answer < item.min:
            raise InputError(path, f"must be at least {item.min:g}, not {answer}")
        if item.max is not None and answer > item.max:
            raise InputError(path, f"must be at most {item.max:g}, not {answer}")
    if item.pattern is not None and not re.fullmatch(item.pattern, str(answer)):
        raise InputError(path, f"does not match the pattern {item.pattern}")
    return answer


def _parse_reference(value: t.Any, path: str, known: tuple[str, ...]) -> Dict:
    """Return where a secret is; a value in its place is refused and not shown."""
    example = "For example: {from: env, key: HF_TOKEN}"
    if not isinstance(value, t.Mapping):
        raise InputError(path, "takes a reference, not the secret itself", example)
    if value.keys() - set(known) or "from" not in value:
        raise InputError(path, f"is a reference with from and any of {', '.join(known[1:])}", example)
    for key, item in value.items():
        parts = f.dictionary(item, f"{path}.{key}") if key == "keys" else {"": item}
        for name, part in parts.items():
            if is_jinja(f.text(part, f"{path}.{key}.{name}".rstrip("."))) or is_jinja(name):
                raise InputError(f"{path}.{key}", "must not contain text that Jinja would evaluate", example)
    return dict(value)


def _fill(value: t.Any, values: Dict) -> t.Any:
    if isinstance(value, t.Mapping):
        filled = {key: _fill(item, values) for key, item in value.items()}
        left = {key: item for key, item in filled.items() if item is not None}
        return left if left or not value else None
    if isinstance(value, list):
        return [item for item in (_fill(item, values) for item in value) if item is not None]
    if not isinstance(value, str):
        return value
    whole = _PLACEHOLDER.fullmatch(value)
    return values[whole[1]] if whole else _PLACEHOLDER.sub(lambda found: f.argument(values[found[1]], "inputs"), value)


def join_answers(variable: str, variables: t.Mapping[str, t.Any]) -> Dict:
    """Return the answers of a variable and of those named ``VARIABLE_INPUT``; an empty one of these does not count.

    :raises InputError: when one input is answered in both.
    """
    answers = f.dictionary(variables.get(variable, {}), variable)
    prefix = f"{variable}_"
    single = {key: value for key, value in variables.items() if key.startswith(prefix) and value not in ("", None)}
    for key, value in single.items():
        name = key.removeprefix(prefix)
        if name in answers:
            raise InputError(f"{variable}.{name}", f"is also set as {key}", "Leave one of them out")
        answers[name] = value
    return answers


# Variables of the playbook train that a survey asks for with any template: what the question is called, and its field.
_TRAIN_FIELDS: t.Final = {
    "muster_run_id": ("Run id", TemplateInput("text", help="Empty for the job's own")),
    "muster_extend": (
        "Continue a run that has succeeded",
        TemplateInput("bool", default=False, required=True, help="With another job, such as other arguments"),
    ),
    "muster_take_over": (
        "Take over",
        TemplateInput("bool", default=False, required=True, help="From a controller that is gone"),
    ),
}


def build_train_questions() -> list[Dict]:
    """Return the questions of a survey for the playbook train's own variables, without those of a template."""
    return [_build_question(variable, name, item) for variable, (name, item) in _TRAIN_FIELDS.items()]


def build_survey(template: CatalogueTemplate) -> Dict:
    """Return the survey of AWX that asks for the inputs of a template, in the shape of its ``survey_spec``.

    References to secrets are not asked for: a survey has only flat answers.
    """
    asked = {name: item for name, item in template.fields.items() if item.type != "secret"}
    questions = [_build_question(f"{ANSWERS[template.kind]}_{name}", name, item) for name, item in asked.items()]
    return {"name": template.name, "description": template.description, "spec": questions}


def _build_question(variable: str, name: str, item: TemplateInput) -> Dict:
    choices = ["true", "false"] if item.type == "bool" else [str(choice) for choice in item.choices]
    low, high = (0, _SURVEY_LENGTH) if item.type == "text" else (item.min, item.max)
    return {
        "variable": variable,
        "question_name": name,
        "question_description": item.help,
        "type": "multiplechoice" if choices else _SURVEY_TYPES[item.type],
        "required": item.required,
        "default": _survey_default(item, is_choice=bool(choices)),
        "choices": choices,
        # AWX takes whole limits alone; the exact ones hold when the template is filled.
        "min": None if low is None else math.floor(low),
        "max": None if high is None else math.ceil(high),
    }


def _survey_default(item: TemplateInput, *, is_choice: bool) -> t.Any:
    """Return the default as AWX wants it, of the type of the question; a choice is text."""
    if item.default is None:
        return ""
    value = _parse_answer(item.default, item, "default")
    if is_choice:
        return str(value).lower() if item.type == "bool" else str(value)
    return float(value) if item.type == "float" else value
