# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What runs do between their start and their end: followed or not, cancelled, failed, lost."""

from __future__ import annotations

import shutil
import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import NODES, Result, World, script, until
from ansible_collections.muster.training.tests.e2e.test_interruptions import assert_ends_well


def unfollowed(world: World, **values: t.Any) -> dict[str, t.Any]:
    """Start a job with wait=false, see both its ranks, and return it."""
    job = world.rank_job(**values)
    result = world.play(job=job, training_job_wait=False)
    assert (result.code, result.changed) == (0, 1), result.output
    until(lambda: len(world.ranks()) == 2, "both ranks")
    return job


def assert_failed(world: World, result: Result, *words: str) -> None:
    """Assert one clear error with all ``words`` about a run that began, and that none of its processes lives."""
    assert result.code != 0 and "Traceback" not in result.output and len(result.errors) == 1, result.output
    assert not [word for word in (world.run_id, *words) if word not in result.errors[0]], result.errors
    assert world.processes() == {}
    assert world.record()["state"] == "ended"
    assert not [path for node in NODES for path in world.node_folder(node).glob("claim.json")]


def test_started_without_waiting_then_followed(world: World) -> None:
    """The second command follows the ranks that run; it starts nothing."""
    job = unfollowed(world)
    before = world.processes()
    play = world.start(job=job)
    assert_ends_well(world, play)
    assert play.wait().changed == 0
    assert sorted(int(line.split()[2]) for line in (world.root / "began").read_text().splitlines()) == sorted(
        pid for pid, command in before.items() if "fcntl" in command and "rank.py" not in command
    )


def test_a_run_that_ended_unfollowed_is_not_started_again(world: World) -> None:
    """The second command finds that the run has ended and records how."""
    job = unfollowed(world)
    world.finish()
    until(lambda: not world.processes(), "the end of the run")
    result = world.play(job=job)
    assert (result.code, result.changed) == (0, 0), result.output
    assert len((world.root / "began").read_text().splitlines()) == 2
    assert world.record()["outcome"] == "succeeded"


def test_a_second_train_changes_nothing(world: World) -> None:
    """Neither while the job runs, nor after it has succeeded."""
    job = unfollowed(world)
    before = world.processes()
    running = world.play(job=job, training_job_wait=False)
    assert (running.code, running.changed) == (0, 0), running.output
    assert world.processes() == before
    play = world.start(job=job)
    assert_ends_well(world, play)
    digest = world.digest()
    ended = world.play(job=job)
    assert (ended.code, ended.changed) == (0, 0) and "has already succeeded" in ended.output, ended.output
    assert world.digest() == digest
    assert world.processes() == {}


def test_cancel_and_cancel_again(world: World) -> None:
    """The first one ends everything, the second one finds nothing to do; the run can be continued afterwards."""
    job = unfollowed(world)
    first, second = world.play("cancel"), world.play("cancel")
    assert (first.code, first.changed) == (0, 1), first.output
    assert world.processes() == {}
    assert (second.code, second.changed) == (0, 0), second.output
    assert (world.record()["outcome"], world.record()["state"]) == ("cancelled", "ended")
    assert_ends_well(world, world.start(job=job), ends=2)
    assert world.record()["attempts"][-1]["n"] == 2


def test_cancel_while_somebody_follows(world: World) -> None:
    """The follower ends too and says why; its play fails, because what comes after it needs the model."""
    follower = world.start(job=world.rank_job())
    until(lambda: len(world.ranks()) == 2, "both ranks")
    assert world.play("cancel").code == 0
    result = follower.wait(30)
    assert result.code != 0 and "Traceback" not in result.output, result.output
    assert f"run {world.run_id} cancelled" in result.output, result.output
    assert world.processes() == {}
    assert world.record()["outcome"] == "cancelled"


def test_cancel_lets_a_command_save(world: World) -> None:
    """The program gets SIGTERM and checkpoints.grace_s seconds."""
    text = (
        f"trap 'touch {world.root}/saved-$RANK; exit 0' TERM; touch {world.root}/up-$RANK; while :; do sleep 0.05; done"
    )
    job = world.job(command=["sh", "-c", text], checkpoints={"grace_s": 3})
    assert world.play(job=job, training_job_wait=False).code == 0
    until(lambda: all((world.root / f"up-{rank}").exists() for rank in (0, 1)), "both ranks")
    assert world.play("cancel").code == 0
    assert [(world.root / f"saved-{rank}").exists() for rank in (0, 1)] == [True, True]


def test_status_logs_and_report_without_the_nodes(world: World) -> None:
    """What the controller kept is enough when the nodes are gone."""
    play = world.start(job=world.rank_job(talk=True))
    assert_ends_well(world, play)
    shutil.rmtree(world.nodes)
    status, logs, report = world.play("status"), world.play("logs", muster_log_ranks=True), world.play("report")
    assert status.code == 0 and f"{world.run_id}  succeeded" in status.output, status.output
    assert logs.code == 0 and "node-1  working" in logs.output and "node-2  working" in logs.output, logs.output
    assert report.code == 0 and (world.run_folder() / "report" / "report.html").exists(), report.output
    assert not list(world.nodes.rglob("runs")), "looking must not make the nodes' folders again"


def failing(world: World, rank: int, code: int, **values: t.Any) -> dict[str, t.Any]:
    """Return a job of which one rank ends with ``code`` while the other one works on."""
    text = f"[ $RANK = {rank} ] && exit {code}; while [ ! -e {world.root}/finish ]; do sleep 0.05; done"
    return world.job(command=["sh", "-c", text], checkpoints={"grace_s": 1}, **values)


