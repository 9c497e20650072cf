# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whole runs over two local nodes with real agents, supervisors and ranks; only Ansible is not there.

The launcher is ``command``, so that no torch is needed; where torchrun's part counts, ``python_with_torch.py`` stands
for the job's interpreter and ``elastic_launcher.py`` for torchrun.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import sys
import threading
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import stall
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, MusterError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._node import files
from ansible_collections.muster.training.plugins.module_utils._secrets import scrubber
from ansible_collections.muster.training.plugins.plugin_utils._hosts import gang, log_follow
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome, load_record
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.hosts import refresh
from ansible_collections.muster.training.tests.support.node_lab import (
    FAKES,
    eventually,
    fingerprint,
    read_lines,
    unit_exit,
)
from ansible_collections.muster.training.tests.support.run_world import RunWorld

Dict = dict[str, t.Any]


@pytest.fixture
def world(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[RunWorld]:
    # A follower's last question to a node ends by itself: not after the default of 20 s.
    monkeypatch.setattr(log_follow, "_WAIT_S", 1.0)
    monkeypatch.setattr(scrubber, "_registry", scrubber._Registry())
    world = RunWorld(tmp_path)
    yield world
    world.close()


def gone(world: RunWorld) -> bool:
    """Whether nothing of the run is left on any node: by /proc, and no claim or secret on disk."""
    eventually(
        lambda: not [line for line in world.lab.left().values() if "muster_node" in line or "supervise" in line],
        "its end",
    )
    rests = [
        path
        for name in "ab"
        for path in world.lab.run(name, world.run_id).glob("*")
        if path.name in ("claim.json", "secrets")
    ]
    return rests == []


def started_ranks(world: RunWorld) -> int:
    events = [line for name in "ab" for line in world.lab.events(name, world.run_id)]
    return len([line for line in events if line["kind"] == "worker_started"])


def waiting(world: RunWorld) -> list[str]:
    """Return a command that waits for the file ``gate``, and saves when it is stopped before."""
    wait = f"while [ ! -e {world.root}/gate ]; do sleep 0.01; done"
    return ["sh", "-c", f"trap 'echo saved; exit 0' TERM; echo ready $RANK; {wait}"]


def test_a_run_from_its_plan_to_its_record(world: RunWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "geheim-42")
    (world.root / "code").mkdir()
    (world.root / "code" / "hello.sh").write_text(
        'echo "rank $RANK of $WORLD_SIZE with $TOKEN in $PWD"; cat "$MUSTER_DATASET_TEXT/text"\n'
    )
    (world.root / "text").write_text("data\n")
    (world.lab.root / "bin" / "cat").symlink_to(t.cast(str, shutil.which("cat")))
    code = {"code": {"ref": "code"}, "datasets": [{"name": "text", "path": "text"}]}
    job = world.job("sh", "hello.sh", **code, secret_refs=[{"name": "TOKEN", "from": "env"}])
    before = fingerprint(world.root)
    checked = world.play(job, check=True)
    assert fingerprint(world.root) == before and checked["changed"] is True and checked["checks"]["ok"] is True
    assert checked["derived"]["world_size"] == 2 and checked["derived"]["lane"] == "loopback"
    found = world.play(job)
    record = found["run"]
    assert (found["changed"], record["state"], record["outcome"], record["exit_code"]) == (
        True,
        "ended",
        "succeeded",
        0,
    )
    assert record["world_size"] == {"asked": 2, "seen": 2} and record["launcher"] == "command"
    assert [(item["n"], item["ranks"], item["exit_code"]) for item in record["attempts"]] == [(1, 2, 0)]
    assert json.loads((world.folder() / "run.json").read_text()) == json.loads(json.dumps(record))
    for rank, name in enumerate("ab"):
        log = (world.folder() / "logs" / f"{name}.log").read_text()
        place = world.lab.run(name, world.run_id) / "code"
        # In an answer eight stars, in the node's own file one for each byte.
        assert re.sub(r"\*{8,9}", "***", log) == f"rank {rank} of 2 with *** in {place}\ndata\n"
    assert gone(world) and "geheim" not in "".join(map(str, world.said.lines))
    kept = {name: data for name, (_, data) in fingerprint(world.root / "home").items()}
    assert not [name for name, data in kept.items() if b"geheim" in data]
    again = world.play(job)
    assert again["changed"] is False and again["run"] == json.loads(json.dumps(record))
    assert world.play(job, check=True)["changed"] is False


def failing_until_mended(world: RunWorld) -> str:
    """Return a script whose rank 1 fails until the file ``mended`` is there, after the end of rank 0 has been noted."""
    (world.lab.root / "bin" / "cat").symlink_to(t.cast(str, shutil.which("cat")))
    noted = f'case "$(cat {world.folder()}/events.jsonl)" in *worker_exit*) exit 7;; esac'
    return f"if [ $RANK = 1 ] && [ ! -e {world.root}/mended ]; then while :; do {noted}; sleep 0.02; done; fi"


def test_a_run_that_failed_is_continued_where_it_was(world: RunWorld) -> None:
    job = world.job("sh", "-c", f'echo here >> "$MUSTER_CHECKPOINT_DIR/seen"; {failing_until_mended(world)}')
    found = world.play(job)
    assert found["failed"] is True and (found["run"]["outcome"], found["run"]["exit_code"]) == ("failed", 7)
    assert found["msg"].startswith(f"run {world.run_id} failed: a rank on b exited with code 7") and gone(world)
    (world.root / "mended").touch()
    again = world.play(job)
    assert (again["run"]["outcome"], again["changed"]) == ("succeeded", True)
    assert [(item["n"], item["cause"], item["ranks"]) for item in again["run"]["attempts"]] == [
        (1, "crash", 2),
        (2, None, 2),
    ]
    for name in "ab":
        assert (world.lab.run(name, world.run_id) / "checkpoints" / "seen").read_text() == "here\nhere\n"
    # The record alone is enough to name the job.
    assert world.play(None)["changed"] is False


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"python": "/no/python"}, r"[ab]: /no/python does not exist \(the same on [ab]\)\. Install it"),
        ({"nodes": 3}, r"job\.nodes: requests 3 nodes, the play has 2 hosts"),
        ({"code": {"ref": "none"}}, r"job\.code\.ref: \S+/none does not exist"),
        (
            {"secret_refs": [{"name": "NO_SUCH_VARIABLE", "from": "env"}]},
            r"job\.secret_refs\.NO_SUCH_VARIABLE: is empty",
        ),
    ],
)
def test_what_is_refused_before_the_start_leaves_no_trace(world: RunWorld, changes: Dict, error: str) -> None:
    def files() -> dict[str, bytes]:
        return {name: data for name, (_, data) in fingerprint(world.lab.nodes).items() if data}

    before = files()
    with pytest.raises(MusterError, match=f"^{error}"):
        world.play(world.job("true", **changes))
    assert files() == before and not world.folder().exists()


