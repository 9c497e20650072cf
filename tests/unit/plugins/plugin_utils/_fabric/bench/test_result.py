# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The result document of the bench as typed values."""

from __future__ import annotations

import json
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.plugin_utils._fabric.bench.result import BenchResult

DOCUMENT: dict[str, t.Any] = {
    "schema": 1,
    "collective": "all_reduce",
    "backend": "gloo",
    "ranks": 2,
    "nodes": 2,
    "results": [
        {
            "size_bytes": 33554432,
            "iterations": 3,
            "time_us": 282282.58,
            "algbw_gb_s": 0.1189,
            "busbw_gb_s": 0.1189,
            "wrong_values": 0,
        },
        {
            "size_bytes": 4194304,
            "iterations": 27,
            "time_us": 35552.26,
            "algbw_gb_s": 0.118,
            "busbw_gb_s": 0.118,
            "wrong_values": 2,
        },
    ],
    "skipped": [{"size_bytes": 99999999, "reason": "too slow for the time budget"}],
    "evidence": [
        {
            "rank": rank,
            "host": "vm",
            "node": f"node-{rank + 1}",
            "pid": 9624 + rank,
            "sockets": [
                {
                    "local": f"10.77.0.{rank + 1}:33485",
                    "peer": f"10.77.0.{2 - rank}:49262",
                    "interface": "eth0",
                    "tx_bytes": [152, 1152],
                    "rx_bytes": [160, 1160],
                    "peer_rank": 1 - rank,
                }
            ],
            "netdev": {"eth0": {"rx_bytes": [4772, 327869950], "tx_bytes": [2855, 327870075]}},
            "rdma": {},
        }
        for rank in (0, 1)
    ],
}


def test_result_document() -> None:
    found = BenchResult.from_text(json.dumps(DOCUMENT))
    assert found.largest_row is not None and found.largest_row.size_bytes == 33554432
    assert found.wrong_values == 2 and found.node_names == ("node-1", "node-2")
    first = found.evidence[0]
    assert first.sockets[0].carried_bytes == 2000 and first.netdev["eth0"].received_bytes == 327865178
    assert found.skipped[0].reason.startswith("too slow")


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"schema": 2}, "bench.schema"),
        ({"ranks": 3}, "bench.evidence"),
        ({"evidence": DOCUMENT["evidence"][:1] * 2}, "bench.evidence"),
        ({"results": [{"size_bytes": 1}]}, r"bench.results\[0\].iterations"),
        ({"results": [{**DOCUMENT["results"][0], "busbw_gb_s": "nan"}]}, r"bench.results\[0\].busbw_gb_s"),
    ],
)
def test_result_document_with_a_flaw_is_refused(change: dict[str, t.Any], path: str) -> None:
    with pytest.raises(InputError, match=path):
        BenchResult.from_dict({**DOCUMENT, **change})


@given(st.integers(0, 2000), st.binary(max_size=8))
def test_torn_or_foreign_result_files_are_refused_in_one_line(cut: int, junk: bytes) -> None:
    text = json.dumps(DOCUMENT).encode()
    for broken in (text[: min(cut, len(text) - 1)], text[:cut] + b"\xff" + junk, junk):
        with pytest.raises(InputError) as caught:
            BenchResult.from_text(broken)
        assert "\n" not in str(caught.value)


def test_a_torn_result_is_followed_by_a_whole_one() -> None:
    text = json.dumps(DOCUMENT)
    with pytest.raises(InputError, match="is not a complete JSON document. Run the bench again"):
        BenchResult.from_text(text[:-9])
    assert BenchResult.from_text(text).ranks == 2
