# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a program plainly ended: the first error that is a rank's own, or the signal that ended it, and which rank's.

It is the general rule below those of single messages. What ranks say after another one has gone (a closed connection, a
timeout of a collective) is never the first error. An error after which training continued is over.
"""

from __future__ import annotations

import dataclasses
import re

from ..parse.lines import printable, strip_prefixes
from .causes import Finding
from .error_tables import NCCL_RESULTS, SIGNAL_WORDS, describe_signal

_SIGNAL_FIX = (
    "Read that rank's last lines and dmesg of its node. SIGKILL: use less host memory (data-loader workers, other "
    "programs) or raise its limit; a crash: python -X faulthandler shows the line"
)
# So many lines of progress after an error show that it did not end the program.
_CONTINUED = 3
_TABLE_LINES = 9
# Python says so of an error in a destructor, which ends nothing; the error itself is below its traceback.
_IGNORED = b"Exception ignored "
_IGNORED_LINES = 60
_TAG = re.compile(
    rb"^(?:\x1b\[[\d;]*m)*(?:\[rank(\d{1,6})\]:|\[\d+,(\d{1,6})\]<std|(\d{1,6}): |\[(?P<local>default)(\d{1,6})\]:)"
)
_ERROR = re.compile(
    rb"^(?:terminate called after[^\n]*|Collective WorkNCCL\(.* raised the following async exception: NCCL error: .*|"
    rb" {0,2}what\(\): .*|Exception: .*|"
    rb"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit)(?:\(\w+\))?(?::.*)?)\s*$",
    re.DOTALL,
)
_FOLLOWS = re.compile(
    rb"Connection (?:closed|reset) by |remote process exited|ncclRemoteError|Broken pipe|Dist(?:Network|Store)Error|"
    rb"Rendezvous\w+Error|c10d store|communicator was aborted|RayTaskError|RayActorError|CalledProcessError|"
    rb"ChildFailedError|SignalException|terminate called|Connection refused|[Tt]imed out"
)
_INTERRUPTED = re.compile(
    rb"^KeyboardInterrupt\b|SignalException: Process \d+ got signal: (?:1|2|15)\b|killed by signal: Terminated"
)
_PROGRESS = re.compile(rb"(?im)^(?!.*error).*\b(?:step|iter|iteration|epoch|loss)\b\W{0,4}\d.*$")
# What programs say when they have come to their end: an error before that was caught, however few steps followed it.
_FINISHED = re.compile(
    rb"(?im)^(?!.*(?:error|fail|abort)).*(?:\btraining (?:is |was )?(?:complete|completed|finished|done)\b|"
    rb"\bfinished training\b|\*{3,} train metrics \*{3,}|'train_runtime': |"
    rb"`Trainer\.fit` stopped: `max_(?:steps|epochs)=\d+` reached).*$"
)
_TELLING = re.compile(
    rb"rror|xception|Interrupt|Exit|exitcode|signal|Root Cause|noticed that|MPI_ABORT|srun: |: line \d|what\(\)|"
    rb"terminate c"
)
_NAMED_RANK = re.compile(rb"Error: \[?[Rr]ank (\d{1,6})\b")
_ROOT = b"Root Cause (first observed failure)"
_FIELD = re.compile(rb"^\s*(host|rank|exitcode)\s*: (\S+)(?: \(local_rank: (\d+)\))?")
_WORDS = "|".join(SIGNAL_WORDS).encode()
_RANK_ENDS = (
    # torchrun's own line names a local rank: which one it is of all, its node's place says.
    re.compile(rb"failed \(exitcode: -(?P<number>\d+)\) local_rank: \d+"),
    re.compile(rb"process rank (?P<rank>\d+) with PID \d+ on node (?P<node>\S+) exited on(?: signal (?P<number>\d+))?"),
    re.compile(rb"MPI_ABORT was invoked on rank (?P<rank>\d+)"),
    re.compile(rb"srun: error: (?P<node>[\w.-]+): tasks? (?P<rank>\d+): (?:(?P<word>" + _WORDS + rb")|Exited with)"),
    re.compile(rb"^\S+: line \d+:\s+\d+ (?P<word>" + _WORDS + rb")\s"),
    # The launcher before torchrun (torch.distributed.launch), DeepSpeed's and others that check a subprocess of Python.
    re.compile(rb"^subprocess\.CalledProcessError: .* died with <Signals\.SIG\w+: (?P<number>\d+)>"),
    re.compile(rb"^Fatal Python error: (?P<word>" + _WORDS + rb")"),
    re.compile(rb"DataLoader worker \(pid\S* \d+\) is killed by signal: (?P<word>Segmentation fault|Aborted|Illegal)"),
)


@dataclasses.dataclass(frozen=True, slots=True)
class ProgramEnd:
    """What ended a program. ``rank`` and ``node``: of the rank that failed first, None where it is not said."""

    finding: Finding | None = None
    rank: int | None = None
    node: str | None = None


NO_END = ProgramEnd()


@dataclasses.dataclass(frozen=True, slots=True)
class _Error:
    line: int
    text: bytes
    rank: int | None
    local: bool = False


def find_rank(line: bytes) -> int | None:
    """Return the rank that a launcher's prefix names; torchrun's ``[defaultN]:`` counts those of its node."""
    tag = _TAG.match(line)
    return (
        next((int(number) for number in reversed(tag.groups()) if number and number.isdigit()), None) if tag else None
    )


class ProgramEnds:
    """Reads a log's lines for the end of its program."""

    def __init__(self) -> None:
        self._errors: list[_Error] = []
        self._stop: _Error | None = None
        self._end: tuple[int, bytes, dict[str, str]] | None = None
        self._table: dict[str, str] = {}
        self._table_from = 0
        self._progress = 0
        self._ignored: tuple[int, int | None] | None = None
        self._error_line = 0
        # What was said up to this line was over when training continued.
        self.over_line = 0

    def expects_line(self, number: int) -> bool:
        """Return whether a line may belong to torchrun's table or to a sentence that goes over two lines."""
        return bool(self._table_from) and number <= self._table_from + _TABLE_LINES

    def skim(self, text: bytes) -> None:
        """Count the lines of progress in a text without telling words."""
        if self._has_evidence:
            self._progress += len(_PROGRESS.findall(text)) + (_CONTINUED if _FINISHED.search(text) else 0)

    def line(self, number: int, line: bytes) -> None:
        """Read one line."""
        expected = self.expects_line(number) or (self._end is not None and number == self._end[0] + 1)
        if not expected and not _TELLING.search(line):
            self.skim(line)
            return
        text = strip_prefixes(line)
        if text is not line and text[:1] == b" ":
            text = text[1:]
        if self.expects_line(number):
            self._read_field(text)
        if _ROOT in text:
            self._table, self._table_from = {"line": str(number)}, number
        elif not self._read_end(number, text):
            if text.startswith(_IGNORED):
                self._ignored = number, find_rank(line)
            elif _ERROR.match(text) and self._is_ignored(number, find_rank(line)):
                self._ignored = None
            elif _ERROR.match(text):
                self._add_error(_Error(number, text, find_rank(line), b"[default" in line[:40]))
            else:
                self.skim(text)

    @property
    def _has_evidence(self) -> bool:
        open_line = self._error_line > self.over_line
        return bool(open_line or self._errors or self._stop or self._end or self._table)

    def _is_ignored(self, number: int, rank: int | None) -> bool:
        return bool(self._ignored and self._ignored[1] == rank and number - self._ignored[0] <= _IGNORED_LINES)

    def _fresh(self) -> None:
        """Forget what was over when training continued."""
        if self._progress >= _CONTINUED:
            self._errors, self._stop, self._end, self._table = [], None, None, {}
            self.over_line = self._error_line
        self._progress = 0

    def _add_error(self, error: _Error) -> None:
        self._fresh()
        self._error_line = error.line
        if _INTERRUPTED.search(error.text):
            self._stop = self._stop or error
        elif not _FOLLOWS.search(error.text) and len(self._errors) < 1000:
            self._errors.append(error)

    def _read_field(self, text: bytes) -> None:
        if found := _FIELD.match(text):
            self._table.setdefault(found[1].decode(), printable(found[2]))
            if found[3]:
                self._table["local"] = printable(found[3])

    def _read_end(self, number: int, text: bytes) -> bool:
        found = next((match for rule in _RANK_ENDS if (match := rule.search(text))), None)
        if found:
            self._fresh()
            # What Open MPI says of a signal may come on its next line.
            if self._end is None or (number - self._end[0] > 1 and not self._end[2].get("rank")):
                parts = {key: printable(value) for key, value in found.groupdict().items() if value}
                self._end = (number, text, parts)
        elif self._end and number == self._end[0] + 1 and (signal := re.match(rb"signal (\d+)", text.strip())):
            self._end[2].setdefault("number", printable(signal[1]))
        else:
            return False
        return True

    def result(self) -> ProgramEnd:
        """Return what ended the program; nothing where no line says that it ended by an error."""
        self._fresh()
        table = self._table
        rank = int(table["rank"]) if table.get("rank", "").isdecimal() else None
        code = table.get("exitcode", "")
        number = int(code[1:]) if re.fullmatch(r"-\d{1,2}", code) else 0
        if rank is not None and table.get("local"):
            self._errors = [_number_globally(error, rank - int(table["local"])) for error in self._errors]
        own = self._own_error(rank)
        if rank is not None and (number not in (0, 15) or not self._errors):
            return self._table_end(rank, number, own)
        if own:
            named = _NAMED_RANK.search(own.text)
            first = own.rank if own.rank is not None else int(named[1]) if named else rank
            return ProgramEnd(_error_finding(own), first, table.get("host") if first == rank else None)
        if self._end:
            return _plain_end(*self._end)
        if self._stop:
            return ProgramEnd(_as_finding("run_stopped", self._stop))
        return NO_END

    def _own_error(self, rank: int | None) -> _Error | None:
        """Return the error of the rank that failed first, which torchrun's table names, else the first of all."""
        mine = [error for error in self._errors if error.rank in (rank, None)] if rank is not None else []
        return next(iter(mine or self._errors), None)

    def _table_end(self, rank: int, number: int, own: _Error | None) -> ProgramEnd:
        node = self._table.get("host")
        if number == 15:
            return ProgramEnd(Finding("run_stopped", int(self._table["line"]), f"rank {rank} got SIGTERM"), rank, node)
        if own and own.rank in (rank, None) and number in (0, 6):
            return ProgramEnd(_error_finding(own), rank, node)
        why = f"was ended by {describe_signal(number)}" if number else f"exited with {self._table.get('exitcode')}"
        text = f"rank {rank} on {node or 'its node'} {why}"
        line = int(self._table["line"])
        fix = _SIGNAL_FIX if number else ""
        return ProgramEnd(Finding("rank_ended", line, text, node or "", 1, line, rank=rank, fix=fix), rank, node)


def _number_globally(error: _Error, first: int) -> _Error:
    return dataclasses.replace(error, rank=error.rank + first) if error.local and error.rank is not None else error


def _as_finding(code: str, error: _Error, fix: str = "") -> Finding:
    return Finding(code, error.line, printable(error.text), last_line=error.line, rank=error.rank, fix=fix)


def _error_finding(error: _Error) -> Finding:
    if b"NCCL error" not in error.text and not error.text.startswith(b"nccl"):
        return _as_finding("program_error", error)
    fix = next((fix for name, fix in NCCL_RESULTS.items() if name.encode() in error.text), "")
    return _as_finding("nccl_error", error, fix)


def _plain_end(line: int, text: bytes, parts: dict[str, str]) -> ProgramEnd:
    number = int(parts.get("number") or SIGNAL_WORDS.get(parts.get("word", ""), 0))
    why = f" ({describe_signal(number)})" if number else ""
    rank = int(parts["rank"]) if "rank" in parts else None
    node = parts.get("node")
    shown, fix = f"{printable(text.strip())}{why}", _SIGNAL_FIX if number else ""
    return ProgramEnd(Finding("rank_ended", line, shown, node or "", 1, line, rank=rank, fix=fix), rank, node)
