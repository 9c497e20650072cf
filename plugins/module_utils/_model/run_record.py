# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run record (``runs/<run_id>/run.json``): what was asked, where it runs, its attempts, its end and its cost.

Unknown is None. Keys that this version does not know are kept in ``extra`` and written back as they were read, so that
a record of another version survives. Times are ISO 8601 texts in UTC.
"""

from __future__ import annotations

import dataclasses
import typing as t

from . import validators as f
from .errors import InputError

State = t.Literal["queued", "starting", "running", "restarting", "ending", "ended"]
RunEnd = t.Literal["succeeded", "failed", "cancelled", "lost"]
# Causes of a run that stood, and was ended for it.
STANDING: t.Final = ("stalled", "hang")
SCHEMA = 1


def _text(value: t.Any, path: str) -> str:
    """Return text of any content: details quote programs."""
    if not isinstance(value, str):
        raise InputError(path, f"must be text, not {f.describe_type(value)}")
    return value


@dataclasses.dataclass(frozen=True, slots=True)
class RunNode:
    """A node of an attempt and what it costs."""

    id: str = f.field(_text)
    token: str | None = f.field(_text, None)
    since: str | None = f.field(_text, None, key="from")
    until: str | None = f.field(_text, None, key="to")
    price_usd_per_hour: float | None = f.field(f.decimal(0), None)
    extra: t.Mapping[str, object] = f.field(f.dictionary, {})


@dataclasses.dataclass(frozen=True, slots=True)
class RunAttempt:
    """One life of the gang; ``n`` counts them from 1. ``node`` is where its first failure happened.

    ``resumed`` is false where it began without a checkpoint that was there, null where that is not known. ``notice`` is
    the first one that a machine of it will be taken away: ``at``, ``node`` and ``detail``.
    """

    n: int = f.field(f.integer(0))
    started_at: str | None = f.field(_text, None)
    ended_at: str | None = f.field(_text, None)
    cause: str | None = f.field(_text, None)
    node: str | None = f.field(_text, None)
    exit_code: int | None = f.field(f.integer(-(2**31)), None)
    first_step: int | None = f.field(f.integer(-(2**53), 2**53), None)
    last_step: int | None = f.field(f.integer(-(2**53), 2**53), None)
    resumed_from_step: int | None = f.field(f.integer(-(2**53), 2**53), None)
    resumed: bool | None = f.field(f.boolean, None)
    ranks: int | None = f.field(f.integer(0), None)
    rank_list: tuple[int, ...] = f.field(f.list_of(f.integer(-(2**31))), ())
    nodes: tuple[RunNode, ...] = f.field(f.list_of(f.section(RunNode, "keep")), ())
    logs: tuple[str, ...] = f.field(f.list_of(_text), ())
    notice: t.Mapping[str, t.Any] | None = f.field(f.dictionary, None)
    extra: t.Mapping[str, object] = f.field(f.dictionary, {})


@dataclasses.dataclass(frozen=True, slots=True)
class WorldSize:
    """How many ranks the job asks for, and how many were seen in its last attempt."""

    asked: int | None = f.field(f.integer(0), None)
    seen: int | None = f.field(f.integer(0), None)
    extra: t.Mapping[str, object] = f.field(f.dictionary, {})


@dataclasses.dataclass(frozen=True, slots=True)
class RunCost:
    """Dollars of all nodes, None where a price is unknown; ``complete`` once the run has ended."""

    usd: float | None = f.field(f.decimal(0), None)
    complete: bool | None = f.field(f.boolean, None)
    extra: t.Mapping[str, object] = f.field(f.dictionary, {})


def _amounts(value: t.Any, path: str) -> dict[str, float]:
    """Return figures of zero or more by name."""
    return {str(name): f.decimal(0)(item, f"{path}.{name}") for name, item in f.dictionary(value, path).items()}


@dataclasses.dataclass(frozen=True, slots=True)
class RunAccount:
    """Where the time of the run went until ``at``: seconds by bucket (``_model/account.py``), whose sum is the run's.

    ``usd`` are the dollars of each, None where a price is not known.
    """

    at: str = f.field(f.text)
    seconds: t.Mapping[str, float] = f.field(_amounts)
    usd: t.Mapping[str, float] | None = f.field(_amounts, None)
    extra: t.Mapping[str, object] = f.field(f.dictionary, {})


@dataclasses.dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """The newest checkpoint that the program reported, or that was found by its layout (``layout`` in ``extra``).

    Where its step is estimated, ``step_by`` in ``extra`` says how.
    """

    step: int | None = f.field(f.integer(-(2**53), 2**53), None)
    path: str | None = f.field(_text, None)
    extra: t.Mapping[str, object] = f.field(f.dictionary, {})

    def describe_step(self) -> str:
        """Return its step for people, an estimated one as what it is."""
        return f"about step {self.step}" if self.extra.get("step_by") else f"step {self.step}"


@dataclasses.dataclass(frozen=True, slots=True)
class BackendRef:
    """The object that runs the job on Kubernetes, and the cluster that has it."""

    api_version: str = f.field(_text)
    kind: str = f.field(_text)
    name: str = f.field(_text)
    namespace: str = f.field(_text)
    uid: str | None = f.field(_text, None)
    context: str | None = f.field(_text, None)
    cluster_id: str | None = f.field(_text, None)
    extra: t.Mapping[str, object] = f.field(f.dictionary, {})

    @property
    def kind_name(self) -> str:
        """Return the kind with its API version, as clients take it."""
        return f"{self.api_version}/{self.kind}"

    def to_dict(self) -> dict[str, t.Any]:
        """Return the reference as JSON types."""
        return t.cast("dict[str, t.Any]", f.plain_value(self))


@dataclasses.dataclass(frozen=True, slots=True)
class RecordedHang:
    """When a gang hung, for how long (None: until its attempt ended), and who was waited for at which line."""

    attempt: int = f.field(f.integer(0))
    since: str = f.field(f.text)
    seconds: float | None = f.field(f.decimal(0), None)
    text: str = f.field(_text, "")
    extra: t.Mapping[str, object] = f.field(f.dictionary, {})


@dataclasses.dataclass(frozen=True, slots=True)
class RecordedTemplate:
    """The template of the catalogue that the job was filled from.

    ``inputs`` are the answers (of a secret its reference), ``overrides`` the keys of the job that were laid over it.
    ``source`` is where it came from, without a reference to a credential; empty for one that the collection has.
    """

    name: str = f.field(f.text)
    version: str = f.field(f.text)
    digest: str = f.field(f.text)
    inputs: t.Mapping[str, t.Any] = f.field(f.dictionary, {})
    overrides: t.Mapping[str, t.Any] = f.field(f.dictionary, {})
    source: t.Mapping[str, t.Any] = f.field(f.dictionary, {})
    extra: t.Mapping[str, object] = f.field(f.dictionary, {})


@dataclasses.dataclass(frozen=True, slots=True)
class RunRecord:
    """The record of one run. ``job`` is its YAML form; ``generation`` the number of this start's first attempt.

    ``leases`` are the tokens of rented machines in the ledger, by node; ``inventory`` is the file that the nodes come
    from; ``command_line`` are the options of ansible-playbook that name inventory and files of variables,
    ``unrepeated`` the names of the variables that were given by value.

    ``problems`` are what keeps its result from being clean, whatever the outcome: attempts that did not resume,
    checkpoints that are not in the run's object store (``unstored``). ``stored`` is the newest that is, with its name
    there. ``sharing`` says that pods of the newest attempt shared machines (``2 pods on 1 machine``). ``steps_read``
    says of printed steps whose they are (``preset``, ``rank``, ``node``) and what is not known of them (``problem``).
    ``devices``: by node of a run with GPUs which it gave: ``gpus``, ``model``, ``driver``, ``rdma``, each None where it
    is not known. ``catalogue_template``: what the job was filled from, None for one that was written by hand.
    ``held``: from when until when the run held each node, which is what its cost is counted of; without an end it does
    so still. ``taken_over``: ``by`` which other controller, and from when on this one knows it (``at``); no node counts
    here since. ``pruned_at``: when ``prune`` removed the logs, metrics and reports of the run from the controller.
    """

    schema: int = f.field(f.integer(1))
    run_id: str = f.field(f.text)
    job: t.Mapping[str, t.Any] = f.field(f.dictionary)
    state: State = f.field(f.choice(*t.get_args(State)))
    submitted_at: str = f.field(f.text)
    submitted_by: str | None = f.field(_text, None)
    backend: str = f.field(_text, "hosts")
    engine: str | None = f.field(_text, None)
    launcher: str | None = f.field(_text, None)
    backend_ref: BackendRef | None = f.field(f.section(BackendRef, "keep"), None)
    image: str | None = f.field(_text, None)
    image_digest: str | None = f.field(_text, None)
    code_sha256: str | None = f.field(_text, None)
    queued_at: str | None = f.field(_text, None)
    admitted_at: str | None = f.field(_text, None)
    first_step_at: str | None = f.field(_text, None)
    ended_at: str | None = f.field(_text, None)
    duration_s: float | None = f.field(f.decimal(0), None)
    versions: t.Mapping[str, t.Any] = f.field(f.dictionary, {})
    differences: tuple[str, ...] = f.field(f.list_of(_text), ())
    outcome: RunEnd | None = f.field(f.choice(*t.get_args(RunEnd)), None)
    exit_code: int | None = f.field(f.integer(-(2**31)), None)
    cause: str | None = f.field(_text, None)
    detail: str | None = f.field(_text, None)
    problems: tuple[str, ...] = f.field(f.list_of(_text), ())
    attempts: tuple[RunAttempt, ...] = f.field(f.list_of(f.section(RunAttempt, "keep")), ())
    hangs: tuple[RecordedHang, ...] = f.field(f.list_of(f.section(RecordedHang, "keep")), ())
    world_size: WorldSize = f.field(f.section(WorldSize, "keep"), WorldSize())
    transport_seen: str | None = f.field(_text, None)
    transport: t.Mapping[str, t.Any] | None = f.field(f.dictionary, None)
    checkpoint: SavedCheckpoint | None = f.field(f.section(SavedCheckpoint, "keep"), None)
    stored: SavedCheckpoint | None = f.field(f.section(SavedCheckpoint, "keep"), None)
    unstored: str | None = f.field(_text, None)
    sharing: str | None = f.field(_text, None)
    steps_read: t.Mapping[str, t.Any] | None = f.field(f.dictionary, None)
    restarts: int | None = f.field(f.integer(0), None)
    steps_lost: int | None = f.field(f.integer(-(2**53), 2**53), None)
    seconds_lost: float | None = f.field(f.decimal(-1e15), None)
    cost: RunCost = f.field(f.section(RunCost, "keep"), RunCost())
    account: RunAccount | None = f.field(f.section(RunAccount, "keep"), None)
    fabric: t.Mapping[str, t.Any] | None = f.field(f.dictionary, None)
    metrics_file: str | None = f.field(_text, None)
    generation: int = f.field(f.integer(0), 1)
    derived: t.Mapping[str, t.Any] | None = f.field(f.dictionary, None)
    hosts: tuple[str, ...] = f.field(f.list_of(_text), ())
    leases: t.Mapping[str, t.Any] = f.field(f.dictionary, {})
    inventory: str | None = f.field(_text, None)
    command_line: tuple[str, ...] = f.field(f.list_of(_text), ())
    unrepeated: tuple[str, ...] | None = f.field(f.list_of(_text), None)
    drill: t.Mapping[str, t.Any] | None = f.field(f.dictionary, None)
    devices: t.Mapping[str, t.Any] | None = f.field(f.dictionary, None)
    catalogue_template: RecordedTemplate | None = f.field(f.section(RecordedTemplate, "keep"), None)
    held: tuple[RunNode, ...] = f.field(f.list_of(f.section(RunNode, "keep")), ())
    pruned_at: str | None = f.field(_text, None)
    taken_over: t.Mapping[str, t.Any] | None = f.field(f.dictionary, None)
    extra: t.Mapping[str, object] = f.field(f.dictionary, {})

    @classmethod
    def from_dict(cls, value: t.Any, path: str = "run") -> RunRecord:
        """Return the record in ``value``; raise InputError with the dotted path of what cannot be read."""
        return f.section(cls, "keep")(value, path)

    def to_dict(self) -> dict[str, t.Any]:
        """Return the record as JSON types. Fields that few runs have are there only where they are set."""
        values = t.cast("dict[str, t.Any]", f.plain_value(self))
        few = ("drill", "stored", "unstored", "sharing", "steps_read", "devices", "account")
        own = [(values, key) for key in (*few, "catalogue_template", "unrepeated", "pruned_at", "taken_over")]
        for part, key in (*own, *((attempt, "notice") for attempt in values["attempts"])):
            if part[key] is None:
                del part[key]
        return values

    @property
    def is_ended(self) -> bool:
        """Return whether the run has ended."""
        return self.state == "ended"

    @property
    def release_outcome(self) -> str:
        """Return the outcome by which its machines are released: not ``succeeded`` where they have the only copy."""
        return str(release_outcome({"backend": self.backend, "outcome": self.outcome, "unstored": self.unstored}))

    @property
    def last_attempt(self) -> int:
        """Return the highest number that an attempt of the run has had, or was to have."""
        return max([self.generation, *(attempt.n for attempt in self.attempts)])

    @property
    def node_names(self) -> tuple[str, ...]:
        """Return the hosts of the run, those of former attempts last."""
        names = [node.id for attempt in self.attempts for node in attempt.nodes]
        return tuple(dict.fromkeys([*self.hosts, *names]))


def release_outcome(record: t.Mapping[str, t.Any]) -> str | None:
    """Return the outcome by which the machines of a recorded run are released; ``unstored`` is none of a success."""
    kept = record.get("unstored") and record.get("backend") != "kubernetes" and record.get("outcome") == "succeeded"
    return "unstored" if kept else record.get("outcome")
