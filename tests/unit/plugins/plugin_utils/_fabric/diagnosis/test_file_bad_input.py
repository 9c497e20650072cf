# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that are no logs, or logs that something damaged: always a typed result, never an exception, never a pass."""

from __future__ import annotations

import io
import json
import pathlib
import random
import subprocess
import sys
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.verdict import OUTCOMES, TRANSPORT_VERDICTS
from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis.file import (
    FileDiagnosis,
    diagnose_stream,
)
from ansible_collections.muster.training.tests.support.nccl_text import (
    HEADER,
    codes,
    info,
    judged,
    judged_bytes,
    ring,
    row,
    warn,
)

PIECES = [
    b"h:1:2 [0] NCCL INFO ",
    b"h:1:2 [0] init.cc:1 NCCL WARN ",
    b"NCCL ",
    b"Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA",
    b"Channel 00/0 : 0[0] -> 1[0] [receive] via NET/Socket/0",
    b"ncclCommInitRank comm 0x5 rank 0 nranks 2 commId 0xa - Init START",
    b"comm 0x5 rank 99999999 nRanks 99999999 nNodes 1 MNNVL 1",
    b"NET/IB : Using [0]mlx5_0:1/IB",
    b"Bootstrap : Using eth0:10.0.0.1<0>",
    b"NCCL_NET set by environment to ",
    b"# Rank 0 Group 0 Pid 1 on h device 0 [0] GPU",
    b"# size time algbw busbw #wrong",
    b"8 2 float sum -1 1.0 2.0 3.0 0 ",
    b"# Out of bounds values : 0 OK",
    b"DEV\tPORT\tINDEX\tGID",
    b"CA 'mlx5_0'",
    b"Last error:",
    b"\n",
    b"\r",
    b"\0",
    b"\xff\xfe",
    b"{",
]


def checked(found: FileDiagnosis) -> FileDiagnosis:
    """What every diagnosis keeps, whatever the file was."""
    value = found.to_dict()
    assert found.kind in ("nccl_log", "nccl_tests", "show_gids", "unknown")
    assert found.transport_verdict in TRANSPORT_VERDICTS and found.gdr in ("yes", "no", "unknown")
    assert found.outcome in OUTCOMES and found.outcome != "pass"
    assert found.transport is None or found.transport
    assert ("busbw_gb_s" in value) == (found.busbw_gb_s is not None)
    for cause in value["causes"]:
        assert set(cause) == {"code", "evidence", "fix"} and all(cause.values())
    return found


@given(st.binary(max_size=4000))
def test_any_bytes(content: bytes) -> None:
    checked(judged_bytes(content))


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.binary(max_size=20)), max_size=60))
def test_any_mixture_of_real_pieces(parts: list[bytes]) -> None:
    checked(judged_bytes(b"".join(parts)))


@given(st.integers(0, 4000))
def test_any_truncation(size: int) -> None:
    lines = [*ring("NET/IB/0/GDRDMA"), *HEADER, row(1 << 30, 350.0), warn("Call to ibv_create_cq failed")]
    checked(judged_bytes("\n".join(lines).encode()[:size]))


def test_an_empty_file() -> None:
    found = checked(judged_bytes(b""))
    assert (found.kind, found.outcome, found.problem) == ("unknown", "unproven", "the file is empty")


@pytest.mark.parametrize("content", [b"\n", b" \t\n\n", b"hello\n", "Zürich naïve\n".encode("latin-1")])
def test_text_that_says_nothing(content: bytes) -> None:
    found = checked(judged_bytes(content))
    assert (found.kind, found.causes) == ("unknown", ())


def test_a_binary_file() -> None:
    found = checked(judged_bytes(b"\x7fELF" + random.Random(7).randbytes(200_000) + bytes(100_000)))
    assert (found.kind, found.tool, found.problem) == ("unknown", "binary", "the file is not text")


def test_a_log_behind_the_hole_of_a_rotated_file() -> None:
    found = checked(judged_bytes(bytes(300_000) + b"\n" + "\n".join(ring("NET/IB/0/GDRDMA")).encode()))
    assert found.transport_verdict == "rdma_gdr"


def test_a_log_of_another_encoding() -> None:
    text = "\n".join(ring("NET/Socket/0"))
    assert judged_bytes(text.encode("utf-16")).transport == "Socket"
    assert judged_bytes(b"\xe4\xf6\xfc \xff\n" + text.encode() + b"\n\x80\x81").transport == "Socket"


