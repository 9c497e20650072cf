# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of an inventory source file that Ansible's own reader leaves out."""

from __future__ import annotations

import os
import typing as t
from collections.abc import Collection, Iterator, Mapping

import yaml

from ...module_utils._model import validators as f
from ...module_utils._model.errors import InputError

MAX_BYTES = 1024 * 1024
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def check_file(path: str) -> None:
    """Refuse a source that is too large, no YAML mapping, or has a key twice; nothing of its text is shown.

    Of two equal keys YAML readers use the last one: half of what was written would be ignored.
    """
    name = os.path.basename(path)
    try:
        with open(path, "rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as exc:
        raise InputError(name, f"cannot be read ({(exc.strerror or 'error').lower()})") from None
    if len(data) > MAX_BYTES:
        raise InputError(
            name,
            f"is larger than {MAX_BYTES} bytes",
            "Name a source of an inventory plugin, or put this file elsewhere",
        )
    if data.startswith(b"$ANSIBLE_VAULT"):
        return
    try:
        root = yaml.compose(data, Loader=_LOADER)
    except yaml.MarkedYAMLError as exc:
        place = f"{name}:{exc.problem_mark.line + 1}" if exc.problem_mark else name
        raise InputError(place, f"is not valid YAML ({exc.problem})") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise InputError(name, "is not valid YAML text") from None
    if not isinstance(root, yaml.MappingNode):
        raise InputError(name, "must be a mapping with the key 'plugin'")
    for key, line in _find_duplicate_keys(root):
        raise InputError(f"{name}:{line}", f"the key '{key}' occurs twice")


def _find_duplicate_keys(node: t.Any) -> Iterator[tuple[str, int]]:
    """Yield keys that a mapping below ``node`` has twice, with the line of the second."""
    pending, visited = [node], set()
    while pending:
        item = pending.pop()
        if id(item) in visited:
            continue
        visited.add(id(item))
        if isinstance(item, yaml.SequenceNode):
            pending += item.value
        if isinstance(item, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in item.value:
                if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                    if key.value in seen:
                        yield key.value, key.start_mark.line + 1
                    seen.add(key.value)
                pending.append(value)


def check_keys(options: Collection[str], definitions: Collection[str]) -> None:
    """Refuse an option that the plugin does not have; a misspelt one would be ignored silently."""
    for key in options:
        if key not in definitions:
            near = f.find_nearest(str(key), definitions)
            hint = f"Did you mean '{near}'?" if near else f"Known are: {', '.join(sorted(definitions))}"
            raise InputError(str(key), "is not an option of this plugin", hint)


def check_booleans(options: Mapping[str, object], definitions: Mapping[str, Mapping[str, object]]) -> None:
    """Refuse a value that is neither true nor false: Ansible's own reader takes any other word for false."""
    for key, value in options.items():
        if definitions[key].get("type") in ("bool", "boolean") and value is not None:
            f.boolean(value, key)
