# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What carried a run's collectives, by what its own ranks recorded, and whether the fabric test saw the same.

NCCL's channel lines prove a transport; without GPUs the sockets that two ranks have to each other, seen from both ends.
"""

from __future__ import annotations

import dataclasses
import io
import re
import typing as t

from ....module_utils._model.fabric_gate import VerdictRecord
from ....module_utils._model.job import Job
from ....module_utils._model.run_history import Line, RunHistory
from ....module_utils._model.run_record import RunRecord
from ....module_utils._model.verdict import PairProof, TransportResult
from ..shared.progress import Progress

_SOURCE = "events.jsonl"
_RDMA = ("rdma_gdr", "rdma_no_gdr", "mnnvl")
_MAX_PAIRS = 64
# Host and process that begin a line of NCCL.
_WRITER = re.compile(r"([\w.-]+):\d+:\d+ ")


@dataclasses.dataclass(frozen=True, slots=True)
class TransportSeen:
    """The transport of a run; ``drift`` is what the fabric test on its nodes saw differently, in words."""

    result: TransportResult
    drift: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return what the run's record keeps."""
        result = self.result
        pairs = [{"a": pair.a, "b": pair.b, "via": pair.via, "gdr": pair.gdr} for pair in result.pairs[:_MAX_PAIRS]]
        values = {"verdict": result.verdict, "evidence_kind": result.evidence_kind, "pairs": pairs}
        return {**values, "drift": list(self.drift)}


class TransportWatch:
    """Keeps a run's record up to date with the transport that its ranks show, and says when it is not the expected."""

    def __init__(self, job: Job, verdicts: t.Sequence[VerdictRecord], progress: Progress) -> None:
        self._job, self._verdicts, self._progress = job, verdicts, progress
        self._judged: list[Line] = []
        self._seen: TransportSeen | None = None
        self._said: tuple[str, ...] = ()

    def update(self, record: RunRecord, story: RunHistory) -> RunRecord:
        """Return the record with what its newest attempt shows; as it was when that shows nothing yet."""
        lines = newest_evidence(story)
        if lines and lines != self._judged:
            self._judged = lines
            nodes = set(story.attempts[-1].ranks.values())
            verdict = next((item for item in self._verdicts if nodes <= set(item.get("nodes") or [])), None)
            self._seen = judge_evidence(self._job, lines, nodes, verdict)
            if self._seen.drift and self._seen.drift != self._said:
                self._said = self._seen.drift
                self._progress.say(f"warning: {'; '.join(self._said)}")
        if self._seen is None:
            return record
        return dataclasses.replace(record, transport_seen=self._seen.result.verdict, transport=self._seen.to_dict())


def newest_evidence(story: RunHistory) -> list[Line]:
    """Return the evidence of the ranks of the newest attempt."""
    gang = story.attempts[-1].gang if story.attempts else None
    return [line for (owner, _rank), line in story.transport.items() if gang is not None and owner == gang]


def judge_evidence(
    job: Job, lines: t.Sequence[Line], nodes: t.Collection[str], verdict: VerdictRecord | None
) -> TransportSeen:
    """Return what the ranks' evidence proves.

    :param nodes: the nodes that have ranks.
    :param verdict: the fabric verdict on them, None without one.
    """
    texts = {str(line.get("rank")): _texts(line) for line in lines}
    if any(texts.values()):
        result = _judge_nccl(lines)
    elif job.gpus_per_node or len(nodes) < 2:
        # Ranks with GPUs have sockets, too, whatever carries their tensors.
        result = TransportResult()
    else:
        result = _judge_sockets(lines, nodes)
    return TransportSeen(result, tuple(_find_drift(result, verdict)) if verdict else ())


def _texts(line: Line) -> list[str]:
    found = line.get("lines")
    return [text for text in found if isinstance(text, str)] if isinstance(found, list) else []


def _judge_nccl(lines: t.Sequence[Line]) -> TransportResult:
    """Judge NCCL's lines; its host names are replaced by the nodes' that recorded them."""
    # Late: a follower begins while the launchers load, and only ranks with NCCL have such lines, later.
    from ..._fabric.diagnosis.scan import scan_log
    from ..._fabric.verdict.transport import build_transport, read_transport

    text = "\n".join(text for line in lines for text in _texts(line))
    writers: dict[str, set[str]] = {}
    for line in lines:
        for found in filter(None, map(_WRITER.match, _texts(line))):
            writers.setdefault(found[1], set()).add(str(line.get("node")))
    places = {host: next(iter(names)) for host, names in writers.items() if len(names) == 1}
    reading = read_transport(scan_log(io.BytesIO(text.encode())).facts, {}, no_verbs=False, table=False)
    result = build_transport(reading, _SOURCE)
    pairs = [
        dataclasses.replace(pair, a=places.get(pair.a, pair.a), b=places.get(pair.b, pair.b)) for pair in result.pairs
    ]
    # Pods of one machine reach each other without a network.
    apart = tuple(pair for pair in pairs if pair.a != pair.b or pair.a not in places.values())
    return dataclasses.replace(result, pairs=apart) if apart or not pairs else TransportResult()


def _judge_sockets(lines: t.Sequence[Line], nodes: t.Collection[str]) -> TransportResult:
    """Return ``tcp`` when each node has a connection to another one whose two ends were seen by two ranks."""
    ends: dict[tuple[str, str], tuple[str, str]] = {}
    for line in lines:
        listed = line.get("sockets")
        for entry in listed if isinstance(listed, list) else []:
            if isinstance(entry, dict):
                where = str(line.get("node")), str(entry.get("interface") or "unknown interface")
                ends[str(entry.get("local")), str(entry.get("peer"))] = where
    pairs: dict[tuple[str, str, str], PairProof] = {}
    for (local, peer), (node, interface) in sorted(ends.items()):
        other = ends.get((peer, local))
        if other is not None and other[0] != node:
            proof = PairProof(node, other[0], interface, f"{local} to {peer}")
            pairs.setdefault((node, other[0], interface), proof)
    connected = {pair.a for pair in pairs.values()}
    proven = connected >= set(nodes)
    kind: t.Literal["socket_peers_and_netdev_counters"] = "socket_peers_and_netdev_counters"
    return TransportResult(None, "tcp" if proven else "unproven", kind if pairs else None, tuple(pairs.values()))


def _find_drift(result: TransportResult, verdict: VerdictRecord) -> t.Iterator[str]:
    """Yield what the fabric test saw differently; what one of the two did not prove is not compared."""
    tested = verdict.get("transport") or {}
    island, before, now = verdict.get("island"), str(tested.get("verdict")), result.verdict
    if now == "unproven" or before in ("unproven", "None"):
        return
    if before != now:
        worse = " (slower)" if before in _RDMA and now not in _RDMA else ""
        yield f"the run's collectives use {now}{worse}, and the fabric test of island {island} proved {before}"
        return
    if now == "tcp":
        vias = {pair.a: pair.via for pair in result.pairs}
        expected = {str(pair.get("a")): str(pair.get("via")) for pair in tested.get("pairs") or []}
        for node, via in sorted(vias.items()):
            if via != expected.get(node, via):
                yield f"{node} uses {via}, and the fabric test of island {island} used {expected[node]}"
