# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The JSON output of nccl-tests."""

from __future__ import annotations

import json
import typing as t

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._fabric.parse.nccl_tests_json import parse_nccl_tests_json
from ansible_collections.muster.training.tests.support.nccl_text import (
    codes,
    info,
    judged,
    judged_bytes,
)


def document(**changes: t.Any) -> dict[str, t.Any]:
    half = {"time": 5808.0, "alg_bw": 184.87, "bus_bw": 365.9, "nwrong": "0"}
    value: dict[str, t.Any] = {
        "version": 3,
        "args": ["all_reduce_perf", "--token=very-secret-argument"],
        "env": ["AWS_SECRET_ACCESS_KEY=very-secret-value", "PATH=/usr/bin"],
        "nccl_version": "2.28.3",
        "config": {
            "nthreads": 1,
            "devices": [
                {"rank": 0, "pid": 7, "hostname": "node-1", "device": 0, "device_info": "NVIDIA H100 80GB HBM3"},
                {"rank": 1, "pid": 8, "hostname": "node-2", "device": 0, "device_info": "NVIDIA H100 80GB HBM3"},
            ],
        },
        "results": [
            {"size": 8, "count": 2, "type": "float", "out_of_place": half, "in_place": {**half, "bus_bw": 0.1}},
            {"size": 1 << 30, "count": 1 << 28, "type": "float", "out_of_place": half, "in_place": half},
        ],
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": 120.0, "okay": "unchecked"},
        "errors": [],
        "end_time": "now",
    }
    return {**value, **changes}


def test_the_json_form() -> None:
    found = judged_bytes(json.dumps(document()).encode())
    assert (found.kind, found.busbw_gb_s, found.size_bytes, found.wrong_values) == ("nccl_tests", 365.9, 1 << 30, 0)
    assert found.nodes == ("node-1", "node-2") and found.outcome == "unproven"


def test_the_json_form_gives_nothing_of_the_environment_away() -> None:
    found = judged_bytes(json.dumps(document()).encode())
    assert "very-secret" not in repr(found) and "very-secret" not in json.dumps(found.to_dict())
    parsed = parse_nccl_tests_json(document())
    assert parsed is not None and "very-secret" not in repr(parsed)


def test_failures_in_the_json_form() -> None:
    for changes in (
        {"out_of_bounds": {"count": 4, "okay": "false"}},
        {"average_bus_bandwidth": {"bandwidth": 1.0, "okay": "false"}},
        {"errors": ["something"]},
    ):
        assert judged_bytes(json.dumps(document(**changes)).encode()).outcome == "fail"


def test_json_that_is_cut_or_not_ours() -> None:
    whole = json.dumps(document())
    for content in (
        whole[:-20],
        "{",
        "{}",
        '{"results": []}',
        '{"results": 1, "config": {}}',
        "[" * 100_000,
        "{" * 100_000,
    ):
        found = judged_bytes(content.encode())
        assert found.outcome == "unproven" and "very-secret" not in repr(found)


def test_a_log_of_json_lines() -> None:
    lines = [json.dumps({"log": info(text) + "\n", "stream": "stdout"}) for text in ("Using network Socket", "x")]
    lines.append(json.dumps({"log": info("Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0") + "\n"}))
    found = judged(*lines)
    assert (found.kind, found.transport, codes(found)) == ("nccl_log", "Socket", [])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=20,
)


@given(
    json_values, st.sampled_from(["results", "config", "out_of_bounds", "average_bus_bandwidth", "errors", "version"])
)
def test_no_document_breaks_the_reader(value: t.Any, key: str) -> None:
    parse_nccl_tests_json(value)
    parse_nccl_tests_json(document(**{key: value}))
    parse_nccl_tests_json(document(results=[value, {"size": value, "out_of_place": value}]))
