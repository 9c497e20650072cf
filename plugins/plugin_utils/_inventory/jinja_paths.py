# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read plain Jinja expressions without Jinja: a name, dotted keys, constant subscripts.

Ansible parses and compiles an expression again for every host; most of what people write is only a path. A path is
read natively where the outcome is certain to be the same; everything else is left to Jinja (``ASK``).
"""

# pylint: disable=unidiomatic-typecheck  # subclasses are meant to be refused
from __future__ import annotations

import dataclasses
import re
import typing as t
from collections.abc import Mapping


class _Mark:
    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


MISSING: t.Final = _Mark("MISSING")
ASK: t.Final = _Mark("ASK")

_ROOT = re.compile(r"\s*([A-Za-z][A-Za-z0-9_]*)")
_STEP = re.compile(r"""\.([A-Za-z][A-Za-z0-9_]*)|\[([0-9]{1,6})\]|\['([^'"\\\]]+)'\]|\["([^'"\\\]]+)"\]""")
_SCALARS = frozenset((str, int, float, bool, type(None)))

# Words with a meaning of their own in an expression, and names that Jinja gives to parts of a template.
_WORDS = frozenset(
    ("and", "or", "not", "in", "is", "if", "else", "true", "false", "none", "True", "False", "None", "loop", "self")
    + ("super", "varargs", "kwargs", "caller", "context")
)
# A step such as ``.items`` finds the method of the mapping before its key.
_ATTRIBUTES = frozenset(name for kind in (dict, list, str, int, float, bool) for name in dir(kind))


def plain(value: object) -> object:
    """Return a copy of JSON-like data, or ``ASK`` when some part is of another type.

    Text that may be a template is of a tagged subclass of ``str``; exact types hold plain data only.
    """
    data: t.Any = value
    kind = type(data)
    if kind in _SCALARS:
        return data
    if kind is list:
        copied = [plain(item) for item in data]
        return ASK if ASK in copied else copied
    if kind is dict:
        copied_items = {key: plain(item) for key, item in data.items()}
        return (
            ASK if ASK in copied_items.values() or any(type(key) is not str for key in copied_items) else copied_items
        )
    return ASK


@dataclasses.dataclass(frozen=True, slots=True)
class Path:
    """A variable's name and the keys and indexes that lead on from it."""

    root: str
    steps: tuple[str | int, ...] = ()

    def find(self, variables: Mapping[str, object]) -> object:
        """Return what the path leads to, not copied and of any type, ``MISSING`` for nothing, or ``ASK``."""
        value: t.Any = variables.get(self.root, MISSING)
        for step in self.steps:
            kind = type(value)
            if kind is dict and type(step) is str:
                value = value.get(step, MISSING)
            elif kind is list and type(step) is int:
                value = value[step] if step < len(value) else MISSING
            else:
                return value if value is MISSING else ASK
        return value

    def read(self, variables: Mapping[str, object]) -> object:
        """Return a plain copy of what the path leads to, ``MISSING`` for nothing, or ``ASK``."""
        value = self.find(variables)
        return value if type(value) in _SCALARS or value is MISSING else plain(value)


def parse_path(expression: object) -> Path | None:
    """Return the path that ``expression`` spells, None when it is anything else and Jinja must read it."""
    if not isinstance(expression, str):
        return None
    root = _ROOT.match(expression)
    if root is None or root.group(1) in _WORDS:
        return None
    steps: list[str | int] = []
    position, text = root.end(), expression.rstrip()
    while position < len(text):
        step = _STEP.match(text, position)
        if step is None:
            return None
        key = step.group(1) or step.group(3) or step.group(4)
        if key is not None and (key in _ATTRIBUTES or key.startswith("_")):
            return None
        steps.append(key if key is not None else int(step.group(2)))
        position = step.end()
    return Path(root.group(1), tuple(steps))
