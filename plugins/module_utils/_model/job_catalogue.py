# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Templates of the catalogue: a job with typed inputs, filled by plain substitution.

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
# The answers of a survey are variables of their own.
ANSWER_PREFIX: t.Final = "muster_inputs_"
_LIMITS = 2**53
_SURVEY_LENGTH = 1024


def _is_jinja(text: str) -> bool:
    return any(mark in text for mark in _JINJA)


def _scalar(value: t.Any, _path: str) -> t.Any:
    return value


@dataclasses.dataclass(frozen=True, slots=True)
class TemplateInput:
    """One field of a template. ``name``: of a secret, the variable or file in which the program gets it."""

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
    """A job with inputs. ``job`` has the keys of ``muster_job``."""

    name: str = f.field(f.name(63))
    version: str = f.field(f.text)
    description: str = f.field(f.text)
    job: Dict = f.field(f.dictionary)
    inputs: Dict = f.field(f.dictionary, {})

    @property
    def digest(self) -> str:
        """SHA-256 of the content, the same for every way of writing it as YAML."""
        content = json.dumps(f.plain_value(self), sort_keys=True, default=str)
        return hashlib.sha256(content.encode()).hexdigest()

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
    for name, item in fields.items():
        _check_field(name, item, f"{path}.inputs.{name}")
    _check_body(template.job, fields, f"{path}.job")
    return template


def _check_field(name: str, item: TemplateInput, path: str) -> None:
    if not _INPUT_NAME.match(name):
        raise InputError(path, "must be lower-case letters, digits and '_', and start with a letter")
    if item.type != "secret" and _SECRET_WORDS.search(name):
        raise InputError(path, "asks for the value of a secret", "Use type: secret, which takes a reference")
    if item.type == "secret" and (item.name is None or item.default is not None):
        raise InputError(path, "of type secret needs a name and has no default", "For example: name: HF_TOKEN")
    if item.pattern is not None:
        try:
            re.compile(item.pattern)
        except re.error as exc:
            raise InputError(f"{path}.pattern", f"is not a regular expression ({exc})") from exc
    if item.default is not None:
        _parse_answer(item.default, item, f"{path}.default")


def _check_body(value: t.Any, fields: t.Mapping[str, TemplateInput], path: str) -> None:
    if isinstance(value, t.Mapping):
        for key, item in value.items():
            _check_body(item, fields, f"{path}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_body(item, fields, f"{path}[{index}]")
    elif isinstance(value, str):
        _check_text(value, fields, path)


def _check_text(value: str, fields: t.Mapping[str, TemplateInput], path: str) -> None:
    if _is_jinja(value):
        raise InputError(path, "has text of Jinja, which is not evaluated here", "Write ${inputs.NAME}")
    for name in _PLACEHOLDER.findall(value):
        item = fields.get(name)
        if item is None or item.type == "secret":
            raise InputError(path, f"'{name}' is not an input that can stand in a value", "Declare it under inputs")
        if not _PLACEHOLDER.fullmatch(value) and not item.required and item.default is None:
            raise InputError(path, f"'{name}' stands inside text and may be missing", "Give it a default")
    if "${inputs" in _PLACEHOLDER.sub("", value):
        raise InputError(path, "has a placeholder that cannot be read", "Write ${inputs.NAME}")


def fill_template(template: CatalogueTemplate, answers: t.Any, path: str = "inputs") -> Dict:
    """Return the job of a template with its inputs filled in, with the keys of ``muster_job``.

    Keys and items whose input has no answer and no default are left out.

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
        values[name] = None if value is None else _parse_answer(value, item, f"{path}.{name}")
    job = t.cast(Dict, _fill(template.job, values))
    secrets = {name: item for name, item in fields.items() if item.type == "secret" and values[name] is not None}
    references = [{"name": item.name, **values[name]} for name, item in secrets.items()]
    return {**job, "secret_refs": [*job.get("secret_refs", []), *references]} if references else job


def _parse_answer(value: t.Any, item: TemplateInput, path: str) -> t.Any:
    if item.type == "secret":
        return _parse_reference(value, path)
    if isinstance(value, str) and _is_jinja(value):
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


def _parse_reference(value: t.Any, path: str) -> Dict:
    """Return where a secret is; a value in its place is refused and not shown."""
    example = "For example: {from: env, key: HF_TOKEN}"
    if not isinstance(value, t.Mapping):
        raise InputError(path, "takes a reference, not the secret itself", example)
    if value.keys() - set(_REFERENCE_KEYS) or "from" not in value:
        raise InputError(path, f"is a reference with from and any of {', '.join(_REFERENCE_KEYS[1:])}", example)
    for key, item in value.items():
        if _is_jinja(f.text(item, f"{path}.{key}")):
            raise InputError(f"{path}.{key}", "must not contain text that Jinja would evaluate", example)
    return dict(value)


def _fill(value: t.Any, values: Dict) -> t.Any:
    if isinstance(value, t.Mapping):
        filled = {key: _fill(item, values) for key, item in value.items()}
        return {key: item for key, item in filled.items() if item is not None}
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


def build_survey(template: CatalogueTemplate) -> Dict:
    """Return the survey of AWX that asks for the inputs of a template, in the shape of its ``survey_spec``.

    References to secrets are not asked for: a survey has only flat answers.
    """
    asked = {name: item for name, item in template.fields.items() if item.type != "secret"}
    questions = [_build_question(name, item) for name, item in asked.items()]
    return {"name": template.name, "description": template.description, "spec": questions}


def _build_question(name: str, item: TemplateInput) -> Dict:
    choices = ["true", "false"] if item.type == "bool" else [str(choice) for choice in item.choices]
    low, high = (0, _SURVEY_LENGTH) if item.type == "text" else (item.min, item.max)
    return {
        "variable": f"{ANSWER_PREFIX}{name}",
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
