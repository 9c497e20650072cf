# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The result document of the bench (``allreduce_bench.py``) as typed values."""

from __future__ import annotations

import dataclasses
import json
import typing as t

from ....module_utils._model import validators as f
from ....module_utils._model.errors import InputError

SCHEMA = 1
MAX_BYTES = 64 << 20
Delta = tuple[int, int]


def _parse_delta(value: object, path: str) -> Delta:
    """Return a counter before and after the measurement."""
    items = f.list_of(f.integer(0, 2**63))(value, path)
    if len(items) != 2:
        raise InputError(path, "must be a list of two counters, before and after the measurement")
    return items[0], items[1]


@dataclasses.dataclass(frozen=True, slots=True)
class Counters:
    """Bytes that an interface or an RDMA port received and sent: (before, after)."""

    rx_bytes: Delta = f.field(_parse_delta)
    tx_bytes: Delta = f.field(_parse_delta)

    @property
    def received_bytes(self) -> int:
        """Return the bytes received during the test; negative where a counter was reset."""
        return self.rx_bytes[1] - self.rx_bytes[0]

    @property
    def sent_bytes(self) -> int:
        """Return the bytes sent during the test; negative where a counter was reset."""
        return self.tx_bytes[1] - self.tx_bytes[0]


def _parse_counters(value: object, path: str) -> dict[str, Counters]:
    return {key: f.section(Counters, "skip")(item, f"{path}.{key}") for key, item in f.dictionary(value, path).items()}


@dataclasses.dataclass(frozen=True, slots=True)
class SocketEnd:
    """An established connection of a rank to another rank; ``interface`` owns the local address.

    The byte counts are those of this connection alone (the kernel's tcp_info); None where the kernel has none.
    """

    local: str = f.field(f.text)
    peer: str = f.field(f.text)
    interface: str | None = f.field(f.text, None)
    peer_rank: int | None = f.field(f.integer(0), None)
    rx_bytes: Delta | None = f.field(_parse_delta, None)
    tx_bytes: Delta | None = f.field(_parse_delta, None)

    @property
    def carried_bytes(self) -> int | None:
        """Return the bytes that this connection moved in both directions during the test."""
        if self.rx_bytes is None or self.tx_bytes is None:
            return None
        return self.rx_bytes[1] - self.rx_bytes[0] + self.tx_bytes[1] - self.tx_bytes[0]


@dataclasses.dataclass(frozen=True, slots=True)
class RankEvidence:
    """What one rank recorded of the network: connections to other ranks, counters of interfaces and RDMA ports."""

    rank: int = f.field(f.integer(0))
    host: str | None = f.field(f.text, None)
    node: str | None = f.field(f.text, None)
    pid: int | None = f.field(f.integer(0), None)
    sockets: tuple[SocketEnd, ...] = f.field(f.list_of(f.section(SocketEnd, "skip")), ())
    netdev: t.Mapping[str, Counters] = f.field(_parse_counters, {})
    rdma: t.Mapping[str, Counters] = f.field(_parse_counters, {})


@dataclasses.dataclass(frozen=True, slots=True)
class BenchRow:
    """One size: bandwidths in GB/s of 1e9 bytes, the time of one collective on the slowest rank.

    ``wrong_values`` is null where values were not checked; ``iterations`` collectives were timed ``tries`` times.
    """

    size_bytes: int = f.field(f.integer(0, 2**63))
    iterations: int = f.field(f.integer(1))
    time_us: float = f.field(f.decimal(0))
    algbw_gb_s: float = f.field(f.decimal(0))
    busbw_gb_s: float = f.field(f.decimal(0))
    wrong_values: int | None = f.field(f.integer(0, 2**63), None)
    tries: int = f.field(f.integer(1), 1)


@dataclasses.dataclass(frozen=True, slots=True)
class SkippedSize:
    """A size that was not measured, and why."""

    size_bytes: int = f.field(f.integer(0, 2**63))
    reason: str = f.field(f.text)


@dataclasses.dataclass(frozen=True, slots=True)
class BenchResult:
    """The whole document. ``nodes`` and ``ranks`` are those that took part, which may be fewer than requested."""

    schema: int = f.field(f.integer(SCHEMA, SCHEMA))
    collective: str = f.field(f.choice("all_reduce", "all_gather", "reduce_scatter", "all_to_all"))
    backend: str = f.field(f.choice("gloo", "nccl"))
    ranks: int = f.field(f.integer(1))
    nodes: int = f.field(f.integer(1))
    results: tuple[BenchRow, ...] = f.field(f.list_of(f.section(BenchRow, "skip")))
    evidence: tuple[RankEvidence, ...] = f.field(f.list_of(f.section(RankEvidence, "skip")))
    skipped: tuple[SkippedSize, ...] = f.field(f.list_of(f.section(SkippedSize, "skip")), ())
    split_mod: int | None = f.field(f.integer(0), None)

    @property
    def largest_row(self) -> BenchRow | None:
        """Return the row of the largest size, the only one by which a network is judged."""
        return max(self.results, key=lambda row: row.size_bytes, default=None)

    @property
    def wrong_values(self) -> int | None:
        """Return the number of wrong values of all sizes; None when one of them was not checked."""
        counts = [row.wrong_values for row in self.results]
        return None if None in counts else sum(count or 0 for count in counts)

    @property
    def node_names(self) -> tuple[str, ...]:
        """Return the nodes that took part."""
        return tuple(sorted({item.node or item.host or f"rank {item.rank}" for item in self.evidence}))

    @classmethod
    def from_dict(cls, value: object, path: str = "bench") -> BenchResult:
        """Return the result in ``value``; raise InputError with the dotted path of what cannot be read."""
        result = f.section(cls, "skip")(value, path)
        if {item.rank for item in result.evidence} != set(range(result.ranks)) or len(result.evidence) != result.ranks:
            raise InputError(f"{path}.evidence", f"must hold each of {result.ranks} ranks once")
        return result

    @classmethod
    def from_text(cls, text: str | bytes, path: str = "bench") -> BenchResult:
        """Return the result in a JSON text; raise InputError for anything else, torn files included."""
        if len(text) > MAX_BYTES:
            raise InputError(path, f"has more than {MAX_BYTES >> 20} MiB")
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            raise InputError(path, "is not a complete JSON document", "Run the bench again") from None
        return cls.from_dict(value, path)
