# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Following a gang on plain hosts to its end."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import pathlib
import time
import typing as t

from .....module_utils._model import commands, drill
from .....module_utils._model.errors import MusterError
from .....module_utils._model.run_record import STANDING, RunRecord
from ...._hosts import gang
from ...._hosts.node_client import NodeClient
from ...shared import run_record
from ...shared.progress import say_if_killed
from ...shared.request import Result, RunRequest
from ..announce import build_sender
from ..follower import Follower, RunOutcome
from ..lease_guard import LeaseGuard
from ..outcome import (
    add_drill,
    build_result,
    check_attendance,
    describe_unwritten,
    record_end,
)
from ..software import add_software
from ..transport import TransportWatch
from .follower import HostsFollower
from .left_checkpoints import note_partial
from .start import bring_bound_data
from .state import HostsPlan


def follow_run(
    request: RunRequest,
    plan: HostsPlan,
    members: t.Sequence[gang.GangMember],
    folder: pathlib.Path,
    record: RunRecord,
    drilling: drill.Drill | None,
    changed: bool,
    guard: LeaseGuard,
) -> Result:
    """Follow the gang until the run has ended; return the module's result."""
    by_name = {member.remote.name: member for member in members}
    claim = json.loads((folder / "claim.json").read_text())
    watch = TransportWatch(plan.job, plan.network.verdicts, request.progress)

    def read_prices() -> dict[str, float | None]:
        return {host.name: guard.price_of(host.node, host.price_usd_per_hour) for host in plan.hosts}

    def restart(remote: NodeClient) -> None:
        bring_bound_data(request, plan, [by_name[remote.name]], again=True)
        member = dataclasses.replace(gang.without_peers(by_name[remote.name], members), missing={})
        gang.prepare_gang([member], plan.source.placed, claim, plan.run_id, again=True)
        gang.start_gang([by_name[remote.name]], plan.run_id, again=True)

    def save(follower: Follower) -> None:
        nonlocal record
        record = watch.update(
            run_record.update_record(record, follower.story, read_prices(), time.time()), follower.story
        )
        record = add_software(record, follower.story)
        run_record.write_record(folder, record)
        if follower.story.first_step_at is not None:
            # Not before: the run that starts has the processors to itself.
            _load_end()

    follower = HostsFollower(
        plan.job, plan.run_id, folder, plan.remotes, request.progress, restart, save, drilling, guard.stop_reason
    )
    follower.notify = build_sender(request, plan.run_id)
    try:
        with say_if_killed(commands.describe_left(record, commands.UNFOLLOWED, request.options["cluster"])):
            outcome = follower.run()
    except OSError as error:
        raise describe_unwritten(plan.run_id, folder, error) from error
    except MusterError:
        if follower.taken_by:
            record = run_record.note_taken_over(record, follower.taken_by, time.time(), is_begun=False)
            save(follower)
        raise
    outcome = _settle_end(plan, folder, follower, outcome)
    ended = record_end(follower, outcome, record, read_prices())
    result = add_drill(build_result(ended, folder, changed), follower, ended)
    return guard.delete_due(result, ended.release_outcome)


@functools.cache
def _load_end() -> None:
    """Import what the end of a run needs: the collection's files may be replaced while a run is followed for days."""
    for name in ("..explain", "..stacks", "...._report.data.drills"):
        importlib.import_module(name, __package__)


def _settle_end(plan: HostsPlan, folder: pathlib.Path, follower: HostsFollower, outcome: RunOutcome) -> RunOutcome:
    """Stop what is left of a run, read what it has said since, and return its end with its reason."""
    if outcome.cause in STANDING:
        outcome = _keep_stacks(plan, folder, outcome)
    _answers, unstopped = gang.stop_gang(plan.remotes, plan.run_id, plan.job.checkpoints.grace_s + 20)
    follower.drain()
    note_partial(follower, plan.remotes)
    # Its end was read from the first node that had ended; the others have since.
    outcome = follower.name_stopped(outcome)
    follower.keep_errors(outcome.node if outcome.outcome == "failed" else None)
    from ..explain import explain_end

    outcome = explain_end(folder, check_attendance(plan.job, follower, outcome), "hosts")
    return _note_unstopped(outcome, unstopped)


def _note_unstopped(outcome: RunOutcome, unstopped: t.Iterable[str]) -> RunOutcome:
    """Return the end of a run with the nodes on which it could not be stopped: a part of it may go on there."""
    names = ", ".join(sorted(unstopped))
    if not names or outcome.outcome == "succeeded":
        return outcome
    said = (
        f"a part of it may still run on {names}, which could not be asked to stop: cancel or the same command ends it"
    )
    return dataclasses.replace(outcome, detail=f"{outcome.detail.rstrip('.')}; {said}")


def _keep_stacks(plan: HostsPlan, folder: pathlib.Path, outcome: RunOutcome) -> RunOutcome:
    """Return the end of a run that stands with where its ranks stood, which is kept before they are stopped."""
    # Late: few runs stand.
    from ..stacks import describe_stacks, keep_stacks

    stood = describe_stacks(keep_stacks(plan.remotes, plan.run_id, folder))
    return dataclasses.replace(outcome, detail=f"{outcome.detail}; {stood}") if stood else outcome
