# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The suboptions of ``job`` and ``drill`` in the documentation are the fields that the model parses, in both directions."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing as t

import pytest
import yaml

from ansible_collections.muster.training.plugins.module_utils._model import drill as drill_model
from ansible_collections.muster.training.plugins.module_utils._model import job as job_model
from ansible_collections.muster.training.plugins.module_utils._model import (
    job_backends,
    job_tracking,
    launchers,
    rdma_resources,
)
from ansible_collections.muster.training.plugins.module_utils._model import validators as f
from ansible_collections.muster.training.plugins.modules import training_job

# The type of an option by the parser that reads it. A quantity such as 8Gi is written as text.
TYPES = {
    f.text: "str",
    f.argument: "str",
    f.step_pattern: "str",
    f.figures_pattern: "str",
    f.quantity: "str",
    f.cores: "str",
    f.boolean: "bool",
    f.environment: "dict",
    f.dictionary: "dict",
    f.packages: "dict",
}
FACTORIES = {"name": "str", "choice": "str", "integer": "int", "decimal": "float", "list_of": "list", "section": "dict"}
Option = dict[str, t.Any]


def factory(parser: t.Any) -> str:
    """The function that made the parser, such as ``integer``."""
    return str(parser.__qualname__).partition(".")[0]


def parsed(parser: t.Any) -> Option:
    """What the documentation of a field with this parser says: type, choices, elements and suboptions."""
    if parser in TYPES:
        return {"type": TYPES[parser]}
    if parser in (job_tracking.parse, rdma_resources.parse_request):
        # A mapping, or the name of a binding alone; a truth, or the name of a resource.
        return {"type": "raw"}
    if parser is launchers.parse:
        return {"type": "str", "choices": list(launchers.LAUNCHERS)}
    inner, kind = inspect.getclosurevars(parser).nonlocals, factory(parser)
    option: Option = {"type": FACTORIES[kind]}
    if kind == "choice":
        option["choices"] = list(inner["allowed"])
    elif kind == "section":
        option["suboptions"] = fields(inner["cls"])
    elif kind == "list_of":
        element = parsed(inner["parse"])
        option["elements"] = element.pop("type")
        option |= element
    return option


def fields(cls: t.Any) -> dict[str, Option]:
    """The options that a dataclass of the job model declares, by the keys that users write."""
    options = {}
    for key, item in f.fields_by_key(cls).items():
        option = parsed(item.metadata["parse"])
        default = item.default if item.default_factory is dataclasses.MISSING else item.default_factory()
        if default is dataclasses.MISSING:
            option["required"] = True
        elif isinstance(default, tuple):
            option["default"] = list(default)
        elif default is not None and not dataclasses.is_dataclass(default):
            option["default"] = default
        options[key] = option
    return options


def differences(documented: dict[str, Option], declared: dict[str, Option], path: str) -> list[str]:
    wrong = [f"{path}.{key} is parsed and not documented" for key in declared.keys() - documented.keys()]
    wrong += [f"{path}.{key} is documented and not parsed" for key in documented.keys() - declared.keys()]
    for key in declared.keys() & documented.keys():
        docs, option = documented[key], declared[key]
        wrong += [
            f"{path}.{key}: {word} {docs.get(word)!r} is documented, {option.get(word)!r} is parsed"
            for word in ("type", "choices", "elements", "default", "required")
            if docs.get(word) != option.get(word)
        ]
        if not docs.get("description"):
            wrong.append(f"{path}.{key} has no description")
        wrong += differences(docs.get("suboptions", {}), option.get("suboptions", {}), f"{path}.{key}")
    return sorted(wrong)


@functools.cache
def suboptions(option: str = "job") -> dict[str, Option]:
    about = yaml.safe_load(training_job.DOCUMENTATION)["options"][option]["suboptions"]
    assert isinstance(about, dict)
    return about


def description(option: str) -> str:
    """The description of an option such as ``job.placement.engine``, with those of the options around it."""
    inside, words = {"job": {"suboptions": suboptions(), "description": ""}}, ""
    for key in option.split("."):
        words += str(inside[key]["description"])
        inside = inside[key].get("suboptions", {})
    return words


def test_every_key_of_a_job_is_documented_as_it_is_parsed() -> None:
    wrong = differences(suboptions(), fields(job_model.Job), "job")
    assert not wrong, "\n" + "\n".join(wrong)


def test_every_key_of_a_drill_is_documented_as_it_is_parsed() -> None:
    assert differences(suboptions("drill"), fields(drill_model.Drill), "drill") == []


@pytest.mark.parametrize("option", [name for name, _uses in job_backends._KUBERNETES_ONLY])
def test_keys_for_kubernetes_say_so(option: str) -> None:
    assert "Kubernetes" in description(option) or "V(pod) cannot" in description(option)


@pytest.mark.parametrize("option", [name for name, _uses, _part in job_backends._NOT_YET_ANYWHERE])
def test_keys_that_are_refused_say_so(option: str) -> None:
    assert "reserved" in description(option).lower() and "refused" in description(option)


def test_a_difference_is_named() -> None:
    declared = fields(job_model.Restart)
    about = {key: {**option, "description": "x"} for key, option in declared.items()}
    assert differences(about, declared, "job.restart") == []
    changed = {**about, "wait_s": {**about["wait_s"], "default": 1}, "new": {"description": "x"}}
    del changed["max_crashes"]
    assert [line.partition(" ")[0].rstrip(":") for line in differences(changed, declared, "job.restart")] == [
        "job.restart.max_crashes",
        "job.restart.new",
        "job.restart.wait_s",
    ]


def test_types_are_read_from_parsers() -> None:
    assert parsed(f.list_of(f.choice("a", "b"))) == {"type": "list", "elements": "str", "choices": ["a", "b"]}
    assert parsed(f.integer(1)) == {"type": "int"} and parsed(f.name(9)) == {"type": "str"}
