# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a look at a running job says: one rule at a time, and what decides where several apply."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import error_line
from ansible_collections.muster.training.plugins.module_utils._model.node import Node
from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis.live import (
    NodeObservation,
    RunDiagnosis,
    RunObservation,
)
from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis.live_rules import (
    diagnose_live,
    diagnose_text,
)

Dict = dict[str, t.Any]
NOW = 10_000.0
RDMA_NIC = {"name": "mlx5_0", "rdma": True, "link_layer": "infiniband", "rate_gbps": 400, "state": "active"}


def end(**changes: t.Any) -> Dict:
    base: Dict = {"local": "10.0.0.1", "local_port": 5000, "peer": "10.0.0.2", "peer_port": 6000}
    return {**base, "state": "established", "unsent_bytes": 0, "unread_bytes": 0, "retransmits": 0, **changes}


def rank(number: int, **changes: t.Any) -> Dict:
    return {
        "rank": number,
        "attempt": 1,
        "world_size": 2,
        "pid": 100 + number,
        "started_at": NOW - 1000,
        "alive": True,
        "exit_code": None,
        "signal": None,
        "state": "S",
        "waits_in": None,
        "cpu_percent": 0.0,
        "nccl": False,
        "limits": {"memlock": "unlimited"},
        "sockets": [],
        "environment": {"names": ["RANK", "WORLD_SIZE"], "network": {}},
        **changes,
    }


def look(
    name: str, *ranks: Dict, facts: Dict | None = None, steps: t.Any = (), logs: t.Any = (), **seen: t.Any
) -> NodeObservation:
    address = {"a": "10.0.0.1", "b": "10.0.0.2"}[name]
    own: Dict = {"name": name, "addresses": {"lan": [{"address": address, "interface": "eth0", "prefix": 24}]}}
    interfaces = [{"name": "eth0", "mtu": 1500}, {"name": "lo"}]
    node = Node.from_dict({**own, "interfaces": interfaces, **(facts or {})})
    base: Dict = {"at": NOW, "units": {}, "ranks": list(ranks), "window_s": 1.0, "kernel": [], "ras": None}
    base.update(counters={"netdev": {}, "rdma": {}, "retransmits": 0}, memory={"oom_kills": 0})
    base.update(shm={"size_bytes": 1 << 30, "free_bytes": 1 << 30}, disk={"size_bytes": 9, "free_bytes": 9})
    return NodeObservation(name, {**base, **seen}, "", node, tuple(logs), tuple(steps))


def steps(*at: float) -> list[tuple[float, int]]:
    return [(time, number) for number, time in enumerate(at, 1)]


HUNG = steps(*(NOW - 500 + i for i in range(10)))
MOVES = steps(*(NOW - 20 + i for i in range(20)))


def judged(*looks: NodeObservation, world_size: int | None = 2) -> RunDiagnosis:
    return diagnose_live(RunObservation("run", tuple(looks), world_size))


def codes(found: RunDiagnosis) -> list[tuple[str, str | None]]:
    return [(item.code, item.node) for item in found.causes]


def test_nothing_started_and_half_of_it() -> None:
    assert judged(look("a"), look("b")).progress.state == "not_started"
    found = judged(look("a", rank(0), steps=HUNG), look("b"))
    assert codes(found) == [("ranks_missing", "b")] and found.outcome == "fail"
    assert found.causes[0].evidence == "1 of 2 ranks started, rank 1 did not; no rank started on b"


def test_the_launcher_waits_or_is_gone() -> None:
    unit: Dict = {"alive": True, "state": "waiting", "detail": "for 10.0.0.1:29500", "exit": None}
    found = judged(look("a", units={"agent": unit}), look("b"))
    assert ("rendezvous_dns", "a") in codes(found)
    gone = judged(look("a", units={"agent": {**unit, "alive": False, "state": "running"}}), look("b"), world_size=None)
    assert codes(gone) == [("ranks_missing", "a")]


