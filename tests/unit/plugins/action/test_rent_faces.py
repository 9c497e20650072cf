# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documentation of the renting modules says what their actions take: names, types, defaults, choices."""

from __future__ import annotations

import importlib
import typing as t

import pytest
import yaml

PACKAGE = "ansible_collections.muster.training.plugins"
NAMES = ("node_offer_info", "node_pool", "coreweave_node_pool", "tailscale_key", "tailscale_device")


def documented(name: str) -> dict[str, t.Any]:
    about = yaml.safe_load(importlib.import_module(f"{PACKAGE}.modules.{name}").DOCUMENTATION)
    options: dict[str, t.Any] = {}
    for fragment in about["extends_documentation_fragment"]:
        module = importlib.import_module(f"{PACKAGE}.doc_fragments.{fragment.rpartition('.')[2]}")
        options |= yaml.safe_load(module.ModuleDocFragment.DOCUMENTATION).get("options", {})
    return {**options, **about.get("options", {})}


def compare(documented_options: dict[str, t.Any], spec: dict[str, t.Any], path: str = "") -> list[str]:
    wrong = [f"{path}{key}: only in one place" for key in documented_options.keys() ^ spec.keys()]
    for key in documented_options.keys() & spec.keys():
        told, taken = documented_options[key], spec[key]
        for word in ("type", "default", "choices", "elements", "required"):
            if told.get(word) != taken.get(word) and not (word == "required" and not told.get(word)):
                wrong.append(f"{path}{key}: {word} {told.get(word)!r} is documented, {taken.get(word)!r} is taken")
        if not told.get("description"):
            wrong.append(f"{path}{key}: no description")
        wrong += compare(told.get("suboptions", {}), taken.get("options", {}), f"{path}{key}.")
    return wrong


@pytest.mark.parametrize("name", NAMES)
def test_documentation_and_action_agree(name: str) -> None:
    action = importlib.import_module(f"{PACKAGE}.action.{name}").ActionModule
    assert compare(documented(name), action.OPTIONS) == []


@pytest.mark.parametrize("name", NAMES)
def test_every_credential_is_marked(name: str) -> None:
    def marked(spec: dict[str, t.Any]) -> list[str]:
        found = [key for key, value in spec.items() if key.endswith(("_token", "_secret")) and not value.get("no_log")]
        return found + [item for value in spec.values() for item in marked(value.get("options", {}))]

    assert marked(importlib.import_module(f"{PACKAGE}.action.{name}").ActionModule.OPTIONS) == []


def test_a_difference_is_found() -> None:
    told = {"a": {"type": "str", "description": "x"}, "b": {"type": "int", "default": 1, "description": "x"}}
    assert len(compare(told, {"a": {"type": "int"}, "b": {"type": "int", "default": 2}, "c": {}})) == 3
