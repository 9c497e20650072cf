# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runs of test_said_and_true: each injects one fault and returns what is true of the run afterwards."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import random
import shutil
import subprocess
import time
import typing as t

from ansible_collections.muster.training.tests.e2e.playbook_world import until
from ansible_collections.muster.training.tests.e2e.said_world import Scene
from ansible_collections.muster.training.tests.support.truth import Truth

Run = t.Callable[[Scene], Truth]
ONE: dict[str, t.Any] = {"nodes": 1}
FAIL_FAST: dict[str, t.Any] = {"restart": {"max_crashes": 0, "max_lost_nodes": 0}}


@dataclasses.dataclass(frozen=True)
class Case:
    """One run: its name, what it does, whether it has a bucket, and whether a short session takes it.

    ``untrue`` is what is known to be said wrongly: such a run must fail until that is mended.
    """

    name: str
    run: Run
    bucket: bool = False
    short: bool = False
    untrue: str = ""


def at(step: int, do: str, value: t.Any = None, rank: int = 0, start: int = 1) -> dict[str, t.Any]:
    """Return an act of the program's plan."""
    return {"step": step, "do": do, "value": value, "rank": rank, "start": start}


def hold(step: int, rank: int = 0, start: int = 1) -> dict[str, t.Any]:
    """Return a hold of the program's plan."""
    return {"step": step, "rank": rank, "start": start}


def simple(outcome: str, plan: dict[str, t.Any], needs: t.Collection[str] = (), **values: t.Any) -> Run:
    """Return a run of one ``train``; ``values`` are keys of the job."""

    def run(scene: Scene) -> Truth:
        nodes = values.get("nodes", 2)
        if scene.store:
            scene.bind()
        scene.train(scene.job(plan, **values))
        return scene.true(outcome, ranks=nodes, nodes=nodes, needs=frozenset(needs))

    return run


def twice(plan: dict[str, t.Any], needs: t.Collection[str] = (), **values: t.Any) -> Run:
    """Return a run that fails in its first start and is trained again."""

    def run(scene: Scene) -> Truth:
        nodes = values.get("nodes", 2)
        job = scene.job(plan, **values)
        scene.train(job)
        scene.train(job)
        return scene.true("succeeded", ranks=nodes, nodes=nodes, needs=frozenset(needs))

    return run


def own_path(scene: Scene) -> Truth:
    """All nodes save into one folder."""
    scene.train(scene.job({}, checkpoints={"path": str(scene.world.root / "shared")}))
    return scene.true("succeeded", ranks=2)


def fewer_ranks(scene: Scene) -> Truth:
    """The second rank cannot be seen: its node cannot write its events."""
    (scene.world.node_folder("node-2") / "events.jsonl").mkdir(parents=True)
    scene.train(scene.job({}))
    return scene.true("failed", ranks=2, hurt=True)


def hang(value: dict[str, t.Any], needs: t.Collection[str]) -> Run:
    """Return a run in which rank 0 stands at step 7 until a limit of the job ends it."""

    def run(scene: Scene) -> Truth:
        scene.train(scene.job({"acts": [at(7, "hang")]}, **value))
        return scene.true("failed", ranks=2, needs=frozenset(needs))

    return run


def one_leaves(scene: Scene) -> Truth:
    """Rank 1 ends well at step 4, and rank 0 stands at step 7: that is a stall, too."""
    acts = [at(4, "exit", 0, 1), at(7, "hang")]
    scene.train(scene.job({"acts": acts}, stop_on={"stalled_s": 6}))
    return scene.true("failed", ranks=2)


def standing(scene: Scene) -> Truth:
    """A run stands and is looked at while it does."""
    job = scene.job({"acts": [at(7, "hang")], "step_s": 0.02})
    scene.begin(job)
    until(lambda: '"hang"' in text(scene), "the hang", 90)
    # Longer than five times what its start took.
    time.sleep(60)
    found = scene.true("running", ranks=2, needs=frozenset(("stands",)))
    scene.look("status", "report", "diagnose", "fetch")
    scene.keep("cancel", scene.world.play("cancel", limit_s=scene.limit_s))
    return found


def text(scene: Scene) -> str:
    """Return all that the ranks noted."""
    return "".join(path.read_text() for path in scene.truth.glob("rank-*.jsonl"))


def controller_killed(scene: Scene, hurt: t.Callable[[Scene], None] | None = None) -> Truth:
    """The controller is killed while the ranks run on; what it kept may be hurt, and the same command goes on."""
    plan = {"holds": [hold(8)]}
    job = scene.job(plan)
    play = scene.start(job)
    scene.held(8)
    scene.seen("step [5678]", play)
    scene.kill_controller(play)
    if hurt:
        hurt(scene)
    scene.go(8)
    scene.train(job)
    return scene.true("succeeded", ranks=2, hurt=hurt is not None)