def test_a_launcher_that_waits_for_one_that_was_killed_is_not_the_cause() -> None:
    waits: Dict = {"alive": True, "state": "waiting", "detail": "for 10.0.0.1:29500", "exit": None}
    killed: Dict = {"alive": False, "state": "running", "exit": None}
    before = rank(1, alive=False, attempt=1)
    found = judged(look("a", units={"agent": waits}), look("b", before, units={"agent": killed}))
    assert ("ranks_missing", "b") in codes(found) and "rendezvous_dns" not in {code for code, _node in codes(found)}


@pytest.mark.parametrize(
    ("changes", "code", "text"),
    [
        ({"state": "T"}, "rank_stopped", "stopped by a signal"),
        ({"state": "t"}, "rank_stopped", "by a debugger"),
        ({"state": "D", "waits_in": "nfs_wait_bit_killable"}, "rank_stuck_in_kernel", "nfs_wait_bit_killable"),
        ({"alive": False, "exit_code": 7}, "rank_ended", "ended with exit code 7"),
        ({"alive": False, "exit_code": 137, "signal": 9}, "rank_ended", "was killed by signal 9"),
        ({"alive": False}, "rank_ended", "did not record an exit code"),
    ],
)
def test_a_rank_that_is_not_well(changes: Dict, code: str, text: str) -> None:
    found = judged(look("a", rank(0), steps=HUNG), look("b", rank(1, **changes)))
    assert codes(found) == [(code, "b")] and text in found.causes[0].evidence and found.outcome == "fail"


def test_a_rank_that_works_in_the_kernel_is_not_stuck() -> None:
    found = judged(look("a", rank(0), steps=HUNG), look("b", rank(1, state="D", cpu_percent=40.0)))
    assert codes(found) == [("stalled", None)]


def test_a_kill_beside_a_counted_out_of_memory_kill() -> None:
    killed = rank(1, alive=False, exit_code=137, signal=9)
    found = judged(look("a", rank(0), steps=HUNG), look("b", killed, memory={"oom_kills": 1}))
    assert codes(found) == [("oom_host", "b")]


@pytest.mark.parametrize(
    ("seen", "code"),
    [
        ({"shm": {"size_bytes": 64 << 20, "free_bytes": 0}}, "dev_shm_full"),
        ({"disk": {"size_bytes": 9, "free_bytes": 0}}, "disk_full"),
        ({"kernel": ["NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus."]}, "gpu_error"),
        ({"kernel": ["Memory cgroup out of memory: Killed process 17 (python)"]}, "oom_host"),
    ],
)
def test_what_is_used_up_or_broken_on_a_node(seen: Dict, code: str) -> None:
    found = judged(look("a", rank(0), steps=HUNG), look("b", rank(1), **seen))
    assert codes(found)[0] == (code, "b") and found.outcome == "fail"


def test_locked_memory_counts_with_rdma_only() -> None:
    small = rank(0, nccl=True, limits={"memlock": 8 << 20})
    for nics, expected in (([RDMA_NIC], [("memlock_low", "a")]), ([], [])):
        found = judged(look("a", small, facts={"nics": nics}, steps=MOVES), look("b", rank(1)))
        assert codes(found) == expected


def test_the_rank_that_computes_while_gloo_s_others_wait() -> None:
    ranks = [rank(n, world_size=4) for n in range(3)]
    found = judged(look("a", *ranks, steps=HUNG), look("b", rank(3, world_size=4, cpu_percent=99.0)), world_size=4)
    assert codes(found) == [("rank_behind", "b")] and "computes (99 %)" in found.causes[0].evidence


def test_the_rank_that_sleeps_while_nccl_s_others_spin() -> None:
    facts = {"gpu": {"count": 8, "model": "H100"}}
    ranks = [rank(n, world_size=4, nccl=True, cpu_percent=100.0) for n in range(3)]
    odd = rank(3, world_size=4, nccl=True, cpu_percent=0.0)
    found = judged(look("a", *ranks, facts=facts, steps=HUNG), look("b", odd, facts=facts), world_size=4)
    assert codes(found) == [("rank_behind", "b")] and "uses no processor" in found.causes[0].evidence


def test_ranks_that_all_wait_blame_nobody() -> None:
    ranks = [rank(n, world_size=4) for n in range(4)]
    found = judged(look("a", *ranks[:2], steps=HUNG), look("b", *ranks[2:]), world_size=4)
    assert codes(found) == [("stalled", None)]


