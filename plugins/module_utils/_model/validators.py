# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parsers for values that people write: each takes a value and its dotted path and returns the typed value.

A parser raises :class:`InputError` with one line that names the option, the problem and, for a misspelt key,
the nearest valid one. Strings are coerced only where nothing is lost (``"2"`` is 2, ``"2x"`` is refused).
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import typing as t
from decimal import Decimal

from .errors import InputError
from .quantity import parse_finite, parse_quantity

T = t.TypeVar("T")
Parser = t.Callable[[t.Any, str], T]

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?\Z")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_PACKAGE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\Z")
VERSION_RULE = re.compile(r"(>=|==|<=|<|>|!=)\s*([0-9][0-9A-Za-z.+]*)\Z")
_TRUE = {"true", "yes", "on", "1"}
_FALSE = {"false", "no", "off", "0"}


def describe_type(value: t.Any) -> str:
    """Return a plain word for the type of ``value`` (the value itself is never shown)."""
    names = {bool: "a boolean", int: "a number", float: "a number", str: "text", list: "a list", dict: "a mapping"}
    if value is None:
        return "null"
    return next((word for base, word in names.items() if isinstance(value, base)), type(value).__name__)


def text(value: t.Any, path: str) -> str:
    """Return non-empty text without control characters."""
    if isinstance(value, (bool, list, dict)) or value is None:
        raise InputError(path, f"must be text, not {describe_type(value)}")
    result = _to_text(value, path)
    if not result:
        raise InputError(path, "must not be empty")
    if any(ord(char) < 32 or ord(char) == 127 for char in result):
        raise InputError(path, "must not contain control characters")
    return result


def _to_text(value: t.Any, path: str) -> str:
    try:
        return str(value)
    except ValueError:
        # Python refuses to write out a number of thousands of digits.
        raise InputError(path, "is a number with too many digits") from None


def argument(value: t.Any, path: str) -> str:
    """Return one command-line argument: any text or number; NUL is refused."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, (str, int, float)):
        raise InputError(path, f"must be text or a number, not {describe_type(value)}")
    result = _to_text(value, path)
    if "\0" in result:
        raise InputError(path, "must not contain NUL")
    return result


def pem(value: t.Any, path: str) -> str:
    """Return certificates in PEM form, as they stand in a file."""
    found = argument(value, path)
    if "-----BEGIN CERTIFICATE-----" not in found or "PRIVATE KEY" in found:
        raise InputError(path, "must be certificates in PEM form, and no key")
    return found


def step_pattern(value: t.Any, path: str) -> str:
    """Return a regular expression for lines that a program prints; its group ``step`` is the number of a step."""
    pattern = argument(value, path)
    if "step" not in _group_names(pattern, path):
        raise InputError(path, "needs a group named step", "For example: step=(?P<step>[0-9]+) loss=(?P<loss>[0-9.]+)")
    return pattern


def figures_pattern(value: t.Any, path: str) -> str:
    """Return a regular expression for lines with figures and without a step; each named group is a figure."""
    pattern = argument(value, path)
    groups = _group_names(pattern, path)
    if not groups or "step" in groups:
        raise InputError(path, "needs a named group, and none named step", r"For example: 'loss': (?P<loss>[^,}]+)")
    return pattern


def _group_names(pattern: str, path: str) -> t.Mapping[str, int]:
    try:
        groups = re.compile(pattern).groupindex
    except (re.error, OverflowError, RecursionError) as exc:
        raise InputError(path, f"is not a regular expression ({exc})") from exc
    for name in groups:
        near = find_nearest(name, _FIGURES, cutoff=0.85)
        if near and name != near:
            raise InputError(path, f"its group {name} would be a figure that nothing reads", f"Did you mean {near}?")
    return groups


def integer(minimum: int, maximum: int = 2**31 - 1) -> Parser[int]:
    """Return a parser of whole numbers from ``minimum`` to ``maximum``."""

    def parse(value: t.Any, path: str) -> int:
        is_number = isinstance(value, int) and not isinstance(value, bool)
        is_text = isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value.strip())
        number = int(value) if is_number or is_text else None
        if number is None:
            shown = f" ('{value}')" if isinstance(value, (str, float)) and len(str(value)) < 30 else ""
            raise InputError(path, f"must be a whole number, not {describe_type(value)}{shown}")
        if not minimum <= number <= maximum:
            bound = f"at least {minimum}" if number < minimum else f"at most {maximum}"
            raise InputError(path, f"must be {bound}, not {number}")
        return number

    return parse


def decimal(minimum: float) -> Parser[float]:
    """Return a parser of finite numbers not below ``minimum``."""

    def parse(value: t.Any, path: str) -> float:
        number = parse_finite(value, minimum=minimum)
        if number is None:
            raise InputError(path, f"must be a number of at least {minimum:g}")
        return number

    return parse


def boolean(value: t.Any, path: str) -> bool:
    """Return true or false; the usual YAML words are accepted, other text is refused."""
    if isinstance(value, bool):
        return bool(value)
    word = str(value).lower()
    if word in _TRUE | _FALSE:
        return word in _TRUE
    raise InputError(path, f"must be true or false, not {describe_type(value)}")


def choice(*allowed: str) -> Parser[str]:
    """Return a parser of a closed set of words."""

    def parse(value: t.Any, path: str) -> str:
        if isinstance(value, str) and value in allowed:
            return str(value)
        near = find_nearest(str(value), allowed) if isinstance(value, str) else None
        hint = f"Did you mean '{near}'?" if near else ""
        raise InputError(path, f"must be one of {', '.join(allowed)}", hint)

    return parse


def name(limit: int) -> Parser[str]:
    """Return a parser of RFC 1123 labels of at most ``limit`` characters."""

    def parse(value: t.Any, path: str) -> str:
        label = text(value, path)
        if len(label) > limit:
            raise InputError(path, f"has {len(label)} characters, at most {limit} are allowed")
        if not _NAME.match(label):
            raise InputError(
                path, "must be lower-case letters, digits and '-', and start and end with one of the first two"
            )
        return label

    return parse


def quantity(value: t.Any, path: str) -> int:
    """Return bytes from a Kubernetes-style quantity such as ``8Gi`` (2^30) or ``8G`` (10^9); zero is refused."""
    number = _parse_amount(value, path)
    if number is None:
        fix = "Units are Ki, Mi, Gi, Ti and k, M, G, T, behind the number without a space"
        raise InputError(path, f"must be a quantity such as 8Gi or 500M, not {str(value)[:20]!r}", fix)
    if not 1 <= number < 2**63:
        raise InputError(path, "must be more than zero and less than 8 EiB")
    return int(number)


def cores(value: t.Any, path: str) -> float:
    """Return processor cores from a number or a Kubernetes-style quantity such as ``500m``; at least 0.1."""
    number = _parse_amount(value, path)
    if number is None or not Decimal("0.1") <= number < 2**31:
        raise InputError(path, "must be a number of cores of at least 0.1", "Write 2, 0.5 or 500m")
    return float(number)


def _parse_amount(value: t.Any, path: str) -> Decimal | None:
    """Return the number of a quantity, None when it is not one; K is read as the API's k."""
    shown = _to_text(value, path)
    return None if isinstance(value, bool) else parse_quantity(f"{shown[:-1]}k" if shown.endswith("K") else shown)


