# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Islands as values."""

from __future__ import annotations

import json
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.expectation import ExpectationRow
from ansible_collections.muster.training.plugins.module_utils._model.island import Island, IslandOverride
from ansible_collections.muster.training.plugins.module_utils._model.node import Node


@given(
    st.text("abc-", min_size=1),
    st.lists(st.sampled_from(["a", "b"]), max_size=2),
    st.none() | st.floats(0, 1e4),
    st.sampled_from("ABCDE"),
)
def test_islands_round_trip(name: str, nodes: list[str], rate: float | None, lane: t.Any) -> None:
    island = Island(name, tuple(nodes), lane, "ethernet", 1, rate, None, ("why",))
    assert Island.from_dict(json.loads(json.dumps(island.to_dict()))) == island


def test_island_has_the_contract_s_names() -> None:
    assert list(Island("x", ("a",), "A", "ib").to_dict()) == [
        "name",
        "nodes",
        "lane",
        "link",
        "nic_count",
        "nic_rate_gbps",
        "expected_busbw_gb_s",
        "reasons",
    ]


def test_unknown_facts_are_left_out_but_a_misspelt_override_is_refused() -> None:
    assert Node.from_dict({"name": "a", "tomorrow": 1, "gpu": {"colour": "red"}}).name == "a"
    with pytest.raises(InputError, match="lane"):
        IslandOverride.from_dict({"nodes": ["a"], "lan": "A"})
    with pytest.raises(InputError, match="nic_count"):
        ExpectationRow.from_dict({"busbw_gb_s": 1, "source": "me", "nics_count": 8})