def test_what_ras_and_logs_say() -> None:
    # The form of NCCL's RAS client (docs "RAS", section on the verbose status).
    text = (
        "#0-0 (27a079b828ff1a75) MISMATCH\n"
        "  Communicator ranks have different collective operation counts\n"
        "  26 ranks have launched up to operation 6650\n"
    )
    ras = {"address": "localhost:28028", "text": text, "problem": None}
    log = diagnose_text("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n", "b/units/agent/log")
    found = judged(look("a", rank(0), steps=HUNG, ras=ras), look("b", rank(1), logs=[log]))
    assert set(codes(found)) == {("collective_mismatch", "a"), ("oom_gpu", "b")}
    assert any(item.evidence.startswith("a/ras:") for item in found.causes)


def told(
    node: str, number: int, began: float, gang: str, *metrics: Dict, has: str | None = None
) -> tuple[t.Any, t.Any]:
    """Return (events, metrics) of a rank's start and of what it reports after it."""
    common: Dict = {"node": node, "gang": gang, "at": began}
    seen: Dict = {"kind": "checkpoints_seen", "detail": has, "folder": "/c", **common}
    return (seen, {"kind": "worker_started", "rank": number, "attempt": 1, **common}), metrics


@pytest.mark.parametrize(
    ("first", "early", "named"),
    [
        ({"a": 101, "b": 1}, {"a": 1, "b": 1}, True),
        ({"a": 101, "b": 101}, {"a": 1, "b": 1}, False),
        # Where they began before is not known, or they have never been at one step.
        ({"a": 101, "b": 1}, {"a": 1}, False),
        ({"a": 101, "b": 1}, {"a": 104, "b": 30}, False),
    ],
)
def test_a_restart_at_different_steps_is_named_first(first: dict[str, int], early: dict[str, int], named: bool) -> None:
    """The rank that was killed, and the connections that it cut, are why there was a restart, not why it stands."""
    looks = []
    for number, name in enumerate("ab"):
        before = [{"at": NOW - 2000 + step, "step": early[name] + step} for step in range(5) if name in early]
        after = [{"at": NOW - 900 + step, "step": first[name] + step} for step in range(5)]
        one, two = told(name, number, NOW - 2000, "1/x", *before), told(name, number, NOW - 1000, "1/y", *after)
        seen = look(name, rank(number, gang="1/y"), steps=HUNG)
        # As a node keeps them: its tail may begin anywhere.
        looks.append(dataclasses.replace(seen, events=(*one[0], *two[0]), metrics=(*one[1], *two[1])))
    found = judged(*looks)
    assert (codes(found)[:1] == [("uneven_resume", "b")]) is named
    if named:
        assert found.causes[0].evidence.startswith("a began at step 101, b at step 1: neither has a checkpoint in /c")
        assert "MUSTER_CHECKPOINT_DIR" in found.causes[0].fix


def test_ranks_that_resumed_from_different_steps_are_named_with_why() -> None:
    looks = []
    for number, (name, step, has) in enumerate((("a", 20, "c_20.pt"), ("b", 0, None))):
        resumed = {"at": NOW - 999, "resumed_from_step": step, "rank": number}
        events, metrics = told(name, number, NOW - 1000, "2/y", resumed, has=has)
        stopped = rank(number, gang="2/y", alive=False, exit_code=143, ended_at=NOW - 990)
        looks.append(dataclasses.replace(look(name, stopped), events=events, metrics=metrics))
    found = judged(*looks)
    words = "rank 0 on a resumed from step 20, rank 1 on b from step 0: b has no checkpoint in /c, a has c_20.pt"
    assert codes(found)[0] == ("uneven_resume", "b") and found.causes[0].evidence == words


def test_a_rank_that_failed_is_named_with_its_own_error() -> None:
    text = (
        "[default0]:[rank0]: RuntimeError: Connection closed by peer [10.0.0.2]:5\n"
        "[default1]:[rank1]: ValueError: bad sample 17\n"
    )
    failed = look("a", rank(0, alive=False, exit_code=1), rank(1, alive=False, exit_code=1), steps=HUNG)
    found = judged(dataclasses.replace(failed, errors=error_line.rank_errors(text)), look("b"))
    said = {cause.evidence for cause in found.causes if cause.code == "rank_ended"}
    assert said == {
        "rank 0 ended with exit code 1: RuntimeError: Connection closed by peer [10.0.0.2]:5",
        "rank 1 ended with exit code 1: ValueError: bad sample 17",
    }


