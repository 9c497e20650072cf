# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of a live diagnosis: each looks at all nodes and yields causes with their evidence.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import io
import re
import typing as t

from ....module_utils._model.verdict import Cause
from ..parse.nccl_ras import parse_ras
from .file import FileDiagnosis, diagnose_stream
from .live import (
    Dict,
    NodeObservation,
    RunDiagnosis,
    RunObservation,
    StepProgress,
    conclude_diagnosis,
    measure_progress,
)
from .live_causes import build_live_cause
from .log_patterns import is_virtual_interface

MIB = 1 << 20
# Three times the same data without an answer: 1.4 s and more of silence (RFC 6298 doubles 200 ms each time).
_RETRANSMITS = 3
_BUSY_PERCENT = 50.0
_IDLE_PERCENT = 10.0
_MIN_MEMLOCK = 1 << 30
# An answer that took long says that RAS waited, which the missing processes explain.
_RAS_CODES = {
    "incomplete": "ranks_missing",
    "dead": "rank_ended",
    "error": "nccl_error",
    "mismatch": "collective_mismatch",
}
Rule = t.Callable[[RunObservation, StepProgress], t.Iterator[Cause]]


def diagnose_live(live: RunObservation, more: t.Iterable[Cause] = ()) -> RunDiagnosis:
    """Return why a job hangs or is slow, as far as its nodes show it.

    :param more: what somebody else says who knows the job's processes, such as the cluster of its pods.
    """
    progress = measure_progress(live)
    now = [*more, *(found for rule in RULES for found in rule(live, progress))]
    return conclude_diagnosis(live, progress, now, list(_log_causes(live)))


def diagnose_text(text: str, name: str) -> FileDiagnosis:
    """Return the diagnosis of a text that a node gave, called ``name`` in evidence."""
    return diagnose_stream(io.BytesIO(text.encode("utf-8", "replace")), name)


def _find_unreachable_nodes(live: RunObservation, _progress: StepProgress) -> t.Iterator[Cause]:
    for look in live.looks:
        if look.seen is None:
            yield build_live_cause("node_unreachable", look.problem or "no answer", look.name)


def _find_absent_ranks(live: RunObservation, progress: StepProgress) -> t.Iterator[Cause]:
    """Ranks that never started, and ranks that ended while others live."""
    gang, expected = live.gang, live.expected
    seen = {rank["rank"] for _unused, rank in gang}
    # Nobody knows what runs on a node that does not answer.
    known = all(look.seen is not None for look in live.looks)
    missing = [number for number in range(min(expected or 0, 100_000)) if number not in seen] if known else []
    if missing:
        empty = [look.name for look in live.looks if look.seen is not None and not look.ranks]
        where = f"; no rank started on {', '.join(empty[:8])}" if empty else ""
        shown = ", ".join(map(str, missing[:16])) + ("…" if len(missing) > 16 else "")
        node = empty[0] if len(empty) == 1 else None
        yield build_live_cause(
            "ranks_missing", f"{len(seen)} of {expected} ranks started, rank {shown} did not{where}", node
        )
    for look, rank in gang:
        if rank.get("alive"):
            continue
        code, number = rank.get("exit_code"), rank.get("signal")
        killed = number == 9 or (code is None and progress.state != "ended")
        if (look.seen or {}).get("memory", {}).get("oom_kills") and killed:
            kills = (look.seen or {})["memory"]["oom_kills"]
            yield build_live_cause(
                "oom_host", f"rank {rank['rank']} was killed, its control group counts {kills}", look.name
            )
        elif code is None and progress.state != "ended":
            yield build_live_cause(
                "rank_ended", f"rank {rank['rank']} (pid {rank['pid']}) is gone and left no end", look.name
            )
        elif code is not None and (code != 0 or progress.state != "ended"):
            how = f"was killed by signal {number}" if number else f"ended with exit code {code}"
            yield build_live_cause("rank_ended", f"rank {rank['rank']} {how}", look.name)


def _find_launcher_faults(live: RunObservation, _progress: StepProgress) -> t.Iterator[Cause]:
    """A launcher that waits for its peers' port, or died without an end."""
    for look in live.looks:
        unit = ((look.seen or {}).get("units") or {}).get("agent")
        if not unit or look.alive:
            continue
        if unit.get("state") == "waiting":
            yield build_live_cause("rendezvous_dns", f"the launcher waits {unit.get('detail', '')}".strip(), look.name)
        elif not unit.get("alive") and unit.get("exit") is None and not look.ranks:
            yield build_live_cause("ranks_missing", "the launcher is gone and left no end", look.name)


