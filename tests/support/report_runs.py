# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records of five runs, as the product writes them: one that went well, and those whose pages differ most."""

from __future__ import annotations

import datetime
import json
import math
import pathlib
import random
import typing as t

Line = dict[str, t.Any]
ZERO = 1_795_500_000.0
TRACE = 'Traceback (most recent call last):\n  File "train.py", line 90, in step\n    loss.backward()\n'
NAMES = ("success", "oom", "nan", "stall", "eight")


def _iso(at: float) -> str:
    return datetime.datetime.fromtimestamp(at, datetime.UTC).isoformat(timespec="milliseconds")


class _Run:
    """A run of so many nodes, told step by step; :meth:`write` makes its folder."""

    def __init__(self, name: str, nodes: int) -> None:
        self.name = name
        self.nodes = [f"node-{number}" for number in range(1, nodes + 1)]
        self.random = random.Random(nodes)
        self.now = ZERO + 4
        self.attempts: list[Line] = []
        self.events: list[Line] = [{"at": ZERO, "kind": "submitted", "attempt": 1}]
        self.metrics: list[Line] = []
        self.usage: list[Line] = []
        self.record: Line = {"outcome": "succeeded", "exit_code": 0, "cause": "succeeded", "detail": None}
        self.log = ""

    def start(self, step: int) -> None:
        """Begin an attempt at a step."""
        number = len(self.attempts) + 1
        stays = [{"id": name, "from": _iso(self.now), "price_usd_per_hour": 0.0} for name in self.nodes]
        self.attempts.append({"n": number, "started_at": _iso(self.now), "nodes": stays, "first_step": step + 1})
        for rank, name in enumerate(self.nodes):
            self._rank("worker_started", rank, world_size=len(self.nodes), pid=100 + rank, node=name)
        self.metrics.append({"at": self.now + 0.1, "resumed_from_step": step, "world_size": len(self.nodes)})

    def _rank(self, kind: str, rank: int, **values: t.Any) -> None:
        number = len(self.attempts)
        common = {"rank": rank, "local_rank": 0, "attempt": number, "gang": f"1/127.0.0.1:{29500 + number}"}
        self.events.append({"at": self.now, "kind": kind, "node": self.nodes[rank], **common, **values})

    def train(self, first: int, last: int, nan_from: int = 10**9, grows: float = 0.0) -> None:
        """Make steps, with the figures of a program and the use of the nodes beside them."""
        for step in range(first, last + 1):
            self.now += 0.25 * self.random.uniform(0.8, 1.2)
            loss = math.nan if step >= nan_from else 4.5 * math.exp(-step / 80) + self.random.gauss(1.2, 0.05)
            figures = {"loss": loss, "tokens_per_s": self.random.gauss(49_000, 4000), "lr": 3e-4 * min(1, step / 30)}
            self.metrics.append({"at": self.now, "step": step, **figures, "grad_norm": self.random.gauss(1, 0.1)})
            self.log += f"step {step} loss {loss:.4f}\n"
            if step % 20 == 0:
                self.metrics.append({"at": self.now, "checkpoint_step": step, "path": f"/data/checkpoints/{step}"})
            if step % 8 == 0:
                self._use(3 + grows * step)
        self.attempts[-1]["last_step"] = last

    def _use(self, gib: float) -> None:
        for name in self.nodes:
            values = {"cpu_percent": self.random.uniform(60, 100), "memory_gib": gib + self.random.random() / 4}
            self.usage.append({"at": self.now, "node": name, **values})

    def end(self, *codes: int, cause: str | None = None) -> None:
        """End the attempt: its ranks with these codes."""
        place = next((rank for rank, code in enumerate(codes) if code not in (0, 143)), None)
        for rank, code in sorted(enumerate(codes), key=lambda item: item[1] in (0, 143)):
            self._rank("worker_exit", rank, exit_code=code, signal=max(0, code - 128))
        self.attempts[-1] |= {"ended_at": _iso(self.now), "logs": [f"logs/{name}.log" for name in self.nodes]}
        self.attempts[-1] |= {"cause": cause, "exit_code": 0 if place is None else codes[place]}
        self.attempts[-1] |= {"node": None if place is None else self.nodes[place]}
        for stay in self.attempts[-1]["nodes"]:
            stay["to"] = _iso(self.now)

    def fail(self, code: int, cause: str, detail: str, outcome: str = "failed") -> None:
        """Record how the run ended badly."""
        self.record = {"outcome": outcome, "exit_code": code, "cause": cause, "detail": detail}

    def write(self, place: pathlib.Path) -> pathlib.Path:
        """Write the run's folder below ``place`` and return it."""
        folder = place / self.name
        (folder / "logs").mkdir(parents=True)
        for name in self.nodes:
            (folder / "logs" / f"{name}.log").write_text(self.log, encoding="utf-8")
        for file in ("events", "metrics", "usage"):
            lines = "".join(json.dumps(line) + "\n" for line in getattr(self, file))
            (folder / f"{file}.jsonl").write_text(lines, encoding="utf-8")
        (folder / "run.json").write_text(json.dumps(self._full_record(), indent=1), encoding="utf-8")
        return folder

    def _full_record(self) -> Line:
        count = len(self.nodes)
        job: Line = {"name": f"mlp-{self.name}", "launcher": "torchrun", "script": "train.py", "nodes": count}
        job |= {"args": ["--steps", "220"], "gpus_per_node": 0, "processes_per_node": 1}
        job |= {"checkpoints": {"interval_steps": 20}}
        saved = [line for line in self.metrics if "checkpoint_step" in line]
        newest = {"path": saved[-1]["path"], "step": saved[-1]["checkpoint_step"]} if saved else {}
        return {
            "schema": 1,
            "run_id": f"mlp-{self.name}-4f1c2a9e",
            "job": job,
            "state": "ended",
            "attempts": self.attempts,
            "submitted_by": "kim@bench",
            "backend": "hosts",
            "engine": "torchrun",
            "launcher": "torchrun",
            "code_sha256": "9f2c4b7e" * 8,
            "versions": {"python": "3.13.1", "torch": "2.15.0"},
            "submitted_at": _iso(ZERO),
            "ended_at": _iso(self.now),
            "duration_s": self.now - ZERO,
            "world_size": {"asked": count, "seen": count},
            "checkpoint": newest,
            "metrics_file": "metrics.jsonl",
            "cost": {"usd": 0.0, "complete": True},
            "derived": {"world_size": count, "connection": "ssh"},
            "inventory": "/srv/clusters/a-rather-long-name-of-a-project/inventory/nodes.yml",
            **self.record,
        }


