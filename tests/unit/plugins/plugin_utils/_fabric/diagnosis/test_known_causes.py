# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cause that a run's record names, and what a diagnosis makes of it beside what its nodes show."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis.known_causes import (
    find_end_code,
    find_known_causes,
)
from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis.known_run import KnownRun
from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis.live import (
    NodeObservation,
    RunObservation,
)
from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis.live_causes import find_fix
from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis.live_rules import diagnose_live

from .test_known_run import known

Dict = dict[str, t.Any]
FULL = "n0: /c cannot be written: No space left on device (user 0)"


@pytest.mark.parametrize(
    ("cause", "detail", "code"),
    [
        ("crash", FULL, "disk_full"),
        ("crash", "/checkpoints/r cannot be written: Permission denied (user 1000)", "permission_denied"),
        ("fatal_exit_code", "a rank on n0 exited with code 7", None),
        ("node_lost", "n0 was lost", "node_unreachable"),
        ("out_of_memory", "", "oom_host"),
        ("image", "its image cannot be pulled", "pod_image"),
        ("timeout", "timeout_s (9 s) has passed", None),
    ],
)
def test_the_code_of_an_end(cause: str, detail: str, code: str | None) -> None:
    assert find_end_code(cause, detail) == code


def test_the_code_of_a_run_that_stood_is_that_of_its_backend() -> None:
    assert [find_end_code("stalled", "", gpus=gpus) for gpus in (False, True)] == ["stalled_stopped", "stalled_nccl"]
    stood = known(state="ended", outcome="failed", cause="stalled", detail="it stood", job={"gpus_per_node": 8})
    assert [item.code for item in find_known_causes(stood, stands=False, backend="hosts")] == ["stalled_nccl"]


def ended(cause: str, detail: str) -> KnownRun:
    return known(state="ended", outcome="failed", cause=cause, detail=detail, hosts=["n0", "n1"])


def test_a_run_that_ended_as_lost_is_no_pass_although_the_ranks_that_are_seen_ended_well() -> None:
    """Its other node was lost before anything of its ranks' ends could be read; nothing of it continues."""
    done = {"rank": 0, "attempt": 1, "world_size": 1, "alive": False, "exit_code": 0, "pid": 7}
    there = NodeObservation("n0", {"at": 9.0, "ranks": [done]})
    record = known(state="ended", outcome="lost", cause="node_lost", detail="n1 was lost", hosts=["n0", "n1"])
    gone = NodeObservation("n1", None, "no answer")
    for nodes in ((there,), (there, gone)):
        found = diagnose_live(RunObservation("r-1", nodes, 1, "hosts", known=record))
        assert found.outcome == "fail" and not found.has_succeeded
        assert {item.code for item in found.causes} == {"node_unreachable"}
        assert all("the run has ended" in item.fix.lower() for item in found.causes)
        assert not any("continues when it answers" in item.fix for item in found.causes)


def test_what_a_run_ended_by_is_named_with_its_node_and_without_its_fix_twice() -> None:
    fix = find_fix("disk_full", "kubernetes")
    (found,) = find_known_causes(ended("crash", f"{FULL}. {fix}"), stands=False, backend="kubernetes")
    assert (found.code, found.node, found.evidence) == ("disk_full", "n0", FULL)
    (plain,) = find_known_causes(ended("crash", "a rank on n1 exited with code 3"), stands=False, backend="hosts")
    assert (plain.code, plain.node) == ("rank_ended", "n1")
    assert not find_known_causes(ended("timeout", "it has passed"), stands=False, backend="hosts")
    assert not find_known_causes(None, stands=True, backend="hosts")


def test_the_half_saved_file_that_a_program_failed_to_load_is_named() -> None:
    said = "a rank on n0 exited with code 1: RuntimeError: PytorchStreamReader failed finding central directory"
    half = {"kind": "checkpoint_half_saved", "node": "n0", "folder": "/ck", "detail": "ckpt.pt is half saved: no end"}
    run = known({"at": 190.0, **half}, state="ended", outcome="failed", cause="crash", detail=said, hosts=["n0"])
    (found,) = find_known_causes(run, stands=False, backend="hosts")
    assert found.code == "checkpoint_failed" and found.node == "n0"
    assert "; /ck: checkpoint ckpt.pt is half saved: no end (on n0), and no whole one is there." in found.evidence
    assert "delete it to begin anew" in found.evidence


