# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documentation of every module says what its action takes, and the other way round.

Names, types, elements, choices, defaults, ``required`` and aliases of all options and suboptions are compared. Rules
between options are named in their descriptions, and every credential is marked ``no_log``.
"""

from __future__ import annotations

import importlib
import itertools
import pathlib
import typing as t

import pytest
import yaml

PACKAGE = "ansible_collections.muster.training.plugins"
PLUGINS = pathlib.Path(__file__).resolve().parents[4] / "plugins"
NAMES = sorted(path.stem for path in (PLUGINS / "action").glob("*.py") if path.stem != "__init__")
# The job is taken as it is, so that the job model's own message names a key that is wrong; documented is its real type.
PARSED_ELSEWHERE = (("job", "dict", "raw"),)
COMPARED = ("type", "default", "choices", "elements", "required", "aliases")
SECRETS = ("_token", "_secret", "_password", "_auth_key", "token", "secret", "password", "data", "data_base64")


def documented(name: str) -> dict[str, t.Any]:
    """The options of a module's documentation, those of its fragments included."""
    about = yaml.safe_load(importlib.import_module(f"{PACKAGE}.modules.{name}").DOCUMENTATION)
    options: dict[str, t.Any] = {}
    for fragment in about["extends_documentation_fragment"]:
        place, _dot, part = fragment.removeprefix("muster.training.").partition(".")
        found = importlib.import_module(f"{PACKAGE}.doc_fragments.{place}").ModuleDocFragment
        options |= yaml.safe_load(getattr(found, part.upper() or "DOCUMENTATION")).get("options", {})
    return {**options, **about.get("options", {})}


def action(name: str) -> t.Any:
    return importlib.import_module(f"{PACKAGE}.action.{name}").ActionModule


def compare(documentation: dict[str, t.Any], spec: dict[str, t.Any], path: str = "") -> list[str]:
    """The differences between documented options and an argument specification."""
    wrong = [f"{path}{key}: only in the documentation" for key in documentation.keys() - spec.keys()]
    wrong += [f"{path}{key}: not documented" for key in spec.keys() - documentation.keys()]
    for key in documentation.keys() & spec.keys():
        docs, taken = documentation[key], spec[key]
        for word in COMPARED:
            said, read = docs.get(word) or None, taken.get(word) or None
            if word == "default":
                said, read = docs.get(word), taken.get(word)
            if (key, said, read) in PARSED_ELSEWHERE:
                continue
            if said != read or type(said) is not type(read):
                wrong.append(f"{path}{key}: {word} {said!r} is documented, {read!r} is taken")
        if not docs.get("description"):
            wrong.append(f"{path}{key}: no description")
        # A value that the action takes as it is may be parsed elsewhere; then a test beside that parser compares it.
        if "options" in taken:
            wrong += compare(docs.get("suboptions", {}), taken["options"], f"{path}{key}.")
    return sorted(wrong)


def groups(rules: dict[str, t.Any]) -> t.Iterator[tuple[str, ...]]:
    """The options that each rule between options ties together."""
    for kind in ("mutually_exclusive", "required_together", "required_one_of"):
        yield from (tuple(group) for group in rules.get(kind, ()))
    for key, _value, needed, *_any in rules.get("required_if", ()):
        yield from ((key, option) for option in needed)
    for key, needed in rules.get("required_by", {}).items():
        yield from ((key, option) for option in ([needed] if isinstance(needed, str) else needed))


@pytest.mark.parametrize("name", NAMES)
def test_documentation_and_action_agree(name: str) -> None:
    assert compare(documented(name), action(name).OPTIONS) == []


@pytest.mark.parametrize("name", NAMES)
def test_rules_between_options_are_documented(name: str) -> None:
    options, about = documented(name), importlib.import_module(f"{PACKAGE}.modules.{name}").DOCUMENTATION
    general = str(yaml.safe_load(about)["description"])
    missing = []
    for group in groups(action(name).RULES):
        words = {option: f"{general} {options[option]['description']}" for option in group}
        named = [any(f"O({other}" in words[option] for other in group if other != option) for option in group]
        if not any(named):
            missing.append(group)
    assert not missing, "neither option's description names the other as O(…)"


@pytest.mark.parametrize("name", NAMES)
def test_every_credential_is_marked(name: str) -> None:
    def unmarked(spec: dict[str, t.Any]) -> list[str]:
        bare = [key for key, value in spec.items() if key.endswith(SECRETS) and not value.get("no_log")]
        inner = (unmarked(value["options"]) for value in spec.values() if value.get("options"))
        return bare + list(itertools.chain.from_iterable(inner))

    assert unmarked(action(name).OPTIONS) == []


def test_every_module_has_an_action() -> None:
    modules = {path.stem for path in (PLUGINS / "modules").glob("*.py")} - {"__init__"}
    assert modules == set(NAMES)


def test_differences_are_found() -> None:
    about = {"a": {"type": "str", "description": "x"}, "b": {"type": "int", "default": 1, "description": "x"}}
    assert len(compare(about, {"a": {"type": "int"}, "b": {"type": "int", "default": 2}, "c": {}})) == 3
    assert compare(about, {"a": {"type": "str"}, "b": {"type": "int", "default": True}}) != []
    assert list(groups({"required_if": [("state", "present", ["pool"])]})) == [("state", "pool")]