def _find_stopped_ranks(live: RunObservation, _progress: StepProgress) -> t.Iterator[Cause]:
    """Ranks that are stopped, or that the kernel holds without using the processor."""
    for look, rank in _live_ranks(live):
        if rank.get("state") in ("T", "t"):
            how = "by a debugger" if rank["state"] == "t" else "by a signal"
            yield build_live_cause(
                "rank_stopped", f"rank {rank['rank']} (pid {rank['pid']}) is stopped {how}", look.name
            )
        elif rank.get("state") == "D" and (rank.get("cpu_percent") or 0.0) < 1:
            where = f" in {rank['waits_in']}" if rank.get("waits_in") not in (None, "0") else ""
            yield build_live_cause(
                "rank_stuck_in_kernel", f"rank {rank['rank']} (pid {rank['pid']}) waits{where}", look.name
            )


def _find_connection_faults(live: RunObservation, _progress: StepProgress) -> t.Iterator[Cause]:
    """Connections that are not made, not acknowledged, or on an interface that joins no nodes."""
    owners = _connection_owners(live)
    for look, rank in _live_ranks(live):
        for item in rank.get("sockets") or []:
            peer = owners.get((item["peer"], item["peer_port"]), "")
            target = f"{item['peer']}:{item['peer_port']}{f' ({peer})' if peer else ''}"
            if item["state"] == "syn_sent" and item["retransmits"] >= 1:
                text = f"rank {rank['rank']} asks {target} for a connection and gets no answer"
                yield build_live_cause("socket_connect_timeout", text, look.name)
            elif item["state"] == "established" and item["retransmits"] >= _RETRANSMITS and item["unsent_bytes"]:
                yield from _lost_path_causes(live, look, rank, item, target, peer)


def _lost_path_causes(
    live: RunObservation, look: NodeObservation, rank: Dict, item: Dict, target: str, peer: str
) -> t.Iterator[Cause]:
    own = _interface_mtu(look, item["local"])
    other = next((_interface_mtu(one, item["peer"]) for one in live.looks if one.name == peer), None)
    text = f"rank {rank['rank']} sent {item['unsent_bytes']} bytes to {target} {item['retransmits']} times in vain"
    if own and other and own != other:
        yield build_live_cause("mtu_black_hole", f"MTU {own} here and {other} on {peer}", look.name)
    yield build_live_cause("path_lost", text, look.name)


def _find_wrong_interfaces(live: RunObservation, _progress: StepProgress) -> t.Iterator[Cause]:
    """A variable that names an interface which the node has not, or ranks that meet on a container's or mesh's one."""
    for look, rank in _live_ranks(live):
        told = (rank.get("environment") or {}).get("network") or {}
        known = {item.name for item in look.node.interfaces} if look.node else set()
        for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
            value = told.get(name, "")
            exact = value.lstrip("=").split(",")[0].split(":")[0]
            whole = name.startswith("GLOO") or value.startswith("=")
            if known and whole and exact not in ("", "lo", *known):
                text = f"rank {rank['rank']}: {name} is {value}, which is no interface of this node"
                yield build_live_cause("wrong_interface", text, look.name)
        for item in rank.get("sockets") or []:
            via = look.interface_of(item["local"])
            asked = via is not None and any(via in value for value in told.values())
            if via and is_virtual_interface(via) and via != "lo" and not asked and item["state"] == "established":
                text = f"rank {rank['rank']} is connected to {item['peer']} over {via}"
                yield build_live_cause("wrong_interface", text, look.name)
                break


def _find_silent_tcp(live: RunObservation, _progress: StepProgress) -> t.Iterator[Cause]:
    for look in live.looks:
        counters = (look.seen or {}).get("counters") or {}
        rdma, netdev = counters.get("rdma") or {}, counters.get("netdev") or {}
        by_rdma = sum(item["tx_bytes"] for item in rdma.values())
        by_tcp = sum(item["tx_bytes"] for name, item in netdev.items() if name != "lo")
        if rdma and any(rank.get("nccl") for rank in look.alive) and by_tcp > 8 * MIB and by_rdma < MIB:
            text = f"interfaces sent {by_tcp} bytes, RDMA ports {by_rdma}, in {(look.seen or {}).get('window_s')} s"
            yield build_live_cause("silent_tcp", text, look.name)


