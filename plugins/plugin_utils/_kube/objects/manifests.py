# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads manifests (YAML, JSON, values of a play) and turns them into the objects that are applied."""

from __future__ import annotations

import base64
import pathlib
import re
import typing as t
from collections.abc import Iterable, Iterator, Mapping

import yaml

from ....module_utils._model.errors import InputError
from ..api.kinds import KubeObject, identity
from ..api.kubeconfig import register_secret

_LOADER: t.Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MAX_FILE = 64 * 1024 * 1024
# Metadata that the server writes; an exported object holds it, and applying it would be refused or never be a no-op.
_SERVER_FIELDS = (
    "managedFields",
    "resourceVersion",
    "uid",
    "creationTimestamp",
    "generation",
    "selfLink",
    "deletionTimestamp",
)
_SUFFIXES = (".yaml", ".yml", ".json")
_DEEPEST = 100
_TEXT = ("scalar", "tag:yaml.org,2002:str")
_MAP = ("mapping", "tag:yaml.org,2002:map")
_SEQUENCE = ("sequence", "tag:yaml.org,2002:seq")
_PLAIN = frozenset({str, int, float, bool})
# YAML 1.1 reads texts as dates, times as numbers ("12:30" is 750), and refuses a bare "="; kubectl does none of that.
_LEFT_OUT = ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value")


class _UnsupportedValueError(Exception):
    """A value that a manifest cannot hold, and what to do."""


class _DuplicateKeyError(yaml.MarkedYAMLError):
    """A key that is given twice in one mapping."""


_Node = yaml.ScalarNode | yaml.MappingNode | yaml.SequenceNode


class _Loader(_LOADER):  # type: ignore[misc]
    """YAML without dates and sexagesimal numbers: a manifest's text is text."""

    def construct_document(self, node: _Node) -> object:
        """Return the value of a document; PyYAML's own way takes nearly as long as reading the text."""
        return self._construct(node)

    def _construct(self, node: _Node) -> object:
        form = node.id, node.tag
        if form == _TEXT:
            return node.value
        if form == _MAP and all((key.id, key.tag) == _TEXT for key, _unused in node.value):
            mapping = {key.value: self._construct(value) for key, value in node.value}
            if len(mapping) != len(node.value):
                raise self._duplicate_key(node)
            return mapping
        if form == _SEQUENCE:
            return [self._construct(item) for item in node.value]
        # Numbers and the like, keys that are not text, merges, and tags that are refused.
        return t.cast("object", self.construct_object(node, deep=True))

    @staticmethod
    def _duplicate_key(node: _Node) -> _DuplicateKeyError:
        names = [key.value for key, _unused in node.value]
        again = next(key for number, (key, _unused) in enumerate(node.value) if key.value in names[:number])
        return _DuplicateKeyError(problem=again.value, problem_mark=again.start_mark)


_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, re.compile(f"(?![^:]*:){expression.pattern}", expression.flags))
        for tag, expression in resolvers
        if tag not in _LEFT_OUT
    ]
    for first, resolvers in _LOADER.yaml_implicit_resolvers.items()
}


def parse(text: str, source: str) -> list[KubeObject]:
    """Return the objects of a YAML text of one or more documents; empty documents are left out."""
    try:
        # A lookup of Ansible returns a subclass of str, which the C parser refuses.
        values = list(yaml.load_all(str(text), Loader=_Loader))
    except yaml.YAMLError as exc:
        mark = getattr(exc, "problem_mark", None)
        where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        if isinstance(exc, _DuplicateKeyError):
            raise InputError(source, f"gives the key {exc.problem} twice{where}", "Leave one of them out") from None
        raise InputError(source, f"is not valid YAML{where}") from None
    except (RecursionError, ValueError):
        raise InputError(source, "is not valid YAML") from None
    return [item for value in values for item in _flatten(value, source)]


