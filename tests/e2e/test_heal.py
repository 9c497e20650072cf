# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Healing, with real playbooks: the provider takes a machine away, a replacement is rented, the run goes on.

The provider is a fake on loopback, the machines are this machine's loopback nodes, as in test_release_of_runs.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import signal
import sys
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.ledger import LedgerEvent
from ansible_collections.muster.training.plugins.module_utils._model.timestamps import format_time, parse_time
from ansible_collections.muster.training.tests.e2e.playbook_world import Play, everything, until
from ansible_collections.muster.training.tests.e2e.test_release_of_runs import Weekend

LIMIT_S = 200.0
# Two ranks that count; rank 0 notes each step, and where it began. Both end when the file "finish" is there.
COUNT = """
import json, os, pathlib, sys, time
here, mine = pathlib.Path(sys.argv[1]), pathlib.Path(os.environ["MUSTER_CHECKPOINT_DIR"])
mine.mkdir(parents=True, exist_ok=True)
saved = mine / "step"
step = int(saved.read_text()) if saved.exists() else 0
first = os.environ["RANK"] == "0"
def say(**values):
    if first:
        place = pathlib.Path(os.environ["MUSTER_METRICS_FILE"])
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("a") as handle:
            handle.write(json.dumps({"at": time.time(), **values}) + "\\n")
say(resumed_from_step=step, world_size=int(os.environ["WORLD_SIZE"]))
while not (here / "finish").exists():
    step += 1
    saved.with_suffix(".new").write_text(str(step))
    saved.with_suffix(".new").replace(saved)
    say(step=step)
    time.sleep(0.05)
"""


# The same, but rank 0 saves when it is told to end, and at no other time.
SAVES_AT_ITS_END = COUNT.replace(
    """    saved.with_suffix(".new").write_text(str(step))
    saved.with_suffix(".new").replace(saved)
    say(step=step)
""",
    """    say(step=step)
    if told:
        if first:
            saved.write_text(str(step))
            say(checkpoint_step=step, path=str(saved))
        sys.exit(143)
""",
)
SAVES_AT_ITS_END = f"import signal\ntold = []\nsignal.signal(15, lambda *_: told.append(1)){SAVES_AT_ITS_END}"


@pytest.fixture
def weekend(tmp_path: pathlib.Path) -> Iterator[Weekend]:
    found = Weekend(tmp_path)
    with found.rent.running():
        found.begin()
        yield found
        found.train.close()
    assert found.rent.api.violations == []


def folder(weekend: Weekend) -> pathlib.Path:
    return weekend.rent.root / "state" / "lab" / "runs" / weekend.train.run_id


def lines(weekend: Weekend) -> list[dict[str, t.Any]]:
    place = folder(weekend) / "metrics.jsonl"
    return [json.loads(line) for line in place.read_text().splitlines()] if place.exists() else []


def steps_after_resumption(weekend: Weekend) -> int:
    """How many steps an attempt that began at a checkpoint has said."""
    said = lines(weekend)
    began = next((number for number, line in enumerate(said) if line.get("resumed_from_step", 0) > 0), len(said))
    return sum("step" in line for line in said[began:])


def follow(weekend: Weekend, policy: str, program: str = COUNT, grace_s: int = 1) -> Play:
    """Start a run on both machines and wait until it counts."""
    argv = [sys.executable, "-I", "-S", "-c", program, str(weekend.train.root)]
    job = weekend.train.job(command=argv, checkpoints={"grace_s": grace_s}, restart={"on_lost_node": policy})
    play = weekend.train.start(job=job, **weekend.values)
    until(lambda: any(line.get("step", 0) > 20 for line in lines(weekend)), "some steps", LIMIT_S)
    return play


def started(weekend: Weekend, policy: str) -> None:
    """Start a run on both machines and lose its controller once it counts."""
    play = follow(weekend, policy)
    play.kill(signal.SIGKILL)
    play.wait()


def preempted(weekend: Weekend) -> None:
    """Let the provider take the second machine away, with everything on it."""
    second = weekend.hosts["node-2"]["muster_node"]["id"]
    place = os.fsencode(weekend.train.nodes / "node-2")
    for pid, command, environment in everything():
        if place in command or place in environment:
            os.kill(pid, signal.SIGKILL)
    thing = weekend.rent.api.find(str(second))
    assert thing is not None
    weekend.rent.api.end(thing)
    # A listing may lag for a minute behind what the ledger says; this was some time ago.
    ledger = weekend.rent.root / "state" / "lab" / "ledger.jsonl"
    events = [LedgerEvent.from_dict(json.loads(line)) for line in ledger.read_text().splitlines()]
    past = [dataclasses.replace(event, at=format_time(parse_time(event.at) - 7200)) for event in events]
    ledger.write_text("".join(event.line() for event in past))


