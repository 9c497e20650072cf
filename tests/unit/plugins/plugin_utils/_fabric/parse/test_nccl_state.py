# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tables of processes, communicators and pairs of one NCCL log."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._fabric.parse import nccl_state
from ansible_collections.muster.training.plugins.plugin_utils._fabric.parse.nccl_channels import parse_channel
from ansible_collections.muster.training.plugins.plugin_utils._fabric.parse.nccl_state import (
    CommunicatorTables,
    NcclThread,
)


def start(tables: CommunicatorTables, host: str, pid: int, rank: int, identifier: str = "0xa") -> NcclThread:
    """Let a process begin a communicator of two ranks."""
    thread = NcclThread(tables.process(host, pid))
    text = f"ncclCommInitRank comm 0x{pid} rank {rank} nranks 2 nNodes 2 commId {identifier} - Init START"
    tables.comm_line(thread, text.encode())
    return thread


def test_a_channel_counts_for_the_communicator_that_its_thread_began_last() -> None:
    tables = CommunicatorTables()
    thread = start(tables, "a", 1, 0)
    channel = parse_channel(b" 0[0] -> 1[0] [send] via NET/IB/0")
    assert channel is not None
    first = tables.channel(thread, channel, 7)
    assert first is not None and (first.comm, first.line, first.count) == ("0xa", 7, 1)
    assert tables.channel(thread, channel, 9) is first and (first.line, first.count) == (7, 2)
    start(tables, "a", 1, 1, "0xb")
    tables.comm_line(thread, b"comm 0x1 rank 1 nranks 2 commId 0xb - Init START")
    second = tables.channel(thread, channel, 11)
    assert second is not None and second.comm == "0xb"
    assert (tables.comms["0xa"].nranks, tables.comms["0xa"].nnodes, tables.comms["0xa"].started) == (2, 2, 1)


def test_a_line_without_an_id_belongs_to_the_communicator_of_its_pointer() -> None:
    tables = CommunicatorTables()
    thread = start(tables, "a", 1, 0)
    tables.comm_line(thread, b"comm 0x1 rank 0 nranks 2 - Init COMPLETE")
    assert list(tables.comms) == ["0xa"] and tables.comms["0xa"].completed == 1


def test_two_processes_that_report_one_rank_are_both_recorded() -> None:
    tables = CommunicatorTables()
    for host in ("a", "b", "a"):
        start(tables, host, 1, 0)
    assert [process.host for process in tables.comms["0xa"].ranks[0]] == ["a", "b"]


def test_one_host_name_with_two_addresses_is_two_nodes() -> None:
    tables = CommunicatorTables()
    for pid, address in ((1, "10.0.0.1"), (2, "10.0.0.2")):
        tables.process("ubuntu", pid).address = address
    tables.process("ubuntu", 3)
    tables.process("gpu-1", 4)
    assert tables.node_names() == {
        ("ubuntu", 1): "ubuntu@10.0.0.1",
        ("ubuntu", 2): "ubuntu@10.0.0.2",
        # Of this one it is not known which of the two it is.
        ("gpu-1", 4): "gpu-1",
    }


def test_letters_before_a_known_host_belong_to_the_line_before() -> None:
    tables = CommunicatorTables()
    tables.process("node-1", 7)
    assert tables.extra_letters("P2Pnode-1", 7) == 3
    assert tables.extra_letters("node-1", 7) == 0 and tables.extra_letters("xnode-1", 8) == 0


def test_a_full_table_sets_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_state, "MAX_PROCESSES", 1)
    tables = CommunicatorTables()
    tables.process("a", 1)
    assert not tables.overflow
    tables.process("b", 2)
    assert tables.overflow and list(tables.processes) == [("a", 1)]
