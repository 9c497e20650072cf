# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The recorded logs: what is provable, whether GPUDirect was seen, and the cause, must be what their index says."""

from __future__ import annotations

import bz2
import csv
import functools
import gzip
import io
import json
import lzma
import os
import pathlib
import re
import resource
import shutil
import sys
import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis import file
from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis.file import (
    FileDiagnosis,
    diagnose_stream,
)
from ansible_collections.muster.training.plugins.plugin_utils._fabric.verdict.cause_table import CAUSES
from ansible_collections.muster.training.tests.support.nccl_text import HEADER, judged, judged_bytes, rank_line
from ansible_collections.muster.training.tests.support.nccl_text import row as table_row

ROOT = pathlib.Path(__file__).resolve().parents[5] / "fixtures" / "fabric"
KINDS = {"nccl-log": "nccl_log", "nccl-tests": "nccl_tests", "tool": "show_gids"}
# The index's words for verdicts that a transport has; the others are about something else, and then nothing is proven.
PROGRAM_CODES = {
    *("checkpoint_mismatch", "disk_full", "driver_too_old", "gpu_missing", "gpu_arch_mismatch", "library_mismatch"),
    *("module_missing", "permission_denied", "syntax_error", "port_in_use", "too_many_open_files", "download_failed"),
    *("gpu_error", "unused_parameters", "device_assert", "gpu_memory_access", "loss_nan", "collective_timeout"),
    *("download_refused", "cuda_toolkit_missing", "wrong_architecture", "bad_arguments"),
    # What ends programs: the corpus of ends.
    *("program_error", "run_stopped", "cuda_error", "gpu_busy", "container_gpu", "batch_mismatch", "link_down"),
    *("checkpoint_untrusted", "checkpoint_missing", "disk_error", "storage_unreachable", "too_many_processes"),
}
VERDICTS = {"rdma_gdr": "rdma_gdr", "rdma_no_gdr": "rdma_no_gdr", "tcp": "tcp", "tcp_plugin": "tcp"}


def index() -> list[dict[str, str]]:
    with (ROOT / "index.tsv").open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream, delimiter="\t"))


def diagnosis(name: str) -> FileDiagnosis:
    with (ROOT / name).open("rb") as stream:
        return diagnose_stream(stream, name)


def provable(text: str) -> str | None:
    """The index's column as a name: what only the source's prose states, or only start-up lines name, is no proof."""
    if text.startswith(("unproven", "none", "na")) or "(stated)" in text:
        return None
    return re.sub(r" \(.*\)$", "", text)


def expected_gdr(text: str) -> str:
    return text if text in ("yes", "no") else "unknown"


def test_the_index_names_every_log() -> None:
    names = {path.name for path in ROOT.iterdir() if path.suffix in (".log", ".txt")}
    assert names == {row["file"] for row in index()} and len(names) == 28


@pytest.mark.parametrize("row", index(), ids=lambda row: row["file"])
def test_a_recorded_log_is_judged_as_its_index_says(row: dict[str, str]) -> None:
    found = diagnosis(row["file"])
    assert found.kind == KINDS[row["kind"]]
    assert found.transport == provable(row["inter_node_transport"])
    assert found.gdr == expected_gdr(row["gdr_seen"])
    assert [cause.code for cause in found.causes] == ([row["cause_code"]] if row["cause_code"] else [])


@pytest.mark.parametrize("row", index(), ids=lambda row: row["file"])
def test_a_recorded_log_has_the_verdict_of_its_index(row: dict[str, str]) -> None:
    found = diagnosis(row["file"])
    word = row["verdict"].split(" ")[0]
    if "(stated" in row["verdict"]:
        word = "incomplete"
    if word in VERDICTS:
        assert found.transport_verdict == VERDICTS[word]
    elif word == "incomplete" or word.startswith("bw_"):
        assert found.transport_verdict == "unproven"
    assert (found.outcome == "fail") == (word in ("init_fail", "run_fail"))
    assert found.outcome != "pass"


def test_evidence_names_the_line() -> None:
    found = diagnosis("bad-ib-nogdr-create-cq-failed.log")
    assert found.causes[0].evidence.startswith("bad-ib-nogdr-create-cq-failed.log:13: Call to ibv_create_cq failed")
    assert found.causes[0].fix


