# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Diagnose one file: what it is, what it proves about the network, and why the job failed.

A file alone never passes, because it does not hold the bandwidth that the hardware should reach. A value that the log
does not show is null, ``unknown`` or ``unproven``; a file that is not recognised is of kind ``unknown``.
"""

from __future__ import annotations

import bz2
import contextlib
import dataclasses
import gzip
import importlib
import io
import json
import lzma
import shutil
import subprocess
import tempfile
import typing as t
import zlib

from ....module_utils._model.verdict import Cause, Outcome, Ranks, TransportVerdict
from ..parse.iperf3 import parse_iperf3, parse_iperf3_json
from ..parse.nccl_log import NcclFacts
from ..parse.nccl_tests import NcclTests
from ..parse.nccl_tests_json import parse_nccl_tests_json
from ..parse.perftest import parse_perftest, parse_perftest_json
from ..parse.rdma_tools import GidTable, parse_ibstat, parse_show_gids
from ..verdict.transport import DeclaredRank, Gdr, NcclTransport, read_transport
from .causes import Finding, build_cause, split_by_weight
from .combined_causes import add_end, combine_findings, find_gid_causes, first_rank, is_all_gb10
from .program_end import NO_END, ProgramEnd
from .scan import Scan, scan_log

FileKind = t.Literal["nccl_log", "nccl_tests", "show_gids", "unknown"]
# What programs catch and go on from, with a smaller batch for instance.
_CAUGHT: t.Final = ("oom_gpu",)


class Packed(t.NamedTuple):
    """A form of compression: how its files begin, and how they are read; None where Python's own library cannot."""

    tool: str
    magic: bytes
    open: t.Callable[[t.Any], t.Any] | None


def _open_zstd(stream: t.BinaryIO) -> t.BinaryIO:
    """Return what is in a zstd file: Python's library has it from 3.14 on, before that the program is asked.

    :raises _NotRead: where neither is there.
    """
    try:
        zstd = importlib.import_module("compression.zstd")
    except ImportError:
        return _unpack_with("zstd", stream)
    return t.cast(t.BinaryIO, zstd.ZstdFile(stream))


def _unpack_with(tool: str, stream: t.BinaryIO) -> t.BinaryIO:
    program = shutil.which(tool)
    if program is None:
        raise _NotRead(f"install {tool} on the controller, or unpack it")
    unpacked = tempfile.TemporaryFile()  # noqa: SIM115
    with subprocess.Popen([program, "-dcq"], stdin=subprocess.PIPE, stdout=unpacked, stderr=subprocess.PIPE) as running:
        with contextlib.suppress(BrokenPipeError), t.cast(t.BinaryIO, running.stdin) as packed:
            shutil.copyfileobj(stream, packed)
        said = t.cast(t.BinaryIO, running.stderr).read().decode(errors="replace")
    if running.returncode:
        raise OSError(said.strip()[-200:] or f"{tool} ended with {running.returncode}")
    unpacked.seek(0)
    return unpacked


class _NotRead(Exception):
    """A compressed file is not read; the text says what to do."""


_PACKED = (
    Packed("gzip", b"\x1f\x8b", lambda stream: gzip.GzipFile(fileobj=stream)),
    Packed("bzip2", b"BZh", bz2.BZ2File),
    Packed("xz", b"\xfd7zXZ\0", lzma.LZMAFile),
    Packed("zstd", b"\x28\xb5\x2f\xfd", _open_zstd),
    Packed("lz4", b"\x04\x22\x4d\x18", None),
    Packed("zip", b"PK\x03\x04", None),
)
MAX_JSON_BYTES = 16 * 1024 * 1024
# Below this size latency, not bandwidth, is measured; nccl-tests starts at 8 bytes by default.
MIN_JUDGED_BYTES = 16 * 1024 * 1024
MAX_CAUSES = 32


