# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parsers of single values: what they accept, what they refuse, and that they refuse in one way only."""

from __future__ import annotations

import dataclasses
import string
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model import validators as f
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | st.text(max_size=12),
    lambda items: st.lists(items, max_size=3) | st.dictionaries(st.text(max_size=6), items, max_size=3),
    max_leaves=5,
)


@dataclasses.dataclass(frozen=True)
class Sample:
    """A section with one required and two optional fields."""

    size: int = f.field(f.integer(1, 9))
    words: tuple[str, ...] = f.field(f.list_of(f.text), ())
    extra: dict[str, t.Any] = f.field(f.dictionary, {})


PARSERS: dict[str, f.Parser[t.Any]] = {
    "text": f.text,
    "argument": f.argument,
    "integer": f.integer(0, 100),
    "decimal": f.decimal(0.0),
    "boolean": f.boolean,
    "choice": f.choice("alpha", "beta"),
    "name": f.name(10),
    "quantity": f.quantity,
    "cores": f.cores,
    "environment": f.environment,
    "packages": f.packages,
    "mapping": f.dictionary,
    "list": f.list_of(f.integer(0)),
    "section": f.section(Sample),
}


@pytest.mark.parametrize("name", PARSERS)
@given(value=JSON)
def test_a_parser_returns_a_value_or_names_the_option(name: str, value: t.Any) -> None:
    try:
        PARSERS[name](value, "job.option")
    except InputError as exc:
        assert exc.option.startswith("job.option") and str(exc).startswith(exc.option)


@pytest.mark.parametrize(
    ("name", "value", "parsed"),
    [
        ("integer", 7, 7),
        ("integer", " 7 ", 7),
        ("decimal", "0.5", 0.5),
        ("decimal", 2, 2.0),
        ("boolean", "Yes", True),
        ("boolean", 0, False),
        ("text", 3, "3"),
        ("argument", True, "true"),
        ("argument", "", ""),
        ("argument", 1e-3, "0.001"),
        ("quantity", "8Gi", 8 * 2**30),
        ("quantity", "8G", 8 * 10**9),
        ("quantity", "1.5Ki", 1536),
        ("quantity", 4096, 4096),
        ("quantity", "1e3", 1000),
        ("quantity", "1.5E3", 1500),
        ("quantity", ".5Gi", 2**29),
        ("quantity", "1E", 10**18),
        ("quantity", "1k", 1000),
        ("quantity", "2000m", 2),
        ("quantity", "8K", 8000),
        ("quantity", "9007199254740993", 9007199254740993),
        ("cores", 2, 2.0),
        ("cores", 0.5, 0.5),
        ("cores", "500m", 0.5),
        ("cores", "1e1", 10.0),
        ("name", "a-1", "a-1"),
        ("list", ["1", 2], (1, 2)),
        ("mapping", {1: "a"}, {"1": "a"}),
        (
            "packages",
            {"a.b": None, "c": "*", "d": "", "e": ">=2.1, <3"},
            {"a.b": "", "c": "", "d": "", "e": ">=2.1, <3"},
        ),
        ("environment", {"A_1": 3, "b": True}, {"A_1": "3", "b": "true"}),
    ],
)
def test_what_is_accepted(name: str, value: t.Any, parsed: t.Any) -> None:
    assert PARSERS[name](value, "option") == parsed


