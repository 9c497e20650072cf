# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a run ended, asked of its machines when nobody followed it."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import subprocess
import time
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.lease import Instance, SshEndpoint
from ansible_collections.muster.training.plugins.module_utils._model.ledger import Lease
from ansible_collections.muster.training.plugins.plugin_utils._provision.bill.due_rules import RunView
from ansible_collections.muster.training.plugins.plugin_utils._provision.run_exit_ssh import (
    GRACE_S,
    NodeEnd,
    SshRunReader,
    find_ended_runs,
    judge_run,
    parse_run_end,
)

MACHINE = Instance(
    "lambda", "i-1", "lab-h100-0-1f2e3d4c", "1f2e3d4c", "running", ssh=SshEndpoint("192.0.2.1", 22, "ubuntu")
)
LEASE = Lease(
    token="1f2e3d4c",
    resource="instance",
    cluster="lab",
    pool="h100",
    name="lab-h100-0-1f2e3d4c",
    provider="lambda",
    account="acc1",
    state="joined",
    settled=True,
    intent_at=0.0,
    changed_at=0.0,
    ids=("i-1",),
    run_id="r1",
    release="always",
    run_place={"nodes": [{"id": "i-1", "run_dir": "/state/nodes/a/runs/r1", "decides": True}]},
)
OLD = GRACE_S + 1
ENDED = NodeEnd("ended", 0, "succeeded", OLD)


@pytest.mark.parametrize(
    ("ends", "outcome"),
    [
        ([(ENDED, True), (ENDED, True)], "succeeded"),
        ([(ENDED, True), (NodeEnd("ended", 1, "crash", OLD), True)], "failed"),
        ([(ENDED, True), (NodeEnd("ended", 143, "cancelled", OLD), True)], "cancelled"),
        ([(ENDED, True), (NodeEnd("gone"), True)], "lost"),
        ([(NodeEnd("gone"), True), (NodeEnd("gone"), True)], "lost"),
        ([(ENDED, True), (NodeEnd("running"), False)], "succeeded"),
        ([(ENDED, True), (NodeEnd("running"), True)], None),
        ([(ENDED, True), (NodeEnd("silent"), True)], None),
        ([(NodeEnd("ended", 0, "", GRACE_S - 1), True), (ENDED, True)], None),
        ([(ENDED, False)], None),
        ([], None),
    ],
)
def test_how_a_run_ended(ends: list[tuple[NodeEnd, bool]], outcome: str | None) -> None:
    assert judge_run(ends) == (RunView("ended", outcome) if outcome else None)


def test_only_runs_that_decide_a_lease_are_asked_about() -> None:
    asked: list[str] = []

    def look(machine: Instance, run_dir: str) -> NodeEnd:
        asked.append(f"{machine.id} {run_dir[-2:]}")
        return ENDED

    listed = {"lambda": (MACHINE,)}
    assert find_ended_runs([LEASE], {}, listed, look) == {"r1": RunView("ended", "succeeded")}
    assert find_ended_runs([LEASE], {"r1": RunView("running")}, listed, look) == {"r1": RunView("ended", "succeeded")}
    assert asked == ["i-1 r1", "i-1 r1"]
    nothing: list[dict[str, t.Any]] = [{"release": "never"}, {"release": None}, {"run_id": None}, {"state": "verified"}]
    for changes in (*nothing, {"run_place": None}, {"run_place": {"nodes": "x"}}, {"provider": "vastai"}):
        assert find_ended_runs([dataclasses.replace(LEASE, **changes)], {}, listed, look) == {}
    assert find_ended_runs([LEASE], {"r1": RunView("ended", "failed")}, listed, look) == {}
    assert len(asked) == 2


def test_a_machine_that_is_not_listed_has_ended() -> None:
    assert find_ended_runs([LEASE], {}, {"lambda": ()}, lambda _machine, _place: ENDED) == {
        "r1": RunView("ended", "lost")
    }


def test_every_machine_of_a_cluster_is_asked() -> None:
    members = tuple(dataclasses.replace(MACHINE, id=f"pod-{number}", name=f"x-{number}") for number in range(2))
    cluster = dataclasses.replace(MACHINE, id="c-1", resource="cluster", members=members)
    nodes = [{"id": f"pod-{number}", "run_dir": f"/r/{number}"} for number in range(2)]
    lease = dataclasses.replace(LEASE, resource="cluster", ids=("c-1",), run_place={"nodes": nodes})
    seen: list[str] = []

    def look(machine: Instance, run_dir: str) -> NodeEnd:
        seen.append(run_dir)
        return ENDED if machine.id == "pod-0" else NodeEnd("running")

    assert find_ended_runs([lease], {}, {"lambda": (cluster,)}, look) == {}
    assert seen == ["/r/0", "/r/1"]


def here(_argv: list[str], **options: t.Any) -> subprocess.CompletedProcess[str]:
    """Run the script on this machine: what ``sh -s`` does at the other end of the connection."""
    return subprocess.run(["sh", "-s"], **options)


def test_the_script_reads_what_a_supervisor_writes(tmp_path: pathlib.Path) -> None:
    run = tmp_path / "it's a run"
    look = SshRunReader(tmp_path / "keys", execute=t.cast(t.Any, here))
    assert look(MACHINE, str(run)).state == "running"
    (run / "units" / "agent").mkdir(parents=True)
    end = {"at": time.time() - 500, "exit_code": 3, "cause": "crash", "crashes": 1, "lost": 0, "generation": 1}
    (run / "units" / "agent" / "exit.json").write_text(json.dumps(end))
    found = look(MACHINE, str(run))
    assert (found.state, found.exit_code, found.cause) == ("ended", 3, "crash")
    assert 495 < found.age_s < 600
    (run / "units" / "agent" / "exit.json").write_text(json.dumps(end)[:20])
    assert look(MACHINE, str(run)).state == "running"


@pytest.mark.parametrize("code", [1, 255])
def test_a_machine_that_does_not_answer_says_nothing(tmp_path: pathlib.Path, code: int) -> None:
    def execute(argv: list[str], **_options: t.Any) -> subprocess.CompletedProcess[str]:
        assert "HostKeyAlias=lambda-i-1" in argv and argv[argv.index("-i") + 1] == "/k"
        return subprocess.CompletedProcess(argv, code, "muster_run=1\nnow=5\nexit={}\n", "no route")

    assert SshRunReader(tmp_path, "/k", t.cast(t.Any, execute))(MACHINE, "/r") == NodeEnd("silent")


def test_ssh_that_hangs_or_an_address_that_is_none(tmp_path: pathlib.Path) -> None:
    def hangs(argv: list[str], **_options: t.Any) -> subprocess.CompletedProcess[str]:
        raise subprocess.TimeoutExpired(argv, 60)

    look = SshRunReader(tmp_path, execute=t.cast(t.Any, hangs))
    assert look(MACHINE, "/r") == NodeEnd("silent")
    for endpoint in (None, SshEndpoint("-oProxyCommand=x", 22, "root"), SshEndpoint("h", 22, "root;x")):
        assert look(dataclasses.replace(MACHINE, ssh=endpoint), "/r") == NodeEnd("silent")


@given(st.text(max_size=300))
def test_any_output_has_a_meaning(text: str) -> None:
    assert parse_run_end(text).state in ("silent", "running", "ended")
    assert parse_run_end(f"muster_run=1\nnow=10\nexit={text}").state in ("running", "ended", "silent")