def test_the_largest_size_gives_the_bandwidth_and_not_the_average() -> None:
    figures = {
        "nccltests-good-h100-8nodes-ib-coreweave.txt": 386.56,
        "nccltests-good-p5-2nodes-efa-mpijob.txt": 437.89,
        "nccltests-good-p4de-2nodes-efa-srun.txt": 78.33,
    }
    assert {name: diagnosis(name).busbw_gb_s for name in figures} == figures


def test_every_published_code_is_in_the_table() -> None:
    with (ROOT / "cause-codes.tsv").open(encoding="utf-8") as stream:
        published = {row["code"] for row in csv.DictReader(stream, delimiter="\t")}
    assert published <= set(CAUSES)
    # What programs, torch and CUDA say, and the link between Sparks, is not of the published table.
    more = {"oom_gpu", "oom_host", "negative_scaling", "checkpoint_failed", "cx7_half", "cx7_degraded"}
    assert set(CAUSES) - published == {*more, "bootstrap_on_wifi", *PROGRAM_CODES}


def test_nothing_of_the_judgement_depends_on_the_name() -> None:
    for row in index():
        with (ROOT / row["file"]).open("rb") as stream:
            other = diagnose_stream(stream, "x")
        own = diagnosis(row["file"])
        assert (other.transport, other.transport_verdict, other.gdr, other.outcome) == (
            own.transport,
            own.transport_verdict,
            own.gdr,
            own.outcome,
        )


RULE = "-" * 87


def perftest(
    unit: str = "Gb/sec", rows: str = " 65536      5000             92.58              92.56                0.176543"
) -> str:
    return f"""{RULE}
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : mlx5_0
 Number of qps   : 2\t\tTransport type : IB
 Mtu             : 4096[B]
 Link type       : Ethernet
{RULE}
 #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]
{rows}
{RULE}
"""


IPERF = """[ ID] Interval           Transfer     Bitrate         Retr
[  5]   0.00-10.00  sec  5.45 GBytes  4.68 Gbits/sec   12             sender
[  5]   0.00-10.04  sec  5.45 GBytes  4.66 Gbits/sec                  receiver
[  7]   0.00-10.00  sec  5.45 GBytes  4.68 Gbits/sec    3             sender
[  7]   0.00-10.04  sec  5.45 GBytes  4.66 Gbits/sec                  receiver
"""


IBSTAT = """CA 'mlx5_0'
\tCA type: MT4129
\tNumber of ports: 1
\tFirmware version: 28.36.1010
\tPort 1:
\t\tState: Active
\t\tPhysical state: LinkUp
\t\tRate: 400
\t\tLink layer: InfiniBand
CA 'mlx5_1'
\tCA type: MT4129
\tPort 1:
\t\tState: Down
\t\tPhysical state: Disabled
\t\tRate: unknown
\t\tLink layer: Ethernet
"""


def test_tools_in_a_diagnosis() -> None:
    assert judged(*perftest().splitlines()).tool == "perftest"
    assert judged(*IPERF.splitlines()).tool == "iperf3"
    assert judged(*IBSTAT.splitlines()).tool == "ibstat"
    for document in ({"start": {}, "end": {"sum": {}}}, {"test_info": {}, "results": {}}):
        found = judged_bytes(json.dumps(document).encode())
        assert (found.kind, found.outcome) == ("unknown", "unproven") and found.tool in ("iperf3", "perftest")


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_compressed_log_is_read(pack: t.Callable[[bytes], bytes]) -> None:
    packed = pack(b"step 1\nRuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n" * 50)
    found = judged_bytes(packed)
    assert [cause.code for cause in found.causes] == ["oom_gpu"] and found.lines == 100
    cut = judged_bytes(packed[: len(packed) - 12])
    assert cut.outcome == "unproven" and "damaged, not read" in str(cut.problem)


OOM = b"RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n"


# A stand-in for zstd where it is not installed: it reads frames of one raw block.
ZSTD = """#!{python}
import sys
data = sys.stdin.buffer.read()
size = int.from_bytes(data[5:9], "little")
sys.exit("truncated") if len(data) < 12 + size else sys.stdout.buffer.write(data[12:])
"""