def test_ranks_that_their_launcher_stopped_are_no_cause_of_an_end() -> None:
    """The run ended by its crashes, while ranks of one more attempt had begun: its record says why."""
    stopped = {"alive": False, "exit_code": 143, "signal": 15, "stopped": True}
    found = judged(look("a", rank(0, **stopped), steps=HUNG), look("b", rank(1, **stopped)))
    assert found.progress.state == "ended" and "rank_ended" not in {code for code, _node in codes(found)}


def test_what_was_reported_before_a_run_succeeded_is_over() -> None:
    log = diagnose_text("RuntimeError: gloo: Connection closed by peer [10.0.0.2]:5", "a/log")
    ended = [rank(number, alive=False, exit_code=0) for number in (0, 1)]
    found = judged(look("a", ended[0], steps=HUNG, logs=[log]), look("b", ended[1]))
    assert (found.progress.state, found.outcome, found.causes) == ("ended", "pass", ())
    assert [cause.code for cause in found.also] == ["socket_reset"]


def standing(number: int, name: str, operation: str | None = None, **changes: t.Any) -> Dict:
    """What the watch of a node says of a rank that stands since half a minute."""
    place = {"name": "step", "path": "/x/train.py", "line": 20 + number}
    seen = {"rank": number, "node": name, "since": NOW - 30, "operation": operation, "place": place, "state": "S"}
    return rank(number, standing={**seen, **changes})


def test_the_rank_that_the_others_wait_for_is_named_with_its_line() -> None:
    waits, stands = standing(0, "a", "all_reduce"), standing(1, "b", waits_in="futex_do_wait")
    found = judged(look("a", waits, steps=steps(10, 9, 8)), look("b", stands))
    hang = next(cause for cause in found.causes if cause.code == "rank_hangs")
    assert (hang.node, found.outcome) == ("b", "fail")
    assert hang.evidence == (
        "rank 1 on b waits for a lock at train.py:21 (step) for 30 s; rank 0 waits in all_reduce at train.py:20 (step)"
    )
    assert "rank_hangs" not in dict(codes(judged(look("a", waits), look("b", rank(1)))))
    stopped = standing(1, "b", state="T")
    found = judged(look("a", waits), look("b", {**stopped, "state": "T"}))
    assert [cause.code for cause in found.causes if "rank 1" in cause.evidence] == ["rank_stopped"]
    assert "is stopped by a signal at train.py:21 (step)" in found.causes[0].evidence


@pytest.mark.parametrize(
    ("said", "named"),
    [
        (
            "RuntimeError: [gloo/pair.cc:554] Connection closed by peer [10.0.0.2]:40817",
            ["rank_left b", "rank_ended a"],
        ),
        ("OSError: [Errno 28] No space left on device", ["disk_full a"]),
        ("", ["rank_ended a"]),
    ],
)
def test_a_rank_that_left_is_named_where_the_others_failed_for_it(said: str, named: list[str]) -> None:
    """As the run's last line does it: one that failed by itself is named alone."""
    left = rank(1, alive=False, exit_code=0, ended_at=NOW - 20)
    failed = rank(0, alive=False, exit_code=1, ended_at=NOW - 12)
    logs = [diagnose_text(f"{said}\n", "a/log")] if said else []
    found = judged(look("a", failed, logs=logs, steps=HUNG), look("b", left))
    assert [f"{cause.code} {cause.node}" for cause in found.causes] == named
    if named[0] == "rank_left b":
        words = "rank 1 on b ended with exit code 0 at step 10 while the others went on"
        assert found.causes[0].evidence == words and "more batches left" in found.causes[0].fix
    # One that ended after a failure was ended by it, or was ready.
    late = judged(look("a", failed, logs=logs), look("b", {**left, "ended_at": NOW - 5}))
    assert not [cause for cause in late.causes if cause.node == "b"]
