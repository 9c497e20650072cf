# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evidence of a node's ranks: lines of NCCL's logs without repetition and within bounds, sockets of real processes."""

from __future__ import annotations

import json
import os
import pathlib
import socket
import subprocess
import sys
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import rank_transport
from ansible_collections.muster.training.plugins.module_utils._node.rank_transport import (
    TransportRecorder,
    decode_address,
    read_nccl_lines,
    read_sockets,
)

RECORDED = pathlib.Path(__file__).parents[4] / "fixtures" / "fabric"
HEAD = "h1:7:9 [0] NCCL INFO "


def started(run: pathlib.Path, **values: t.Any) -> dict[str, t.Any]:
    line = {"at": 1.0, "kind": "worker_started", "rank": 0, "attempt": 1, "gang": "1/10.0.0.1:29500", **values}
    with (run / "events.jsonl").open("a") as events:
        events.write(json.dumps(line) + "\n")
    return line


def transports(run: pathlib.Path) -> list[dict[str, t.Any]]:
    lines = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == "transport"]


def log(run: pathlib.Path, *lines: str, name: str = "nccl.1.0.h1.7.log") -> pathlib.Path:
    place = run / name
    place.write_text("".join(f"{HEAD}{line}\n" for line in lines))
    return place


def test_a_pair_of_ranks_is_kept_once_whatever_its_number_of_channels(tmp_path: pathlib.Path) -> None:
    channels = [f"Channel {number:02}/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA" for number in range(32)]
    noise = ["Trees [0] 1/-1/-1->0->-1", "threadThresholds 8/8/64", "comm 0x1 rank 0 nranks 2 - Init COMPLETE"]
    start = "ncclCommInitRankConfig comm 0x55 rank 0 nranks 2 cudaDev 0 commId 0xab - Init START"
    place = log(tmp_path, "Bootstrap: Using eth0:10.0.0.1<0>", start, *noise, *channels)
    lines = read_nccl_lines([place])
    assert [line.removeprefix(HEAD) for line in lines] == ["Bootstrap: Using eth0:10.0.0.1<0>", start, channels[0]]


@pytest.mark.parametrize("place", sorted(RECORDED.glob("*.log")), ids=lambda place: place.stem)
def test_every_recorded_channel_to_the_network_survives(place: pathlib.Path) -> None:
    kept = "\n".join(read_nccl_lines([place]))
    for name in ("via NET/IB", "via NET/Socket", "via NET/AWS", "via P2P"):
        assert (name in kept) == (name in place.read_text(errors="replace"))


def test_a_log_has_bounds_in_lines_and_on_disk(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = log(
        tmp_path, *(f"Channel 00/0 : {number}[0] -> 1[0] [send] via NET/IB/0" + "x" * 900 for number in range(500))
    )
    monkeypatch.setattr(rank_transport, "_DISK_BYTES", 100_000)
    lines = read_nccl_lines([place])
    assert len(lines) == 96 and max(map(len, lines)) == 300
    assert place.stat().st_size == 0


def test_evidence_is_recorded_once_and_again_when_it_has_changed(tmp_path: pathlib.Path) -> None:
    recorder = TransportRecorder(tmp_path, "a")
    recorder.update(now=0.0)
    started(tmp_path, pid=os.getpid())
    first = "Using network IB"
    log(tmp_path, first)
    for now in (0.5, 1.5, 3.0):
        recorder.update(now=now)
    (line,) = transports(tmp_path)
    assert (line["node"], line["rank"], line["attempt"], line["gang"]) == ("a", 0, 1, "1/10.0.0.1:29500")
    assert line["lines"] == [HEAD + first]
    log(tmp_path, first, "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0")
    recorder.update(now=3.1)
    assert len(transports(tmp_path)) == 1
    recorder.update(now=3.2, last=True)
    assert [len(item["lines"]) for item in transports(tmp_path)] == [1, 2]


def test_ranks_of_an_earlier_start_are_not_looked_at(tmp_path: pathlib.Path) -> None:
    started(tmp_path, pid=os.getpid())
    log(tmp_path, "Using network IB")
    recorder = TransportRecorder(tmp_path, "a")
    recorder.update(now=5.0)
    assert transports(tmp_path) == [] and recorder.ranks == {}


def test_a_rank_that_started_before_the_recorder_was_made_is_looked_at(tmp_path: pathlib.Path) -> None:
    """The recorder is made beside the launcher, which may be faster."""
    started(tmp_path, pid=os.getpid())
    before = (tmp_path / "events.jsonl").stat().st_size
    started(tmp_path, pid=os.getpid())
    log(tmp_path, "Using network IB")
    recorder = TransportRecorder(tmp_path, "a", since=before)
    recorder.update(last=True)
    assert len(transports(tmp_path)) == 1 and list(recorder.ranks) == [0]


PROGRAM = "import socket, sys; c = socket.create_connection((sys.argv[1], int(sys.argv[2]))); print('up', flush=True); sys.stdin.read()"


def test_sockets_of_a_rank_are_those_of_its_children_but_not_of_its_store() -> None:
    with socket.create_server(("127.0.0.1", 0)) as peer, socket.create_server(("127.0.0.1", 0)) as store:
        ports = [str(item.getsockname()[1]) for item in (peer, store)]
        children = [f'{sys.executable} -c "{PROGRAM}" 127.0.0.1 {port}' for port in ports]
        shell = subprocess.Popen(
            ["sh", "-c", f"exec 3<&0; {children[0]} <&3 & {children[1]} <&3; wait"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert shell.stdin and shell.stdout and shell.stdout.readline() and shell.stdout.readline()
        found = read_sockets({"pid": shell.pid, "gang": f"1/127.0.0.1:{ports[1]}"})
        everything = read_sockets({"pid": shell.pid, "gang": None})
        shell.stdin.close()
        shell.wait()
        shell.stdout.close()
    (end,) = found
    assert end["peer"] == f"127.0.0.1:{ports[0]}" and end["interface"] == "lo" and len(everything) == 2


def test_a_process_that_has_ended_has_no_sockets() -> None:
    assert read_sockets({"pid": 2**22 + 1, "gang": "x:1"}) == [] and read_sockets({"pid": None}) == []


def test_addresses_are_read_in_host_order() -> None:
    word = int.from_bytes(socket.inet_aton("127.0.0.1"), sys.byteorder)
    assert decode_address(f"{word:08X}:1F90") == "127.0.0.1:8080"
    mapped = int.from_bytes(b"\0\0\xff\xff", sys.byteorder)
    assert decode_address(f"{0:08X}{0:08X}{mapped:08X}{word:08X}:0050") == "127.0.0.1:80"
