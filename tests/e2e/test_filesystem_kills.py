# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The server of a shared file system is killed during a save, at random moments: the job resumes from the last good one.

Real: JuiceFS with two FUSE mounts, SeaweedFS, the job's processes and the collection's supervisors. Of the volume that was
mounted by hand the metadata is in a file, which the kills do not reach; of the deployed one it is in a real Redis, which is
killed, too. With MUSTER_TEST_ALL=1 there are 50 moments, else a few; MUSTER_KILLS names a
number.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import signal
import sys
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import shared_filesystem
from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError, RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._workflows.services import bind, store_check
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import bindings
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.tests.e2e.juicefs_world import DeployedJuiceFs, JuiceFsWorld
from ansible_collections.muster.training.tests.e2e.service_world import KEYS
from ansible_collections.muster.training.tests.support.node_lab import eventually

MOMENTS = int(os.environ.get("MUSTER_KILLS", "50" if os.environ.get("MUSTER_TEST_ALL") == "1" else "3"))
SEED = int(os.environ.get("MUSTER_KILL_SEED", "35"))
MIB = 4
# A program that saves as it should: under another name, with fsync, renamed when it is whole. argv: a folder that no
# kill reaches, in which it says what it does. The file "stop" there ends it after a step.
PROGRAM = """
import hashlib, json, os, pathlib, sys, time
folder, truth = pathlib.Path(os.environ["MUSTER_CHECKPOINT_DIR"]), pathlib.Path(sys.argv[1])
rank = int(os.environ["RANK"])
def say(**values):
    with (truth / f"{rank}.jsonl").open("a") as file:
        file.write(json.dumps(values) + chr(10))
        file.flush()
        os.fsync(file.fileno())
def content(step):
    return hashlib.shake_256(f"{rank} {step}".encode()).digest(MIB << 20)
def is_good(path):
    step = int(path.name.partition("-")[2].partition(".")[0])
    return path.read_bytes() == content(step)
def steps_of(number):
    return {int(path.name.partition("-")[2].partition(".")[0]) for path in folder.glob(f"step-*.{number}")}
folder.mkdir(parents=True, exist_ok=True)
# The newest that all ranks have.
whole = sorted(steps_of(0) & steps_of(1), reverse=True)
damaged = [step for step in whole if not is_good(folder / f"step-{step}.{rank}")]
# Rank 0 chooses for all, as a training broadcasts it: a rename of a rank that was killed may still be on its way.
chosen = truth / f"chosen-{os.environ['MUSTER_ATTEMPT']}"
if rank == 0:
    start = next((step for step in whole if step not in damaged), 0)
    chosen.with_suffix(".part").write_text(str(start))
    chosen.with_suffix(".part").replace(chosen)
while not chosen.exists():
    time.sleep(0.005)
start = int(chosen.read_text())
damaged += [start] if start and not is_good(folder / f"step-{start}.{rank}") else []
say(loaded=start, damaged=damaged, pid=os.getpid())
step = start
def other_saved():
    place = truth / f"{1 - rank}.jsonl"
    lines = place.read_text().split(chr(10))[:-1] if place.exists() else []
    last = [json.loads(line) for line in lines[-3:]]
    return max([item.get("saved", item.get("loaded", 0)) for item in last], default=0)
while not (truth / "stop").exists():
    # Ranks of a training wait for each other in each step.
    while other_saved() < step and not (truth / "stop").exists():
        time.sleep(0.005)
    step += 1
    name = folder / f"step-{step}.{rank}"
    say(saving=step)
    with open(f"{name}.part", "wb") as file:
        file.write(content(step))
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{name}.part", name)
    say(saved=step)
    with open(os.environ["MUSTER_METRICS_FILE"], "a") as file:
        file.write(json.dumps({"step": step, "loss": 1.0 / step}) + chr(10))
    if step > 3:
        (folder / f"step-{step - 3}.{rank}").unlink(missing_ok=True)
    time.sleep(0.05)
""".replace("MIB", str(MIB))


@dataclasses.dataclass(slots=True)
class Kills:
    """One job that is started again after each kill; ``truth`` is where its ranks say what they do."""

    world: JuiceFsWorld
    truth: pathlib.Path
    moments: random.Random
    pool: concurrent.futures.ThreadPoolExecutor

    def said(self, rank: int) -> list[dict[str, t.Any]]:
        place = self.truth / f"{rank}.jsonl"
        lines = place.read_text().split("\n")[:-1] if place.exists() else []
        return [json.loads(line) for line in lines]

    def last(self, rank: int, word: str) -> int:
        return max((int(item[word]) for item in self.said(rank) if word in item), default=0)

    def starts(self) -> list[list[dict[str, t.Any]]]:
        return [[item for item in self.said(rank) if "loaded" in item] for rank in (0, 1)]

    def play(self) -> str:
        """Train to the end, and return why it failed, empty where it did not."""
        path = str(self.world.path)
        job = self.world.job(
            sys.executable,
            "-c",
            PROGRAM,
            str(self.truth),
            mounts=[{"name": "data", "path": path, "binding": "scratch"}],
            checkpoints={"grace_s": 1, "path": f"{path}/checkpoints"},
        )
        try:
            return str(self.world.play(job).get("failed") or "")
        except MusterError as error:
            return str(error)

    def wait_for_a_save(self) -> None:
        """Wait for a random place in one of the next saves of the first rank."""
        began = self.last(0, "saving")
        target = began + self.moments.randint(2, 4)
        eventually(lambda: self.last(0, "saving") >= target, "a save to begin", 60)
        time.sleep(self.moments.uniform(0, 0.12))

    def end_ranks(self) -> None:
        """End the ranks, as a job does that is cancelled, or the loss of a machine."""
        for found in self.starts():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(found[-1]["pid"]), signal.SIGKILL)


