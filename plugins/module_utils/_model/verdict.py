# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fabric verdict of one island as values; ``fabric.json`` holds a list of them.

Four things are judged: the transport proven per pair of nodes, the bandwidth against an expectation, wrong values,
and attendance. Unknown is null, never 0 or an empty text; an unknown can be ``unproven`` but never ``pass``.
"""

from __future__ import annotations

import dataclasses
import typing as t

from . import validators as f
from .errors import InputError
from .island import LANES, Lane

Outcome = t.Literal["pass", "warn", "fail", "unproven"]
TransportVerdict = t.Literal["rdma_gdr", "rdma_no_gdr", "tcp", "mixed", "mnnvl", "unproven"]
EvidenceKind = t.Literal["nccl_log", "rdma_counters", "socket_peers_and_netdev_counters"]
ExpectationSource = t.Literal["computed", "override", "peer"]

OUTCOMES: tuple[Outcome, ...] = t.get_args(Outcome)
TRANSPORT_VERDICTS: tuple[TransportVerdict, ...] = t.get_args(TransportVerdict)
# Unproven is worse than a warning: a test without a result must not look like one that nearly passed.
_WEIGHT: dict[Outcome, int] = {"pass": 0, "warn": 1, "unproven": 2, "fail": 3}
_EXIT_CODE: dict[Outcome, int] = {"pass": 0, "warn": 0, "unproven": 1, "fail": 1}


def worst_outcome(outcomes: t.Iterable[Outcome]) -> Outcome:
    """Return the heaviest outcome (fail, unproven, warn, pass); no outcome at all is ``unproven``."""
    return max(outcomes, key=_WEIGHT.__getitem__, default="unproven")


def exit_code(outcome: Outcome) -> int:
    """Return 0 for pass and warn, 1 for fail and unproven (2, could not run, is set by the caller)."""
    return _EXIT_CODE[outcome]


@dataclasses.dataclass(frozen=True, slots=True)
class Cause:
    """Why something failed: a ``code`` of the cause table, the ``evidence`` (``file:line: text``) and the ``fix``."""

    code: str = f.field(f.text)
    evidence: str = f.field(f.text)
    fix: str = f.field(f.text)
    node: str | None = f.field(f.text, None)


# The other end of a proof that does not name it: byte counters of a node.
ALL_OTHERS = "all others"


@dataclasses.dataclass(frozen=True, slots=True)
class PairProof:
    """What carried the traffic of one pair of nodes.

    ``via`` is the transport's own name (``IB``, ``AWS Libfabric``, ``Socket``, ``MNNVL``) or the interface;
    ``evidence`` is ``file:line`` or the counter's difference; ``gdr`` is null where GPUDirect cannot be seen.
    """

    a: str = f.field(f.text)
    b: str = f.field(f.text)
    via: str = f.field(f.text)
    evidence: str = f.field(f.text)
    gdr: bool | None = f.field(f.boolean, None)
    busbw_gb_s: float | None = f.field(f.decimal(0), None)


@dataclasses.dataclass(frozen=True, slots=True)
class TransportResult:
    """The transport that was expected, the one that was proven, and the proof."""

    expected: TransportVerdict | None = f.field(f.choice(*TRANSPORT_VERDICTS), None)
    verdict: TransportVerdict = f.field(f.choice(*TRANSPORT_VERDICTS), "unproven")
    evidence_kind: EvidenceKind | None = f.field(f.choice(*t.get_args(EvidenceKind)), None)
    pairs: tuple[PairProof, ...] = f.field(f.list_of(f.section(PairProof, "skip")), ())


@dataclasses.dataclass(frozen=True, slots=True)
class Bandwidth:
    """A measured bus bandwidth (GB/s, 10^9 bytes; nccl-tests' definition) against its expectation.

    ``ratio`` is measured / expected; ``gate_pass`` and ``gate_fail`` are ratios too. ``algorithm`` is NCCL's or null.
    """

    collective: str | None = f.field(f.text, None)
    size_bytes: int | None = f.field(f.integer(0, 2**63 - 1), None)
    ranks: int | None = f.field(f.integer(0), None)
    nodes: int | None = f.field(f.integer(0), None)
    busbw_gb_s: float | None = f.field(f.decimal(0), None)
    expected_gb_s: float | None = f.field(f.decimal(0), None)
    ratio: float | None = f.field(f.decimal(0), None)
    gate_pass: float | None = f.field(f.decimal(0), None)
    gate_fail: float | None = f.field(f.decimal(0), None)
    expectation_source: ExpectationSource | None = f.field(f.choice(*t.get_args(ExpectationSource)), None)
    algorithm: str | None = f.field(f.text, None)


@dataclasses.dataclass(frozen=True, slots=True)
class Ranks:
    """How many ranks were expected, how many took part, and which did not. Null is unknown."""

    expected: int | None = f.field(f.integer(0), None)
    seen: int | None = f.field(f.integer(0), None)
    missing: tuple[int, ...] = f.field(f.list_of(f.integer(0)), ())


@dataclasses.dataclass(frozen=True, slots=True)
class SlowestPair:
    """The pair of nodes with the lowest bandwidth (GB/s)."""

    a: str = f.field(f.text)
    b: str = f.field(f.text)
    busbw_gb_s: float = f.field(f.decimal(0))


@dataclasses.dataclass(frozen=True, slots=True)
class VerdictChecks:
    """The outcome of each of the four things judged."""

    transport: Outcome = f.field(f.choice(*OUTCOMES), "unproven")
    bandwidth: Outcome = f.field(f.choice(*OUTCOMES), "unproven")
    correctness: Outcome = f.field(f.choice(*OUTCOMES), "unproven")
    attendance: Outcome = f.field(f.choice(*OUTCOMES), "unproven")


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one island. ``reasons`` are short sentences, one for each thing that did not pass."""

    island: str = f.field(f.text)
    outcome: Outcome = f.field(f.choice(*OUTCOMES))
    lane: Lane | None = f.field(f.choice(*LANES), None)
    transport: TransportResult = f.field(f.section(TransportResult, "skip"), TransportResult())
    bandwidth: Bandwidth = f.field(f.section(Bandwidth, "skip"), Bandwidth())
    wrong_values: int | None = f.field(f.integer(0, 2**63 - 1), None)
    ranks: Ranks = f.field(f.section(Ranks, "skip"), Ranks())
    causes: tuple[Cause, ...] = f.field(f.list_of(f.section(Cause, "skip")), ())
    slowest_pair: SlowestPair | None = f.field(f.section(SlowestPair, "skip"), None)
    started_at: str | None = f.field(f.text, None)
    duration_s: float | None = f.field(f.decimal(0), None)
    exit_code: int = f.field(f.integer(0, 2), 1)
    checks: VerdictChecks = f.field(f.section(VerdictChecks, "skip"), VerdictChecks())
    reasons: tuple[str, ...] = f.field(f.list_of(f.text), ())

    def to_dict(self) -> dict[str, t.Any]:
        """Return the verdict as JSON-able values with the contract's names; a cause without a node has no ``node``."""
        result = f.plain_value(self)
        for cause in result["causes"]:
            if cause["node"] is None:
                del cause["node"]
        return t.cast("dict[str, t.Any]", result)

    @classmethod
    def from_dict(cls, value: t.Any, path: str = "fabric") -> Verdict:
        """Return the verdict that :meth:`to_dict` wrote; raises :class:`InputError` naming the field that is wrong."""
        try:
            return _PARSE(value, path)
        except (OverflowError, ValueError):
            raise InputError(path, "holds a number with too many digits") from None


_PARSE: f.Parser[Verdict] = f.section(Verdict, "skip")
