# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node reports of itself before a run: the answer to the agent's request ``info``.

A report holds what was asked for; the rest has the value of its field here.
"""

from __future__ import annotations

import dataclasses
import typing as t

Values = t.Mapping[str, t.Any]
_Part = t.TypeVar("_Part")


@dataclasses.dataclass(frozen=True, slots=True)
class FolderReport:
    """A folder that a run would write to; ``problem`` is why it cannot."""

    path: str = ""
    exists: bool = True
    problem: str | None = None
    free_bytes: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class InterpreterReport:
    """The job's interpreter on the node; ``packages`` are versions of what was asked for, None for a missing one."""

    executable: str | None = None
    version: str | None = None
    packages: t.Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    problem: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class PortProblem:
    """Why a program could not listen: ``cause`` is ``name`` (unknown), ``address`` (of no interface) or ``port``."""

    address: str
    reason: str
    cause: str = "port"


@dataclasses.dataclass(frozen=True, slots=True)
class UnitEnd:
    """How a unit of a run ended. ``detail`` says more of the cause, where the node knows more."""

    cause: str
    generation: int | None = None
    exit_code: int = 0
    at: float = 0.0
    detail: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class UnitReport:
    """A unit of a run on a node. ``generation`` is the first attempt of its start.

    ``left``: how many processes of it run although its supervisor is gone. ``stopping``: a controller has asked it to
    stop since its start.
    """

    alive: bool = False
    end: UnitEnd | None = None
    generation: int | None = None
    left: int = 0
    stopping: bool = False

    @property
    def is_lost(self) -> bool:
        """Whether its supervisor is gone without having ended it."""
        return not self.alive and self.end is None

    @property
    def is_stopped(self) -> bool:
        """Whether its supervisor was killed after it was asked to stop, before it could say how it ended."""
        return self.is_lost and self.stopping

    @classmethod
    def from_dict(cls, value: Values) -> UnitReport:
        """Return the unit of an agent's answer; what this version does not know is passed over."""
        end, left = _read(UnitEnd, value.get("exit")), value.get("left")
        number, stopping = left if isinstance(left, int) else 0, bool(value.get("stopping"))
        return cls(bool(value.get("alive")), end, value.get("generation"), number, stopping)


@dataclasses.dataclass(frozen=True, slots=True)
class LiveRun:
    """A run whose agent is alive on the node, and how many GPUs it uses."""

    run_id: str
    gpus: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class RunOwner:
    """Which controller the run belongs to."""

    owner: str = ""
    controller: str = "unknown"


@dataclasses.dataclass(frozen=True, slots=True)
class SeenCheckpoint:
    """The newest complete checkpoint in a folder of the node, None where there is none, and why one does not count.

    ``world_size``: how many ranks have to load it, None where any number can. ``held``: what the node has of all of
    them, each a ``checkpoint_sets.Held``, where nodes have folders of their own.
    """

    folder: str
    name: str | None = None
    half_saved: str = ""
    world_size: int | None = None
    held: t.Sequence[Values] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class NodeReport:
    """The answer of one node.

    ``syntax``: where the job's script is not valid, empty where it is, None where it was not sent along. ``reserved``:
    why the run could not be claimed, empty where it was, None where that was not asked for. ``manager``: what
    processes outlive a connection by. ``missing``: bytes that are there of each blob that the node lacks. ``mounts``:
    why a shared file system is not at its path, empty where it is; where one is not, nothing is known of files.
    """

    state: FolderReport = FolderReport()
    training: InterpreterReport | None = None
    state_dir: str = ""
    home: str | None = None
    executable: str = ""
    user: str = ""
    kernel: str = ""
    manager: str | None = None
    time: float = 0.0
    free_bytes: int = 0
    interface: str | None = None
    addresses: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    syntax: str | None = None
    reserved: str | None = None
    claim: RunOwner | None = None
    checkpoint: SeenCheckpoint | None = None
    units: t.Mapping[str, UnitReport] = dataclasses.field(default_factory=dict)
    live_runs: tuple[LiveRun, ...] = ()
    ports: t.Mapping[str, PortProblem | None] = dataclasses.field(default_factory=dict)
    mounts: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    paths: t.Mapping[str, FolderReport] = dataclasses.field(default_factory=dict)
    files: t.Mapping[str, bool] = dataclasses.field(default_factory=dict)
    tools: t.Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    missing: t.Mapping[str, int] = dataclasses.field(default_factory=dict)
    facts: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)

    @property
    def agent(self) -> UnitReport:
        """The unit that runs the job's ranks; one that has never been there is not alive and has no end."""
        return self.units.get("agent", UnitReport())

    @property
    def is_running(self) -> bool:
        """Whether a unit of the run is alive."""
        return any(unit.alive for unit in self.units.values())

    @property
    def packages(self) -> t.Mapping[str, str | None]:
        """The versions of the packages that the job's interpreter was asked for."""
        return self.training.packages if self.training else {}

    @classmethod
    def from_dict(cls, value: Values) -> NodeReport:
        """Return the report of an answer; what this version does not know is passed over."""
        plain = _own_fields(cls, value)
        ports = {port: _read(PortProblem, problem) for port, problem in (value.get("ports") or {}).items()}
        return cls(
            **{
                **plain,
                "state": _read(FolderReport, value.get("state")) or FolderReport(),
                "training": _read(InterpreterReport, value.get("training")),
                "addresses": value.get("addresses") or {},
                "syntax": None if "syntax" not in value else str(value["syntax"] or ""),
                "reserved": None if "reserved" not in value else str(value["reserved"] or ""),
                "claim": _read(RunOwner, value.get("claim")),
                "checkpoint": _read(SeenCheckpoint, value.get("checkpoint")),
                "units": {name: UnitReport.from_dict(unit) for name, unit in (value.get("units") or {}).items()},
                "live_runs": tuple(LiveRun(**_own_fields(LiveRun, run)) for run in value.get("live_runs") or ()),
                "ports": ports,
                "paths": {
                    path: FolderReport(**_own_fields(FolderReport, folder))
                    for path, folder in (value.get("paths") or {}).items()
                },
                "facts": value.get("facts") or {},
            }
        )


def _own_fields(cls: type[t.Any], value: Values) -> dict[str, t.Any]:
    names = {field.name for field in dataclasses.fields(cls)}
    return {name: item for name, item in value.items() if name in names}


def _read(cls: type[_Part], value: Values | None) -> _Part | None:
    return cls(**_own_fields(cls, value)) if value else None
