# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run that a task asks for: its job with code and data, its id, and what is recorded of it."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import re
import tempfile
import typing as t

from ....module_utils._model.errors import RefusedError
from ....module_utils._model.job import Job
from ....module_utils._model.run_record import RunRecord
from ..shared.request import RunRequest
from ..shared.state_dir import (
    RUN_ID_LIMIT,
    StateHome,
    delete_unstarted,
    load_record,
    read_record,
    require_recorded_here,
)
from .changes import describe_changes
from .load import find_drill_id
from .source import CodeSource, derive_run_id, read_source
from .trackers import step_log

if t.TYPE_CHECKING:
    from ..._kube.api.client import Client

# Characters of a cluster's id in the name of the record of a run there.
_SUFFIX: t.Final = 8


@dataclasses.dataclass(frozen=True, slots=True)
class RequestedRun:
    """What is to run, before anything is decided. ``before``: the run's record, None for a new one."""

    request: RunRequest
    home: StateHome
    job: Job
    source: CodeSource
    run_id: str
    before: RunRecord | None

    @property
    def folder(self) -> pathlib.Path:
        """The run's folder."""
        return self.home.run_folder(self.run_id)

    @property
    def next_attempt(self) -> int:
        """The number of the first attempt of a new start."""
        return (self.before.last_attempt if self.before else 0) + 1

    def say_succeeded(self) -> None:
        """Report that the run has ended well, so that nothing is started."""
        self.request.progress.say(f"run {self.run_id} has already succeeded; name another run_id to run it again")
        if not self.request.check:
            step_log.send_rest(self.home, self.job, self.folder, self.request.progress, self.open_cluster)

    def open_cluster(self) -> Client:
        """Return a client for the job's cluster."""
        # Late: most runs on hosts need none.
        from ..shared import kube_connection

        request = self.request
        context = self.job.placement.cluster
        return kube_connection.open_client(request.options, request.base, request.progress.say, context=context)

    def require_one_follower(self) -> None:
        """Refuse a run that is at work, and that another cluster of the state home has the record of.

        :raises RefusedError: naming the cluster.
        """
        if self.before is None:
            require_recorded_here(self.home, self.run_id)

    def say_plan(self, starts: bool, where: str, origin: str = "") -> None:
        """Say what check mode found: that the run would be started, continued from which step, or followed.

        :param origin: from where it continues, by what its nodes have; else what it reported last is said.
        :raises RefusedError: where another command of this controller follows it, or another cluster has its record.
        """
        if not starts:
            self.home.require_unfollowed(self.run_id)
            self.require_one_follower()
        saved = self.before.checkpoint if self.before and self.job.checkpoints.resume != "never" else None
        would = "would be started" if self.before is None else "would be continued"
        would = (
            f"{would} {where}: world size {self.job.world_size}"
            if starts
            else f"is running {where}; it would be followed"
        )
        reported = f"; the newest checkpoint that it reported is of {saved.describe_step()}" if starts and saved else ""
        reported = f"; it {origin}" if origin else reported
        differs = describe_changes(self.before, self.job, self.source.code_sha256) if self.before and starts else []
        other = f", with another job: {', '.join(differs)}" if differs else ""
        self.request.progress.say(f"run {self.run_id} {would}{other}{reported}; nothing was changed")

    def set_aside(self, former: str, current: str) -> RequestedRun:
        """Return it as a run that is new on another cluster. The former one's record stays, under a name of its own.

        :param former: the id of the cluster on which it ended; ``current`` that of the one on which it starts.
        """
        suffix = re.sub("[^a-z0-9]", "", former.rpartition(":")[2].lower())[:_SUFFIX]
        name = f"{self.run_id[: RUN_ID_LIMIT - _SUFFIX - 4]}-{suffix}"
        places = map(self.home.run_folder, (name, *(f"{name}{number}" for number in range(2, 100))))
        kept = next(place for place in places if not place.exists())
        self.request.progress.say(
            f"run {self.run_id} succeeded on another cluster ({former}) than this one ({current}): it starts anew, "
            f"and the record of that one {'would be' if self.request.check else 'is'} kept as {kept.name}"
        )
        if not self.request.check:
            with self.home.lock(self.run_id):
                self.folder.rename(kept)
        return dataclasses.replace(self, before=None)

    @contextlib.contextmanager
    def lock(self) -> t.Iterator[None]:
        """Hold the run; the folder of one that was not started goes at the end.

        :raises RefusedError: when another process has followed it to its end since its record was read.
        """
        with self.home.lock(self.run_id):
            try:
                self._require_no_new_end()
                yield
            finally:
                delete_unstarted(self.folder)

    def _require_no_new_end(self) -> None:
        now, before = load_record(self.folder), self.before
        if now is None or not now.is_ended:
            return
        if before is None or not before.is_ended or before.generation != now.generation:
            raise RefusedError(
                f"another process has followed run {self.run_id} to its end meanwhile ({now.outcome})",
                "Run the same command again to go on from there; a task of your own needs run_once: true",
            )


@contextlib.contextmanager
def open_run(request: RunRequest, home: StateHome, job: Job) -> t.Iterator[RequestedRun]:
    """Yield the run of a job; its code is there until the end of the context.

    :raises InputError: when code or data cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="muster-") as nowhere:
        cache = pathlib.Path(nowhere) if request.check else home.folder / "git"
        source = read_source(job, request.base, cache, request.progress.say)
        run_id = str(request.options.get("run_id") or derive_run_id(job, source))
        if request.options.get("drill"):
            run_id = find_drill_id(home, run_id)
        before = load_record(home.run_folder(run_id))
        if before is None and not (request.options.get("run_id") or request.options.get("drill")):
            _say_unfinished(request, home, job, run_id)
        yield RequestedRun(request, home, job, source, run_id, before)


def _say_unfinished(request: RunRequest, home: StateHome, job: Job, run_id: str) -> None:
    """Say that a run of the same name got to a checkpoint and did not end well: a changed job is another run."""
    found = [place for place in home.runs() if place.name.startswith(f"{job.name}-")]
    records = [record for record in map(read_record, found) if record and record.get("checkpoint")]
    unfinished = [record for record in records if record.get("outcome") not in (None, "succeeded")]
    ours = [record for record in unfinished if (record.get("job") or {}).get("name") == job.name]
    if ours and job.checkpoints.resume != "never":
        last = max(ours, key=lambda record: str(record.get("submitted_at")))
        former, step = last["run_id"], last["checkpoint"].get("step")
        request.progress.say(
            f"warning: run {run_id} is new, since the job or its code was changed: it does not continue run {former}, "
            f"which ended ({last['outcome']}) with a checkpoint of step {step}. To continue that one, cancel this one "
            f"and train with -e muster_run_id={former}"
        )
