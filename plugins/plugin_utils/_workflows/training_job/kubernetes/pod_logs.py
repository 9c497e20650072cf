# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the pods of a run print, line by line: what their ranks recorded, and the program's own words."""

from __future__ import annotations

import json
import math
import time
import typing as t

from .....module_utils._model.errors import MusterError, plain_lines
from .....module_utils._node.pod_log import MARK
from .....module_utils._secrets.scrubber import scrub
from ...._kube.api.errors import KubeError
from ...._kube.api.kinds import KubeObject, parse_time
from ...._kube.api.logs import LogPosition
from ...shared.progress import Progress
from .watches import ClusterWatches

# In this order: a metric belongs to the newest attempt, which events tell.
_STREAMS = ("events", "metrics", "usage", "log", "again")
# So long after a log could not be read it is opened again; the last one is for all that follow.
_RETRY_S = (5.0, 15.0, 60.0)
# Answers about a log that no waiting changes: the container or the pod is gone, or may not be read.
_GONE = (400, 401, 403, 404)
# Kubernetes keeps at most so much of the end of a log: MaxContainerTerminationMessageLogLength of its kubelet.
_MESSAGE_BYTES = 2048


class LogGap(t.NamedTuple):
    """Lines of the log of a node that were not read; with ``is_end`` an unknown number of them, the last ones."""

    node: str
    detail: str
    is_end: bool = False


class LineCounts:
    """Compares what was read of each pod's log with what its recorder says that it has written.

    A kubelet keeps the newest part of a log alone (10 MiB by default): who reads late or slowly misses the rest, and
    nothing in the log's stream says so. ``saved``: what an earlier follower had counted, by uid of the pod.
    """

    def __init__(self, saved: t.Mapping[str, t.Any]) -> None:
        pairs = ((uid, value) for uid, value in saved.items() if isinstance(value, list) and len(value) == 2)
        self._read: dict[str, tuple[int, int]] = {uid: (int(value[0]), int(value[1])) for uid, value in pairs}
        self._told: set[str] = set()
        self._complete: set[str] = set()
        self.missed: dict[str, int] = {}

    def begin(self, uid: str) -> None:
        """Note that a log is read from its beginning."""
        self._read[uid] = (0, 0)

    def take_line(self, uid: str) -> None:
        """Count a line of the program's."""
        if uid in self._read:
            marks, lines = self._read[uid]
            self._read[uid] = marks, lines + 1

    def take_mark(self, uid: str, line: t.Mapping[str, t.Any], last: bool) -> int:
        """Count a marked line; return how many lines before it were missed. ``last``: the recorder's last one."""
        seq, lines = line.get("seq"), line.get("lines")
        if not isinstance(seq, int) or not isinstance(lines, int):
            return 0
        self._told.add(uid)
        if last:
            self._complete.add(uid)
        before, self._read[uid] = self._read.get(uid), (seq, lines)
        missed = 0 if before is None else max(0, seq - 1 - before[0]) + max(0, lines - before[1])
        if missed:
            self.missed[uid] = self.missed.get(uid, 0) + missed
        return missed

    def take_whole(self, uid: str) -> None:
        """Note that all of a log was read: a pod that is killed has no last line of its recorder."""
        self._complete.add(uid)

    def saved(self, uid: str) -> list[int] | None:
        """Return what a later follower is to know of a pod's log."""
        return list(self._read[uid]) if uid in self._read else None

    def without_end(self) -> list[str]:
        """Return the pods with lines of their recorder whose logs were not read to their ends."""
        return sorted(self._told - self._complete)