def cut(name: str, seed: int) -> t.Callable[[Scene], None]:
    """Return what cuts a file of the controller's record at a random byte."""

    def run(scene: Scene) -> None:
        place = scene.world.run_folder() / name
        data = place.read_bytes() if place.exists() else b""
        place.write_bytes(data[: random.Random(seed).randrange(1, max(2, len(data)))])

    return run


def killed_and_cut(name: str, seed: int) -> Run:
    """Return a run whose controller is killed and leaves half a file."""
    return lambda scene: controller_killed(scene, cut(name, seed))


def removed_record(scene: Scene) -> None:
    """All that the controller kept of the run is gone."""
    shutil.rmtree(scene.world.run_folder())


def ended_and_cut(name: str, seed: int) -> Run:
    """Return a run that has succeeded, and whose record is cut before it is looked at."""

    def run(scene: Scene) -> Truth:
        job = scene.job({})
        scene.train(job)
        cut(name, seed)(scene)
        scene.train(job)
        return scene.true("succeeded", ranks=2, hurt=True)

    return run


def unfollowed(outcome: str, plan: dict[str, t.Any]) -> Run:
    """Return a run that nothing follows; its end is found by status."""

    def run(scene: Scene) -> Truth:
        scene.begin(scene.job(plan, **FAIL_FAST))
        until(lambda: not scene.world.processes(), "the end of the run", 90)
        return scene.true(outcome, ranks=2)

    return run


def cancelled(scene: Scene) -> Truth:
    """A run is cancelled at step 8, in the middle of what was not saved."""
    scene.begin(scene.job({"holds": [hold(8)]}))
    scene.held(8)
    scene.keep("cancel", scene.world.play("cancel", limit_s=scene.limit_s))
    scene.go(8)
    return scene.true("cancelled", ranks=2)


def node_log(harm: t.Callable[[pathlib.Path], t.Any]) -> Run:
    """Return a run that prints, and the log of whose first node is hurt while it runs."""

    def run(scene: Scene) -> Truth:
        play = scene.start(scene.job({"tells": "print", "holds": [hold(8)]}))
        scene.held(8)
        scene.seen("step [5678]", play)
        for path in scene.world.node_folder("node-1").rglob("*.log"):
            harm(path)
        scene.go(8)
        scene.ended(play)
        return scene.true("succeeded", "failed", ranks=2, hurt=True)

    return run


def log_disk_full(scene: Scene) -> Truth:
    """The nodes' state is on a small disk, which is full after step 8: nothing more is logged or saved there."""
    scene.world.nodes.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300m", "tmpfs", str(scene.world.nodes)], check=True)
    try:
        play = scene.start(scene.job({"tells": "print", "holds": [hold(8)], "checkpoints": "none"}))
        scene.held(8)
        fill(scene.world.nodes / "fill")
        scene.go(8)
        scene.ended(play)
        found = scene.true("succeeded", "failed", ranks=2, hurt=True)
        (scene.world.nodes / "fill").unlink()
        scene.look()
        return found
    finally:
        scene.world.close()
        subprocess.run(["umount", "-l", str(scene.world.nodes)], check=True)


def fill(place: pathlib.Path) -> None:
    """Write until the disk is full."""
    with open(place, "wb", buffering=0) as handle:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while handle.write(b"\0" * size) == size:
                    pass
            except OSError:
                continue


def agent_lost(scene: Scene) -> Truth:
    """All of the run on node-2 is killed at step 8."""
    play = scene.start(scene.job({"holds": [hold(8), hold(8, 1)]}, restart={"on_lost_node": "fail"}))
    scene.held(8)
    scene.held(8, 1)
    scene.kill_node("node-2")
    scene.go(8)
    scene.go(8, 1)
    scene.ended(play)
    return scene.true("failed", "lost", "succeeded", ranks=2, hurt=True)


def state_lost(scene: Scene) -> Truth:
    """A node's state is removed while the run works."""
    play = scene.start(scene.job({"holds": [hold(8), hold(8, 1)]}, restart={"on_lost_node": "fail"}))
    scene.held(8)
    scene.seen("step [5678]", play)
    scene.wipe("node-2")
    scene.go(8)
    scene.go(8, 1)
    scene.ended(play)
    return scene.true("failed", "lost", ranks=2, hurt=True)