def _find_exhausted_limits(live: RunObservation, _progress: StepProgress) -> t.Iterator[Cause]:
    """Shared memory, disk and locked memory that are used up or too small."""
    for look in live.looks:
        seen = look.seen or {}
        shm, disk = seen.get("shm") or {}, seen.get("disk") or {}
        if shm and shm["size_bytes"] and shm["free_bytes"] < MIB:
            yield build_live_cause(
                "dev_shm_full", f"/dev/shm has {shm['free_bytes']} of {shm['size_bytes']} bytes free", look.name
            )
        if disk and disk["free_bytes"] == 0:
            yield build_live_cause("disk_full", "no byte is free where the run's folder is", look.name)
        rdma = look.node is not None and any(nic.rdma and nic.active for nic in look.node.nics)
        locked = [rank["limits"].get("memlock") for rank in look.alive if rank.get("nccl") and rank.get("limits")]
        small = [value for value in locked if isinstance(value, int) and value < _MIN_MEMLOCK]
        if rdma and small:
            yield build_live_cause("memlock_low", f"the ranks may lock {small[0]} bytes of memory", look.name)
        if look.node is not None and look.node.mesh_path == "relayed" and _uses_mesh(look):
            yield build_live_cause("relayed_path", "tailscale reaches a peer through a relay only", look.name)


def _uses_mesh(look: NodeObservation) -> bool:
    mesh = {item.address for item in look.node.addresses.mesh} if look.node else set()
    return any(item["local"] in mesh for rank in look.alive for item in rank.get("sockets") or [])


