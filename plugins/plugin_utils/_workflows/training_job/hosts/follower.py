# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Following a run on plain hosts: what its nodes say, units that are started again, and how the run ends."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import time
import typing as t

from .....module_utils._model import drill as drills
from .....module_utils._model import error_line
from .....module_utils._model.errors import EmptiedError, MusterError, StoppedNodeError
from .....module_utils._model.job import Job
from .....module_utils._model.launchers import TORCHRUN_FAMILY
from .....module_utils._model.node_report import UnitEnd, UnitReport
from .....module_utils._model.run_record import RunEnd
from .....module_utils._node import files
from .....module_utils._secrets.scrubber import scrub
from ...._hosts import log_follow
from ...._hosts.node_client import NodeClient, on_each_node
from ...shared import run_record
from ...shared.parent_process import watch_parent
from ...shared.progress import Progress
from ..follower import Follower, RunOutcome, error_file
from ..movement import read_end

_IDLE_S = 1.0
# With on_lost_node: fail, a node that is silent for so long is lost; shorter is a hiccup of the connection.
_SILENT_S = 10
_LINE_LIMIT = 160
_ERROR_BYTES = 64 << 10
# The exit code of a run that is cancelled: 128 + SIGTERM.
_STOPPED: t.Final = 143
_GONE = "the gang did not come back"
# How a launcher ends because of what those of other nodes did.
_UNFORMED: t.Final = {
    "rendezvous_closed": "the gang could not form again",
    "rendezvous_timeout": "the gang did not form again",
}
# The ends of launchers whose ranks had ended well, where another node was lost meanwhile.
_OVER: t.Final = ("succeeded", "node_lost", "rendezvous_unreachable", *_UNFORMED)


