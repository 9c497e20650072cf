# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Searching big blocks for telling words must find what reading every line finds."""

from __future__ import annotations

import csv
import pathlib
import re
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis import scan
from ansible_collections.muster.training.tests.support.nccl_text import (
    HEADER,
    codes,
    info,
    judged,
    judged_bytes,
    prefixed,
    rank_line,
    ring,
    row,
    warn,
)

FIXTURES = pathlib.Path(__file__).resolve().parents[5] / "fixtures" / "fabric"
FILLER = "step=12 loss=3.4210 tokens_per_s=51234\n" * 90


def messages() -> list[dict[str, str]]:
    with (FIXTURES / "messages.tsv").open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))


@pytest.fixture(autouse=True, scope="module")
def searching() -> t.Iterator[None]:
    """Every block is searched, as those far down in a big file are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "HEAD_BYTES", 0)
        patch.setattr(scan, "DENSE_BYTES", 0)
        yield


def test_every_message_is_found_far_down() -> None:
    for item in messages():
        line = {"warn": warn(item["text"], item["source"]), "info": info(item["text"])}.get(item["form"], item["text"])
        found = judged(FILLER + line)
        assert item["code"] in codes(found), item
        assert found.causes[0].evidence.startswith("some.log:91: ")


def without_line(evidence: str) -> str:
    return re.sub(r"^some\.log:\d+", "", evidence)


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.log")), ids=lambda path: path.name)
def test_recorded_logs_far_down(path: pathlib.Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan._Reader, "can_skip", lambda *_: False)
        alone = judged_bytes(path.read_bytes())
    below = judged_bytes(FILLER.encode() + path.read_bytes())
    for name in ("transport", "transport_verdict", "gdr", "outcome", "kind", "nodes", "ranks"):
        assert getattr(alone, name) == getattr(below, name)
    assert [without_line(one.evidence) for one in alone.causes] == [without_line(one.evidence) for one in below.causes]


def test_a_table_far_down() -> None:
    found = judged(FILLER + rank_line(0, "a"), *HEADER, "loss", row(1 << 30, 350.0), "# Out of bounds values : 0 OK")
    assert (found.kind, found.busbw_gb_s, found.wrong_values) == ("nccl_tests", 350.0, 0)


def test_a_quoted_message_far_down() -> None:
    found = judged(
        FILLER + "Last error:", "Duplicate GPU detected : rank 2 and rank 0 both on CUDA device 1000", FILLER
    )
    assert codes(found) == ["duplicate_gpu"]


PIECES = [
    *ring("NET/IB/0/GDRDMA", 2, 1),
    prefixed("mpirun", warn("NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129", "net_ib.cc:1")),
    *HEADER,
    rank_line(0, "a"),
    "# Out of bounds values : 0 OK",
    "a: Test NCCL failure common.cu:958 'internal error'",
    "Last error:",
    "Duplicate GPU detected : rank 2 and rank 0 both on CUDA device 1000",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "step=12 loss=3.4210",
    "",
    "x" * 3000,
    "\r10%\r20% error",
]


@given(st.lists(st.sampled_from(PIECES), max_size=40))
def test_searching_finds_what_reading_finds(parts: list[str]) -> None:
    text = "\n".join(parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan._Reader, "can_skip", lambda *_: False)
        read = judged(text)
    assert judged(text) == read
