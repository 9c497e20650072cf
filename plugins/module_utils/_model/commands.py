# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands that messages and reports name, with the inventory that the run was started with."""

from __future__ import annotations

import shlex
import typing as t

from .job_checkpoints import find_left

if t.TYPE_CHECKING:
    from .node_report import SeenCheckpoint
    from .run_record import RunRecord, SavedCheckpoint

# What is true of a run whose follower was killed: while it was being started, and later; and of one without a follower.
STARTING = "may be running"
UNFOLLOWED = "is no longer followed; it keeps running"
NOT_FOLLOWED = "is not followed; it keeps running"
# So many names and more are counted.
_FEW: t.Final = 8


def playbook_command(
    name: str, inventory: str | None = None, command_line: t.Sequence[str] = (), **variables: str
) -> str:
    """Return the shell command of one of the collection's playbooks; without an inventory it has to be filled in.

    :param command_line: options that name the inventory and more, instead of ``inventory``.
    """
    options = list(command_line) if "-i" in command_line else ["-i", inventory or "INVENTORY", *command_line]
    extra = [word for key, value in variables.items() for word in ("-e", f"{key}={value}")]
    return shlex.join(["ansible-playbook", *options, f"muster.training.{name}", *extra])


def describe_installing(names: t.Sequence[str], what: str) -> str:
    """Return what is said where a command is stopped while pip runs on hosts, which it does not end with it."""
    where = ", ".join(names) if len(names) < _FEW else f"{len(names)} hosts"
    return (
        f"pip may still be installing {what} on {where}, for half an hour at most: the same command waits for it and "
        "uses what it has installed"
    )


class StartedRun(t.Protocol):
    """What is kept of the command by which a run was started."""

    @property
    def inventory(self) -> str | None: ...
    @property
    def command_line(self) -> t.Sequence[str]: ...


def run_command(run: StartedRun, name: str, **variables: str) -> str:
    """Return the shell command of a playbook for the machines of a run, as a person would paste it."""
    return playbook_command(name, run.inventory, run.command_line, **variables)


def name_run(run_id: str, cluster: str) -> dict[str, str]:
    """Return the variables that name a run to a playbook."""
    return {"muster_run_id": run_id} | ({"muster_cluster": cluster} if cluster != "default" else {})


def describe_given(names: t.Sequence[str] | None) -> str:
    """Return which variables a person has to add to the command of a playbook that takes a job, empty for none.

    :param names: those that were given by value at its start: values are not kept, for they may be secrets.
    """
    return f" (with -e {', -e '.join(names)} as at its start)" if names else ""


def describe_left(record: RunRecord, state: str, cluster: str) -> str:
    """Return what is said of a run without a follower: its ``state``, where, and how to get back to it or stop it."""
    where = f" on {', '.join(record.hosts)}" if record.hosts else ""
    follow, stop = (run_command(record, name, **name_run(record.run_id, cluster)) for name in ("train", "cancel"))
    return (
        f"Run {record.run_id} {state}{where}. Follow it{describe_given(record.unrepeated)}: {follow} · stop it: {stop}"
    )


def describe_cancelled(
    record: RunRecord, where: str, seen: t.Mapping[str, SeenCheckpoint] | None = None, other: str = ""
) -> str:
    """Return what a cancel says: where the run was stopped, which checkpoint is left, and how to continue.

    :param seen: the newest checkpoint on each node that was asked. :param other: the controller that followed it last,
        where that is another one, which alone knows what was saved since.
    """
    saved = record.checkpoint
    kept = "it reported no checkpoint" if saved is None else _describe_kept(saved, seen or {})
    if other:
        until = "no checkpoint" if saved is None else f"the checkpoint of {saved.describe_step()}"
        kept = f"its newest checkpoint is not known here: until {other} took it over, it reported {until}"
    again = run_command(record, "train", muster_run_id=record.run_id)
    stopped = f"run {record.run_id} is stopped{f' on {where}' if where else ''}"
    return f"{stopped}; {kept}. Continue it{describe_given(record.unrepeated)}: {again}"


def _describe_kept(saved: SavedCheckpoint, seen: t.Mapping[str, SeenCheckpoint]) -> str:
    """Return which checkpoint a stopped run has left, as far as its nodes were asked."""
    left, path = find_left(saved.step, seen), f" in {saved.path}" if saved.path else ""
    if left is None:
        return f"its checkpoint of {saved.describe_step()}{path} is as last reported, not looked for"
    if left.kind == "reported":
        return f"its checkpoint of {saved.describe_step()} is kept{path}"
    reported = f"(it reported {saved.describe_step()}{path} last)"
    if left.kind == "none":
        return f"no node that was asked has a checkpoint in {left.place} {reported}"
    return f"its newest checkpoint is {left.place} {reported}"