def checkpoint_deleted(scene: Scene) -> Truth:
    """The newest save is removed after the end."""
    scene.train(scene.job({}))
    scene.remember()
    (path,) = scene.world.nodes.rglob("step-20.pt")
    path.unlink()
    return scene.true("succeeded", ranks=2)


def all_deleted(scene: Scene) -> Truth:
    """All saves are removed after the end."""
    scene.train(scene.job({}))
    scene.remember()
    for path in scene.world.nodes.rglob("step-*.pt"):
        path.unlink()
    return scene.true("succeeded", ranks=2)


def only_on_one_node(scene: Scene) -> Truth:
    """Rank 0 alone saves; the run fails and is trained again: node-2 needs what node-1 has."""
    job = scene.job({"acts": [at(13, "exit", 3)], "saves": "rank0"})
    scene.train(job)
    scene.train(job)
    return scene.true("succeeded", ranks=2, needs=frozenset(("one_step",)))


def restarted(plan: dict[str, t.Any], outcome: str = "succeeded", needs: t.Collection[str] = ()) -> Run:
    """Return a run of one rank that the launcher restarts in place."""

    def run(scene: Scene) -> Truth:
        scene.train(scene.elastic(scene.job(plan, nodes=1)))
        return scene.true(outcome, ranks=1, nodes=1, needs=frozenset(needs))

    return run


def pruned(scene: Scene) -> Truth:
    """prune removes the run with its saves; fetch is asked for it afterwards."""
    scene.train(scene.job({}))
    scene.remember()
    result = scene.world.play(
        "prune", muster_run_id=None, muster_prune_keep=0, muster_prune_unfetched=True, limit_s=scene.limit_s
    )
    scene.keep("prune", result)
    return scene.true("succeeded", ranks=2)


# With a bucket


def broken(
    plan: dict[str, t.Any], fault: t.Callable[[Scene], None], *, back: bool = False, wipe: bool = False, nodes: int = 1
) -> Run:
    """Return a run whose store has a fault from step 7 on (5 is stored then), maybe until step 13; disks may be lost."""

    def run(scene: Scene) -> Truth:
        scene.bind()
        play = scene.start(scene.job({"holds": [hold(7), *([hold(13)] if back else [])], **plan}, nodes=nodes))
        scene.held(7)
        scene.wait_stored(5)
        fault(scene)
        scene.go(7)
        if back:
            scene.held(13)
            time.sleep(1)
            assert scene.door
            scene.door.reopen()
            scene.go(13)
        scene.ended(play)
        if wipe:
            scene.remember()
            scene.wipe()
        return scene.true("succeeded", ranks=nodes, nodes=nodes)

    return run


def door(change: str, *values: t.Any) -> t.Callable[[Scene], None]:
    """Return a fault of the store's door: a method to call, or an attribute to set."""

    def run(scene: Scene) -> None:
        found = getattr(scene.door, change)
        if callable(found):
            found(*values)
        else:
            setattr(scene.door, change, *values)

    return run


def broken_before(fault: t.Callable[[Scene], None], **values: t.Any) -> Run:
    """Return a run whose store has a fault from its start on."""

    def run(scene: Scene) -> Truth:
        scene.bind()
        fault(scene)
        result = scene.train(scene.job({}, nodes=1, **values))
        if not scene.world.run_folder().exists():
            assert result.code != 0
            return scene.true("refused", ranks=1, nodes=1)
        return scene.true("succeeded", ranks=1, nodes=1)

    return run


def without_reports(scene: Scene) -> Truth:
    """A program whose saves the store cannot know."""
    scene.bind()
    scene.train(scene.job({"tells": "none"}, nodes=1))
    started = bool(list(scene.truth.glob("rank-*")))
    return scene.true("succeeded" if started else "refused", ranks=1, nodes=1)


def patterns_in_a_bucket(scene: Scene) -> Truth:
    """A program that prints its saves."""
    scene.bind()
    scene.train(scene.job({"tells": "print"}, nodes=1))
    started = bool(list(scene.truth.glob("rank-*")))
    return scene.true("succeeded" if started else "refused", ranks=1, nodes=1)


def host_lost(scene: Scene) -> Truth:
    """The node is lost with its disk at step 13 and the controller with it; another node resumes from the bucket."""
    scene.bind()
    job = scene.job({"holds": [hold(13)]}, nodes=1)
    play = scene.start(job, muster_train_hosts="node-1")
    scene.held(13)
    scene.wait_stored(10)
    scene.known(13)
    scene.kill_controller(play)
    scene.kill_node("node-1")
    until(lambda: not scene.world.processes(), "the end of all processes")
    scene.wipe("node-1")
    scene.train(job, muster_train_hosts="node-2")
    return scene.true("succeeded", ranks=1, nodes=1)