@dataclasses.dataclass(frozen=True, slots=True)
class FileDiagnosis:
    """The diagnosis of one file.

    ``tool`` is what wrote it as far as recognised (``nccl``, ``nccl-tests``, ``perftest``, ``iperf3``, ``ibstat``, …).
    ``transport`` is the name of the network that the file proves between nodes, None when it proves none. ``gdr`` is
    whether any channel between nodes used GPUDirect; ``transport_verdict`` requires it on all.
    ``first_rank`` and ``first_node`` are those of the rank that failed first, None where the file does not say it.
    ``busbw_gb_s`` (GB/s) belongs to the largest size, ``size_bytes``. ``also`` are other observations.
    """

    file: str
    kind: FileKind
    tool: str | None = None
    transport: str | None = None
    transport_verdict: TransportVerdict = "unproven"
    gdr: Gdr = "unknown"
    outcome: Outcome = "unproven"
    busbw_gb_s: float | None = None
    size_bytes: int | None = None
    wrong_values: int | None = None
    ranks: Ranks = dataclasses.field(default_factory=Ranks)
    nodes: tuple[str, ...] = ()
    causes: tuple[Cause, ...] = ()
    also: tuple[Cause, ...] = ()
    notes: tuple[str, ...] = ()
    lines: int = 0
    problem: str | None = None
    first_rank: int | None = None
    first_node: str | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the entry as JSON-able values; ``busbw_gb_s`` and ``size_bytes`` only when a bandwidth is known."""
        result: dict[str, object] = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        result.update(nodes=list(self.nodes), notes=list(self.notes))
        result["ranks"] = {**dataclasses.asdict(self.ranks), "missing": list(self.ranks.missing)}
        for name, causes in (("causes", self.causes), ("also", self.also)):
            result[name] = [{"code": one.code, "evidence": one.evidence, "fix": one.fix} for one in causes]
        if self.busbw_gb_s is None:
            del result["busbw_gb_s"], result["size_bytes"]
        return result


def diagnose_text(text: str, name: str) -> FileDiagnosis:
    """Return the diagnosis of a text, called ``name`` in evidence."""
    return diagnose_stream(io.BytesIO(text.encode("utf-8", "replace")), name, ends=False)


def diagnose_stream(stream: t.BinaryIO, name: str, *, ends: bool = True) -> FileDiagnosis:
    """Return the diagnosis of a seekable binary stream, called ``name`` in evidence.

    :param ends: also read how its program ended; not for a job whose ranks are asked themselves.

    Reads in constant memory, whatever the size. Raises OSError when reading fails, nothing for content.
    """
    first = stream.read(4096)
    stream.seek(0)
    if not first:
        return FileDiagnosis(name, "unknown", problem="the file is empty")
    if packed := next((item for item in _PACKED if first.startswith(item.magic)), None):
        return _diagnose_packed(stream, name, packed, ends=ends)
    if first.lstrip()[:1] == b"{":
        diagnosis = _diagnose_json(stream, name)
        if diagnosis:
            return diagnosis
        stream.seek(0)
    scan = scan_log(stream)
    return judge_scan(scan if ends else dataclasses.replace(scan, end=NO_END), name)


def _diagnose_packed(stream: t.BinaryIO, name: str, packed: Packed, *, ends: bool) -> FileDiagnosis:
    """Diagnose a compressed file, or say that it was not read."""
    if packed.open is None:
        return FileDiagnosis(name, "unknown", packed.tool, problem=f"compressed ({packed.tool}), not read: unpack it")
    try:
        inner: t.BinaryIO = packed.open(stream)
        return diagnose_stream(inner, name, ends=ends)
    except _NotRead as exc:
        return FileDiagnosis(name, "unknown", packed.tool, problem=f"compressed ({packed.tool}), not read: {exc}")
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as exc:
        reason = f"compressed ({packed.tool}) and damaged, not read: {str(exc)[:200]}"
        return FileDiagnosis(name, "unknown", packed.tool, problem=reason)


def judge_scan(scan: Scan, name: str) -> FileDiagnosis:
    """Return the diagnosis of a scanned text file."""
    facts, tests = scan.facts, scan.tests
    kind, tool = _file_kind(scan)
    if kind == "unknown":
        return _diagnose_other_tool(scan, name)
    declared = {rank.rank: DeclaredRank(rank.host, rank.pid) for rank in tests.ranks.values()}
    findings = _without_caught(scan, max(facts.ready_line, tests.largest_line, scan.over_line + 1))
    no_verbs = "libibverbs_missing" in findings
    reading = read_transport(facts, declared, no_verbs=no_verbs, table=kind == "nccl_tests")
    combined = add_end(combine_findings(findings, facts, reading, tests), scan.end)
    gdr: Gdr = "no" if reading.gdr == "unknown" and is_all_gb10(tests) else reading.gdr
    notes = (*reading.notes, *_log_notes(facts, tests))
    base = FileDiagnosis(name, kind, tool, reading.network, reading.verdict, gdr, notes=notes, lines=scan.lines)
    stopped = bool(facts.warnings and facts.failed_calls)
    if stopped and not combined:
        base = dataclasses.replace(
            base, notes=(*notes, f"NCCL failed for a reason that no rule knows: {facts.first_warning}")
        )
    failed = stopped or _has_failed(tests, reading)
    return _with_causes(_with_figures(base, facts, tests, reading), combined, scan.end, failed=failed)


def _without_caught(scan: Scan, ready_line: int) -> dict[str, Finding]:
    """Return the findings without errors that the program caught: training went on, and nothing says that it ended."""
    found = scan.findings.result(ready_line)
    if scan.end.finding is not None:
        return found
    return {code: item for code, item in found.items() if code not in _CAUGHT or item.last_line > scan.over_line}


def _file_kind(scan: Scan) -> tuple[FileKind, str | None]:
    facts, tests = scan.facts, scan.tests
    if tests.has_table or (tests.marks and not facts.records):
        return "nccl_tests", "nccl-tests"
    nccl = facts.records or facts.warnings or facts.versions or scan.findings.quotes
    return ("nccl_log", "nccl") if nccl else ("unknown", None)


def _diagnose_other_tool(scan: Scan, name: str) -> FileDiagnosis:
    """Diagnose a file that neither NCCL nor nccl-tests wrote to."""
    findings = add_end(_without_caught(scan, scan.over_line + 1), scan.end)
    text = scan.head
    base = FileDiagnosis(name, "unknown", lines=scan.lines)
    notes: tuple[str, ...] = ()
    tables: tuple[GidTable, ...] = parse_show_gids(text)
    if tables:
        base = _with_causes(dataclasses.replace(base, kind="show_gids", tool="show_gids"), find_gid_causes(tables))
        # A table shows what would fail, not that a job failed.
        return dataclasses.replace(base, outcome="warn") if base.causes else base
    if perftest := parse_perftest(text):
        notes = (f"perftest reached {perftest.best_gbps:.4g} Gb/s",) if perftest.best_gbps is not None else ()
        base = dataclasses.replace(base, tool="perftest", notes=notes, problem=perftest.problem)
    elif iperf := parse_iperf3(text):
        notes = (f"iperf3 received {iperf.received_gbps:.4g} Gb/s",) if iperf.received_gbps is not None else ()
        base = dataclasses.replace(base, tool="iperf3", notes=notes, problem=iperf.problem)
    elif ports := parse_ibstat(text):
        notes = tuple(f"{port.device}/{port.port}: {port.state}, {port.rate_gbps} Gb/s" for port in ports[:64])
        base = dataclasses.replace(base, tool="ibstat", notes=notes)
    elif scan.binary:
        return dataclasses.replace(base, tool="binary", problem="the file is not text")
    elif scan.findings.kernel:
        base = dataclasses.replace(base, tool="kernel")
    return _with_causes(base, findings, scan.end)


def _diagnose_json(stream: t.BinaryIO, name: str) -> FileDiagnosis | None:
    """Diagnose a file that is one JSON document of a known tool; None for everything else (such as JSON lines)."""
    content = stream.read(MAX_JSON_BYTES + 1)
    if len(content) > MAX_JSON_BYTES:
        return None
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return None
    lines_ = content.count(b"\n") + 1
    tests = parse_nccl_tests_json(document)
    if tests:
        notes = tuple(_test_notes(tests))
        base = FileDiagnosis(name, "nccl_tests", "nccl-tests", notes=notes, lines=lines_)
        reading = NcclTransport(None, "unproven", "no" if is_all_gb10(tests) else "unknown", nodes=tests.hosts)
        base = dataclasses.replace(base, gdr=reading.gdr)
        return _with_causes(_with_figures(base, NcclFacts(), tests, reading), {}, failed=_has_failed(tests, reading))
    if perftest := parse_perftest_json(document):
        return FileDiagnosis(name, "unknown", "perftest", lines=lines_, problem=perftest.problem)
    if iperf := parse_iperf3_json(document):
        return FileDiagnosis(name, "unknown", "iperf3", lines=lines_, problem=iperf.problem)
    return None


def _with_figures(base: FileDiagnosis, facts: NcclFacts, tests: NcclTests, reading: NcclTransport) -> FileDiagnosis:
    largest = tests.largest
    comm = max(facts.jobs.comms.values(), key=lambda one: (one.nranks, len(one.ranks)), default=None)
    expected = (comm.nranks if comm else 0) or len(tests.ranks) or None
    seen = len(comm.ranks) if comm and comm.ranks else None
    missing: tuple[int, ...] = ()
    if comm and expected and seen and expected <= 4096:
        missing = tuple(rank for rank in range(expected) if rank not in comm.ranks)
    return dataclasses.replace(
        base,
        busbw_gb_s=largest.busbw_gb_s if largest else None,
        size_bytes=largest.size_bytes if largest else None,
        wrong_values=tests.out_of_bounds if tests.out_of_bounds is not None else tests.wrong,
        ranks=Ranks(expected, seen, missing),
        nodes=reading.nodes,
    )


def _with_causes(
    base: FileDiagnosis, findings: t.Mapping[str, Finding], end: ProgramEnd = NO_END, *, failed: bool = False
) -> FileDiagnosis:
    leading, rest = split_by_weight(findings.values())
    stopped = failed or any(finding.weight != "advice" for finding in leading)
    outcome: Outcome = "fail" if stopped else "warn" if leading else "unproven"
    causes = tuple(build_cause(finding, base.file) for finding in leading[:MAX_CAUSES])
    return dataclasses.replace(
        base,
        outcome=outcome,
        causes=causes,
        also=tuple(build_cause(finding, base.file) for finding in rest[:MAX_CAUSES]),
        first_rank=first_rank(leading, end, base.file),
        first_node=end.node or next((finding.host for finding in leading if finding.host), None),
    )


def _has_failed(tests: NcclTests, reading: NcclTransport) -> bool:
    """Return whether the figures alone show a failure: wrong values, a failed run, two transports in one job."""
    wrong = bool(tests.wrong) or tests.out_of_bounds_failed
    return wrong or tests.average_failed or bool(tests.failures) or reading.verdict == "mixed"


def _log_notes(facts: NcclFacts, tests: NcclTests) -> t.Iterator[str]:
    if len(facts.versions) > 1:
        yield f"several NCCL versions wrote to this log: {', '.join(sorted(facts.versions)[:4])}"
    if facts.environment.get("NCCL_IB_DISABLE", ("0", 0))[0] == "1":
        yield "NCCL_IB_DISABLE=1 switches RDMA off"
    if tests.has_table:
        yield from _test_notes(tests)


def _test_notes(tests: NcclTests) -> t.Iterator[str]:
    if tests.largest is None:
        yield "the table does not hold a row with a bandwidth"
    elif tests.largest.size_bytes < MIN_JUDGED_BYTES:
        yield f"the largest size is {tests.largest.size_bytes} bytes: too small to judge bandwidth"
    if tests.wrong is None and tests.out_of_bounds is None:
        yield "values were not checked"
    if len(tests.hosts) == 2 and tests.collective in (None, "all_reduce"):
        yield "two nodes: only NCCL_ALGO=RING makes the bus bandwidth comparable with the NICs' rate"
    if len(tests.hosts) > 1 and len(tests.hosts) == len(tests.ranks):
        yield "one GPU per node: it cannot fill several NICs"
    if tests.broken_rows:
        yield f"{tests.broken_rows} rows of the table are broken"