class HostsFollower(Follower):
    """Follows the nodes of a run. ``restart(node)`` starts a node's agent again."""

    def __init__(
        self,
        job: Job,
        run_id: str,
        folder: pathlib.Path,
        remotes: t.Sequence[NodeClient],
        progress: Progress,
        restart: t.Callable[[NodeClient], None],
        save: t.Callable[[Follower], None],
        drill: drills.Drill | None,
        stop_reason: t.Callable[[], str] = lambda: "",
    ) -> None:
        super().__init__(job, run_id, folder, progress, save, drill, stop_reason)
        self.remotes = {remote.name: remote for remote in remotes}
        self.restart = restart
        self.units: dict[str, t.Mapping[str, UnitReport]] = {}
        self.lost_since: dict[str, float] = {}
        self.revived_at: dict[str, float] = {}
        self.lost = 0
        # Why the last attempt to start a node's units again failed.
        self.unstarted: dict[str, str] = {}
        # A node that answers, and from which all of the run has gone.
        self.emptied: str | None = None
        self.behind: dict[str, int] = {}
        for stream in self.take_cut():
            self.offsets = {node: {**known, stream: 0} for node, known in self.offsets.items()}
        # The controller that has taken the run over.
        self.taken_by: str | None = None
        self._owner = str((files.read_json(folder / "claim.json") or {}).get("owner", ""))
        # The nodes turn printed lines into metrics themselves, however much is printed.
        self._forms = {}

    def run(self) -> RunOutcome:
        """Follow until the run has ended; the caller stops what is left on the nodes."""
        batch = 0.2 if self.drill else 1.0
        is_abandoned = watch_parent()
        following = log_follow.LogFollow(list(self.remotes.values()), self.run_id, self.offsets, batch)
        try:
            for update in following.updates(_IDLE_S):
                if is_abandoned():
                    # ansible-playbook was killed and left its worker: it must not hold the run's lock.
                    raise MusterError(f"run {self.run_id} is no longer followed: ansible-playbook has ended")
                if update is not None:
                    self._take(update)
                outcome = self._outcome() or self._notice_outcome() or self._rule_outcome()
                if outcome:
                    return outcome
                self._drill_if_due()
                self._report()
        finally:
            following.close()
            self._release_printed(ended=True)
            self._save(force=True)
        raise MusterError(f"run {self.run_id} is no longer followed")

    def _take(self, update: log_follow.NodeUpdate) -> None:
        if update.error is not None:
            self._note_silence(update.node, update.error, update.asked_at)
            return
        self._note_holder(update.holder)
        if self.taken_by:
            raise MusterError(f"run {self.run_id} was taken over by {self.taken_by}, which follows it now")
        if self.lost_since.pop(update.node, None) is not None:
            self.record_event("node_back", node=update.node)
            self.progress.say(f"{update.node} answers again")
        self._keep(update)
        if update.asked_at > self.revived_at.get(update.node, 0.0):
            self._restart_units(update.node)
        self._save()

    def _note_holder(self, holder: t.Mapping[str, str]) -> None:
        """Note that another controller has taken the run over: it follows the run now, and decides on it."""
        if holder.get("owner") and self._owner and holder["owner"] != self._owner:
            self.taken_by = str(holder.get("controller") or "another controller")

    def _keep(self, update: log_follow.NodeUpdate) -> None:
        """Take what a node answered into the run's folder and history."""
        self._note_holder(update.holder)
        # What was asked before its units were started again shows them as lost once more.
        if update.asked_at > self.revived_at.get(update.node, -1.0):
            # A node whose run folder was deleted reports no units of the run: they count as missing, and are started
            # again. Whether more than that is gone, the node says then.
            self.units[update.node] = {"agent": UnitReport(), **update.units}
        for stream, text in update.text.items():
            self.take_text(update.node, stream, text)
        self.behind[update.node] = update.behind
        self.offsets[update.node] = dict(update.offsets)
        self.write_offsets()

    def _is_seen(self) -> bool:
        """Return whether all nodes answer and their agents run, but for those that ended well before the others."""
        agents = [self._agent_of(node) for node in self.remotes]
        is_known = all(agent.alive or (agent.end is not None and agent.end.exit_code == 0) for agent in agents)
        return not self.lost_since and is_known and any(agent.alive for agent in agents)

    def _agent_of(self, node: str) -> UnitReport:
        """Return the agent of a node; one that was not heard of is not alive and has no end."""
        return self.units.get(node, {}).get("agent", UnitReport())

    def _end_of(self, node: str) -> UnitEnd | None:
        """Return how the agent of a node ended, None while it has not; one that was stopped may not have said it."""
        agent = self._agent_of(node)
        return UnitEnd("cancelled", agent.generation, _STOPPED, time.time()) if agent.is_stopped else agent.end

    def catch_up(self) -> RunOutcome | None:
        """Take in what is new on the nodes, without following them; return how the run ended, if it has on all."""
        self.drain()
        self._save(force=True)
        return self._outcome() if self.ended_at() is not None else None

    def drain(self) -> None:
        """Take in what the nodes that answer have written; units are left as they are."""
        answering = [remote for name, remote in self.remotes.items() if name not in self.lost_since]
        reads, _unused = on_each_node(
            answering, lambda remote: log_follow.read_new(remote, self.run_id, self.offsets.get(remote.name, {}))
        )
        for update in [update for updates in reads.values() for update in updates]:
            self._keep(update)

    def keep_errors(self, node: str | None) -> None:
        """Keep what the ranks of a node printed last; beside much output the log has it late or never.

        The rank that ended first comes last, where the error line of a log is looked for.
        """
        remote = self.remotes.get(node or "")
        if remote is None or node in self.lost_since:
            return
        with contextlib.suppress(MusterError):
            answer = remote.call("read", run_id=self.run_id, pattern="ranks/**/std*.log", limit=_ERROR_BYTES)
            began = self._failed_attempt_began() - 1
            newest = [file for file in answer["files"] if file["modified_at"] >= began]
            newest.sort(key=lambda file: -float(file["modified_at"]))
            text = scrub("\n".join(str(file["text"]) for file in newest))
            place = error_file(self.folder, remote.name)
            files.private_dir(place.parent)
            files.write_atomic(place, text.encode("utf-8", "replace"))

    def _failed_attempt_began(self) -> float:
        """Return when the newest attempt with a failed rank began: the launcher may have begun the next one since."""
        attempts = self.story.attempts
        failed = [attempt for attempt in attempts if attempt.first_failure] or attempts
        return failed[-1].started_at if failed else 0.0

    def has_attempt(self, generation: int) -> bool:
        """Return whether what the nodes say is of the start that has this number, and not of one before."""
        return all(self._agent_of(node).generation in (None, generation) for node in self.units)

    def is_begun_elsewhere(self, generation: int) -> bool:
        """Return whether a node is at work on a later start than this one, which another controller has begun."""
        return any((self._agent_of(node).generation or 0) > generation for node in self.units)

    def ended_at(self) -> float | None:
        """Return when the run ended on all nodes that decide (Unix seconds), None while one has not."""
        ends = [self._end_of(node) for node in self._deciding_nodes()]
        if all(ends):
            return max((end.at for end in ends if end), default=None)
        outcome = self._outcome()
        return self.story.attempts[-1].ended_at if outcome and outcome.outcome == "succeeded" else None

    def _deciding_nodes(self) -> list[str]:
        """Return the nodes whose end is the run's: with mpirun the first."""
        return list(self.remotes)[:1] if self.job.launcher == "mpi" else list(self.remotes)

    def _note_silence(self, node: str, error: MusterError, since: float) -> None:
        """Note that a node gives no answer. The job may go on there: only the nodes themselves say how it goes."""
        if node not in self.lost_since:
            self.lost_since[node] = min(since, time.monotonic())
            self.record_event("node_silent", node=node, detail=str(error))
            seconds = time.monotonic() - self.lost_since[node]
            heard = f"{error.message}; its last answer was {seconds:.0f} s ago"
            self.progress.say(f"{node} does not answer: {heard}. {self._describe_patience()}")

    def _patience(self) -> tuple[float, str]:
        """Return for how many seconds a node may be silent, and the option that says so."""
        allowed = self.job.restart
        if allowed.on_lost_node == "wait":
            return allowed.wait_s, "restart.wait_s"
        return _SILENT_S, f"restart.on_lost_node: {allowed.on_lost_node}"

    def _describe_patience(self) -> str:
        """Return how long the run waits for a node that is silent, and what comes then."""
        patience, option = self._patience()
        if self._have_ranks_ended_well():
            return f"All ranks had ended with exit code 0: at {patience:.0f} s ({option}) the run ends so without it"
        then = {"replace": "; heal then replaces the node", "shrink": "; heal then continues it without the node"}
        after = then.get(self.job.restart.on_lost_node, "; the same command starts it again")
        return f"At {patience:.0f} s ({option}) the run ends as lost{after}"

    def _restart_units(self, node: str) -> None:
        """Start the units of a node again that it lost."""
        dead = self._list_dead(node)
        if not dead or node == self.emptied or self.lost >= self.job.lost_budget or self._have_ranks_ended_well():
            return
        self.lost += 1
        self.record_event("node_lost", node=node, detail=f"not running: {', '.join(dead)}")
        self.progress.say(f"{node}: not running: {', '.join(dead)}; starting again")
        self.unstarted.pop(node, None)
        try:
            self.restart(self.remotes[node])
        except EmptiedError:
            self.emptied = self.emptied or node
        except StoppedNodeError:
            # Between the look and the start: the next look shows its end.
            self.progress.say(f"{node}: the run was stopped there meanwhile; it is not started again")
        except MusterError as exc:
            self.unstarted[node] = f"it could not be started again: {exc.message}"
            self.progress.say(f"{node}: the run could not be started again: {exc}")
        self.revived_at[node] = time.monotonic()
        self.units[node] = {}

    def _list_dead(self, node: str) -> list[str]:
        """Return the units of a node that are gone without having ended, or that the agent beside them cannot miss.

        What was asked to stop is none, and neither is an agent that has written its end and is not gone yet.
        """
        units, agent = self.units.get(node, {}), self._agent_of(node)
        if agent.stopping:
            return []
        is_working = agent.alive and agent.end is None
        return [
            name
            for name, unit in units.items()
            if unit.is_lost or (is_working and unit.end is not None and unit.end.exit_code != 0)
        ]

    def _outcome(self) -> RunOutcome | None:
        """Return the outcome when the run has ended or must end."""
        ended = {node: end for node in self.units if (end := self._end_of(node))}
        if any(self.behind.get(node) for node in ended):
            # The last lines say why it ended.
            return None
        if self._have_ranks_ended_well() and (said := self._describe_gone(ended)):
            return RunOutcome("succeeded", 0, "succeeded", f"all ranks exited with code 0; {said}")
        if self.emptied:
            detail = (
                f"{self.emptied} answers, but nothing of the run is left on it: its disk is new, or was emptied. The "
                "same command starts it again, from the newest checkpoint that a node has"
            )
            return RunOutcome("lost", 1, "node_lost", detail, self.emptied, explained=True)
        fault = self._failed_outcome(ended) or self._uneven_outcome() or self._budget_outcome()
        if fault:
            return fault
        if all(node in ended for node in self._deciding_nodes()):
            return RunOutcome("succeeded", 0, "succeeded", "all ranks exited with code 0")
        return None

    def _have_ranks_ended_well(self) -> bool:
        """Return whether all ranks of the newest attempt have said that they ended with exit code 0."""
        attempt = self.story.attempts[-1] if self.story.attempts else None
        if attempt is None or attempt.n < self.story.base or not attempt.has_ended_well:
            return False
        return attempt.world_size is not None or len(attempt.exits) >= self.job.world_size

    def _describe_gone(self, ended: t.Mapping[str, UnitEnd]) -> str:
        """Return which nodes were lost after the ranks of all had ended well, empty where none was.

        It is empty, too, while a launcher is still there: it stores checkpoints, and says then how it ended.
        """
        silent = self._list_silent()
        lost = [node for node in self.remotes if node not in self.lost_since and self._list_dead(node)]
        is_over = all(
            node in silent or node in lost or (node in ended and ended[node].cause in _OVER) for node in self.remotes
        )
        said = [f"{', '.join(lost)} lost its launcher after that"] if lost else []
        said += [f"{', '.join(silent)} has not answered since"] if silent else []
        return "; ".join(said) if is_over else ""

    def _list_silent(self) -> list[str]:
        """Return the nodes that have been silent for longer than the run waits for one."""
        patience, now = self._patience()[0], time.monotonic()
        return [node for node, since in self.lost_since.items() if now - since > patience]

    def _notice_outcome(self) -> RunOutcome | None:
        """Return the end of a gang of which a machine will be taken away: it saves now, and heal resumes it."""
        if self.noticed is None:
            return None
        _at, node, detail = self.noticed
        return RunOutcome("lost", 143, "preempted", f"{node} will be taken away: {detail}", node)

    def _failed_outcome(self, ended: t.Mapping[str, UnitEnd]) -> RunOutcome | None:
        bad = [(node, end) for node, end in ended.items() if end.exit_code != 0]
        if not bad:
            return None
        # A node that ends the job, by an exit code or its disk, says why; what that does to others may be known before.
        order = {"fatal_exit_code": 0, "disk_full": 0, **dict.fromkeys(_UNFORMED, 2)}
        node, end = min(bad, key=lambda item: (order.get(item[1].cause, 1), item[1].at))
        if end.cause == "cancelled":
            return self.name_stopped(RunOutcome("cancelled", end.exit_code, "cancelled", "", node))
        if end.cause in _UNFORMED:
            return self._uneven_outcome() or self._unformed_outcome(node, end)
        if end.cause == "disk_full" and end.detail:
            return RunOutcome("failed", end.exit_code, end.cause, end.detail, node)
        failure = self.story.attempts[-1].first_failure if self.story.attempts else None
        # Node and code are those of one rank's end: of the one that failed first, else as this node's agent says.
        where = failure[2] if failure and end.cause != "fatal_exit_code" else node
        if end.cause == "node_lost" and self.lost_since:
            # What ended is the launcher of a node that is there; the lost one is silent.
            where = next(iter(self.lost_since))
        code = failure[1] if failure and end.cause == "crash" else end.exit_code
        outcome: RunEnd = "lost" if end.cause in ("node_lost", "rendezvous_unreachable") else "failed"
        detail = _describe_cause(end.cause, where, code, self.job)
        if end.cause == "timeout":
            detail = f"timeout_s ({self.job.timeout_s} s) has passed {self._where_it_stood(where)}"
        return RunOutcome(outcome, code, end.cause, detail, where)

    def name_stopped(self, outcome: RunOutcome) -> RunOutcome:
        """Return the end of a cancelled run with all nodes on which it was stopped, as far as they have said so."""
        if outcome.cause != "cancelled":
            return outcome
        ends = {node: self._end_of(node) for node in self.remotes}
        names = ", ".join(node for node, end in ends.items() if end is not None and end.cause == "cancelled")
        return dataclasses.replace(outcome, detail=f"stopped on {names}")

    def _where_it_stood(self, node: str) -> str:
        """Return the last step of the run, and what a node printed last."""
        step = self.story.last.get("step")
        # A launcher that was asked to end prints its own signal.
        lines = error_line.without_stop(read_end(self.folder / run_record.log_file(node))).splitlines()
        said = next((line.strip() for line in reversed(lines) if line.strip()), "")
        where = "before the first step" if step is None else f"at step {int(step)}"
        return f"{where}; last line of {node}: {said[:_LINE_LIMIT]}" if said else where

    def _uneven_outcome(self) -> RunOutcome | None:
        """Return the end of a gang that cannot start again: all ranks of a node are done, and another failed.

        A launcher whose ranks are done does not come back; torchrun's waits minutes for the others at its exit.
        """
        attempt = self.story.attempts[-1] if self.story.attempts else None
        if attempt is None or self.job.launcher not in TORCHRUN_FAMILY or not attempt.left_nodes:
            return None
        failure, lost = attempt.first_failure, attempt.failed_node if attempt.cause == "node_lost" else None
        if lost is not None and lost not in attempt.left_nodes:
            done = f"after the ranks of {', '.join(attempt.left_nodes)} had ended with exit code 0"
            return RunOutcome("lost", 1, "node_lost", f"{lost} was lost {done}: the gang cannot start again", lost)
        if failure is None or len(attempt.exits) < self.job.world_size:
            return None
        detail = f"a rank on {failure.node} exited with code {failure.exit_code} and others succeeded"
        return RunOutcome("failed", failure.exit_code, "crash", detail, failure.node, left=attempt.describe_left())

    def _unformed_outcome(self, node: str, end: UnitEnd) -> RunOutcome | None:
        """Return the end of a gang of which a node's launcher waited in vain for the others, by what ended those."""
        others = [name for name in self.remotes if name != node and name not in self.lost_since]
        ends = [self._agent_of(name).end for name in others]
        if any(name not in self.units for name in others) or (
            end.cause == "rendezvous_closed" and ends and not any(ends)
        ):
            # What they say, and how the one ends that has closed it, tells why.
            return None
        attempt, what = self.story.attempts[-1] if self.story.attempts else None, _UNFORMED[end.cause]
        if end.cause == "rendezvous_timeout":
            what = f"{what} within restart.wait_s ({self.job.restart.wait_s} s)"
        failure = attempt.first_failure if attempt is not None and attempt.cause == "crash" else None
        if failure is not None and not self.lost_since:
            detail = f"a rank on {failure.node} exited with code {failure.exit_code}, and {what}"
            return RunOutcome("failed", failure.exit_code, "crash", detail, failure.node)
        lost = next(iter(self.lost_since), attempt.failed_node if attempt is not None else None)
        detail = f"{lost} was lost, and {what}" if lost else f"{node}: {what}"
        return RunOutcome("lost", end.exit_code, "node_lost", detail, lost or node)

    def _budget_outcome(self) -> RunOutcome | None:
        if self._have_ranks_ended_well():
            # Nothing of it has to begin again: it is over once no launcher is left to be heard.
            return None
        allowed, patience = self.job.restart, self._patience()[0]
        silent = self._list_silent()
        if silent and len(self.lost_since) < len(self.remotes):
            return RunOutcome("lost", 1, "node_lost", f"{silent[0]} did not answer for {patience} s", silent[0])
        if silent:
            raise MusterError(
                f"none of the {len(self.remotes)} nodes answered for {patience} s",
                "The job may still be running: run this command again to follow it",
            )
        dead = next((node for node in self.units if self._list_dead(node)), None)
        if dead and self.lost >= self.job.lost_budget:
            detail = _describe_loss(self.job, dead, self.unstarted.get(dead, _GONE))
            return RunOutcome("lost", 1, "node_lost", detail, dead)
        if self.story.crashes > allowed.max_crashes and self.job.launcher in TORCHRUN_FAMILY:
            failure = next(item.first_failure for item in reversed(self.story.attempts) if item.first_failure)
            return RunOutcome(
                "failed", failure[1], "crash", _describe_cause("crash", failure[2], failure[1], self.job), failure[2]
            )
        return None

    def _drill_if_due(self) -> None:
        if self.drill is None or not self._is_drill_due(log_follow.now()):
            return
        cut_s = self.drill.cut_s
        node = t.cast(str, self.drill.node)
        try:
            if cut_s:
                answer = self.remotes[node].call("cut", seconds=cut_s)
            else:
                values = {"target": self.drill.target, "rank": self.drill.rank}
                answer = self.remotes[node].call("kill", run_id=self.run_id, **values)
        except MusterError:
            # It is tried again with the next news.
            return
        if not cut_s and not answer["killed"]:
            return
        target = f"rank {self.drill.rank}" if self.drill.target == "worker" else self.drill.target
        what = f"off its network for {cut_s} s" if cut_s else f"killed {target}"
        self._record_drill(float(answer["at"]), node, what)

    def kill_rank(self, rank: int, node: str) -> float | None:
        """Kill a rank with SIGKILL; its launcher starts the gang again."""
        if node in self.lost_since:
            # To ask it again takes as long as a connection may take.
            return None
        try:
            answer = self.remotes[node].call("kill", run_id=self.run_id, target="worker", rank=rank)
        except MusterError:
            return None
        return float(answer["at"]) if answer["killed"] else None

    def state(self) -> dict[str, object]:
        """Return where the run is; a node counts while its agent runs and it answers."""
        alive = {node for node in self.units if self._agent_of(node).alive}
        now = time.monotonic()
        silent = {node: round(now - since) for node, since in self.lost_since.items()}
        return {
            **super().state(),
            "nodes": len(alive - set(silent)),
            "nodes_asked": len(self.remotes),
            "silent": silent,
            "unheard": [node for node in self.remotes if not self.units.get(node) and node not in silent],
        }


