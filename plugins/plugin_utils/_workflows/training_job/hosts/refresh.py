# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bringing the record of a run without a follower up to date: what its hosts have written, and how it ended."""

from __future__ import annotations

import pathlib
import shutil
import tempfile
import time
import typing as t

from .....module_utils._model.errors import InputError, RefusedError
from .....module_utils._model.run_record import RunRecord
from ...._hosts import gang
from ...._hosts.node_client import NodeClient
from ...shared import run_record
from ...shared.progress import Progress
from ...shared.state_dir import StateHome, load_record
from ..explain import explain_end
from ..follower import Follower
from ..load import load_recorded_job
from ..outcome import check_attendance, record_end
from . import plan as hosts_plan
from .follower import HostsFollower
from .left_checkpoints import note_partial

# Who has begun a run anew that is over, or of which no node says any more who holds it.
_UNKNOWN: t.Final = "another controller"


def refresh_record(
    home: StateHome,
    record: RunRecord,
    remotes: t.Sequence[NodeClient],
    hostvars: t.Mapping[str, t.Any],
    progress: Progress,
) -> RunRecord:
    """Return the record of a run with what ``remotes``, the hosts that answer, have written since it was followed.

    It is ended where all its hosts say that it has ended. A run that is being followed is left to its follower. Where
    its folder cannot be written, as on a full disk, the record is as it was, which is said.
    """
    if record.is_ended or not remotes:
        return record
    folder = home.run_folder(record.run_id)
    try:
        lock = home.lock(record.run_id, 0.0)
    except RefusedError:
        return load_record(folder) or record
    prices = {name: hosts_plan.price_per_hour(name, hostvars[name]) for name in record.hosts if name in hostvars}
    with lock:
        # It may have been followed to its end a moment ago.
        current = load_record(folder) or record
        if current.is_ended:
            return current
        try:
            return refresh_held(home, current, remotes, prices, progress)
        except OSError as exc:
            said = f"warning: run {current.run_id}: what its hosts have written since cannot be kept in {folder}"
            progress.say(f"{said}: {exc.strerror or exc}. What is said of the run is as it was last read")
            return current
        except InputError as exc:
            said = f"warning: run {current.run_id} was recorded by another version of the collection ({exc})"
            progress.say(f"{said}. What its hosts have written since is not read; that version reads it")
            return current


def wait_for_follower(home: StateHome, record: RunRecord, within_s: float) -> RunRecord:
    """Return the record once the process that follows the run has recorded its end; as it is when it has none."""
    end = time.monotonic() + within_s
    while not record.is_ended and time.monotonic() < end:
        try:
            home.lock(record.run_id, 0.0).close()
            return load_record(home.run_folder(record.run_id)) or record
        except RefusedError:
            time.sleep(0.05)
        record = load_record(home.run_folder(record.run_id)) or record
    return record


def refresh_held(
    home: StateHome,
    record: RunRecord,
    remotes: t.Sequence[NodeClient],
    prices: t.Mapping[str, float | None],
    progress: Progress,
) -> RunRecord:
    """Return what :func:`refresh_record` does, of a run that the caller holds."""
    job, folder = load_recorded_job(record), home.run_folder(record.run_id)

    def save(follower: Follower) -> None:
        nonlocal record
        record = run_record.update_record(record, follower.story, prices, time.time())
        run_record.write_record(folder, record)

    ordered = sorted(remotes, key=lambda remote: record.hosts.index(remote.name))
    follower = HostsFollower(job, record.run_id, folder, ordered, progress, _restart_nothing, save, None)
    outcome = follower.catch_up()
    is_begun = follower.is_begun_elsewhere(record.generation)
    if by := follower.taken_by or (_UNKNOWN if is_begun else None):
        record = run_record.note_taken_over(record, by, time.time(), is_begun=is_begun)
        save(follower)
    if record.is_ended:
        return record
    if outcome is None or len(ordered) < len(record.hosts) or not follower.has_attempt(record.generation):
        return record
    for remote in ordered:
        remote.owner = home.owner(create=False)["owner"]
    gang.stop_gang(ordered, record.run_id, job.checkpoints.grace_s + 20)
    note_partial(follower, ordered)
    follower.keep_errors(outcome.node if outcome.outcome == "failed" else None)
    outcome = explain_end(folder, check_attendance(job, follower, outcome), "hosts")
    return record_end(follower, outcome, record, prices, follower.ended_at())


def had_ended_well(home: StateHome, record: RunRecord, remotes: t.Sequence[NodeClient], progress: Progress) -> bool:
    """Return whether all ranks of a run had ended well, by what its hosts say; nothing is written, as in a check."""
    with tempfile.TemporaryDirectory(prefix="muster-") as nowhere:
        folder = pathlib.Path(nowhere)
        for name in ("events.jsonl", "metrics.jsonl", "offsets.json", "claim.json"):
            if (place := home.run_folder(record.run_id) / name).exists():
                shutil.copy(place, folder)
        follower = HostsFollower(
            load_recorded_job(record), record.run_id, folder, remotes, progress, _restart_nothing, _save_nothing, None
        )
        outcome = follower.catch_up()
    return outcome is not None and outcome.outcome == "succeeded" and follower.has_attempt(record.generation)


def _save_nothing(follower: Follower) -> None:
    """A run that is only looked at keeps its record."""


def _restart_nothing(remote: NodeClient) -> None:
    """A run that is only looked at is not started again."""
