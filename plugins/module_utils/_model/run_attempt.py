# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One attempt of a run, from the start of its ranks to what ended it."""

from __future__ import annotations

import dataclasses
import typing as t

from . import hang
from .quantity import parse_finite

# How the launcher stops the other ranks after one failed: 128 + SIGTERM.
_STOPPED = 143
_KILLED = 137
# 128 + SIGTERM, and what a pod says that did not reach the others: the reason is another pod's.
FOLLOWING_CODES: t.Final = (_STOPPED, 69)
# A node that does not answer is noticed within 50 s by Kubernetes' defaults, later under load.
_NOTICED_S = 180.0
# So long after it ranks elsewhere may wait for it: the watchdog of NCCL gives up after 10 minutes, gloo after 30.
_HANGS_S = 1900.0


class RankExit(t.NamedTuple):
    """The end of a rank's process: ``at`` in Unix seconds; ``exit_code`` is 128 + the signal that ended it.

    ``stopped``: it was asked to end, by its launcher or a person.
    """

    at: float
    exit_code: int
    node: str
    stopped: bool = False

    @property
    def is_failure(self) -> bool:
        """Whether it ended by itself and badly: one that was asked to end, and killed as it did not, was stopped."""
        return self.exit_code not in (0, _STOPPED) and not (self.stopped and self.exit_code == _KILLED)


class Notice(t.NamedTuple):
    """A notice that a machine of the attempt will be taken away: when it was read, and what it says."""

    at: float
    node: str
    detail: str