def test_windows_and_progress_bar_line_ends() -> None:
    assert judged_bytes("\r\n".join(ring("NET/IB/0/GDRDMA")).encode()).transport_verdict == "rdma_gdr"
    bar = "".join(f"\rloading {percent}%" for percent in range(100))
    assert codes(judged(bar + "\rtorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB")) == ["oom_gpu"]


class Endless(io.RawIOBase):
    """A file of ``size`` bytes that repeats one block, without holding it."""

    def __init__(self, block: bytes, size: int) -> None:
        self.block, self.size, self.at = block, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self.at = offset
        return offset

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        size = min(len(buffer), self.size - self.at)
        start = self.at % len(self.block)
        data = (self.block[start:] + self.block * (size // len(self.block) + 1))[:size]
        buffer[:size] = data
        self.at += size
        return size


@pytest.mark.parametrize(
    "block",
    [
        b"x" * 65_536,
        (b"step=1 loss=2.0 " * 12 + b"\n") * 400,
        ("\n".join(ring("NET/IB/0/GDRDMA")) + "\n").encode(),
        b"{" + b" " * 65_535,
    ],
    ids=["one endless line", "lines", "channels", "almost JSON"],
)
def test_a_big_file_takes_no_memory(block: bytes) -> None:
    size = (11 if b"\n" in block else 20) << 20
    tracemalloc.start()
    found = checked(diagnose_stream(io.BufferedReader(Endless(block, size), 1 << 20), "big"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # The attempt to read JSON holds its bound of 16 MiB, as bytes and as text; nothing else grows with the file.
    assert peak < (48 << 20 if block.startswith(b"{") else 10 << 20)
    assert found.lines >= 1


JUDGE = """
import json, pathlib, resource, sys
from ansible_collections.muster.training.plugins.plugin_utils._workflows.diagnose.logs import diagnose_file
before = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
limit = before + (160 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
print(json.dumps(diagnose_file(pathlib.Path(sys.argv[1]), "huge.log").to_dict()))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and a file system with holes")
def test_a_file_of_two_gigabytes_is_judged_within_a_limit_of_memory(tmp_path: pathlib.Path) -> None:
    """The file is real and 2 GiB long, with a hole in its middle; the judge may take 160 MiB beside its interpreter."""
    place = tmp_path / "huge.log"
    head = "\n".join(ring("NET/IB/0/GDRDMA")) + "\n"
    tail = "\nRuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    with place.open("wb") as out:
        out.write(head.encode())
        out.seek((2 << 30) - len(tail))
        out.write(tail.encode())
    assert place.stat().st_size == 2 << 30
    done = subprocess.run([sys.executable, "-c", JUDGE, str(place)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["transport_verdict"] == "rdma_gdr" and [item["code"] for item in found["causes"]] == ["oom_gpu"]
    assert found["outcome"] == "fail" and not found["problem"]


def test_threads_that_never_repeat_take_no_memory() -> None:
    lines = (
        f"2026-11-21T10:11:12.{index:09d}Z " + info("Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0")
        for index in range(50_000)
    )
    assert judged(*lines).transport == "IB"


def test_a_status_storm_is_counted() -> None:
    text = warn("NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129", "net_ib.cc:1")
    found = judged(*[text] * 5000)
    assert found.causes[0].evidence.endswith("(5000 times)")


def test_numbers_of_any_length() -> None:
    digits = "9" * 5000
    lines = [
        info(f"Channel 00/0 : {digits}[0] -> 1[0] [send] via NET/IB/0"),
        info(f"comm 0x5 rank {digits} nranks {digits} - Init START"),
        f"# Rank {digits} Group 0 Pid {digits} on h device 0 [0] GPU",
        f"{digits} {digits} float sum -1 {digits} 1 1 0 1 1 1 0",
        f"# Out of bounds values : {digits} OK",
        f"h:{digits}:{digits} [0] NCCL INFO Using network Socket",
    ]
    for line in lines:
        checked(judged(line, line))


def test_evidence_is_one_printable_line() -> None:
    found = judged(warn("Duplicate GPU detected : rank 1\x1b[31m\x07\x00 and\trank 0" + "x" * 5000))
    evidence = found.causes[0].evidence
    assert evidence.isprintable() and len(evidence) < 300
