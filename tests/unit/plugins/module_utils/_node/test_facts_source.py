# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading facts: unknown values and unreadable files; no text breaks a parser."""

from __future__ import annotations

import pathlib

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._node import (
    facts_gpu,
    facts_host,
    facts_pci,
    facts_rdma,
)
from ansible_collections.muster.training.plugins.module_utils._node.facts_source import FactsSource, clean_value


@given(st.text(max_size=200))
def test_text_parsers_take_any_text(text: str) -> None:
    facts_gpu.parse_query(text)
    facts_gpu.parse_driver(text)
    facts_gpu.parse_fabric(text)
    facts_gpu.bus_address(text)
    facts_gpu.architecture(text)
    facts_host.count_cpus(text)
    facts_rdma.parse_rate_gbps(text)
    facts_pci.generation(text)
    assert not any(ord(char) < 32 for char in clean_value(text) or "")


def test_a_read_that_the_kernel_refuses_is_a_problem_only_when_it_means_something(tmp_path: pathlib.Path) -> None:
    source = FactsSource({"root": str(tmp_path)})
    assert source.text(str(tmp_path)) is None
    assert source.problems == [f"{tmp_path}: Is a directory"]
    assert source.text(str(tmp_path / "missing")) is None and len(source.problems) == 1