def test_a_rank_that_fails_is_named(world: World) -> None:
    """The error names node and exit code, and the rank that still worked is ended."""
    result = world.play(job=failing(world, 1, 3))
    assert_failed(world, result, "node-2", "exited with code 3")
    assert (world.record()["outcome"], world.record()["exit_code"]) == ("failed", 3)


def test_a_fatal_exit_code_ends_at_once(world: World) -> None:
    """The error says which setting ended the run."""
    result = world.play(job=failing(world, 0, 42, restart={"fatal_exit_codes": [42]}))
    assert_failed(world, result, "node-1", "exited with code 42", "restart.fatal_exit_codes")
    assert world.record()["cause"] == "fatal_exit_code"


def test_a_command_that_does_not_exist_is_named(world: World) -> None:
    """127 is what a shell would say; the node's log names the command."""
    result = world.play(job=world.job(command=["/nowhere/train"]))
    assert_failed(world, result, "node-", "exited with code 127")
    logs = "".join(path.read_text() for path in world.run_folder().glob("logs/*.log"))
    assert "cannot run /nowhere/train: No such file or directory" in logs


def test_the_time_limit_ends_a_run(world: World) -> None:
    """After timeout_s seconds all ranks are ended."""
    result = world.play(job=world.rank_job(timeout_s=1))
    assert_failed(world, result, "timeout_s (1 s) has passed")
    assert world.record()["exit_code"] == 124


def test_a_node_that_cannot_start_stops_the_other_one(world: World) -> None:
    """Something is in the way of the second node's unit; the first node's agent had started."""
    units = world.node_folder("node-2") / "units"
    units.mkdir(parents=True)
    (units / "agent").write_text("in the way")
    result = world.play(job=world.rank_job())
    assert result.code != 0 and len(result.errors) == 1 and "Traceback" not in result.output, result.output
    assert "node-2: cannot start the unit" in result.errors[0]
    assert world.processes() == {} and not world.run_folder().exists()
    assert not (world.node_folder("node-1") / "claim.json").exists()


# Stands in for ssh: runs what it is given here, unless the node is said to be away.
FAKE_SSH = """#!/bin/sh
if [ -e {flag} ]; then echo "ssh: connect to host node-2 port 22: No route to host" >&2; exit 255; fi
for last; do :; done
exec sh -c "$last"
"""


def seen(world: World) -> int:
    """Return how many ranks the controller has seen starting: from then on it follows their nodes."""
    place = world.run_folder() / "events.jsonl"
    return place.read_text().count('"worker_started"') if place.exists() else 0


def away(world: World) -> dict[str, dict[str, t.Any]]:
    """Return host variables by which the second node cannot be reached once the file "away" exists."""
    program = script(world.root / "fake-ssh", FAKE_SSH.format(flag=world.root / "away"))
    return {"node-2": {"ansible_connection": "ssh", "ansible_ssh_executable": program}}


def test_a_node_that_goes_away_for_good_ends_the_run(world: World) -> None:
    """With on_lost_node: fail the run is lost after some seconds of silence, and the error names the node."""
    job = world.rank_job(talk=True, restart={"on_lost_node": "fail"})
    play = world.start(job=job, hosts=away(world))
    until(lambda: seen(world) == 2, "both ranks in the controller's events")
    (world.root / "away").touch()
    result = play.wait(40)
    assert result.code != 0 and len(result.errors) == 1 and "Traceback" not in result.output, result.output
    assert "node-2 did not answer" in result.errors[0]
    assert world.record()["outcome"] == "lost"
    assert set(world.ranks()) == {1}, "the reachable node is stopped, of the other one nothing is known"


def test_a_node_that_comes_back_is_followed_again(world: World) -> None:
    """The network's loss is not the run's: it goes on and ends well."""
    play = world.start(job=world.rank_job(talk=True), hosts=away(world))
    until(lambda: seen(world) == 2, "both ranks in the controller's events")
    (world.root / "away").touch()
    until(lambda: "node-2 does not answer" in play.output, "the loss to be noticed")
    (world.root / "away").unlink()
    until(lambda: "node-2 answers again" in play.output or play.process.poll() is not None, "the node to come back")
    assert_ends_well(world, play)
    kinds = [event["kind"] for event in world.events() if event.get("node") == "node-2"]
    assert kinds.index("node_silent") < kinds.index("node_back") and "node_lost" not in kinds


@pytest.mark.parametrize("gone", ["the node's state", "the run's folder"])
def test_a_node_that_lost_its_state_ends_the_run(world: World, gone: str) -> None:
    """Somebody cleaned up on a node: nothing can be followed there any more."""
    play = world.start(job=world.rank_job(talk=True, restart={"on_lost_node": "fail"}))
    until(lambda: seen(world) == 2, "both ranks in the controller's events")
    shutil.rmtree(world.node_folder("node-2") if gone == "the run's folder" else world.nodes / "node-2")
    result = play.wait(40)
    assert result.code != 0 and "node-2" in result.errors[0], result.output


def test_a_rank_that_was_not_seen_fails_the_run(world: World) -> None:
    """Exit code 0 everywhere is no success when the record of a rank is missing: here it could not be written."""
    (world.node_folder("node-2") / "events.jsonl").mkdir(parents=True)
    result = world.play(job=world.job())
    assert_failed(world, result, "1 ranks", "2 are required")
    assert (world.record()["outcome"], world.record()["world_size"]) == ("failed", {"asked": 2, "seen": 1})