@dataclasses.dataclass
class Attempt:
    """One start of the gang: from its ranks' start to the first fault, or the end. Times are Unix seconds.

    ``n`` is its number in the run, ``counted`` the one that its ranks gave it; ``gang`` is the address of its
    rendezvous, by which ranks of one attempt are told from those of another. ``ranks``: rank to node; ``pods``: rank to
    pod, empty where that is not known. ``saved_steps`` are the lowest and the highest step of a checkpoint that it
    saved. ``fault`` is (cause, node) of a drill, a lost node, a deleted pod or a lost placement; ``followed`` says that
    another attempt came after this one.
    """

    n: int
    started_at: float
    gang: str | None = None
    counted: int = 1
    world_size: int | None = None
    ranks: dict[int, str] = dataclasses.field(default_factory=dict)
    pods: dict[int, str] = dataclasses.field(default_factory=dict)
    exits: dict[int, RankExit] = dataclasses.field(default_factory=dict)
    first_step: int | None = None
    last_step: int | None = None
    first_step_at: float | None = None
    last_step_at: float | None = None
    # Whether its first step, and its last, were made at some time before, as their lines were read after the fact.
    is_first_late: bool = False
    is_last_late: bool = False
    resumed_from: int | None = None
    saved_steps: tuple[int, int] | None = None
    fault: tuple[str, str | None] | None = None
    cancelled_at: float | None = None
    followed: bool = False
    # Whether the attempt that followed is of another start, by which the run was continued after its end.
    continued: bool = False
    # The pod whose deletion is its fault, where that was told.
    fault_pod: str | None = None
    # When the cluster said that a node of it was not ready, and its name.
    not_ready: tuple[float, str | None] | None = None
    # The first of its containers that was killed with the program in it, of which no rank could say anything.
    killed: RankExit | None = None
    # Whether its launcher was killed, and was there again: then the node that is lost to it was never away.
    launcher_killed: bool = False
    # The first node that gave no answer any more.
    silent: str | None = None
    # The first notice that one of its machines will be taken away.
    notice: Notice | None = None
    # Its ranks that stand at the moment, as their nodes see it.
    standing: dict[int, hang.Standing] = dataclasses.field(default_factory=dict)
    # When it hung, until when (None: to its end, as far as is known), and who was waited for.
    hangs: list[tuple[float, float | None, str]] = dataclasses.field(default_factory=list)

    def take_standing(self, line: t.Mapping[str, object], at: float) -> None:
        """Take in that a rank stands or moves, or that the gang hangs or continues."""
        kind = line.get("kind")
        if kind == "hang":
            since = parse_finite(line.get("since"))
            self.hangs.append((at if since is None else since, None, str(line.get("detail"))))
        elif kind == "hang_over" and self.hangs:
            since, _until, text = self.hangs[-1]
            self.hangs[-1] = since, at, text
        elif kind == "rank_stands" and (found := hang.read_standing(line)) is not None:
            self.standing[found.rank] = found
        elif isinstance(rank := line.get("rank"), int):
            self.standing.pop(rank, None)

    @property
    def hangs_now(self) -> bool:
        """Return whether it was said that the gang hangs, and not that it continues."""
        return any(until is None for _since, until, _text in self.hangs)

    def name_hang(self) -> hang.Hang | None:
        """Return which rank the others wait for, as far as their nodes see that; None where they are being stopped."""
        if any(end.exit_code == _STOPPED for end in self.exits.values()):
            return None
        running = [rank for rank in self.ranks if rank not in self.exits]
        missing = [rank for rank in range(self.world_size or 0) if rank not in self.ranks]
        ended = {rank: end.exit_code for rank, end in self.exits.items()}
        return hang.name_hang(self.standing, running, ended, missing)

    @property
    def failed_rank(self) -> int | None:
        """Return the rank that failed first; the launcher stopped the others because of it."""
        failures = [(end, rank) for rank, end in self.exits.items() if end.is_failure]
        return min(failures)[1] if failures else None

    @property
    def has_ended_well(self) -> bool:
        """Return whether all of its ranks have ended without an error, so that nothing starts the gang again."""
        size = self.world_size or len(self.ranks)
        is_whole = bool(self.ranks) and len(self.exits) >= size
        return is_whole and all(end.exit_code == 0 for end in self.exits.values())

    @property
    def first_failure(self) -> RankExit | None:
        """Return how the rank that failed first ended; others fail for a container that was killed, and say so."""
        rank = self.failed_rank
        return self.killed or (None if rank is None else self.exits[rank])

    @property
    def first_left(self) -> tuple[int, RankExit] | None:
        """Return the rank that ended first, without an error, before another one failed; None where none did."""
        failure = self.first_failure
        left = [(end, rank) for rank, end in self.exits.items() if end.exit_code == 0]
        if failure is None or not left or min(left)[0].at >= failure.at:
            return None
        end, rank = min(left)
        return rank, end

    @property
    def left_nodes(self) -> list[str]:
        """Return the nodes whose ranks have all ended by themselves and without an error.

        Their launchers wait for those of other nodes to end, too, and take part in no other attempt.
        """
        others = {
            node
            for rank, node in self.ranks.items()
            if (end := self.exits.get(rank)) is None or end.exit_code != 0 or end.stopped
        }
        return sorted(set(self.ranks.values()) - others)

    def describe_left(self) -> str:
        """Return which rank ended first, without an error, before another one failed; empty where none did."""
        if self.first_left is None:
            return ""
        rank, end = self.first_left
        where = "" if self.last_step is None else f" at step {self.last_step}"
        return f"rank {rank} on {end.node} ended with exit code 0{where} while the others went on"

    @property
    def ended_at(self) -> float | None:
        """Return when the attempt ended: its first failure, its last rank's exit, or its last step before the next."""
        if self.first_failure:
            return self.first_failure.at
        exited_at = max((end.at for end in self.exits.values()), default=None)
        return exited_at or (self.last_step_at if self.followed else None)

    @property
    def cause(self) -> str | None:
        """Return the cause of the attempt's end: a fault, a cancel or a crash; None where there was none of them."""
        if self._is_preempted:
            return "preempted"
        if self.fault:
            return self.fault[0]
        failure = self.first_failure
        if self.cancelled_at is not None and (failure is None or self.cancelled_at <= failure.at):
            return "cancelled"
        if self._lost_a_node:
            return "node_lost"
        return "crash" if failure else None

    @property
    def _is_preempted(self) -> bool:
        """Return whether a notice ended it: what came of that does not count, such as a lost node."""
        if self.notice is None:
            return False
        if self.fault:
            # A queue that takes the place back, as when the machine is drained, names no node.
            by_queue = self.fault[0] in ("suspended", "preempted") and self.fault[1] is None
            if self.fault[0] == "drill" or not (by_queue or self.fault[1] == self.notice.node):
                return False
        return self.followed or self.cancelled_at is None

    @property
    def _lost_a_node(self) -> bool:
        """Return whether it ended with a node that was not ready: ranks elsewhere fail before that is noticed."""
        if self.not_ready is None:
            return False
        failure = self.first_failure
        if failure is None:
            return self.followed
        return -_NOTICED_S <= failure.at - self.not_ready[0] <= _HANGS_S

    @property
    def failed_node(self) -> str | None:
        """Return the node of the fault, else of the rank that failed first."""
        if self.notice and self._is_preempted:
            return self.notice.node
        if self.fault:
            return self.fault[1] or (self.silent if self.fault[0] == "node_lost" else None)
        if self.not_ready and self.cause == "node_lost":
            return self.not_ready[1]
        return self.first_failure.node if self.first_failure and self.cause == "crash" else None

    @property
    def culprit(self) -> tuple[int | None, RankExit | None]:
        """Return the rank of what ended the attempt, and how it ended: with ``failed_node``, all of one event.

        Ranks elsewhere fail because of a fault on its node; theirs are other events. Unknown is None.
        """
        if self.cause in (None, "crash", "cancelled") and not self.killed:
            return self.failed_rank, self.first_failure
        there = [rank for rank, node in self.ranks.items() if node == self.failed_node]
        if self.fault_pod and any(self.pods.get(rank) for rank in there):
            there = [rank for rank in there if self.pods.get(rank) == self.fault_pod]
        failed = [(end, rank) for rank in there if (end := self.exits.get(rank)) and end.is_failure]
        rank = min(failed)[1] if failed else there[0] if len(there) == 1 else None
        end = self.exits.get(rank) if rank is not None else None
        return rank, self.killed if self.killed and self.cause == "crash" else end

    @property
    def exit_code(self) -> int | None:
        """Return the exit code of what ended the attempt; of the last of a start without any failure, the highest."""
        end = self.culprit[1]
        if end or self.first_failure:
            return end.exit_code if end else None
        return (
            None
            if self.followed and not self.continued
            else max((end.exit_code for end in self.exits.values()), default=None)
        )

    @property
    def node_names(self) -> list[str]:
        """Return the nodes on which ranks started."""
        return sorted(set(self.ranks.values()))

    def describe_crash(self) -> str:
        """Return how a failing program ended it, with the rank that failed first, once all of it is known; else empty.

        The ranks of other nodes fail because of that one, and their ends can be read before its own.
        """
        is_known = self.followed or len(self.exits) >= len(self.ranks)
        if self.cause != "crash" or self.first_failure is None or not is_known:
            return ""
        who = "a container" if self.killed or self.failed_rank is None else f"rank {self.failed_rank}"
        # Steps are the gang's: another rank may have gone on for a moment.
        code, at = self.first_failure.exit_code, ""
        if self.last_step is not None:
            at = f"; the gang had reached step {self.last_step}"
        signal = f" (128 + signal {code - 128})" if code > 128 else ""
        return f"attempt {self.n}: {who} on {self.first_failure.node} exited with code {code}{signal}{at}"


def describe_sharing(pods: int, machines: int) -> str:
    """Return ``2 pods on 1 machine``."""
    return f"{pods} pods on {machines} machine{'' if machines == 1 else 's'}"