@pytest.fixture
def kills(tmp_path: pathlib.Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[Kills]:
    """A volume that was mounted by hand, or with the parameter ``deployed`` one that the roles have made."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    kind = DeployedJuiceFs if getattr(request, "param", "") == "deployed" else JuiceFsWorld
    world = kind(tmp_path)
    truth = tmp_path / "truth"
    truth.mkdir()
    pool = concurrent.futures.ThreadPoolExecutor(1)
    yield Kills(world, truth, random.Random(SEED), pool)
    (truth / "stop").touch()
    world.close()
    pool.shutdown()


@pytest.mark.parametrize("kills", ["by hand", pytest.param("deployed", marks=pytest.mark.long)], indirect=True)
def test_a_job_resumes_from_the_last_good_checkpoint(kills: Kills) -> None:
    world = kills.world
    bind.run(world.request(None, services=[world.service], require_all=True))
    bound = bindings.load_binding(StateHome({"path": str(world.root / "home")}, "default"), "scratch", "name")
    assert [row.ok for row in bound.reachable_from] == [True, True], (
        "both nodes see what the other writes, and its locks"
    )
    resumed, told = 0, []
    playing = kills.pool.submit(kills.play)
    for number in range(MOMENTS):
        kills.wait_for_a_save()
        before = [kills.last(rank, "saved") for rank in (0, 1)]
        kind = kills.moments.choice(world.kinds)
        starts = len(kills.starts()[0])
        if kind != "mount":
            world.kill_server(kind)
            # They end when the server is back: what waits in fsync cannot be ended before.
            kills.end_ranks()
            time.sleep(kills.moments.uniform(0.1, 1.0))
            world.start_server(kind)
        else:
            world.kill_mount("a")
        why = playing.result(120)
        assert why, "a run that lost its ranks is not one that succeeded"
        if kind == "mount":
            refused = kills.play()
            assert f"a: {world.path} cannot be read" in refused and "mount the shared file system there" in refused
            world.repair_mount("a")
        after = [kills.last(rank, "saved") for rank in (0, 1)]
        playing = kills.pool.submit(kills.play)
        eventually(lambda count=starts: all(len(found) > count for found in kills.starts()), "a new start", 60)  # type: ignore[misc]
        loaded = [found[-1] for found in kills.starts()]
        told.append({"kind": kind, "before": before, "after": after, "loaded": loaded})
        # What both ranks have saved is there, whole; what one was about to save may be.
        good = min(after)
        is_good = all(good <= item["loaded"] <= good + 1 and not item["damaged"] for item in loaded)
        resumed += is_good and loaded[0]["loaded"] == loaded[1]["loaded"] and loaded[0]["loaded"] > 0
        print(f"moment {number + 1}: {told[-1]}", flush=True)
    (kills.truth / "stop").touch()
    assert playing.result(120) == ""
    kinds = {kind: sum(item["kind"] == kind for item in told) for kind in world.kinds}
    print(f"{resumed} of {MOMENTS} resumed from the last good checkpoint: {kinds} killed during a save")
    assert resumed == MOMENTS


def bind_scratch(world: JuiceFsWorld) -> str:
    """Bind the file system, and return why that was refused."""
    entry = {"name": "scratch", "kind": "shared_filesystem", "mode": "bind", "provider": "path"}
    about = {"path": str(world.path), "type": "juicefs"}
    with pytest.raises(RefusedError) as caught:
        bind.run(world.request(None, services=[{**entry, "filesystem": about}], require_all=True))
    assert bindings.list_bindings(StateHome({"path": str(world.root / "home")}, "default")) == [], (
        "nothing is half bound"
    )
    return str(caught.value)


def test_what_is_away_is_named_and_nothing_is_bound(kills: Kills, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of a mount that has ended, and a store that does not answer while what was mounted waits for it."""
    world = kills.world
    monkeypatch.setattr(shared_filesystem, "LIMIT_S", 4.0)
    monkeypatch.setattr(store_check, "_WAIT_S", {"host": 4, "pod": 4})
    world.kill_mount("b")
    text = bind_scratch(world)
    assert f"b (host): {world.path} has lost its program (FUSE)" in text and "start its unit again" in text
    world.repair_mount("b")
    world.kill_store()
    began = time.monotonic()
    text = bind_scratch(world)
    assert "did not answer within the time of the check" in text and "Its server or the network to it is away" in text
    print(f"the check ended after {time.monotonic() - began:.1f} s")
    world.start_store()