def _find_rank_behind(live: RunObservation, progress: StepProgress) -> t.Iterator[Cause]:
    """The one rank that does not do what all others do while nothing moves.

    Data that waits in a rank's connections and that it does not read is the surest sign. Else: NCCL's waiting ranks
    keep a processor busy and gloo's sleep, so that the one that differs is the one that is waited for.
    """
    if progress.state not in ("hanging", "starting"):
        return
    alive = _live_ranks(live)
    if any(rank.get("state") in ("T", "t", "D") for _unused, rank in alive):
        # What the others do then is a consequence.
        return
    deaf = [(look, rank, unread) for look, rank in alive if (unread := _unread_bytes(rank)) > 0]
    if deaf and len(deaf) <= max(1, len(alive) // 4):
        for look, rank, unread in deaf:
            yield build_live_cause(
                "rank_behind", f"rank {rank['rank']} leaves {unread} bytes of other ranks unread", look.name
            )
        return
    busy = [pair for pair in alive if (pair[1].get("cpu_percent") or 0.0) >= _BUSY_PERCENT]
    idle = [pair for pair in alive if pair[1].get("cpu_percent") is not None and pair not in busy]
    waiting_is_busy = any(
        rank.get("nccl") and "WORLD_SIZE" in _variable_names(rank) for _unused, rank in alive
    ) and _has_gpu(live)
    odd, word = (idle, "uses no processor") if waiting_is_busy else (busy, "computes")
    if odd and len(odd) < len(alive) and len(odd) <= max(1, len(alive) // 4):
        for look, rank in odd:
            share = rank.get("cpu_percent")
            yield build_live_cause(
                "rank_behind", f"rank {rank['rank']} {word} ({share:g} %) unlike all others", look.name
            )


def _find_slow_steps(live: RunObservation, progress: StepProgress) -> t.Iterator[Cause]:
    if progress.state == "slow":
        text = f"a step took {progress.step_s:.3g} s and takes {progress.late_s:.3g} s now"
        yield build_live_cause("slowed_down", text)
    retransmits = {
        look.name: counted
        for look in live.looks
        if (counted := ((look.seen or {}).get("counters") or {}).get("retransmits"))
    }
    worst = max(retransmits, key=lambda name: retransmits[name], default=None)
    if worst is not None and progress.state == "slow" and retransmits[worst] > 20:
        yield build_live_cause("path_lost", f"{retransmits[worst]} segments were sent again while we looked", worst)


def _log_causes(live: RunObservation) -> t.Iterator[Cause]:
    """What the logs say."""
    for look in live.looks:
        for one in look.logs:
            for item in one.causes:
                yield Cause(item.code, item.evidence, item.fix, look.name)


def _find_reported_errors(live: RunObservation, _progress: StepProgress) -> t.Iterator[Cause]:
    """What NCCL's RAS and the kernel say."""
    for look in live.looks:
        answer = (look.seen or {}).get("ras") or {}
        if answer.get("text"):
            yield from _ras_causes(live, look, str(answer["text"]))
        kernel = (look.seen or {}).get("kernel") or []
        for line in kernel:
            if re.search(r"\bXid\b", line):
                yield build_live_cause("gpu_error", f"kernel: {line[:200]}", look.name)
        for item in diagnose_text("\n".join(kernel), f"{look.name}/kernel").causes if kernel else ():
            if item.code == "oom_host":
                yield Cause(item.code, item.evidence, item.fix, look.name)


def _ras_causes(live: RunObservation, look: NodeObservation, text: str) -> t.Iterator[Cause]:
    """What NCCL's RAS on one node says of the whole job, with the nodes that its addresses are."""
    for entry in parse_ras(text).entries:
        code = _RAS_CODES.get(entry.kind)
        if code is None:
            continue
        nodes = {_node_at(live, item.node) for item in entry.behind if item.node}
        named = f" ({', '.join(str(item) for item in entry.behind[:8])})" if entry.behind else ""
        usual = f"; {entry.usual}" if entry.usual else ""
        says = "; ".join(dict.fromkeys(f"{item} {item.says}" for item in entry.behind[:4] if item.says))
        told = f": {says}" if says else named
        # What several nodes share is no single node's fault.
        node = nodes.pop() if len(nodes) == 1 else None if nodes else look.name
        yield build_live_cause(code, f"{look.name}/ras: {entry.about or entry.kind}{usual}{told}", node)


def _node_at(live: RunObservation, address: str) -> str:
    """Return the node that owns an address, the address itself when nobody shows that."""
    return next((look.name for look in live.looks if look.interface_of(address)), address)


def _find_stall(live: RunObservation, progress: StepProgress) -> t.Iterator[Cause]:
    if progress.state == "hanging":
        usual = f", a step takes {progress.step_s:.3g} s" if progress.step_s else ""
        yield build_live_cause("stalled", f"step {progress.last_step} was {progress.since_step_s:.0f} s ago{usual}")


def _live_ranks(live: RunObservation) -> list[tuple[NodeObservation, Dict]]:
    return [(look, rank) for look in live.looks for rank in look.alive]


def _connection_owners(live: RunObservation) -> dict[tuple[str, int], str]:
    """Return which node owns an end of a connection, by the ends that its own ranks show."""
    found = {}
    for look, rank in _live_ranks(live):
        for item in rank.get("sockets") or []:
            found[(item["local"], item["local_port"])] = look.name
    addresses = {}
    for look in live.looks:
        items = (*look.node.addresses.lan, *look.node.addresses.mesh) if look.node else ()
        addresses.update({item.address: look.name for item in items if not item.address.startswith("127.")})
    peers = {
        (item["peer"], item["peer_port"]) for _unused, rank in _live_ranks(live) for item in rank.get("sockets") or []
    }
    found.update({end: addresses[end[0]] for end in peers if end not in found and end[0] in addresses})
    return found


def _interface_mtu(look: NodeObservation, address: str) -> int | None:
    name = look.interface_of(address)
    found = look.node.interface(name) if look.node and name else None
    return found.mtu if found else None


def _unread_bytes(rank: Dict) -> int:
    return sum(item["unread_bytes"] for item in rank.get("sockets") or [] if item["state"] == "established")


def _variable_names(rank: Dict) -> t.Sequence[str]:
    return (rank.get("environment") or {}).get("names") or ()


def _has_gpu(live: RunObservation) -> bool:
    return any(look.node is not None and look.node.gpu.count for look in live.looks)


# In the order of how sure they are: where several are fatal, the first ones explain the others.
RULES: tuple[Rule, ...] = (
    _find_unreachable_nodes,
    _find_stopped_ranks,
    _find_exhausted_limits,
    _find_absent_ranks,
    _find_launcher_faults,
    _find_connection_faults,
    _find_wrong_interfaces,
    _find_rank_behind,
    _find_reported_errors,
    _find_silent_tcp,
    _find_slow_steps,
    _find_stall,
)