def environment(value: t.Any, path: str) -> dict[str, str]:
    """Return environment variables: valid names, text values."""
    result = {}
    for key, item in dictionary(value, path).items():
        if not _ENV_NAME.match(str(key)):
            raise InputError(f"{path}.{key}", "is not a valid environment variable name")
        result[str(key)] = argument(item, f"{path}.{key}")
    return result


def dictionary(value: t.Any, path: str) -> dict[str, t.Any]:
    """Return a mapping with text keys."""
    if not isinstance(value, t.Mapping):
        raise InputError(path, f"must be a mapping, not {describe_type(value)}")
    return {str(key): item for key, item in value.items()}


def packages(value: t.Any, path: str) -> dict[str, str]:
    """Return names of Python packages and the rules for their versions, such as ``>=2.1,<3``; empty allows any."""
    rules = {}
    for package, item in dictionary(value, path).items():
        option, example = f"{path}.{package}", 'For example: {torch: ">=2.4"}'
        if not _PACKAGE.match(package):
            raise InputError(option, "is not the name of a Python package", example)
        rule = "" if item in (None, "", "*") else argument(item, option)
        if not all(VERSION_RULE.match(part.strip()) for part in rule.split(",") if rule):
            shown = f"'{rule[:40]}' is not a rule for a version"
            raise InputError(option, shown, "Use >=, ==, <=, <, > or != with a number, or '*' for any version")
        rules[package] = rule
    return rules


def list_of(parse: Parser[T]) -> Parser[tuple[T, ...]]:
    """Return a parser of lists whose items are parsed by ``parse``."""

    def parse_list(value: t.Any, path: str) -> tuple[T, ...]:
        if isinstance(value, (str, t.Mapping)) or not isinstance(value, t.Sequence):
            raise InputError(path, f"must be a list, not {describe_type(value)}")
        return tuple(parse(item, f"{path}[{index}]") for index, item in enumerate(value))

    return parse_list