class PodLogs:
    """Takes lines, and writes those of one turn together: ``write(node, stream, text, times)``.

    ``nodes`` are the names of the pods' nodes by uid, ``read`` the places of the lines that were written last,
    ``refused(node, line)`` is called for a pod that did not start its program, and ``kept(node)`` returns the end of
    what was written of a node's log.
    """

    def __init__(
        self,
        nodes: t.Mapping[str, str],
        read: dict[str, LogPosition],
        write: t.Callable[..., None],
        refused: t.Callable[[str, dict[str, t.Any]], None],
        kept: t.Callable[[str], str],
        progress: Progress,
    ) -> None:
        self.nodes, self.read = nodes, read
        self._write, self._refused, self._kept, self._progress = write, refused, kept, progress
        # The end of what ended containers printed, by uid of the pod, as the pod's status keeps it.
        self._last_words: dict[str, str] = {}
        # Pods whose logs have ended, and those whose termination message was compared with the kept log.
        self._over: set[str] = set()
        self._compared: set[str] = set()
        # Logs that could not be read: how often, and when they are opened again.
        self._away: dict[str, tuple[int, float]] = {}
        # Those of them that no waiting brings back.
        self._gone: set[str] = set()
        self._taken: dict[str, LogPosition] = {}
        # Lines by stream and node, each with the time at which its kubelet read it; events have their own node.
        self._waiting: dict[tuple[str, str], list[tuple[str, float | None]]] = {}
        self.counts = LineCounts({})
        # The places up to which what pods printed was written by an earlier follower, where a log is read again.
        self.printed: dict[str, LogPosition] = {}

    def take(self, uid: str, place: LogPosition, raw: bytes) -> None:
        """Take in one line of the pod ``uid``."""
        if uid not in self.read and uid not in self._taken:
            self.counts.begin(uid)
        self._taken[uid] = place
        self._away.pop(uid, None)
        text = raw.decode(errors="replace")
        node = self.nodes.get(uid, uid)
        if not text.startswith(MARK):
            self.counts.take_line(uid)
            stream = "again" if self._is_printed(uid, place) else "log"
            self._waiting.setdefault((stream, node), []).append((text, parse_time(place[0])))
            return
        found = _parse_marked(text[len(MARK) :])
        if found is None:
            return
        stream, data, whole = found
        # A pod that does not start its program says so in its last line.
        missed = self.counts.take_mark(uid, whole, data.get("kind") in ("agent_exit", "pod_refused"))
        if missed and missed == self.counts.missed[uid]:
            self._progress.say(f"warning: {node} deleted {missed} lines of its log before they were read")
        if data.get("kind") == "pod_refused":
            self._refused(node, data)
        if data.get("kind") == "worker_started" and isinstance(whole.get("pod"), str):
            # Pods may share a node: who looks for a rank later needs its pod.
            data["pod"] = whole["pod"]
        if data.get("kind") in ("checkpoint_stored", "checkpoint_not_stored"):
            data["rank"] = whole.get("rank")
        own = node if stream == "metrics" else ""
        self._waiting.setdefault((stream, own), []).append((json.dumps(data, separators=(",", ":")), None))

    def _is_printed(self, uid: str, place: LogPosition) -> bool:
        known = self.printed.get(uid)
        return known is not None and (parse_time(place[0]) or 0.0, place[1]) <= (parse_time(known[0]) or 0.0, known[1])

    def flush(self) -> None:
        """Write what was taken in."""
        waiting, self._waiting = self._waiting, {}
        taken, self._taken = self._taken, {}
        for (stream, node), lines in sorted(waiting.items(), key=lambda item: _STREAMS.index(item[0][0])):
            self._write(node, stream, "".join(f"{text}\n" for text, _at in lines), [at for _text, at in lines])
        self.read.update(taken)

    def gaps(self, whole: bool) -> list[LogGap]:
        """Return what of the logs was not read, by node. ``whole``: they have to have an end."""
        missed: dict[str, int] = {}
        for uid, count in self.counts.missed.items():
            node = self.nodes.get(uid, uid)
            missed[node] = missed.get(node, 0) + count
        lost = [LogGap(node, f"{count} lines of the log of {node} were not read") for node, count in missed.items()]
        cut = sorted({self.nodes.get(uid, uid) for uid in self.counts.without_end()}) if whole else []
        return [*sorted(lost), *(LogGap(node, f"the end of the log of {node} was not read", True) for node in cut)]

    def container_ended(self, uid: str, message: str) -> None:
        """Note that a pod's container ended, with the message of its end."""
        self._last_words[uid] = message
        if uid in self._over:
            self.write_termination_message(uid)

    def take_end(self, uid: str, whole: bool = False) -> None:
        """Note that nothing more of a pod's log will come. ``whole``: all of it was read."""
        self._over.add(uid)
        if whole:
            self.counts.take_whole(uid)
        self.write_termination_message(uid)

    def take_failure(self, uid: str, problem: MusterError) -> None:
        """Note a log that cannot be read. That ends no run: it is opened again later."""
        tries = self._away[uid][0] if uid in self._away else 0
        if not tries:
            self._progress.say(f"a pod log cannot be read: {problem.message}")
        self._away[uid] = tries + 1, time.monotonic() + _RETRY_S[min(tries, len(_RETRY_S) - 1)]
        self._gone -= {uid}
        if isinstance(problem, KubeError) and problem.status in _GONE:
            self._gone.add(uid)
        self.take_end(uid)

    def is_away(self, pods: t.Container[str]) -> bool:
        """Return whether the log of one of these pods could not be read and may be read later."""
        return any(due != math.inf and uid in pods and uid not in self._gone for uid, (_n, due) in self._away.items())

    def reopen(self, sources: ClusterWatches, pods: t.Mapping[str, KubeObject]) -> None:
        """Open logs again that could not be read, for as long as their pods are there."""
        now = time.monotonic()
        for uid, (tries, due) in list(self._away.items()):
            if now < due or uid not in pods:
                continue
            self._away[uid] = tries, math.inf
            self._over.discard(uid)
            sources.follow_log(pods[uid], self.read.get(uid))
            if uid in self._last_words:
                sources.container_ended(uid)

    def write_termination_message(self, *uids: str) -> None:
        """Write down what of the last lines of ended containers (all, or these) the kept logs do not hold."""
        # Once each: other pods of the node may print so much that the end of its log holds no lines of this one.
        for uid in sorted((set(uids) or set(self._last_words)) & set(self._last_words) - self._compared):
            self._compared.add(uid)
            node = self.nodes.get(uid, uid)
            kept = set(self._kept(node).split("\n"))
            lines = [line for line in _message_lines(self._last_words[uid]) if not kept.issuperset(_as_kept(line))]
            if lines:
                self._write(node, "log", "\n".join(["the log's last lines, from the pod's status:", *lines, ""]))


def _as_kept(line: str) -> list[str]:
    return plain_lines(scrub(line)).split("\n")


def _parse_marked(text: str) -> tuple[str, dict[str, t.Any], dict[str, t.Any]] | None:
    """Return (stream, data, all of it) of a marked line, None for one that no recorder wrote."""
    try:
        line = json.loads(text)
        stream, data = line["stream"], line["data"]
        if stream not in ("events", "metrics", "usage") or not isinstance(data, dict):
            return None
        return stream, data, line
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


def _message_lines(message: str) -> list[str]:
    """Return the program's lines of a container's message, which Kubernetes takes from the end of its log."""
    # Not by splitlines(), for which the mark itself ends a line.
    lines = [line for line in message.split("\n") if line]
    if len(lines) > 1 and len(message.encode()) >= _MESSAGE_BYTES:
        # The first one lacks its beginning.
        lines = lines[1:]
    return [line for line in lines if not line.startswith(MARK)]
