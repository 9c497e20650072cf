# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inventory names: clean, unique, the same every time."""

from __future__ import annotations

import re
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._inventory.names import (
    NameRequest,
    assign_names,
    clean_label,
    clean_name,
)

LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


@pytest.mark.parametrize(
    ("text", "label"),
    [("spark-01", "spark-01"), ("Spark-01", "spark-01"), ("lab-h100-0-1f2e3d4c", "lab-h100-0-1f2e3d4c"), ("7", "7")],
)
def test_good_names_stay(text: str, label: str) -> None:
    assert clean_label(text) == label == clean_name(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "my host",
        "a_b",
        "a.b",
        "\U0001f600",
        "M\u00fcnchen",
        "-a",
        "a-",
        "a" * 64,
        "[0:9]",
        "localhost",
        "all",
        "a:b",
        "{{ x }}",
    ],
)
def test_other_names_are_cleaned_and_marked(text: str) -> None:
    label = clean_label(text)
    assert LABEL.fullmatch(label) and re.search(r"-[0-9a-f]{6}$", label)
    assert clean_label(text) == label


@given(st.lists(st.text(max_size=80), unique_by=str.lower, max_size=8))
def test_labels_are_valid_and_distinct(texts: list[str]) -> None:
    labels = [clean_label(text) for text in texts]
    assert all(LABEL.fullmatch(label) for label in labels)
    assert len(set(labels)) == len({text.lower() for text in texts}) or any(not text.isascii() for text in texts)


def test_dotted_names_only_on_request() -> None:
    assert clean_name("Node-1.Lab.Example.com.") == "node-1.lab.example.com"
    assert clean_label("node-1.lab") != "node-1.lab" and clean_name("a..b") == clean_label("a..b")


def test_the_living_gets_the_name() -> None:
    hosts = [
        NameRequest("n2", "node", False),
        NameRequest("n9", "node", True),
        NameRequest("n5", "node", True),
        NameRequest("n1", "other", False),
    ]
    names, shared = assign_names(hosts, set())
    assert names["n5"] == "node" and names["n1"] == "other" and shared == ["node"]
    assert names["n2"].startswith("node-") and names["n9"].startswith("node-") and names["n2"] != names["n9"]
    taken, shared = assign_names([NameRequest("n1", "other.lab", True)], {"other.lab"})
    assert re.fullmatch(r"other-[0-9a-f]{6}\.lab", taken["n1"]) and shared == ["other.lab"]


@given(
    st.lists(st.tuples(st.integers(0, 99), st.sampled_from("abc"), st.booleans()), unique_by=lambda x: x[0]),
    st.randoms(),
)
def test_names_do_not_depend_on_the_order(raw: list[tuple[int, str, bool]], random: t.Any) -> None:
    hosts = [NameRequest(str(number), name, alive) for number, name, alive in raw]
    names, _shared = assign_names(hosts, {"c"})
    random.shuffle(hosts)
    assert assign_names(hosts, {"c"})[0] == names and len(set(names.values())) == len(hosts)