def heal(weekend: Weekend, *args: str, playbook: str = "heal", **extra: t.Any) -> Play:
    """Start the heal playbook, or one that calls it; rented machines are loopback nodes too."""
    overlay = weekend.train.root / "rented.json"
    local = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "ansible_host": "127.0.0.77",
        # That of its record is the fake provider's, and no interface here has it.
        "muster_address": "127.0.0.77",
    }
    overlay.write_text(json.dumps({"all": {"children": {"muster_rented": {"vars": local}}}}))
    rented = {key: value for key, value in weekend.rent.values().items() if key.startswith("rented_nodes_")}
    values = {
        **weekend.values,
        **rented,
        "muster_lease": False,
        "muster_train_hosts": "node-1",
        "muster_training_requirements": [],
        **extra,
    }
    return weekend.train.start(playbook, args=["-i", str(overlay), *args], **values)


def test_a_machine_that_its_provider_took_is_replaced(weekend: Weekend) -> None:
    """Check mode writes nothing; then one call does it all without a hand; a second one changes nothing."""
    started(weekend, "replace")
    preempted(weekend)
    state = weekend.rent.root / "state"
    before = {path: path.read_bytes() for path in state.rglob("*") if path.is_file()}
    checked = heal(weekend, "--check").wait(LIMIT_S)
    assert checked.code == 0 and "rent: 1 of 2 nodes are missing" in checked.output, checked.output
    assert weekend.rent.alive == 1
    assert {path: path.read_bytes() for path in state.rglob("*") if path.is_file()} == before
    play = heal(weekend)
    # What the first attempt had counted without its controller is read first: steps of the second one are meant.
    until(lambda: steps_after_resumption(weekend) > 20, "new steps", LIMIT_S)
    weekend.train.finish()
    result = play.wait(LIMIT_S)
    assert result.code == 0 and "Traceback" not in result.output, result.output
    assert weekend.rent.alive == 2 and sorted(weekend.rent.states) == ["joined", "joined", "verified"]
    record = json.loads((folder(weekend) / "run.json").read_text())
    assert record["hosts"][0] == "node-1" and record["hosts"][1].startswith("lab-h100-1-"), record["hosts"]
    assert record["outcome"] == "succeeded" and record["world_size"] == {"asked": 2, "seen": 2}
    assert record["attempts"][-1]["resumed_from_step"] >= 20, record["attempts"]
    again = heal(weekend).wait(LIMIT_S)
    assert again.code == 0 and again.changed == 0, again.output


@pytest.mark.long
def test_a_notice_while_the_run_is_followed_costs_no_step(weekend: Weekend) -> None:
    """The follower has the gang save and lets go of the run; the watcher replaces the machine and resumes it."""
    train = follow(weekend, "replace", SAVES_AT_ITS_END, grace_s=10)
    named = {"muster_preempted_nodes": ["node-2"], "muster_train_hosts": "node-1:node-2"}
    watch = heal(weekend, playbook="watch", **named)
    ended = train.wait(LIMIT_S)
    assert ended.code == 2 and "node-2 will be taken away: named by the user" in ended.output, ended.output
    record = json.loads((folder(weekend) / "run.json").read_text())
    stopped_at = record["attempts"][0]["last_step"]
    assert (record["outcome"], record["cause"]) == ("lost", "preempted") and record["attempts"][0]["node"] == "node-2"

    def resumed() -> bool:
        return bool(max(line.get("step", 0) for line in lines(weekend)) > stopped_at + 20)

    until(lambda: resumed() or watch.process.poll() is not None, "new steps", 2 * LIMIT_S)
    assert resumed(), watch.output
    weekend.train.finish()
    result = watch.wait(LIMIT_S)
    assert result.code == 0 and "Traceback" not in result.output, result.output
    record = json.loads((folder(weekend) / "run.json").read_text())
    assert record["hosts"][0] == "node-1" and record["hosts"][1].startswith("lab-h100-1-"), record["hosts"]
    assert record["outcome"] == "succeeded" and record["world_size"] == {"asked": 2, "seen": 2}
    assert record["attempts"][0]["notice"]["detail"] == "named by the user" and record["steps_lost"] == 0
    assert record["attempts"][-1]["resumed_from_step"] == stopped_at, record["attempts"]
    assert weekend.rent.alive == 2 and sorted(weekend.rent.states) == ["joined", "joined", "verified"]


@pytest.mark.long
def test_a_gang_shrinks_where_its_job_says_so(weekend: Weekend) -> None:
    started(weekend, "shrink")
    preempted(weekend)
    play = heal(weekend)
    until(lambda: [line for line in lines(weekend) if line.get("world_size") == 1], "a smaller world", LIMIT_S)
    weekend.train.finish()
    result = play.wait(LIMIT_S)
    assert result.code == 0 and "Traceback" not in result.output, result.output
    record = json.loads((folder(weekend) / "run.json").read_text())
    assert record["outcome"] == "succeeded" and record["world_size"] == {"asked": 1, "seen": 1}
    assert weekend.rent.alive == 1 and record["attempts"][-1]["resumed_from_step"] >= 20


@pytest.mark.long
def test_without_terms_the_loss_is_noted_and_the_reason_given(weekend: Weekend) -> None:
    started(weekend, "replace")
    preempted(weekend)
    result = heal(weekend, rented_nodes_pool=None).wait(LIMIT_S)
    assert result.code == 2 and "no pool to rent a replacement from" in result.output
    assert weekend.rent.alive == 1 and sorted(weekend.rent.states) == ["joined", "verified"]
