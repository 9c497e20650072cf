# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds no-op applies: whether an object already is what server-side apply would make it, by the object alone.

The server keeps for each field manager the set of fields it applied last (``managedFields``, structured-merge-diff's
FieldsV1), and removes a field from the set when another manager changes its value. An apply has no effect when the set
is the set of the wanted fields and their values are the wanted ones. What the server spells otherwise or fills in
(quantities, defaults inside of a value) is not known here: then the answer is no, and the server is asked by a dry
run.
"""

from __future__ import annotations

import json
import typing as t
from collections.abc import Mapping

from ..api.kinds import JsonObject, KubeObject

# A set of fields (FieldsV1): "f:<name>" for a field, "k:<keys>" and "v:<value>" for a list's item, "." for itself.
type FieldSet = Mapping[str, FieldSet]


def is_noop(wanted: KubeObject, live: KubeObject, manager: str) -> bool:
    """Return whether it is certain that applying ``wanted`` as ``manager`` would leave ``live`` as it is."""
    owned = applied_fields(live, manager, wanted["apiVersion"])
    if owned is None:
        if applied_fields(live, manager) is not None:
            return False
        # The server keeps no set for an object of which only the name is wanted.
        owned = {}
    values: JsonObject = {key: value for key, value in wanted.items() if key not in ("apiVersion", "kind")}
    meta: JsonObject = {key: value for key, value in wanted["metadata"].items() if key not in ("name", "namespace")}
    del values["metadata"]
    if meta:
        values["metadata"] = meta
    return _is_same_map(values, owned, t.cast(JsonObject, live))


def applied_fields(live: KubeObject, manager: str, api_version: str | None = None) -> FieldSet | None:
    """Return the set of fields that ``manager`` applied last, None when it never applied this object."""
    for entry in (live.get("metadata") or {}).get("managedFields") or []:
        applied = entry.get("manager") == manager and entry.get("operation") == "Apply" and not entry.get("subresource")
        if applied and api_version in (None, entry.get("apiVersion")):
            return t.cast("FieldSet", entry.get("fieldsV1") or {})
    return None


def _is_same(wanted: object, owned: FieldSet, live: object) -> bool:
    if not owned:
        # Replaced as a whole. As JSON, for in Python true is 1.
        return json.dumps(wanted, sort_keys=True) == json.dumps(live, sort_keys=True)
    if isinstance(wanted, dict) and isinstance(live, dict):
        return _is_same_map(wanted, owned, live)
    return isinstance(wanted, list) and isinstance(live, list) and _is_same_list(wanted, owned, live)


def _is_same_map(wanted: Mapping[str, object], owned: FieldSet, live: Mapping[str, object]) -> bool:
    return {f"f:{key}" for key in wanted} == owned.keys() - {"."} and all(
        key in live and _is_same(value, owned[f"f:{key}"], live[key]) for key, value in wanted.items()
    )


def _is_same_list(wanted: list[object], owned: FieldSet, live: list[object]) -> bool:
    names = owned.keys() - {"."}
    if len(names) != len(wanted):
        return False
    if all(name.startswith("v:") for name in names):
        values = [json.loads(name[2:]) for name in names]
        return all(item in values and item in live for item in wanted)
    if not all(name.startswith("k:") for name in names):
        return False
    keys = {name: json.loads(name[2:]) for name in names}
    last = -1
    for item in wanted:
        if not isinstance(item, dict) or (match := _find_list_item(item, keys, live)) is None:
            return False
        name, index = match
        # The order of the wanted list becomes that of the live one.
        if index < last or not _is_same(item, owned[name], live[index]):
            return False
        last = index
    return True


def _find_list_item(item: JsonObject, names: Mapping[str, JsonObject], live: list[object]) -> tuple[str, int] | None:
    """Return the owned name of a list's item and its index in the live list; None when that is not certain."""
    matches = [
        name for name, keys in names.items() if all(item.get(key, value) == value for key, value in keys.items())
    ]
    if len(matches) != 1:
        return None
    keys = names[matches[0]]
    indices = [
        index
        for index, other in enumerate(live)
        if isinstance(other, dict) and all(other.get(key) == value for key, value in keys.items())
    ]
    return (matches[0], indices[0]) if len(indices) == 1 else None