def _success(run: _Run) -> None:
    run.start(0)
    run.train(1, 148)
    run.events.append({"at": run.now, "kind": "drill", "node": "node-2", "rank": 1, "detail": "killed rank 1"})
    run.end(143, 137, cause="drill")
    run.now += 3
    run.start(140)
    run.train(141, 220)
    run.end(0, 0)


def _oom(run: _Run) -> None:
    run.start(0)
    run.train(1, 84, grows=0.15)
    run.log += "allocating the activations of layer 31\n"
    run.end(143, 137, cause="crash")
    told = "a rank on node-2 exited with code 137 and restart.max_crashes is exceeded: killed (SIGKILL), and nothing says by "
    told += "whom; where it was the kernel's out-of-memory killer, dmesg on the node names it"
    run.fail(137, "crash", told)


def _nan(run: _Run) -> None:
    run.start(0)
    run.train(1, 150, nan_from=61)
    run.end(0, 0)


def _stall(run: _Run) -> None:
    run.start(0)
    run.train(1, 80)
    run.now += 60
    run.end(143, 143)
    run.fail(
        1, "stalled", "stalled at step 80: no step for 60 s (job.stop_on.stalled_s). Read the ranks' stacks (py-spy)"
    )


def _eight(run: _Run) -> None:
    for code in (1, 1, 0):
        first = (run.attempts[-1]["last_step"] // 20 * 20) if run.attempts else 0
        run.start(first)
        run.train(first + 1, first + 55)
        run.log += TRACE + "RuntimeError: a message that is as long as those of programs are\n" if code else ""
        run.end(*[143 if code else 0] * 7, code, cause="crash" if code else None)
        run.now += 2


_TOLD: dict[str, tuple[int, t.Callable[[_Run], None]]] = {
    "success": (2, _success),
    "oom": (2, _oom),
    "nan": (2, _nan),
    "stall": (2, _stall),
    "eight": (8, _eight),
}


def write_run(name: str, place: pathlib.Path) -> pathlib.Path:
    """Write the folder of one of the runs ``NAMES`` below ``place`` and return it."""
    nodes, tell = _TOLD[name]
    run = _Run(name, nodes)
    tell(run)
    return run.write(place)
