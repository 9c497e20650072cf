# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules that diagnose a running job: each reads what all nodes reported and yields causes with their evidence."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ....module_utils._model import begun_steps, hang, stall
from ....module_utils._model.gpu_faults import CAUSE_CODES, parse_faults
from ....module_utils._model.verdict import Cause
from ..parse.nccl_ras import RasEntry, parse_ras
from . import live_network_rules
from .file import diagnose_text
from .known_causes import find_known_causes
from .live import (
    NodeObservation,
    RunDiagnosis,
    RunObservation,
    StepProgress,
    conclude_diagnosis,
    measure_progress,
)
from .live_causes import build_live_cause, find_fix, is_peer_gone

_MIB = 1 << 20
# Segments sent again on a whole node during the observation, beside slow steps.
_NODE_RETRANSMITS = 20
_BUSY_PERCENT = 50.0
_MIN_MEMLOCK = 1 << 30
_MAX_RANKS = 100_000
_MAX_NAMES = 8
# 128 + SIGTERM.
_STOPPED = 143
# What ssh says of a node that does not answer -> the cause code.
_SSH_CODES = (("host key .*has changed", "host_key_changed"), (r"Permission denied \(", "ssh_denied"))
# An entry of the kind timeout only says that RAS waited; the missing processes are entries of their own.
_RAS_CODES = {
    "incomplete": "ranks_missing",
    "dead": "rank_ended",
    "error": "nccl_error",
    "mismatch": "collective_mismatch",
}
_GPU_CODES = frozenset({"gpu_error", *CAUSE_CODES.values()})
RankOfNode = tuple[NodeObservation, dict[str, t.Any]]
Rule = t.Callable[[RunObservation, StepProgress], t.Iterator[Cause]]


def diagnose_live(run: RunObservation, more: t.Iterable[Cause] = ()) -> RunDiagnosis:
    """Return why a job hangs or is slow, as far as its nodes show it.

    :param more: causes from another source, such as the cluster's view of the job's pods.
    """
    progress = measure_progress(run)
    stands = progress.state in ("restarting", "late", "hanging")
    known = _with_fixes(run, find_known_causes(run.known, stands=stands, backend=run.backend))
    current = [*more, *(cause for rule in RULES for cause in rule(run, progress))]
    found, logged = [*known, *_with_fixes(run, current)], _with_fixes(run, _log_causes(run))
    return conclude_diagnosis(run, progress, found, logged, known)


def _with_fixes(run: RunObservation, causes: t.Iterable[Cause]) -> list[Cause]:
    """Return causes with what to do about them where the run runs, or has ended."""
    over = bool(run.known and run.known.over)
    return [
        # What a GPU needs is known of each of its errors.
        cause
        if cause.code in _GPU_CODES
        else dataclasses.replace(cause, fix=find_fix(cause.code, run.backend, over=over) or cause.fix)
        for cause in causes
    ]


def _find_unreachable_nodes(run: RunObservation, _progress: StepProgress) -> t.Iterator[Cause]:
    for node in run.nodes:
        if node.answer is None:
            codes = (code for pattern, code in _SSH_CODES if re.search(pattern, node.problem))
            code = next(codes, "node_unreachable")
            yield build_live_cause(code, node.problem or "no answer", node.name)


def _find_absent_ranks(run: RunObservation, progress: StepProgress) -> t.Iterator[Cause]:
    """Yield ranks that never started, and ranks that ended while others are running."""
    yield from _find_unstarted_ranks(run, progress)
    attempt, failed = run.attempt, any(rank.get("exit_code") not in (None, 0, _STOPPED) for _node, rank in run.gang)
    left = attempt.first_left if is_peer_gone(cause.code for cause in _log_causes(run)) else None
    if left is not None:
        # The others failed because they waited for it.
        yield build_live_cause("rank_left", attempt.describe_left(), left[1].node)
    for node, rank in sorted(run.gang, key=lambda item: item[1].get("exit_code") == 0):
        # The launcher stops the other ranks after one has failed.
        stopped = failed and rank.get("exit_code") == _STOPPED
        if not rank.get("alive") and not stopped and (left is None or rank["rank"] != left[0]):
            yield from _find_rank_end(node, rank, job_ended=progress.state in ("ended", "restarting"))