def emptied(scene: Scene) -> Truth:
    """Somebody empties the bucket after the end, and the disks are lost."""
    scene.bind()
    scene.train(scene.job({}, nodes=1))
    scene.remember()
    scene.wipe()
    assert scene.store
    scene.store.script(
        "for o in s3.list_objects_v2(Bucket='ckpt', Prefix='team/' + sys.argv[2]).get('Contents', []):\n"
        "    s3.delete_object(Bucket='ckpt', Key=o['Key'])\n",
        scene.world.run_id,
    )
    return scene.true("succeeded", ranks=1, nodes=1)


def damaged(scene: Scene) -> Truth:
    """A byte of the newest stored save is changed after the end, and the disks are lost."""
    scene.bind()
    scene.train(scene.job({}, nodes=1))
    scene.remember()
    scene.wipe()
    assert scene.store
    changed = scene.store.script(
        "for o in s3.list_objects_v2(Bucket='ckpt', Prefix='team/' + sys.argv[2]).get('Contents', []):\n"
        "    k = o['Key']\n"
        "    if 'part' in k.rpartition('/')[2]:\n"
        "        b = bytearray(s3.get_object(Bucket='ckpt', Key=k)['Body'].read())\n"
        "        if b'step 20 ' in b: b[b.find(b'step 20 ') + 900] ^= 1; s3.put_object(Bucket='ckpt', Key=k, Body=bytes(b)); print(k)\n",
        scene.world.run_id,
    )
    assert changed, "no part of step 20"
    return scene.true("succeeded", ranks=1, nodes=1)


def two_nodes_stored(*tellers: int) -> Run:
    """Return a run whose two ranks save, of which some report it; both disks are lost."""

    def run(scene: Scene) -> Truth:
        scene.bind()
        scene.train(scene.job({"saves": "each", "save_tellers": tellers}))
        scene.remember()
        scene.wipe()
        return scene.true("succeeded", ranks=2)

    return run


def bucket_killed(scene: Scene) -> Truth:
    """The controller is killed; the store is full from then on; the same command follows to the end."""
    scene.bind()
    job = scene.job({"holds": [hold(7)]}, nodes=1)
    play = scene.start(job)
    scene.held(7)
    scene.wait_stored(5)
    scene.kill_controller(play)
    assert scene.door
    scene.door.fill()
    scene.go(7)
    scene.train(job)
    return scene.true("succeeded", ranks=1, nodes=1)


def bucket_unfollowed(scene: Scene) -> Truth:
    """Nothing follows; the store is full after the first save."""
    scene.bind()
    scene.begin(scene.job({"holds": [hold(7)]}, nodes=1))
    scene.held(7)
    scene.wait_stored(5)
    assert scene.door
    scene.door.fill()
    scene.go(7)
    until(lambda: not scene.world.processes(), "the end of the run", 120)
    return scene.true("succeeded", ranks=1, nodes=1)