UNITS = "Units are Ki, Mi, Gi, Ti and k, M, G, T, behind the number without a space"


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("integer", "2x", "must be a whole number, not text ('2x')"),
        ("integer", 2.0, "must be a whole number, not a number ('2.0')"),
        ("integer", True, "must be a whole number, not a boolean"),
        ("integer", -1, "must be at least 0, not -1"),
        ("integer", 101, "must be at most 100, not 101"),
        ("decimal", "nan", "must be a number of at least 0"),
        ("decimal", float("inf"), "must be a number of at least 0"),
        ("decimal", True, "must be a number of at least 0"),
        ("boolean", "maybe", "must be true or false, not text"),
        ("choice", "alpah", "must be one of alpha, beta. Did you mean 'alpha'?"),
        ("choice", 1, "must be one of alpha, beta"),
        ("text", "", "must not be empty"),
        ("text", "a\nb", "must not contain control characters"),
        ("text", None, "must be text, not null"),
        ("argument", "a\0b", "must not contain NUL"),
        ("argument", [1], "must be text or a number, not a list"),
        ("name", "Upper", "must be lower-case letters, digits and '-', and start and end with one of the first two"),
        ("name", "-a", "must be lower-case letters, digits and '-', and start and end with one of the first two"),
        ("name", "abcdefghijk", "has 11 characters, at most 10 are allowed"),
        ("quantity", "8 Gi", "must be a quantity such as 8Gi or 500M, not '8 Gi'. " + UNITS),
        ("quantity", "-1", "must be more than zero and less than 8 EiB"),
        ("quantity", 0, "must be more than zero and less than 8 EiB"),
        ("quantity", "8GiB", "must be a quantity such as 8Gi or 500M, not '8GiB'. " + UNITS),
        ("cores", "50m", "must be a number of cores of at least 0.1. Write 2, 0.5 or 500m"),
        ("cores", "2 ", "must be a number of cores of at least 0.1. Write 2, 0.5 or 500m"),
        ("cores", True, "must be a number of cores of at least 0.1. Write 2, 0.5 or 500m"),
        ("list", "a", "must be a list, not text"),
        ("list", {"a": 1}, "must be a list, not a mapping"),
        ("packages", ["torch"], "must be a mapping, not a list"),
        ("mapping", [1], "must be a mapping, not a list"),
    ],
)
def test_what_is_refused_and_how(name: str, value: t.Any, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        PARSERS[name](value, "option")
    assert str(caught.value) == f"option: {problem}"


VERSIONS = "Use >=, ==, <=, <, > or != with a number, or '*' for any version"


@pytest.mark.parametrize(
    ("package", "rule", "problem"),
    [
        ("torch", "2.9", f"'2.9' is not a rule for a version. {VERSIONS}"),
        ("torch", "~=2.9", f"'~=2.9' is not a rule for a version. {VERSIONS}"),
        ("torch", ">=2.1,", f"'>=2.1,' is not a rule for a version. {VERSIONS}"),
        ("torch", "2.*", f"'2.*' is not a rule for a version. {VERSIONS}"),
        ("torch>=2", "*", 'is not the name of a Python package. For example: {torch: ">=2.4"}'),
        ("", "*", 'is not the name of a Python package. For example: {torch: ">=2.4"}'),
        ("torch", [2], "must be text or a number, not a list"),
    ],
)
def test_a_requirement_that_pip_would_not_take_is_refused(package: str, rule: t.Any, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        f.packages({package: rule}, "requires")
    assert str(caught.value) == f"requires.{package}: {problem}"


def test_the_path_leads_to_the_item() -> None:
    with pytest.raises(InputError) as caught:
        f.list_of(f.section(Sample))([{"size": 1}, {"size": 1, "words": ["a", ""]}], "job.list")
    assert caught.value.option == "job.list[1].words[1]"
    with pytest.raises(InputError, match=r"^env\.1A: is not a valid environment variable name$"):
        f.environment({"1A": "x"}, "env")


def test_a_section_refuses_unknown_and_missing_keys() -> None:
    parse = f.section(Sample)
    with pytest.raises(InputError, match=r"^s\.words_: is not an option. Did you mean 'words'\?$"):
        parse({"size": 1, "words_": []}, "s")
    with pytest.raises(InputError, match=r"^s\.qqq: is not an option. Known are: size, words, extra$"):
        parse({"size": 1, "qqq": 1}, "s")
    with pytest.raises(InputError, match=r"^s\.size: is required$"):
        parse({"size": None}, "s")
    assert parse({"size": 1, "words": None}, "s") == Sample(1)


@dataclasses.dataclass(frozen=True)
class Kept:
    """A section that keeps what it does not know."""

    size: int = f.field(f.integer(1), 1, key="for")
    extra: t.Mapping[str, t.Any] = f.field(f.dictionary, {})


def test_unknown_keys_are_skipped_or_kept_and_written_back() -> None:
    written = {"for": 2, "newer": {"a": [1]}, "extra": "theirs", "size": 9}
    kept = f.section(Kept, "keep")(written, "s")
    assert (kept.size, f.plain_value(kept)) == (2, written)
    assert f.section(Sample, "skip")({"size": 1, "newer": 2}, "s") == f.section(Sample)({"size": 1}, "s")
    with pytest.raises(InputError, match=r"^s\.newer: is not an option"):
        f.section(Kept)({"newer": 1}, "s")


def test_defaults_are_not_shared() -> None:
    one, two = f.section(Sample)({"size": 1}, "s"), f.section(Sample)({"size": 1}, "s")
    one.extra["a"] = 1
    assert two.extra == {}


@given(label=st.text(alphabet=string.ascii_lowercase + string.digits + "-", min_size=1, max_size=10))
def test_a_name_is_an_rfc_1123_label(label: str) -> None:
    allowed = not label.startswith("-") and not label.endswith("-")
    try:
        assert f.name(10)(label, "n") == label and allowed
    except InputError:
        assert not allowed


@given(number=st.integers(1, 10**6), unit=st.sampled_from(["", "K", "M", "G", "T", "Ki", "Mi", "Gi", "Ti"]))
def test_quantities_are_ordered_by_number_and_binary_units_are_larger(number: int, unit: str) -> None:
    size = f.quantity(f"{number}{unit}", "q")
    assert f.quantity(size, "q") == size
    assert f.quantity(f"{number + 1}{unit}", "q") > size
    if unit and not unit.endswith("i"):
        assert f.quantity(f"{number}{unit}i", "q") > size


def test_the_word_for_a_kind_never_echoes_the_value() -> None:
    values = (None, True, 1, 1.5, "secret", ["secret"], {"a": "secret"}, b"secret")
    words = [f.describe_type(value) for value in values]
    assert words == ["null", "a boolean", "a number", "a number", "text", "a list", "a mapping", "bytes"]


@pytest.mark.parametrize(("name", "digits"), [("decimal", 400), ("quantity", 400), ("argument", 5000), ("text", 5000)])
def test_a_number_beyond_all_bounds_is_refused(name: str, digits: int) -> None:
    with pytest.raises(InputError):
        PARSERS[name]("9" * 400 if name == "quantity" else 10**digits, "option")
