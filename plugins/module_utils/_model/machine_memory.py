# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is remembered of rented machines that were of no use, so that the same one is not rented again. Pure rules.

A machine is known by what stays when it is rented anew: the provider's own id of it, where its offers have one, and the
UUIDs of its GPUs, once it could be looked at. Names, addresses, host keys and machine-ids are of an image or of a rent.
"""

from __future__ import annotations

import dataclasses
import typing as t

from .errors import InputError
from .timestamps import format_whole_seconds, parse_time

Fault = t.Literal["unusable", "sold_otherwise", "gpu_fault", "slow_gpu", "hung", "slow_network", "disk", "passed"]
_HOUR_S: t.Final = 3600.0
_DAY_S: t.Final = 86400.0
# For how long a machine is avoided after its first fault of a class.
_TTL_S: t.Final[t.Mapping[str, float]] = {
    "unusable": 6 * _HOUR_S,
    "sold_otherwise": 30 * _DAY_S,
    "gpu_fault": 30 * _DAY_S,
    "slow_gpu": 7 * _DAY_S,
    "hung": 7 * _DAY_S,
    "slow_network": 3 * _DAY_S,
    "disk": _DAY_S,
}
_LONGEST_S: t.Final = 90 * _DAY_S
# A part of a GPU: another rent of the machine gets another one.
_PART = "MIG-"
_DETAIL_CHARS = 300


@dataclasses.dataclass(frozen=True, slots=True)
class MachineNote:
    """One line of the memory: what was wrong with a machine, or that it passed its test (``passed``).

    ``at``: Unix seconds. ``host``: the provider's id of the machine, None where it has none. ``gpus``: UUIDs.
    """

    at: float
    provider: str
    fault: Fault
    detail: str = ""
    host: str | None = None
    gpus: tuple[str, ...] = ()

    @property
    def whole_gpus(self) -> frozenset[str]:
        """Return the UUIDs that are of whole GPUs."""
        return frozenset(item for item in self.gpus if item and not item.startswith(_PART))

    @property
    def is_known(self) -> bool:
        """Return whether the machine could be told from others."""
        return bool(self.host or self.whole_gpus)

    def to_dict(self) -> dict[str, t.Any]:
        """Return the line as it is stored."""
        found = {**dataclasses.asdict(self), "at": format_whole_seconds(self.at), "gpus": sorted(self.whole_gpus)}
        return {"schema": 1, **found, "detail": self.detail[:_DETAIL_CHARS]}

    @classmethod
    def from_dict(cls, value: t.Any, where: str) -> MachineNote:
        """Return the note of a stored line.

        :raises InputError: when it is none.
        """
        given = value if isinstance(value, dict) else {}
        at = parse_time(given["at"]) if isinstance(given.get("at"), str) else None
        provider, fault = given.get("provider"), given.get("fault")
        if at is None or not isinstance(provider, str) or fault not in t.get_args(Fault):
            raise InputError(where, "is not a note on a machine")
        host, gpus = given.get("host"), given.get("gpus")
        return cls(
            at,
            provider,
            t.cast(Fault, fault),
            str(given.get("detail") or ""),
            str(host) if host else None,
            tuple(str(item) for item in gpus) if isinstance(gpus, list) else (),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Avoided:
    """A machine that is not rented ``until`` then (Unix seconds), and what was wrong with it last."""

    until: float
    fault: Fault
    detail: str

    def describe(self) -> str:
        """Return until when it is avoided and why."""
        why = f"{self.fault.replace('_', ' ')}: {self.detail}" if self.detail else self.fault.replace("_", " ")
        return f"avoided until {format_whole_seconds(self.until)} ({why})"


@dataclasses.dataclass(frozen=True, slots=True)
class MachineMemory:
    """What the notes come to: by ``PROVIDER:HOST`` and by GPU the machines that are avoided.

    ``noted``: the keys of all machines that ever had a fault, of those that are avoided no more, too.
    """

    hosts: t.Mapping[str, Avoided] = dataclasses.field(default_factory=dict)
    gpus: t.Mapping[str, Avoided] = dataclasses.field(default_factory=dict)
    noted: frozenset[str] = frozenset()

    def find_host(self, provider: str, host: str | None, now: float) -> Avoided | None:
        """Return why a provider's machine is avoided now, None where it is not."""
        found = self.hosts.get(_host_key(provider, host)) if host else None
        return found if found is not None and found.until > now else None

    def find_gpus(self, gpus: t.Iterable[str], now: float) -> Avoided | None:
        """Return why a machine with one of these GPUs is avoided now, None where it is not."""
        found = [self.gpus[item] for item in gpus if item in self.gpus and self.gpus[item].until > now]
        return max(found, key=lambda item: item.until, default=None)

    def is_noted(self, provider: str, host: str | None, gpus: t.Iterable[str] = ()) -> bool:
        """Return whether a machine ever had a fault."""
        keys = {_host_key(provider, host)} if host else set()
        return bool(self.noted & {*keys, *gpus})


@dataclasses.dataclass(slots=True)
class _Machine:
    hosts: set[str]
    gpus: set[str]
    notes: list[MachineNote]

    def is_of(self, note: MachineNote) -> bool:
        """Return whether a note is of this machine: a GPU in common, or the id where the GPUs do not contradict it."""
        if self.gpus & note.whole_gpus:
            return True
        contradicts = bool(self.gpus and note.whole_gpus)
        return bool(note.host) and _host_key(note.provider, note.host) in self.hosts and not contradicts

    def judge(self) -> Avoided | None:
        """Return for how long it is avoided: longer for each fault, half of what is left after a passed test."""
        count, until, last = 0, 0.0, None
        for note in sorted(self.notes, key=lambda item: item.at):
            if note.fault == "passed":
                count //= 2
                until = min(until, note.at + max(0.0, until - note.at) / 2)
                continue
            count, last = count + 1, note
            until = max(until, note.at + min(_LONGEST_S, _TTL_S[note.fault] * 2 ** (count - 1)))
        return Avoided(until, last.fault, last.detail) if last is not None else None


def recall(notes: t.Iterable[MachineNote]) -> MachineMemory:
    """Return what the notes come to, in whatever order they were written."""
    machines: list[_Machine] = []
    for note in sorted(notes, key=lambda item: item.at):
        if not note.is_known:
            continue
        same = [item for item in machines if item.is_of(note)]
        own = {_host_key(note.provider, note.host)} if note.host else set()
        whole = _Machine(
            {*(key for item in same for key in item.hosts), *own},
            {*(key for item in same for key in item.gpus), *note.whole_gpus},
            [*(line for item in same for line in item.notes), note],
        )
        machines = [item for item in machines if item not in same] + [whole]
    hosts: dict[str, Avoided] = {}
    gpus: dict[str, Avoided] = {}
    for machine in machines:
        avoided = machine.judge()
        if avoided is None:
            continue
        for keys, found in ((machine.hosts, hosts), (machine.gpus, gpus)):
            # One id may stand for two machines: offers do not say which of them they are.
            found.update({key: avoided for key in keys if key not in found or found[key].until < avoided.until})
    return MachineMemory(hosts, gpus, frozenset({*hosts, *gpus}))


def _host_key(provider: str, host: str | None) -> str:
    return f"{provider}:{host}"