def _find_unstarted_ranks(run: RunObservation, progress: StepProgress) -> t.Iterator[Cause]:
    # What runs on a node that does not answer is not known, so that no rank can be called missing then.
    if any(node.answer is None or _is_unread(node) for node in run.nodes):
        return
    if progress.state == "restarting" and not run.live_ranks:
        # Its ranks of before have started; those of the next attempt are to.
        return
    started = run.started_ranks
    missing = [number for number in range(min(run.rank_count or 0, _MAX_RANKS)) if number not in started]
    if missing:
        pods = [node for node in run.nodes if not node.ranks and _is_unplaced(node)]
        empty = [node.name for node in run.nodes if not node.ranks and node not in pods]
        where = f"; no rank started on {', '.join(empty[:_MAX_NAMES])}" if empty else ""
        where += f"; {len(pods)} {'pods have' if len(pods) > 1 else 'pod has'} no node" if pods else ""
        numbers = ", ".join(map(str, missing[:16])) + ("…" if len(missing) > 16 else "")
        text = f"{len(started)} of {run.rank_count} ranks started, rank {numbers} did not{where}"
        yield build_live_cause("ranks_missing", text, empty[0] if len(empty) == 1 else None)


def _is_unread(node: NodeObservation) -> bool:
    """Return whether it is a pod that has started, and whose log does not say which ranks: it cannot be read."""
    pod = (node.answer or {}).get("pod") or {}
    return bool(pod.get("unread")) and not node.ranks


def _is_unplaced(node: NodeObservation) -> bool:
    """Return whether it is a pod that is on no node."""
    pod = (node.answer or {}).get("pod") or {}
    return pod.get("phase") == "Pending" and pod.get("node") is None


def _find_rank_end(node: NodeObservation, rank: t.Mapping[str, t.Any], *, job_ended: bool) -> t.Iterator[Cause]:
    code, signal = rank.get("exit_code"), rank.get("signal")
    oom_kills = (node.answer or {}).get("memory", {}).get("oom_kills")
    name = f"rank {rank['rank']}"
    if oom_kills and (signal == 9 or (code is None and not job_ended)):
        text = f"{name} was killed; its control group counts {oom_kills} out-of-memory kills"
        yield build_live_cause("oom_host", text, node.name)
    elif code is None and not job_ended:
        text = f"{name} (pid {rank['pid']}) no longer exists and did not record an exit code"
        yield build_live_cause("rank_ended", text, node.name)
    elif job_ended and rank.get("stopped"):
        # Its launcher stopped it, because of another rank or of the end of the run: what ended that is recorded.
        return
    elif code is not None and (code != 0 or not job_ended):
        how = f"was killed by signal {signal}" if signal else f"ended with exit code {code}"
        error = node.errors.get(rank["rank"]) if code and not signal else None
        text = f"{name} {how}{f': {error}' if error else ''}"
        yield build_live_cause("rank_ended" if code else "rank_left", text, node.name)


def _find_uneven_start(run: RunObservation, _progress: StepProgress) -> t.Iterator[Cause]:
    """Yield a restart whose ranks began at different steps, as the run itself would be ended for it."""
    began = max(run.gang, key=lambda item: item[1].get("started_at") or 0.0, default=None)
    if began is not None:
        told = begun_steps.replay({node.name: (node.events, node.metrics) for node in run.nodes})
        problem = told.find_problem(str(began[1].get("gang") or ""))
        if problem:
            yield build_live_cause("uneven_resume", *problem)


def _find_launcher_faults(run: RunObservation, _progress: StepProgress) -> t.Iterator[Cause]:
    """Yield launchers that died without an exit code; where all are there, those that wait for their peers' port."""
    found = ((node, ((node.answer or {}).get("units") or {}).get("agent")) for node in run.nodes)
    units = [(node, unit) for node, unit in found if unit and not node.live_ranks]
    dead = [node for node, unit in units if not unit.get("alive") and unit.get("exit") is None]
    for node in dead:
        text = "the launcher no longer exists and did not record an exit code: it was killed, or the machine restarted"
        yield build_live_cause("ranks_missing", text, node.name)
    for node, unit in [] if dead else units:
        if unit.get("state") == "waiting":
            yield build_live_cause("rendezvous_dns", f"the launcher waits {unit.get('detail', '')}".strip(), node.name)


def _find_stopped_ranks(run: RunObservation, _progress: StepProgress) -> t.Iterator[Cause]:
    """Yield ranks that are stopped, or that wait in the kernel without using the processor."""
    for node, rank in run.live_ranks:
        name = f"rank {rank['rank']} (pid {rank['pid']})"
        if rank.get("state") in hang.STOPPED:
            how = "by a debugger" if rank["state"] == "t" else "by a signal"
            seen = hang.read_standing(rank.get("standing") or {})
            where = f" at {seen.place}" if seen is not None and seen.place else ""
            yield build_live_cause("rank_stopped", f"{name} is stopped {how}{where}", node.name)
        elif rank.get("state") == "D" and (rank.get("cpu_percent") or 0.0) < 1:
            where = f" in {rank['waits_in']}" if rank.get("waits_in") not in (None, "0") else ""
            yield build_live_cause("rank_stuck_in_kernel", f"{name} waits in the kernel{where}", node.name)