@pytest.mark.parametrize("name", ["../up", "/tmp/x", "a b"])
def test_a_run_is_not_named_after_another_folder(world: RunWorld, name: str) -> None:
    asked: list[Dict] = [{"run_id": name}, {"run_id": name, "state": "cancelled"}]
    for options in asked:
        with pytest.raises(InputError, match="^run_id: "):
            world.play(world.job("true"), **options)


def test_where_a_run_stands_is_kept_before_it_is_cancelled(world: RunWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its steps took a hundredth of a second; one that moves is cancelled without a look at it."""
    program = (
        "import faulthandler, json, os, signal, time\n"
        "faulthandler.register(signal.SIGUSR1)\n"
        "for step in range({steps}):\n"
        "    with open(os.environ['MUSTER_METRICS_FILE'], 'a') as out:\n"
        "        print(json.dumps({{'at': time.time(), 'step': step}}), file=out)\n"
        "    time.sleep(0.01)\n"
        "time.sleep(600)\n"
    )
    for name in ("TIMES", "READINGS", "PAUSES"):
        monkeypatch.setattr(stall, name, 0.0)
    # A busy machine gives a program that moves no processor for a while: it has half a minute before it stands.
    for steps, stands, least_s in ((20, True, 0.5), (100_000, False, 30.0)):
        monkeypatch.setattr(stall, "LEAST_S", least_s)
        world.run_id = f"r-{steps}"
        world.said.lines.clear()
        world.play(world.job(sys.executable, "-c", program.format(steps=steps)), wait=False)
        eventually(lambda: len(read_lines(world.lab.run("a", world.run_id) / "metrics.jsonl")) >= 20, "steps")
        if stands:
            time.sleep(1.0)
        world.play(None, state="cancelled")
        kept = [place.name for place in sorted((world.folder() / "logs").glob("*.stacks"))]
        said = [line for line in world.said.lines if " stands, no step for " in line]
        assert (kept, len(said)) == ((["a.stacks", "b.stacks"], 1) if stands else ([], 0))
        assert all("rank 0 on a: <module> (<string>:7); rank 1 on b: " in line for line in said)


def test_a_cancel_that_leaves_processes_is_not_recorded_and_names_them(
    world: RunWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.play(world.job(*waiting(world)), wait=False)
    answers = {"a": {"stopped": True, "left": []}, "b": {"stopped": True, "left": [12, 13]}}
    with monkeypatch.context() as stuck:
        stuck.setattr(gang, "stop_gang", lambda *_unused: (answers, {}))
        with pytest.raises(MusterError, match=r"processes of it could not be ended on b \(pid 12, 13\)\. Look there"):
            world.play(None, state="cancelled")
    assert json.loads((world.folder() / "run.json").read_text())["outcome"] is None
    assert world.play(None, state="cancelled")["run"]["outcome"] == "cancelled" and gone(world)


def test_a_cancel_ends_what_its_follower_started_again_meanwhile(
    world: RunWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.play(world.job(*waiting(world)), wait=False)
    real, calls = gang.stop_gang, list[int]()

    def stop(remotes: t.Any, run_id: str, within_s: float) -> t.Any:
        calls.append(1)
        answers, errors = real(remotes, run_id, within_s)
        return (
            ({node: {**answer, "stopped": True} for node, answer in answers.items()}, errors)
            if endless
            else (
                answers,
                errors,
            )
        )

    endless = True
    with monkeypatch.context() as busy:
        busy.setattr(gang, "stop_gang", stop)
        with pytest.raises(MusterError, match="was stopped 4 times, and was started again each time. End the train"):
            world.play(None, state="cancelled")
        endless = False
        assert world.play(None, state="cancelled")["run"]["outcome"] == "cancelled"
    assert len(calls) > 4 and gone(world)


def test_a_run_is_cancelled_and_may_save_first(world: RunWorld) -> None:
    found = world.play(world.job(*waiting(world)), wait=False)
    assert found["changed"] is True and found["run"]["state"] == "starting"
    logs = [world.lab.run(name, world.run_id) / "units" / "agent" / "log" for name in "ab"]
    eventually(lambda: all("ready" in (log.read_text() if log.exists() else "") for log in logs), "both ranks")
    before = fingerprint(world.folder())
    assert world.play(None, state="cancelled", check=True)["changed"] is True and fingerprint(world.folder()) == before
    assert world.said.lines[-1] == f"run {world.run_id} would be stopped on a, b; nothing was changed"
    cancelled = world.play(None, state="cancelled")
    assert (cancelled["changed"], cancelled["run"]["outcome"], cancelled["run"]["exit_code"]) == (
        True,
        "cancelled",
        143,
    )
    assert "failed" not in cancelled and gone(world)
    assert all("saved" in log.read_text() for log in logs)
    again = world.play(None, state="cancelled")
    assert (again["changed"], again["run"]) == (False, cancelled["run"])
    with pytest.raises(RefusedError, match="run r-none does not exist in .*List the runs"):
        world.play(None, state="cancelled", run_id="r-none")


def test_a_run_that_is_not_waited_for_is_found_again(world: RunWorld) -> None:
    job = world.job(*waiting(world))
    assert world.play(job, wait=False)["changed"] is True
    eventually(lambda: started_ranks(world) == 2, "both ranks")
    assert world.play(job, wait=False)["changed"] is False and world.play(job, check=True)["changed"] is False
    (world.root / "gate").touch()
    found = world.play(job)
    assert (found["changed"], found["run"]["outcome"]) == (False, "succeeded") and started_ranks(world) == 2
    assert [item["n"] for item in found["run"]["attempts"]] == [1] and gone(world)


def test_a_node_that_ends_a_moment_before_the_others_is_not_started_again(world: RunWorld) -> None:
    """Nobody follows while one node ends; whoever follows then waits for the other, and repeats nothing."""
    gate = world.root / "gate"
    job = world.job("sh", "-c", f'[ "$MUSTER_NODE" = a ] || until [ -e {gate} ]; do sleep 0.05; done')
    assert world.play(job, wait=False)["changed"] is True
    eventually((world.lab.run("a", world.run_id) / "units" / "agent" / "exit.json").exists, "the end of a")
    results: list[Dict] = []
    follower = threading.Thread(target=lambda: results.append(world.play(job)))
    follower.start()
    eventually(lambda: any("already running" in line for line in world.said.lines), "the follower")
    gate.touch()
    follower.join(60)
    assert (results[0]["changed"], results[0]["run"]["outcome"]) == (False, "succeeded")
    assert started_ranks(world) == 2 and gone(world)


def test_an_end_that_nobody_saw_is_recorded_and_not_repeated(world: RunWorld) -> None:
    job = world.job("sh", "-c", "echo made it")
    assert world.play(job, wait=False)["changed"] is True
    ends = [world.lab.run(name, world.run_id) / "units" / "agent" / "exit.json" for name in "ab"]
    eventually(lambda: all(end.exists() for end in ends), "both ends")
    found = world.play(job)
    assert (found["changed"], found["run"]["outcome"], started_ranks(world)) == (False, "succeeded", 2)
    assert (world.folder() / "logs" / "b.log").read_text() == "made it\n"


def end_unseen(world: RunWorld, job: Dict) -> None:
    """Have a run end while it is not followed."""
    assert world.play(job, wait=False)["changed"] is True
    for name in "ab":
        assert unit_exit(world.lab.run(name, world.run_id))["exit_code"] == 0


def test_what_is_said_of_an_end_that_nobody_saw_is_true(world: RunWorld) -> None:
    """A check predicts that nothing is started, and nobody is told that it runs."""
    job = world.job("true")
    end_unseen(world, job)
    world.said.lines.clear()
    assert world.play(job, check=True)["changed"] is False
    assert (
        world.said.lines[-1] == f"run {world.run_id} has ended on a, b while it was not followed; nothing was changed"
    )
    other = world.job("false")
    with pytest.raises(RefusedError, match="has ended with another job while it was not followed: command") as refused:
        world.play(other)
    assert "Run status first" in refused.value.fix
    found = world.play(job, wait=False)
    assert (found["changed"], found["run"]["outcome"], started_ranks(world)) == (False, "succeeded", 2)
    said = "\n".join(world.said.lines)
    assert "has ended while it was not followed, reading how" in said and "running" not in said, said


def test_a_run_that_lost_a_launcher_after_its_ranks_had_ended_well_is_not_repeated(world: RunWorld) -> None:
    """As when a machine loses its power then: no exit of its launcher is recorded."""
    job = world.job("true")
    end_unseen(world, job)
    eventually(lambda: not world.lab.left(), "the end of the supervisors")
    (world.lab.run("b", world.run_id) / "units" / "agent" / "exit.json").unlink()
    before = fingerprint(world.folder())
    assert world.play(job, check=True)["changed"] is False and fingerprint(world.folder()) == before
    found = world.play(job)
    assert (found["changed"], found["run"]["outcome"], started_ranks(world)) == (False, "succeeded", 2), found
    assert "b lost its launcher after that" in str(found["run"]["detail"])
    assert any("has already succeeded" in line for line in world.said.lines), world.said.lines


def test_a_command_whose_node_is_lost_ends_and_can_be_run_again(world: RunWorld) -> None:
    job = world.job(*waiting(world))
    results: list[Dict] = []
    follower = threading.Thread(target=lambda: results.append(world.play(job)))
    follower.start()
    eventually(lambda: started_ranks(world) == 2, "both ranks")
    world.lab.remote("b").call("kill", run_id=world.run_id, target="host")
    follower.join(60)
    assert (results[0]["run"]["outcome"], results[0]["run"]["cause"]) == ("lost", "node_lost")
    assert results[0]["failed"] is True and gone(world)
    (world.root / "gate").touch()
    assert world.play(job)["run"]["outcome"] == "succeeded"


def test_the_run_of_another_controller_is_left_alone_until_it_is_taken_over(world: RunWorld) -> None:
    job = world.job(*waiting(world))
    world.play(job, "first", wait=False)
    eventually(lambda: started_ranks(world) == 2, "both ranks")
    foreign = rf"run {world.run_id} belongs to another controller \(.*/first\).*muster_take_over"
    for check in (True, False):
        with pytest.raises(RefusedError, match=foreign):
            world.play(job, "second", check)
    assert len([line for line in world.lab.left().values() if " supervise " in line]) == 2
    assert world.play(job, "second", take_over=True, wait=False)["changed"] is False
    owner = (world.root / "second" / "owner").read_text()
    claims = [files.read_json(world.lab.run(name, world.run_id) / "claim.json") for name in "ab"]
    assert [claim["owner"] for claim in claims] == [owner, owner]
    with pytest.raises(RefusedError, match=r"belongs to another controller \(.*/second\)"):
        world.play(job, "first", wait=False)
    (world.root / "gate").touch()
    found = world.play(job, "second")
    assert (found["changed"], found["run"]["outcome"], started_ranks(world)) == (False, "succeeded", 2) and gone(world)


def test_of_two_controllers_at_once_exactly_one_runs_the_job(world: RunWorld) -> None:
    job = world.job(*waiting(world))
    together = threading.Barrier(2)
    outcomes: dict[str, Dict | MusterError] = {}

    def play(controller: str) -> None:
        request = world.request(job, controller, wait=False)
        together.wait()
        try:
            outcomes[controller] = world.play(job, controller, wait=False) if request else {}
        except MusterError as exc:
            outcomes[controller] = exc

    threads = [threading.Thread(target=play, args=(name,)) for name in ("first", "second")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [name for name, outcome in outcomes.items() if isinstance(outcome, dict)]
    assert len(winners) == 1, outcomes
    eventually(lambda: started_ranks(world) == 2, "the winner's ranks")
    assert len([line for line in world.lab.left().values() if " supervise " in line]) == 2
    loser = next(name for name in outcomes if name not in winners)
    assert not world.folder(loser).exists() and world.folder(winners[0]).exists()


def test_a_controller_that_kept_nothing_can_run_the_job_again(world: RunWorld) -> None:
    job = world.job("sh", "-c", f"[ -e {world.root}/mended ] || exit 7")
    assert world.play(job, "vanished")["run"]["outcome"] == "failed"
    (world.root / "mended").touch()
    assert world.play(job, "new")["run"]["outcome"] == "succeeded"


def test_all_that_a_controller_keeps_is_private(world: RunWorld) -> None:
    before = os.umask(0o022)
    try:
        world.play(world.job("sh", "-c", 'echo x; echo {} > "$MUSTER_METRICS_FILE"'))
    finally:
        os.umask(before)
    modes = {name: mode & 0o777 for name, (mode, _) in fingerprint(world.root / "home").items()}
    assert {name: oct(mode) for name, mode in modes.items() if mode & 0o077} == {}


def test_a_damaged_record_is_not_guessed_at(world: RunWorld) -> None:
    files.private_dir(world.folder())
    (world.folder() / "run.json").write_text('{"state": "ended", "outc')
    with pytest.raises(RefusedError, match="is damaged"):
        world.play(world.job("true"))
    assert world.lab.left() == {}


def elastic(world: RunWorld, *start: str) -> Dict:
    """Return a job of one node and two ranks under the stand-ins: rank 0 counts to 40, rank 1 waits for the last step.

    In its first attempt rank 0 saves at step 20 and waits at step 25.
    """
    python = world.root / "python"
    python.write_text(f'#!/bin/sh\nexec {world.lab.root}/bin/python3 {FAKES}/python_with_torch.py "$@"\n')
    python.chmod(0o700)
    count = f"{world.lab.root}/bin/python3 {FAKES}/counting_program.py 40 10 25 {' '.join(start)}"
    wait = f"while [ ! -e {world.root}/done ]; do sleep 0.01; done"
    rank = f"if [ $RANK = 0 ]; then {count} && : > {world.root}/done; fi; {wait}"
    (world.root / "code").mkdir()
    # A drill asks for a program that reports its steps.
    program = f"import os  # MUSTER_METRICS_FILE\nos.execvp('sh', ['sh', '-c', {rank!r}])\n"
    (world.root / "code" / "train.py").write_text(program)
    own: Dict = {"name": "x", "nodes": 1, "processes_per_node": 2, "script": "train.py", "code": {"ref": "code"}}
    return {**own, "python": str(python), "checkpoints": {"interval_steps": 10, "grace_s": 5}}


def test_a_drill_proves_that_a_killed_rank_resumed(world: RunWorld) -> None:
    record = world.play(elastic(world), drill={"rank": 1, "at_step": 25})["run"]
    assert record["outcome"] == "succeeded" and record["drill"]["resumed"] is True, record["drill"]
    assert (record["drill"]["steps_lost"], record["drill"]["world_size"], record["steps_lost"]) == (5, 2, 5)
    attempts = [(item["cause"], item["ranks"], item["first_step"], item["last_step"]) for item in record["attempts"]]
    assert attempts == [("drill", 2, 1, 25), (None, 2, 21, 40)] and gone(world)
    assert "drill: killed rank 1 on a at step 25" in world.said.lines
    faults = [line for line in read_lines(world.folder() / "events.jsonl") if line["kind"] == "drill"]
    assert len(faults) == 1


def fill_disk(world: RunWorld) -> Dict:
    """Return a job whose ranks find a disk full after each first step."""
    job = elastic(world)
    (world.root / "code" / "train.py").write_text(
        "import json, os, time\n"
        "line = {'at': time.time(), 'step': 1, 'loss': 1.0}\n"
        "open(os.environ['MUSTER_METRICS_FILE'], 'a').write(json.dumps(line) + '\\n')\n"
        "time.sleep(4)\n"
        "raise OSError(28, 'No space left on device', '/data/c-1.pt')\n"
    )
    return {**job, "processes_per_node": 1, "restart": {"max_crashes": 9}}


def test_a_disk_of_checkpoints_that_stays_full_ends_the_run(world: RunWorld) -> None:
    """The run's own disk has room: each rank says why it ends, and no restart frees what it lacks."""
    result = world.play(fill_disk(world))
    record = result["run"]
    assert (record["outcome"], record["cause"]) == ("failed", "disk_full"), result["msg"]
    kept = json.loads((world.folder() / "run.json").read_text())
    # The launcher starts it again by itself, while the controller reads how it ended: ten are what it may.
    assert len(kept["attempts"]) < 10, [item["cause"] for item in kept["attempts"]]
    said = str(result["msg"])
    assert "no space left on a for /data/c-1.pt, in attempt" in said and "no restart frees any" in said, said
    assert "MB free at the end" in said and "Free space on the node" in said, said
    # A busy controller may have read the log of the first attempt with that of the next.
    warned = [
        line for line in world.said.lines if re.match(r"warning: attempt \d+: no space left on a for /data", line)
    ]
    assert warned, world.said.lines
    assert gone(world)


def test_a_disk_that_stays_full_ends_a_run_that_is_not_followed(world: RunWorld) -> None:
    """Its node does so by the same rule, and who looks later reads the same reason."""
    assert world.play(fill_disk(world), wait=False)["changed"] is True
    ending = unit_exit(world.lab.run("a", world.run_id))
    assert (ending["exit_code"], ending["cause"]) == (1, "disk_full"), ending
    home = StateHome({"path": str(world.root / "home")}, "default")
    record = load_record(world.folder())
    assert record is not None
    refresh.refresh_record(home, record, world.connect(["a"]), {}, world.said)
    kept = json.loads((world.folder() / "run.json").read_text())
    assert (kept["outcome"], kept["cause"]) == ("failed", "disk_full") and len(kept["attempts"]) < 10, kept
    said = str(kept["detail"])
    assert "no space left on a for /data/c-1.pt, in attempt" in said and "no restart frees any" in said, said
    assert "MB free at the end" in said and "Free space on the node" in said, said


def test_a_drill_does_not_call_a_new_beginning_a_resume(world: RunWorld) -> None:
    record = world.play(elastic(world, "0"), drill={"rank": 1, "at_step": 25})["run"]
    assert record["outcome"] == "succeeded" and record["drill"]["resumed"] is False
    assert "although a checkpoint of step 20 had been saved" in record["drill"]["problem"]


def test_the_agent_and_its_store_come_back_within_the_budget(world: RunWorld) -> None:
    record = world.play(elastic(world), drill={"target": "host", "node": "a", "at_step": 25})["run"]
    assert record["outcome"] == "succeeded" and record["drill"]["resumed"] is True, record["drill"]
    assert [
        line
        for line in world.said.lines
        if line.startswith("a: not running: agent") and line.endswith("; starting again")
    ]
    assert gone(world)
