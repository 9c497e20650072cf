# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands that messages and reports name, with the inventory that the run was started with.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import shlex
import typing as t

if t.TYPE_CHECKING:
    from .run_record import RunRecord

# What is true of a run whose follower was killed: while it was being started, and later; and of one without a follower.
STARTING = "may be running"
UNFOLLOWED = "is no longer followed; it keeps running"
NOT_FOLLOWED = "is not followed; it keeps running"


def playbook_command(name: str, inventory: str | None = None, **variables: str) -> str:
    """Return the shell command of one of the collection's playbooks; without an inventory it has to be filled in."""
    extra = "".join(f" -e {shlex.quote(f'{key}={value}')}" for key, value in variables.items())
    return f"ansible-playbook -i {shlex.quote(inventory) if inventory else 'INVENTORY'} muster.training.{name}{extra}"


def describe_left(record: RunRecord, state: str, cluster: str) -> str:
    """Return what is said of a run without a follower: its ``state``, where, and how to get back to it or stop it."""
    where = f" on {', '.join(record.hosts)}" if record.hosts else ""
    which = {"muster_run_id": record.run_id} | ({"muster_cluster": cluster} if cluster != "default" else {})
    follow, stop = (playbook_command(name, record.inventory, **which) for name in ("train", "cancel"))
    return f"Run {record.run_id} {state}{where}. Follow it: {follow} · stop it: {stop}"


def describe_cancelled(run_id: str, step: int | None, folder: str | None, inventory: str | None, nodes: str) -> str:
    """Return what a cancel says: where the run was stopped, which checkpoint is left, and how to continue."""
    kept = "it reported no checkpoint" if step is None else f"its checkpoint of step {step} is kept"
    kept += f" in {folder}" if step is not None and folder else ""
    again = playbook_command("train", inventory, muster_run_id=run_id)
    return f"run {run_id} is stopped{f' on {nodes}' if nodes else ''}; {kept}. Continue it: {again}"