def _describe_loss(job: Job, node: str, why: str = _GONE) -> str:
    """Return why a run ends with the loss of a node: which of its rules does not let it begin again."""
    if job.launcher == "command":
        return f"{node} was lost, and the launcher 'command' starts it once"
    if job.restart.on_lost_node == "fail":
        return f"{node} was lost, and restart.on_lost_node is fail"
    budget = f"restart.max_lost_nodes ({job.restart.max_lost_nodes})"
    return f"{node} was lost, and {budget} is used up: {why}"


def _describe_cause(cause: str, node: str, code: int, job: Job) -> str:
    is_command = job.launcher == "command"
    budget = f"restart.max_crashes ({job.restart.max_crashes}) is exceeded"
    limit = "the launcher 'command' starts it once" if is_command else budget
    texts = {
        "crash": f"a rank on {node} exited with code {code} and {limit}",
        "fatal_exit_code": f"a rank on {node} exited with code {code}, which restart.fatal_exit_codes names",
        "timeout": "timeout_s has passed",
        "disk_full": f"the disk of {node} that holds the run is full, and its ranks ended (exit code {code})",
        "node_lost": _describe_loss(job, node),
        "port_taken": f"the rendezvous port on {node} is already in use",
        "rendezvous_unreachable": f"{node} could not reach the rendezvous store",
    }
    return texts.get(cause, f"{node}: {cause} (exit code {code})")
