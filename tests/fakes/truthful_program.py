# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A training program without a framework that fails as its plan says, and notes first what is true: ``PLAN.json``.

Each rank appends to ``FOLDER/rank-N.jsonl``: that it began, each step with its loss, each file that it saved with its
digest, and how it is about to end. The collection reads none of that. The plan's keys, with their defaults, are PLAN.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import signal
import sys
import time
import typing as t

PLAN: dict[str, t.Any] = {
    "truth": "",  # the folder for what is true
    "steps": 20,
    "every": 5,  # steps between two saves
    "step_s": 0.01,
    "size": 3000,  # bytes of a save
    "saves": "rank0",  # or each, none
    "tells": "metrics",  # or print, none
    "save_tellers": [0],  # ranks that report what they saved
    "resume": True,
    "last_save": None,  # no save after this step
    "reported_only": [],  # steps whose save is reported and not written
    "nan_from": None,
    "holds": [],  # {start, rank, step}: wait for the file go-RANK-START-STEP
    "acts": [],  # {start, rank, step, do, value}: see ACTS
}


class Rank:
    """One rank in one of its lives."""

    def __init__(self, plan: dict[str, t.Any]) -> None:
        self.plan = PLAN | plan
        self.rank = int(os.environ["RANK"])
        self.truth = pathlib.Path(self.plan["truth"])
        self.log = self.truth / f"rank-{self.rank}.jsonl"
        self.folder = pathlib.Path(os.environ["MUSTER_CHECKPOINT_DIR"])
        self.folder.mkdir(parents=True, exist_ok=True)
        before = self.log.read_text().splitlines() if self.log.exists() else []
        self.start = 1 + sum(json.loads(line)["kind"] == "began" for line in before)

    def note(self, kind: str, **values: t.Any) -> None:
        """Write down what is true."""
        if kind == "ended" and values["code"] == 0:
            (self.truth / f"left-{self.rank}-{os.environ['MUSTER_ATTEMPT']}").touch()
        with self.log.open("a") as handle:
            handle.write(json.dumps({"kind": kind, "at": time.time(), "rank": self.rank, **values}) + "\n")

    def tell(self, words: str, **values: t.Any) -> None:
        """Report to the collection, in the way of the plan; rank 0 writes the figures."""
        tellers = self.plan["save_tellers"] if "checkpoint_step" in values else [0]
        if self.rank not in tellers:
            return
        if self.plan["tells"] == "print":
            print(words, flush=True)
        if self.plan["tells"] == "metrics":
            with open(os.environ["MUSTER_METRICS_FILE"], "a") as handle:
                handle.write(json.dumps({"at": time.time(), **values}) + "\n")

    def content(self, step: int) -> bytes:
        """Return a save's bytes: no two steps or ranks have the same."""
        seed = hashlib.sha256(f"{self.truth} {step} {self.rank}".encode()).digest()
        return (f"step {step} rank {self.rank}\n".encode() + seed * (self.plan["size"] // 32 + 1))[: self.plan["size"]]

    def save(self, step: int) -> None:
        """Save under another name, rename, note, report."""
        path = self.folder / f"step-{step}.pt"
        data = self.content(step)
        if step not in self.plan["reported_only"]:
            path.with_suffix(".tmp").write_bytes(data)
            path.with_suffix(".tmp").rename(path)
            digest = hashlib.sha256(data).hexdigest()
            self.note("saved", step=step, path=str(path), sha256=digest, node=os.environ.get("MUSTER_NODE"))
        self.tell(f"saved step {step}", checkpoint_step=step, path=str(path))

    def resume(self) -> int:
        """Return the step of the newest save that is whole, 0 without one."""
        steps = [int(path.stem[5:]) for path in self.folder.glob("step-*.pt")] if self.plan["resume"] else []
        good = [
            step for step in sorted(steps) if len((self.folder / f"step-{step}.pt").read_bytes()) == self.plan["size"]
        ]
        step = good[-1] if good else 0
        self.note("resumed", step=step)
        if step:
            self.tell(f"resumed from step {step}", resumed_from_step=step)
        return step

    def hold(self, step: int) -> None:
        """Wait for the test where the plan says so."""
        if {"start": self.start, "rank": self.rank, "step": step} in self.plan["holds"]:
            name = f"{self.rank}-{self.start}-{step}"
            (self.truth / f"held-{name}").touch()
            while not (self.truth / f"go-{name}").exists():
                time.sleep(0.02)

    def meet(self, step: int) -> None:
        """Wait for the other ranks of this start, as an all-reduce does; those that have ended well are left out."""
        size, attempt = int(os.environ["WORLD_SIZE"]), os.environ["MUSTER_ATTEMPT"]
        own = self.truth / f"at-{self.rank}-{attempt}.new"
        own.write_text(str(step))
        own.rename(own.with_suffix(""))
        for rank in (rank for rank in range(size) if rank != self.rank):
            left, place = self.truth / f"left-{rank}-{attempt}", self.truth / f"at-{rank}-{attempt}"
            while not left.exists() and (not place.exists() or int(place.read_text()) < step):
                time.sleep(0.005)

    def act(self, step: int) -> None:
        """Do what the plan has for this step of this life."""
        for act in self.plan["acts"]:
            if (act.get("start", 1), act.get("rank", 0), act["step"]) == (self.start, self.rank, step):
                self.note("acts", do=act["do"], value=act.get("value"))
                ACTS[act["do"]](self, step, act.get("value"))

    def run(self) -> int:
        """Train."""
        self.note("began", pid=os.getpid(), node=os.environ.get("MUSTER_NODE"), attempt=os.environ["MUSTER_ATTEMPT"])
        self.act(0)
        step = self.resume()
        self.hold(step)
        while step < self.plan["steps"]:
            time.sleep(self.plan["step_s"])
            step += 1
            nan = self.plan["nan_from"] is not None and step >= self.plan["nan_from"]
            loss = float("nan") if nan else round(4 / (1 + step) + 0.5, 6)
            self.note("step", step=step, loss=None if nan else loss)
            self.tell(f"step {step} loss {loss}", step=step, loss=loss)
            saves = self.plan["saves"] == "each" or (self.plan["saves"] == "rank0" and self.rank == 0)
            if saves and step % self.plan["every"] == 0 and step <= (self.plan["last_save"] or step):
                self.save(step)
            self.act(step)
            self.hold(step)
            self.meet(step)
        self.note("ended", code=0)
        return 0

    def end(self) -> int:
        """Train, and note the end of a program that the machine makes fail."""
        try:
            return self.run()
        except OSError:
            self.note("ended", code=1)
            raise


def half(rank: Rank, step: int, suffix: t.Any) -> None:
    """Write half of the next save, under its own or a temporary name, and be killed."""
    data = rank.content(step + 1)
    (rank.folder / f"step-{step + 1}{suffix}").write_bytes(data[: len(data) // 2])
    os.kill(os.getpid(), signal.SIGKILL)


def die(number: signal.Signals) -> None:
    """End by a signal, also by one that is ignored because what started it all ignores it."""
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def end(rank: Rank, _step: int, code: t.Any) -> None:
    """End with a code."""
    rank.note("ended", code=code)
    sys.exit(code)


def lift(rank: Rank, step: int, _value: t.Any) -> None:
    """End as an exception that nothing catches ends a program."""
    rank.note("ended", code=1)
    raise RuntimeError(f"the program failed after step {step}")


ACTS: dict[str, t.Callable[[Rank, int, t.Any], None]] = {
    "exit": end,
    "raise": lift,
    "signal": lambda rank, step, name: die(getattr(signal, f"SIG{name}")),
    "hang": lambda rank, step, value: time.sleep(100_000),
    "half": half,
    "delete_saves": lambda rank, step, value: [path.unlink() for path in rank.folder.glob(str(value))] and None,
}


if __name__ == "__main__":
    sys.exit(Rank(json.loads(pathlib.Path(sys.argv[1]).read_text())).end())