def _find_hang(run: RunObservation, progress: StepProgress) -> t.Iterator[Cause]:
    """Yield the ranks that the others wait for, with the line at which each stands, as their nodes have seen it."""
    gang = {rank["rank"]: rank for _node, rank in run.gang}
    found = (hang.read_standing(rank.get("standing") or {}) for rank in gang.values() if rank.get("alive"))
    standing = {item.rank: item for item in found if item is not None}
    running = [number for number, rank in gang.items() if rank.get("alive")]
    ended = {number: rank["exit_code"] for number, rank in gang.items() if rank.get("exit_code") is not None}
    hung = hang.name_hang(standing, running, ended)
    if hung is not None and (hung.is_certain or progress.state in ("late", "hanging")):
        waited = f" for {stall.format_span(max(0.0, run.now - hung.since))}"
        # Of one that is stopped, or waits in the kernel, another rule says so.
        for item in (item for item in hung.culprits if item.state not in (*hang.STOPPED, "D")):
            # What the others do is said with a single culprit only.
            others = hung.text.partition("; ")[2] if len(hung.culprits) == 1 else ""
            text = f"{hang.describe_rank(item)}{waited}{f'; {others}' if others else ''}"
            yield build_live_cause("rank_hangs", text, item.node)


def _find_full_storage(run: RunObservation, _progress: StepProgress) -> t.Iterator[Cause]:
    """Yield shared memory and disks that are full."""
    for node in run.nodes:
        shm, disk = (node.answer or {}).get("shm") or {}, (node.answer or {}).get("disk") or {}
        if shm and shm["size_bytes"] and shm["free_bytes"] < _MIB:
            text = f"/dev/shm has {shm['free_bytes']} of {shm['size_bytes']} bytes free"
            yield build_live_cause("dev_shm_full", text, node.name)
        if disk and disk["free_bytes"] == 0:
            yield build_live_cause("disk_full", "the disk of the run's folder has no free space", node.name)


def _find_low_memlock(run: RunObservation, _progress: StepProgress) -> t.Iterator[Cause]:
    """Yield nodes with RDMA whose NCCL ranks may lock too little memory."""
    for node in run.nodes:
        if node.node is None or not any(nic.rdma and nic.active for nic in node.node.nics):
            continue
        limits = [(rank.get("limits") or {}).get("memlock") for rank in node.live_ranks if rank.get("nccl")]
        low = [limit for limit in limits if isinstance(limit, int) and limit < _MIN_MEMLOCK]
        if low:
            yield build_live_cause("memlock_low", f"the ranks may lock {low[0]} bytes of memory", node.name)