HOSTS = (
    Case("trained", simple("succeeded", {}), short=True),
    Case("each saves", simple("succeeded", {"saves": "each"})),
    Case("one folder", own_path),
    Case("saves nothing", simple("succeeded", {"saves": "none"})),
    Case("no step", simple("succeeded", {"steps": 0}), short=True),
    Case("exit 3", simple("failed", {"acts": [at(7, "exit", 3)]}, **FAIL_FAST)),
    Case("exception", simple("failed", {"acts": [at(7, "raise")], "tells": "print"}, **FAIL_FAST)),
    Case("SIGKILL", simple("failed", {"acts": [at(7, "signal", "KILL")]}, **FAIL_FAST)),
    Case("SIGTERM", simple("failed", {"acts": [at(7, "signal", "TERM")]}, **FAIL_FAST)),
    Case("SIGSEGV", simple("failed", {"acts": [at(12, "signal", "SEGV", 1)]}, **FAIL_FAST)),
    Case("SIGABRT", simple("failed", {"acts": [at(7, "signal", "ABRT")]}, **FAIL_FAST)),
    Case("SIGINT", simple("failed", {"acts": [at(7, "signal", "INT")]}, **FAIL_FAST)),
    Case("SIGBUS", simple("failed", {"acts": [at(7, "signal", "BUS")]}, **FAIL_FAST)),
    Case("fatal code", simple("failed", {"acts": [at(7, "exit", 42)]}, restart={"fatal_exit_codes": [42]})),
    Case("killed at once", simple("failed", {"acts": [at(0, "signal", "KILL")]}, **FAIL_FAST)),
    Case("NaN", simple("succeeded", {"nan_from": 12}, ("nan",))),
    Case("NaN printed", simple("succeeded", {"nan_from": 12, "tells": "print"}, ("nan",))),
    Case("NaN stops", simple("failed", {"nan_from": 12, "steps": 400}, ("nan",), stop_on={"nan": True})),
    Case("stops saving", simple("succeeded", {"last_save": 5})),
    Case("reported, not written", simple("succeeded", {"reported_only": [20]}), short=True),
    Case("half a file", twice({"acts": [at(13, "half", ".pt")]}, **FAIL_FAST)),
    Case("half a temporary file", twice({"acts": [at(13, "half", ".tmp")]}, **FAIL_FAST)),
    Case("hang, timeout", hang({"timeout_s": 6}, ())),
    Case("hang, stalled", hang({"stop_on": {"stalled_s": 4}}, ())),
    Case("stands", standing),
    Case("one leaves, the other stands", one_leaves),
    Case("fewer ranks", fewer_ranks, short=True),
    Case("rank 1 leaves early", simple("succeeded", {"acts": [at(9, "exit", 0, 1)]})),
    Case("rank 1 fails last", simple("failed", {"acts": [at(20, "exit", 1, 1)]}, **FAIL_FAST)),
    Case("controller killed", controller_killed),
    Case("run.json cut", killed_and_cut("run.json", 1)),
    Case("events cut", killed_and_cut("events.jsonl", 2), short=True),
    Case("metrics cut", killed_and_cut("metrics.jsonl", 3)),
    Case("record removed", lambda scene: controller_killed(scene, removed_record)),
    Case("run.json cut after the end", ended_and_cut("run.json", 4)),
    Case("events cut after the end", ended_and_cut("events.jsonl", 5)),
    Case("metrics cut after the end", ended_and_cut("metrics.jsonl", 6)),
    Case("unfollowed", unfollowed("succeeded", {})),
    Case("unfollowed exit 3", unfollowed("failed", {"acts": [at(7, "exit", 3), at(7, "exit", 3, 1)]})),
    Case("cancelled", cancelled),
    Case("log truncated", node_log(lambda path: os.truncate(path, 0))),
    Case("log deleted", node_log(pathlib.Path.unlink)),
    Case("log disk full", log_disk_full),
    Case("agent lost", agent_lost),
    Case("state lost", state_lost),
    Case("newest deleted", checkpoint_deleted),
    Case("all deleted", all_deleted),
    Case("trained again", twice({"acts": [at(13, "exit", 3)], "saves": "each"}, **FAIL_FAST)),
    Case(
        "begins anew",
        twice({"acts": [at(13, "exit", 3)], "saves": "each", "resume": False}, ("not_resumed",), **FAIL_FAST),
    ),
    Case("saves on one node", only_on_one_node, short=True),
    Case("restarted", restarted({"acts": [at(13, "signal", "KILL")]})),
    Case(
        "restarted anew",
        restarted({"acts": [at(13, "signal", "KILL")], "resume": False}, needs=("not_resumed",)),
        short=True,
    ),
    Case(
        "restarts spent",
        restarted({"acts": [at(step, "signal", "KILL", 0, n + 1) for n, step in enumerate((7, 12, 13, 14))]}, "failed"),
    ),
    Case("pruned", pruned),
)
BUCKET = (
    Case("stored", simple("succeeded", {}, **ONE), True),
    Case("stored by two", two_nodes_stored(0, 1), True),
    Case("two save and one reports", two_nodes_stored(0), True, short=True),
    Case("full from the start", broken_before(door("fill")), True),
    Case("full, 507", broken({}, door("fill")), True),
    Case("full, 500, disks lost", broken({}, door("fill", 0, 500), wipe=True), True, short=True),
    Case("full in the middle", broken({"size": 200_000}, door("fill", 150_000)), True),
    Case("refused at the start", broken_before(door("shut")), True),
    Case("gone", broken({}, door("shut")), True),
    Case("gone, disks lost", broken({}, door("shut"), wipe=True), True),
    Case("gone and back", broken({}, door("shut"), back=True), True),
    Case("slow", broken({"size": 400_000}, door("bytes_per_s", 40_000.0)), True),
    Case("forbidden", broken({}, door("forbidden", True)), True),
    Case("torn", broken({"size": 200_000}, door("tear", 0)), True),
    Case("not reported", without_reports, True),
    Case("printed", patterns_in_a_bucket, True),
    Case("host lost", host_lost, True),
    Case("emptied", emptied, True),
    Case("damaged", damaged, True),
    Case("controller killed, full", bucket_killed, True),
    Case("unfollowed, full", bucket_unfollowed, True),
)
CASES = (*HOSTS, *BUCKET)
