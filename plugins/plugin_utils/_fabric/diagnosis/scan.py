# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read one text file to its end and pass each line to the reader that knows its form.

A log of a training job can have gigabytes of lines without information. After the head of the file, a block with few
lines of NCCL is searched for telling words, and only the lines that hold one are read.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import typing as t

from ..parse.lines import MAX_LINE_BYTES, read_blocks, split_lines
from ..parse.nccl_log import NcclFacts, NcclLog
from ..parse.nccl_tests import NcclTests, NcclTestsText
from .log_patterns import Findings
from .program_end import ProgramEnd, ProgramEnds

HEAD_BYTES = 256 * 1024
# With more than one NCCL record in this many bytes it is faster to read every line.
DENSE_BYTES = 400
# Each line that a reader could use holds one of these; a test holds the rules' own messages against them.
_WORDS = (
    *(b"NCCL ", b"nccl", b"Test ", b"WARN ", b"loo", b"rror", b"ailed", b"FAIL", b"efused", b"timed out"),
    *(b"nThread", b"busbw", b" Rank ", b"Collective test", b"Out of bounds", b"Avg bus"),
    *(b"unreach", b"ismatch", b"MISMATCH", b"issing comm", b"f memory", b"nsufficient", b"oom-kill", b"OOMKill"),
    *(b"Memory cgroup", b"bad_alloc", b"No space", b"not known", b"resol", b"joined", b"are available", b"Pull"),
    *(b"not yet", b"NotReady", b"DERP", b'relay "', b"too long", b"needed and DF", b"xception", b"operation counts"),
    *(b"joining coll", b"unable to", b"Unable to", b"enough slots", b"any network", b"No address", b"nodename nor"),
    *(b"Original timeout", b"Read-only", b"Permission den", b"inline_container", b"PytorchStream", b"ALLOC_FAILED"),
    *(b"MemoryAlloc", b"can't allocate", b"not enough", b"closed by peer", b"fallen off"),
    *(b"max retries", b"couldn't connect", b"Failed to resolve", b"shared memory", b"too old", b"insufficient"),
    *(b"forward compat", b"unsupported display", b"No CUDA GPUs", b"no CUDA-capable", b"Found no NVIDIA", b"ordinal"),
    *(b"kernel image", b"not compatible with", b"not compiled with", b"EADDRINUSE", b"in use", b"open files"),
    *(
        b"Watchdog caught",
        b"Timed out waiting",
        b"ancdata",
        b"prior iteration",
        b"ready only once",
        b"oss is ",
        b"N loss",
        b"n loss",
        b"N Loss",
        b"n Loss",
        b"NVRM: ",
        b"Root Cause",
        b"exitcode",
        b"signal",
        b"MPI_ABORT",
        b"Interrupt",
        b"terminate called",
        b"  what():",
        b"Killed",
        b"Segmentation",
        b"Aborted",
        b"srun: ",
        b"slurmstepd",
        b"blocked for",
        b"not responding",
        b"_STATUS_",
        b"CUDA unknown",
        b"not found",
        b"denied for",
        b"unsatisfied",
        b"manifest unk",
        b"CDI dev",
        b"select device",
        b"divisible",
        b"valid check",
        b"new thread",
        b"oom_kill",
        b"NaN in local",
        b"at minimum",
        b"RESOURCE_EXH",
        b"Exit",
        b"async e",
        b"noticed that",
    ),
)


@functools.lru_cache(maxsize=64)
def _compile_words(words: tuple[bytes, ...]) -> re.Pattern[bytes]:
    return re.compile(b"|".join(re.escape(word) for word in words))


@dataclasses.dataclass(slots=True)
class Scan:
    """Everything read from one file; ``head`` is the first text in it that is not NCCL's.

    :ivar over_line: up to this line retries and errors were over when training continued.
    """

    facts: NcclFacts
    tests: NcclTests
    findings: Findings
    end: ProgramEnd
    head: str = ""
    lines: int = 0
    binary: bool = False
    over_line: int = 0


def scan_log(stream: t.BinaryIO) -> Scan:
    """Read a text log to its end, in constant memory. Raises what ``stream.read`` does, nothing for content."""
    reader = _Reader()
    last = 0
    for first, block in read_blocks(stream):
        if reader.can_skip(first, block):
            reader.search(first, block)
        else:
            for number, line in split_lines(first, block):
                reader.line(number, line)
        last = first + block.count(b"\n") - 1
    return reader.result(last)


class _Reader:
    def __init__(self) -> None:
        self.findings = Findings()
        self.ends = ProgramEnds()
        self.log = NcclLog(self.findings.record)
        self.tests = NcclTestsText()
        self.head: list[bytes] = []
        self.room = HEAD_BYTES
        self.odd = 0

    def can_skip(self, first: int, block: bytes) -> bool:
        """Return whether only the lines of ``block`` that hold a telling word need to be read."""
        if self.room > 0 or self.tests.expects_lines or self.expects_line(first):
            return False
        return block.count(b"NCCL ") * DENSE_BYTES < len(block)

    def expects_line(self, number: int) -> bool:
        """Return whether a line may belong to what the lines before it began."""
        return self.findings.is_quoted(number) or self.ends.expects_line(number)

    def search(self, first: int, block: bytes) -> None:
        """Read the lines of a block that hold a telling word, and those that such a line makes worth reading."""
        # One word after the other is found several times as fast as all of them at once, and most blocks hold few.
        words = tuple(word for word in _WORDS if word in block)
        number, at = first, 0
        while words and (match := _compile_words(words).search(block, at)):
            start = block.rfind(b"\n", at, match.start()) + 1 or at
            number += block.count(b"\n", at, start)
            self.ends.skim(block[at:start])
            at = self._read_at(number, block, start)
            number += 1
            while at < len(block) and (self.tests.expects_lines or self.expects_line(number)):
                at = self._read_at(number, block, at)
                number += 1
        self.ends.skim(block[at:])

    def _read_at(self, number: int, block: bytes, start: int) -> int:
        """Read the line that begins at ``start``; return where the next one begins."""
        end = block.find(b"\n", start)
        self.line(number, block[start : min(end, start + MAX_LINE_BYTES)])
        return end + 1

    def line(self, number: int, line: bytes) -> None:
        """Pass one line to the reader that knows its form."""
        at = line.find(b"NCCL ")
        if at >= 0:
            rest = self.log.record(number, line, at)
            if not rest:
                return
            if rest is not line:
                self.tests.piece(number, rest)
                return
        if b"\r" in line:
            line = line.replace(b"\r", b"\n")
        if not self.tests.line(number, line):
            self.findings.plain(number, line)
            self.ends.line(number, line)
        if self.room > 0:
            self.head.append(line)
            self.room -= len(line) + 1
            self.odd += line.count(b"\0")

    def result(self, last: int) -> Scan:
        """Return the results of all readers."""
        text = b"\n".join(self.head)
        binary = self.odd * 10 > len(text) + 1
        head = text.decode("utf-8", "replace")
        end = self.ends.result()
        return Scan(self.log.facts, self.tests.finish(), self.findings, end, head, last, binary, self.ends.over_line)