# The groups of patterns that are read; others are kept as figures of their own.
_FIGURES = ("step", "loss", "tokens_per_s", "samples_per_s", "total", "epoch")
# What other tools call an option of ours.
_OTHER_WORDS = {
    "environment": "env",
    "env_vars": "env",
    "gpus": "gpus_per_node",
    "nproc_per_node": "processes_per_node",
    "processes": "processes_per_node",
    "num_nodes": "nodes",
    "nnodes": "nodes",
    "replicas": "nodes",
    "retries": "restart",
    "max_restarts": "restart",
    "secrets": "secret_refs",
    "volumes": "mounts",
    "timeout": "timeout_s",
    "workdir": "code",
}


def find_nearest(word: str, allowed: t.Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the allowed word most like ``word``, or None when nothing is close (``cutoff``: 1 is the same word)."""
    known = list(allowed)
    meant = {other: own for other, own in _OTHER_WORDS.items() if own in known}
    matches = difflib.get_close_matches(word.lower(), [*known, *meant], n=1, cutoff=cutoff)
    return meant.get(matches[0], matches[0]) if matches else None


def field(parse: Parser[t.Any], default: t.Any = dataclasses.MISSING, key: str | None = None) -> t.Any:
    """Declare a dataclass field with its parser; a field without default is required.

    :param key: the key that users write, where it differs from the field (a word of Python such as ``from``).
    """
    about = {"parse": parse, "key": key}
    if isinstance(default, (dict, list)):
        return dataclasses.field(default_factory=lambda: type(default)(default), metadata=about)  # pylint: disable=invalid-field-call
    return dataclasses.field(default=default, metadata=about)  # pylint: disable=invalid-field-call


def plain_value(value: t.Any) -> t.Any:
    """Return ``value`` as JSON types: dataclasses become mappings with the keys that users write, tuples lists.

    What ``section(…, "keep")`` kept in ``extra`` is beside the other keys again.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        values = {key: plain_value(getattr(value, item.name)) for key, item in fields_by_key(type(value)).items()}
        extra = values.pop("extra", {})
        return {**values, **extra}
    if isinstance(value, (tuple, list)):
        return [plain_value(item) for item in value]
    if isinstance(value, t.Mapping):
        return {key: plain_value(item) for key, item in value.items()}
    return value


def changed_value(value: t.Any) -> t.Any:
    """Return a parsed value as :func:`plain_value`, without the fields that have their defaults.

    It is the same in a version that knows more fields.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        found = {key: (item, getattr(value, item.name)) for key, item in fields_by_key(type(value)).items()}
        return {key: changed_value(one) for key, (item, one) in found.items() if one != _default_of(item)}
    if isinstance(value, tuple):
        return [changed_value(item) for item in value]
    return value


def _default_of(item: dataclasses.Field[t.Any]) -> t.Any:
    if item.default_factory is not dataclasses.MISSING:
        return item.default_factory()
    return item.default


def fields_by_key(cls: t.Any) -> dict[str, dataclasses.Field[t.Any]]:
    """Return the fields of a dataclass by the keys that users write."""
    return {item.metadata.get("key") or item.name: item for item in dataclasses.fields(cls)}


def section(cls: type[T], unknown: t.Literal["refuse", "skip", "keep"] = "refuse") -> Parser[T]:
    """Return a parser of mappings into the dataclass ``cls``, whose fields were declared with :func:`field`.

    ``REMOVED`` of ``cls``, if it has one, are the keys of earlier versions, each with what to do.

    :param unknown: keys that are no fields are refused, skipped because facts may grow, or kept in the field
        ``extra``, so that :func:`plain_value` writes them back (records of another version).
    """
    removed: t.Mapping[str, str] = getattr(cls, "REMOVED", {})

    def parse(value: t.Any, path: str) -> T:
        options = dictionary(value, path)
        fields = fields_by_key(cls)
        known = fields.keys() - ({"extra"} if unknown == "keep" else set())
        more = {key: item for key, item in options.items() if key not in known}
        if unknown == "refuse" and more:
            raise _refuse_key(next(iter(more)), path, fields, removed)
        options = {key: item for key, item in options.items() if key not in more}
        if unknown == "keep":
            options["extra"] = more
        values = {}
        for key, item in fields.items():
            if options.get(key) is not None:
                values[item.name] = item.metadata["parse"](options[key], f"{path}.{key}")
            elif item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING:
                raise InputError(f"{path}.{key}", "is required")
        return cls(**values)

    return parse


def _refuse_key(key: str, path: str, fields: t.Iterable[str], removed: t.Mapping[str, str]) -> InputError:
    if key in removed:
        return InputError(f"{path}.{key}", "was removed", removed[key])
    near = find_nearest(key, fields)
    return InputError(
        f"{path}.{key}", "is not an option", f"Did you mean '{near}'?" if near else f"Known are: {', '.join(fields)}"
    )