def test_a_lost_node_is_no_cause_while_steps_are_made() -> None:
    lost = dataclasses.replace(known({"at": 120.0, "kind": "node_lost", "node": "n0"}), over=False)
    assert [item.code for item in find_known_causes(lost, stands=True, backend=None)] == ["node_unreachable"]
    assert not find_known_causes(lost, stands=False, backend=None)


def empty(name: str) -> NodeObservation:
    return NodeObservation(name, {"at": 200.0, "ranks": [], "units": {}})


@pytest.mark.parametrize("backend", ["hosts", "kubernetes"])
def test_ranks_whose_folders_or_pods_are_gone_had_started(backend: t.Any) -> None:
    """The record knows them: of a run that ended, and of one that starts again."""
    nodes = (empty("n0"), empty("n1"))
    over = diagnose_live(RunObservation("x", nodes, 2, backend, known=ended("crash", FULL)))
    assert (over.progress.state, over.progress.last_step, over.outcome) == ("ended", 2, "fail")
    assert [item.code for item in over.causes] == ["disk_full"] and not over.also
    between = dataclasses.replace(known({"at": 120.0, "kind": "node_lost", "node": "n0"}), over=False)
    again = diagnose_live(RunObservation("x", nodes, 2, backend, known=between))
    assert (again.progress.state, again.outcome) == ("restarting", "warn")
    assert [(item.code, item.node) for item in again.causes] == [("node_unreachable", "n0")] and not again.also


def test_ranks_that_no_attempt_has_seen_are_missing_all_the_same() -> None:
    none = KnownRun(False, 150.0)
    found = diagnose_live(RunObservation("x", (empty("n0"), empty("n1")), 2, "hosts", known=none))
    assert found.progress.state == "not_started" and [item.code for item in found.causes] == ["ranks_missing"]


RESET = (
    "RuntimeError: [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:545] Read error "
    "[127.0.0.1]:16298: Connection reset by peer. This is typically caused by a remote worker hanging or bugs in the "
    "application. Check the logs of the remote worker before reporting an error"
)


def test_the_reset_of_a_peer_is_what_followed_from_the_rank_that_left() -> None:
    """The launchers' lines are those of a program whose first rank had fewer batches."""
    said = f"rank 0 on n0 ended with exit code 0 while the others went on; a rank on n1 exited with code 1: {RESET}"
    assert [item.code for item in find_known_causes(ended("crash", said), stands=False, backend="hosts")] == [
        "socket_reset"
    ]
    starts = [{"at": 10.0, "kind": "worker_started", "rank": rank, "node": f"n{rank}", "attempt": 1} for rank in (0, 1)]
    exits = [
        {"at": 20.0 + rank, "kind": "worker_exit", "rank": rank, "node": f"n{rank}", "attempt": 1, "exit_code": rank}
        for rank in (0, 1)
    ]
    record = {"state": "ended", "outcome": "failed", "cause": "crash", "detail": said, "hosts": ["n0", "n1"]}
    left = KnownRun.build(record, [*starts, *exits], [], 100.0)
    (found,) = find_known_causes(left, stands=False, backend="hosts")
    assert (found.code, found.node) == ("rank_left", "n0")
    assert found.evidence == "rank 0 on n0 ended with exit code 0 while the others went on"
    # Also where its folders are gone, and once where a node shows it.
    gone = diagnose_live(RunObservation("x", (empty("n0"), empty("n1")), 2, "hosts", known=left))
    assert [(item.code, item.node) for item in gone.causes] == [("rank_left", "n0")]
    assert left.describe_end().startswith("failed: crash: rank 0 on n0 ended with exit code 0")


def test_ranks_that_begin_apart_are_the_cause_of_no_single_node() -> None:
    said = "rank 0 on n0 resumed from step 30, rank 1 on n1 from step 0"
    (found,) = find_known_causes(ended("uneven_resume", said), stands=False, backend="hosts")
    assert (found.code, found.node) == ("uneven_resume", None)