def test_a_log_of_zstd_is_read_by_the_library_or_the_program(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("zstd") is None:
        (tmp_path / "zstd").write_text(ZSTD.format(python=sys.executable))
        (tmp_path / "zstd").chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    packed = zstd_frame(b"step 1\n" + OOM)
    found = judged_bytes(packed)
    assert [cause.code for cause in found.causes] == ["oom_gpu"] and found.lines == 2
    cut = judged_bytes(packed[:-3])
    assert cut.outcome == "unproven" and "compressed (zstd) and damaged, not read" in str(cut.problem)


def test_without_zstd_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "_open_zstd", functools.partial(file._unpack_with, "zstd"))
    monkeypatch.setattr(file, "_PACKED", (file.Packed("zstd", b"\x28\xb5\x2f\xfd", file._open_zstd),))
    monkeypatch.setenv("PATH", "/nowhere")
    found = judged_bytes(zstd_frame(OOM))
    said = "compressed (zstd), not read: install zstd on the controller, or unpack it"
    assert (found.outcome, found.tool, found.problem) == ("unproven", "zstd", said)


def zstd_frame(data: bytes) -> bytes:
    """Return a frame with one raw block, which any reader of RFC 8878 takes: no compressor is needed here."""
    header = b"\x28\xb5\x2f\xfd" + bytes([0b10100000]) + len(data).to_bytes(4, "little")
    return header + (len(data) << 3 | 1).to_bytes(3, "little") + data


class Repeated(io.RawIOBase):
    """A log of any length that is nowhere: one line again and again, and an end."""

    def __init__(self, size: int, end: bytes) -> None:
        self._line = (
            b"step 12 tokens_per_s=51234 lr=0.1 grad 0.5 | step 13 tokens_per_s=51200 lr=0.1 grad 0.49\n" * 4096
        )
        self._size, self._end, self._at = size, end, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._size + len(self._end))[whence]
        return self._at

    def readinto(self, buffer: t.Any) -> int:
        room = len(buffer)
        if self._at >= self._size:
            piece = self._end[self._at - self._size :][:room]
        else:
            place = self._at % len(self._line)
            piece = self._line[place:][: min(room, self._size - self._at)]
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)


def test_a_log_of_gigabytes_is_read_in_little_memory() -> None:
    """5 GB with MUSTER_TEST_ALL=1, else 24 MB; its end says why the program ended."""
    size = (5 << 30) if os.environ.get("MUSTER_TEST_ALL") == "1" else 24 << 20
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    stream = io.BufferedReader(Repeated(size, b"\n" + OOM), 1 << 20)
    found = diagnose_stream(t.cast(t.BinaryIO, stream), "big.log")
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert [cause.code for cause in found.causes] == ["oom_gpu"]
    assert more < 32 << 10, f"{more >> 10} MiB"


@pytest.mark.parametrize("change", ["grows", "is cut"])
def test_a_log_that_changes_while_it_is_read(change: str, tmp_path: pathlib.Path) -> None:
    """What is there is read once, and no error comes of what is written or cut meanwhile."""
    place = tmp_path / "a.log"
    line = b"step 1 lr=0.1\n"
    place.write_bytes(OOM + line * 200_000)

    class Changing(io.FileIO):
        """It is changed after the first piece was read."""

        pieces = 0

        def readinto(self, buffer: t.Any) -> int | None:
            self.pieces += 1
            if self.pieces == 2:
                with open(place, "r+b") as other:
                    if change == "grows":
                        other.seek(0, io.SEEK_END)
                        other.write(line * 1000)
                    else:
                        other.truncate(len(OOM) + 10)
            return super().readinto(buffer)

    with Changing(place) as raw:
        found = diagnose_stream(t.cast(t.BinaryIO, io.BufferedReader(raw)), "a.log")
    assert found.problem is None and found.lines <= 201_001


@pytest.mark.parametrize("magic", [b"PK\x03\x04", b"\x04\x22\x4d\x18"])
def test_what_cannot_be_unpacked_here_is_said_to_be_unread(magic: bytes) -> None:
    found = judged_bytes(magic + b"\x24\x51\x01" * 40)
    assert found.outcome == "unproven" and "not read: unpack it" in str(found.problem)


def test_without_a_comparison_nothing_is_known_of_values() -> None:
    head = "# nThread 1 nGpus 1 minBytes 8 maxBytes 1073741824 step: 2(factor) warmup iters: 5 iters: 20 validation: {}"
    for validation, count in ((0, None), (1, 0)):
        rows = table_row(1 << 30, 48.0, wrong="N/A" if count is None else "0")
        found = judged(head.format(validation), rank_line(0, "a"), *HEADER, rows, "# Out of bounds values : 0 OK")
        assert (found.wrong_values, found.busbw_gb_s) == (count, 48.0)
        assert ("values were not checked" in found.notes) == (count is None)