def _find_rank_behind(run: RunObservation, progress: StepProgress) -> t.Iterator[Cause]:
    """Yield the rank that the others wait for while no step is finished.

    The surest sign is data in a rank's connections that it does not read, else its use of the processor.
    """
    ranks = run.live_ranks
    stopped = any(rank.get("state") in (*hang.STOPPED, "D") for _node, rank in ranks)
    # When a rank is stopped, what the others do is a consequence.
    if progress.state not in ("hanging", "late", "starting", "restarting") or stopped:
        return
    few = max(1, len(ranks) // 4)
    not_reading = [
        (node, rank, unread) for node, rank in ranks if (unread := live_network_rules.count_unread_bytes(rank)) > 0
    ]
    if not_reading and len(not_reading) <= few:
        for node, rank, unread in not_reading:
            text = f"rank {rank['rank']} does not read {unread} bytes that other ranks sent"
            yield build_live_cause("rank_behind", text, node.name)
        return
    odd, word = _ranks_of_other_load(run, ranks)
    if odd and len(odd) < len(ranks) and len(odd) <= few:
        for node, rank in odd:
            text = f"rank {rank['rank']} {word} ({rank.get('cpu_percent'):g} %) unlike all others"
            yield build_live_cause("rank_behind", text, node.name)


def _ranks_of_other_load(run: RunObservation, ranks: t.Sequence[RankOfNode]) -> tuple[list[RankOfNode], str]:
    """Return the ranks whose use of the processor is not that of a waiting rank, and what they do in words.

    A rank that waits in NCCL keeps a processor busy, a rank that waits in gloo sleeps.
    """
    busy = [pair for pair in ranks if (pair[1].get("cpu_percent") or 0.0) >= _BUSY_PERCENT]
    if _has_gpu(run) and any(rank.get("nccl") and "WORLD_SIZE" in _variable_names(rank) for _node, rank in ranks):
        return [
            pair for pair in ranks if pair[1].get("cpu_percent") is not None and pair not in busy
        ], "uses no processor"
    return busy, "computes"


def _find_slow_steps(run: RunObservation, progress: StepProgress) -> t.Iterator[Cause]:
    if progress.state != "slow":
        return
    yield build_live_cause("slowed_down", f"a step took {progress.step_s:.3g} s and now takes {progress.late_s:.3g} s")
    retransmits = {
        node.name: count
        for node in run.nodes
        if (count := ((node.answer or {}).get("counters") or {}).get("retransmits"))
    }
    worst = max(retransmits, key=lambda name: retransmits[name], default=None)
    if worst is not None and retransmits[worst] > _NODE_RETRANSMITS:
        text = f"{retransmits[worst]} segments were retransmitted during the observation"
        yield build_live_cause("path_lost", text, worst)


def _log_causes(run: RunObservation) -> t.Iterator[Cause]:
    """Yield the causes in the logs of all nodes."""
    for node in run.nodes:
        for log in node.logs:
            for cause in log.causes:
                yield Cause(cause.code, cause.evidence, cause.fix, node.name)


def _find_reported_errors(run: RunObservation, _progress: StepProgress) -> t.Iterator[Cause]:
    """Yield the errors that NCCL's RAS and the kernel report."""
    for node in run.nodes:
        answer = (node.answer or {}).get("ras") or {}
        if answer.get("text"):
            for entry in parse_ras(str(answer["text"])).entries:
                yield from _ras_causes(run, node, entry)
        kernel = (node.answer or {}).get("kernel") or []
        for fault in parse_faults(kernel):
            code = CAUSE_CODES.get(fault.action, "gpu_error")
            yield Cause(code, f"{fault.text} (kernel: {fault.line[:200]})", fault.fix, node.name)
        for cause in diagnose_text("\n".join(kernel), f"{node.name}/kernel").causes if kernel else ():
            if cause.code == "oom_host":
                yield Cause(cause.code, cause.evidence, cause.fix, node.name)


def _ras_causes(run: RunObservation, node: NodeObservation, entry: RasEntry) -> t.Iterator[Cause]:
    """Yield the cause that an entry of one node's RAS reports, with the node that the entry names."""
    code = _RAS_CODES.get(entry.kind)
    if code is None:
        return
    names = {_node_of_address(run, member.node) for member in entry.behind if member.node}
    members = f" ({', '.join(str(member) for member in entry.behind[:_MAX_NAMES])})" if entry.behind else ""
    states = "; ".join(dict.fromkeys(f"{member} {member.state}" for member in entry.behind[:4] if member.state))
    usual = f"; {entry.usual}" if entry.usual else ""
    text = f"{node.name}/ras: {entry.about or entry.kind}{usual}{f': {states}' if states else members}"
    # An entry that names several nodes is not the fault of a single one.
    several = len(names) > 1
    yield build_live_cause(code, text, None if several else next(iter(names), node.name))


def _node_of_address(run: RunObservation, address: str) -> str:
    """Return the node that owns an address, the address itself when no node's facts hold it."""
    return next((node.name for node in run.nodes if node.interface_of(address)), address)


def _find_stall(run: RunObservation, progress: StepProgress) -> t.Iterator[Cause]:
    if progress.state == "hanging":
        usual = f", a step usually takes {progress.step_s:.3g} s" if progress.step_s else ""
        yield build_live_cause("stalled", f"step {progress.last_step} was {progress.since_step_s:.0f} s ago{usual}")


def _variable_names(rank: t.Mapping[str, t.Any]) -> t.Sequence[str]:
    return (rank.get("environment") or {}).get("names") or ()


def _has_gpu(run: RunObservation) -> bool:
    return any(node.node is not None and node.node.gpu.count for node in run.nodes)


# In the order of how sure they are: where several are fatal, the first ones explain the others.
RULES: tuple[Rule, ...] = (
    _find_unreachable_nodes,
    _find_stopped_ranks,
    _find_hang,
    _find_full_storage,
    _find_low_memlock,
    live_network_rules.find_relayed_paths,
    _find_uneven_start,
    _find_absent_ranks,
    _find_launcher_faults,
    live_network_rules.find_connection_faults,
    live_network_rules.find_missing_interfaces,
    live_network_rules.find_virtual_interfaces,
    _find_rank_behind,
    _find_reported_errors,
    live_network_rules.find_silent_tcp,
    _find_slow_steps,
    _find_stall,
)