def read(path: str | pathlib.Path, base: pathlib.Path) -> list[KubeObject]:
    """Return the objects of a file, or of all YAML and JSON files of a folder in the order of their names."""
    place = base / pathlib.Path(path).expanduser()
    if place.is_dir():
        files = sorted(entry for entry in place.iterdir() if entry.suffix in _SUFFIXES)
        if not files:
            raise InputError("src", f"{place} holds no .yaml, .yml or .json file")
        return [item for file in files for item in read(file, base)]
    try:
        if place.stat().st_size > _MAX_FILE:
            raise InputError("src", f"{place} is larger than {_MAX_FILE >> 20} MiB")
        return parse(place.read_text(encoding="utf-8-sig"), str(place))
    except OSError as exc:
        raise InputError("src", f"cannot read {place} ({(exc.strerror or 'unreadable').lower()})") from None
    except UnicodeDecodeError:
        raise InputError("src", f"{place} is not UTF-8 text") from None


def collect(value: object, source: str) -> list[KubeObject]:
    """Return the objects in a value: text, one object, a ``List``, or a list of any of these."""
    if isinstance(value, str):
        return parse(value, source)
    if isinstance(value, Mapping):
        return list(_flatten(value, source))
    if isinstance(value, Iterable):
        return [item for number, part in enumerate(value) for item in collect(part, f"{source}[{number}]")]
    raise InputError(source, "must be objects or YAML text")


def _flatten(value: object, source: str) -> Iterator[KubeObject]:
    if value is None or value == "":
        return
    if isinstance(value, list):
        for item in value:
            yield from _flatten(item, source)
        return
    if not isinstance(value, Mapping):
        raise InputError(source, "holds a document that is not an object with apiVersion and kind")
    if str(value.get("kind", "")).endswith("List") and isinstance(value.get("items"), list):
        for item in value["items"]:
            yield from _flatten(item, source)
        return
    identity(value)
    yield clean(value)


def clean(value: Mapping[str, object]) -> KubeObject:
    """Return an object as it is applied: without nulls, status and the server's fields; Secret texts encoded."""
    item = t.cast("KubeObject", _to_plain(value))
    item.pop("status", None)
    for key in _SERVER_FIELDS:
        item["metadata"].pop(key, None)  # type: ignore[misc]
    _get_mapping(item["metadata"], item, "labels")
    if item["kind"] == "Secret" and item["apiVersion"] == "v1":
        texts, data = _get_mapping(item, item, "stringData"), _get_mapping(item, item, "data")
        if item.pop("stringData", None) is not None:
            encoded = {key: base64.b64encode(str(text).encode()).decode() for key, text in texts.items()}
            item["data"] = data = {**data, **encoded}
        _register_values(data)
    return item


def _get_mapping(part: Mapping[str, object], item: KubeObject, key: str) -> dict[str, str]:
    """Return the mapping under ``key``, empty for None. A value that is not a mapping is not shown: it may be a secret.

    :raises InputError: naming the object and the key.
    """
    value = part.get(key, {})
    if not isinstance(value, dict):
        kind, name = item["kind"], item["metadata"]["name"]
        raise InputError(f"manifest of {kind} {name}", f"{key} must be a mapping", "Write it as key: value")
    return value


def _register_values(data: Mapping[str, str]) -> None:
    """Register the values of a Secret, so that no output shows them from here on."""
    for text in data.values():
        try:
            value = base64.b64decode(str(text)).decode()
        except ValueError:
            value = str(text)
        register_secret(value)


def _to_plain(value: Mapping[str, object]) -> object:
    """Return an object of plain values without nulls; errors name it."""
    try:
        return _without_nulls(value, 0)
    except _UnsupportedValueError as exc:
        _unused, kind, name = identity(value)
        raise InputError(f"manifest of {kind} {name}", *exc.args) from None


def _without_nulls(value: object, depth: int) -> object:
    # Nearly all of a manifest is plain; isinstance() with the abstract types for each part is slow.
    if type(value) in _PLAIN:
        return value
    if depth > _DEEPEST:
        raise _UnsupportedValueError(f"is nested deeper than {_DEEPEST} levels")
    if isinstance(value, Mapping):
        return {_key(key): _without_nulls(item, depth + 1) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_without_nulls(item, depth + 1) for item in value]
    # Ansible marks values of files and templates with types of its own.
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    # Ansible's own YAML reads some texts as dates.
    what = "a date" if hasattr(value, "isoformat") else "a value that is neither text nor number"
    raise _UnsupportedValueError(f"holds {what}", "Write it as text, in quotes")


def _key(key: object) -> str:
    # YAML reads a bare "on" as true; JSON's keys are texts.
    return str(key).lower() if isinstance(key, bool) else str(key)
