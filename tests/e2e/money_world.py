# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The whole path of rented machines under drawn faults, and a judge who knows what the provider really has.

Machines of one's own and rented ones are in one inventory. The judge reads the screen, the exit code and the run's
record; the truth is the fake's.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import random
import re
import signal
import sys
import typing as t

import yaml

from ansible_collections.muster.training.tests.e2e.playbook_world import ROOT, Play, descendants, until
from ansible_collections.muster.training.tests.e2e.rent_world import Point, RentWorld, lives
from ansible_collections.muster.training.tests.fakes.api import STRANGERS, Answer, Thing
from ansible_collections.muster.training.tests.fakes.runpod import FakeRunpod
from ansible_collections.muster.training.tests.fakes.wire import TOKEN

DAY_S = 86400.0
REAPER = "ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool.reaper_main"
# Nothing listens there: a machine whose SSH does not answer, at once.
NOWHERE = ("127.0.0.1", 9, "root")
FAULTS = (
    "none",
    "empty listings",
    "empty listings, ids unknown",
    "half of a listing",
    "listings fail",
    "create answers lost",
    "creates fail",
    "deletes fail",
    "deletes do nothing",
    "a second machine",
    "renamed",
    "clock ahead",
    "clock behind",
    "killed",
)
# Of the first order, which mostly has machines at its end.
BEFORE = ("none", "create answers lost", "none", "creates fail", "none", "killed", "none", "clock behind")
# What a fault can be of.
OF = {
    "rent": FAULTS,
    "status": ("none", "empty listings"),
    "heal": ("none", "empty listings", "half of a listing", "listings fail", "deletes fail", "clock ahead", "killed"),
    "reap": ("none", "empty listings", "deletes fail", "deletes do nothing", "clock ahead", "clock behind", "killed"),
    "teardown": ("none", "empty listings", "half of a listing", "deletes fail", "deletes do nothing", "killed"),
}
OF["reaper"] = OF["reap"]
KILLED_AT = {
    "reaper": ("list", "delete"),
    "rent": ("list", "create"),
    "heal": ("list",),
    "reap": ("list", "delete"),
    "teardown": ("list", "delete"),
}


@dataclasses.dataclass(frozen=True)
class Step:
    """One playbook under one fault; ``nth`` is the call at which it steps in."""

    playbook: str
    fault: str = "none"
    nth: int = 1
    wait_s: float = 0.0


def draw(seed: int) -> tuple[Step, ...]:
    """Return the schedule of a seed: rent, status, heal, rent, reap and teardown, each under a fault of its own."""
    dice = random.Random(seed)
    # Every fault comes first in some schedule.
    steps = [Step("rent", BEFORE[seed % len(BEFORE)], dice.choice((1, 2)))]
    # Every third schedule has the reaper of another machine, with a copy of the ledger.
    reap = "reap" if seed % 3 else "reaper"
    for playbook in ("status", "heal", "rent", reap, "teardown"):
        wait_s = dice.choice((0.0, 0.0, 600.0, 8000.0 if playbook == reap else 90.0))
        steps.append(Step(playbook, dice.choice(OF[playbook]), dice.choice((1, 2)), wait_s))
    return tuple(steps)


class MoneyWorld(RentWorld):
    """One controller; the accounts have machines of others, the inventory has one of one's own."""

    def __init__(self, root: pathlib.Path, store: dict[str, t.Any] | None = None, **keys: str) -> None:
        self.state_store, self.keys = store or {}, keys
        super().__init__(root, self._make, "runpod")
        self.strangers = {self.api.stranger(name).id for name in STRANGERS}
        self.problems: list[str] = []
        self.hosts: list[str] = []
        self._seen: list[int] = []
        own = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        hosts = {"own-1": own}
        group = {"hosts": hosts}
        (root / "own.json").write_text(json.dumps({"all": {"children": {"muster_nodes": group}}}))

    @staticmethod
    def _make(clock: t.Any) -> FakeRunpod:
        api = FakeRunpod(clock, boot_s=30.0)
        api.endpoints = [NOWHERE] * 100
        return api

    @property
    def ours(self) -> list[Thing]:
        """What bills and was rented."""
        return [item for item in self.api.alive() if item.id not in self.strangers]

    def inventory(self) -> tuple[str, ...]:
        """Return the options of an inventory with a machine of one's own and those that the account lists."""
        source = yaml.safe_load((ROOT / "inventories" / "mixed" / "runpod.yml").read_text())
        (self.root / "runpod.yml").write_text(yaml.safe_dump({**source, "api_url": self.url}))
        return "-i", str(self.root / "own.json"), "-i", str(self.root / "runpod.yml")

    def environment(self, **changes: str) -> dict[str, str]:
        return super().environment(**{"RUNPOD_API_KEY": TOKEN, "ANSIBLE_SSH_TIMEOUT": "5", **self.keys, **changes})

    def values(self, **extra: t.Any) -> dict[str, t.Any]:
        times = {"rented_nodes_wait_timeout_s": 600, "rented_nodes_release_timeout_s": 300, "teardown_timeout_s": 300}
        state = {"path": str(self.root / "state"), **self.state_store}
        return super().values(**{"muster_state": state, **times, "muster_heal_gpus": False, **extra})

    def record(self, names: t.Sequence[str]) -> None:
        """Leave the record of a run on these hosts, as a controller that was killed does."""
        self.hosts = list(names)
        folder = self.root / "state" / "lab" / "runs" / "r-1"
        folder.mkdir(parents=True, exist_ok=True)
        job = {"name": "r", "nodes": len(names), "script": "/t.py", "restart": {"on_lost_node": "replace"}}
        (folder / "run.json").write_text(
            json.dumps(
                {"schema": 1, "run_id": "r-1", "job": job, "state": "running", "hosts": list(names)}
                | {"submitted_at": "2026-11-01T00:00:00+00:00", "backend": "hosts"}
            )
        )

    # Faults.

    def arm(self, step: Step) -> dict[str, str]:
        """Let the provider, or this machine's clock, be wrong in a step; return what changes in its environment."""
        api, fault, nth = self.api, step.fault, step.nth
        broken = api.error(500, "out of order")
        empty = {"list": Answer(200, {"pods": []}), "list_clusters": Answer(200, {"clusters": []})}
        lies = {"empty listings": lambda name, answer: empty.get(name, answer), "half of a listing": self._halve}
        lies["empty listings, ids unknown"] = lies["empty listings"]
        api.rewrite = lies.get(fault, api.rewrite)
        replies: dict[str, tuple[str, Answer, dict[str, t.Any]]] = {
            "empty listings, ids unknown": ("look", broken, {}),
            "listings fail": ("list", broken, {"first": nth, "last": nth + 3}),
            "create answers lost": ("create", broken, {"acts": True, "first": nth, "last": nth}),
            "creates fail": ("create", broken, {"first": nth, "last": nth + 1}),
            "deletes fail": ("delete", broken, {"last": nth * 3}),
            "deletes do nothing": ("delete", Answer(204), {"last": nth}),
        }
        if fault in replies:
            operation, answer, when = replies[fault]
            api.reply(operation, answer, **when)
        self._change_machines(fault)
        shift = {"clock ahead": DAY_S, "clock behind": -DAY_S}.get(fault)
        base, scale, before = self.clock.setting.split(":")
        return {} if shift is None else {"MUSTER_TEST_TIME": f"{base}:{scale}:{float(before) + shift}"}

    def _change_machines(self, fault: str) -> None:
        for first in self.ours[:1]:
            if fault == "a second machine":
                self.api.make(first.name, **first.fields)
            elif fault == "renamed":
                first.name = "renamed-by-hand"

    @staticmethod
    def _halve(name: str, answer: Answer) -> Answer:
        if name != "list" or answer.status != 200:
            return answer
        return Answer(200, {"pods": answer.data["pods"][::2]})

    def calm(self) -> None:
        self.api.calm()
        self.door.point = None

    # A step, and what is said of it.

    def step(self, step: Step) -> None:
        self.pass_time(step.wait_s)
        before = {item.id: item.name for item in self.ours}
        env = self.arm(step)
        if step.fault == "killed":
            self._kill_at(step)
        play = self._start_reaper(env) if step.playbook == "reaper" else None
        done = (play or self.start(step.playbook, *self.inventory(), env=env)).wait(180)
        if step.fault == "killed" and done.code < 0:
            # A worker may finish what it began.
            until(lambda: not any(map(lives, self._seen)), "the workers to end", 90)
        self.calm()
        found = [*self._judge_all(done.output), *self._judge(step, done, before)]
        self.problems += [f"{step}: {line}\n{done.output[-1500:]}" for line in found]

    def _start_reaper(self, env: dict[str, str]) -> Play:
        """Start a pass of the reaper's own program, where it has its own copy of the ledger."""
        home, ledger = self.root / "reaper", self.root / "state" / "lab" / "ledger.jsonl"
        incoming = home / "lab" / "incoming"
        incoming.mkdir(mode=0o700, parents=True, exist_ok=True)
        if ledger.exists():
            (incoming / f"{len(self.plays):03d}.jsonl").write_bytes(ledger.read_bytes())
        settings = {"cluster": "lab", "state_home": {"path": str(home)}, "release_timeout_s": 300}
        place = self.root / "reaper.json"
        place.write_text(json.dumps({**settings, "providers": self.values()["muster_providers"]}))
        log = self.root / f"play-{len(self.plays)}.log"
        play = Play([sys.executable, "-m", REAPER, str(place)], self.environment(**env), log, self.root, 0o022)
        self.plays.append(play)
        return play

    def _kill_at(self, step: Step) -> None:
        self._seen = []

        def act() -> None:
            play = self.plays[-1]
            self._seen = [*descendants(play.process.pid)]
            play.signal(signal.SIGKILL)

        operation = KILLED_AT[step.playbook][step.nth % len(KILLED_AT[step.playbook])]
        self.door.point = Point(operation, 1, step.nth == 2, act)

    def _judge_all(self, output: str) -> t.Iterator[str]:
        alive = {item.id for item in self.api.alive()}
        yield from (f"{key} of somebody else is gone" for key in self.strangers - alive)
        for word in ("Traceback", "internal error", "cannot be read (", "MODULE FAILURE", "Unexpected"):
            if word in output:
                yield f"says {word}"

    def _judge(self, step: Step, done: t.Any, before: dict[str, str]) -> t.Iterator[str]:
        """Yield what was said of one playbook that is not so, or was not said."""
        if done.code >= 0:
            yield from getattr(self, f"_judge_{step.playbook}")(step, done, before)

    def _judge_rent(self, step: Step, done: t.Any, before: dict[str, str]) -> t.Iterator[str]:
        ours = {item.id: item for item in self.ours}
        known = [item for key, item in ours.items() if not done.code or key not in before]
        yield from self._list_unsaid(known, done.output)
        if not done.code and len(ours) != 2:
            yield f"rc 0, and {len(ours)} bill"
        if step.fault.startswith(("empty", "half")):
            yield from (f"{key}, which worked, was deleted for a listing" for key in before if key not in ours)

    def _judge_heal(self, _step: Step, done: t.Any, before: dict[str, str]) -> t.Iterator[str]:
        # Machines that do not answer by SSH are lost by that, after a while.
        alive = {item.id for item in self.ours}
        gone = [name for key, name in before.items() if key not in alive]
        yield from (f"{name} was deleted without a word" for name in gone if name not in done.output)

    def _judge_reap(self, _step: Step, done: t.Any, _before: dict[str, str]) -> t.Iterator[str]:
        said = re.search(r"(\d+) within their lease", done.output)
        if not done.code and (said is None or int(said[1]) != len(self.ours)):
            yield f"rc 0, {said and said[0]}, and {len(self.ours)} bill"

    def _judge_reaper(self, _step: Step, done: t.Any, _before: dict[str, str]) -> t.Iterator[str]:
        ours = {item.id: item for item in self.ours}
        yield from self._list_unsaid(ours.values() if done.code else (), done.output)
        if not done.code:
            (shown,) = (json.loads(line) for line in done.output.splitlines() if line.startswith("{"))
            within = {item["id"] for item in shown["within_lease"]}
            yield from (f"rc 0, and {ours[key].name} bills" for key in ours.keys() - within)
            yield from (f"{item['name']} is proved gone and bills" for item in shown["leases"] if item["id"] in ours)

    def _judge_teardown(self, _step: Step, done: t.Any, _before: dict[str, str]) -> t.Iterator[str]:
        yield from self._list_unsaid(self.ours, done.output)
        if not done.code and self.ours:
            yield f"rc 0, and {sorted(item.name for item in self.ours)} bill"

    def _judge_status(self, _step: Step, done: t.Any, _before: dict[str, str]) -> t.Iterator[str]:
        if done.code or (self._is_over and re.search(r"r-1 +running", done.output)):
            yield "status does not say what is known"

    def _list_unsaid(self, things: t.Iterable[Thing], output: str) -> t.Iterator[str]:
        names = {lease.token: lease.name for lease in self.ledger.leases.values()}
        for item in things:
            token = str(item.fields["env"].get("MUSTER_TOKEN"))
            if not any(word in output for word in (item.name, item.id, names.get(token, item.name))):
                yield f"{item.name} bills without a word"

    @property
    def _is_over(self) -> bool:
        ended = {lease.name for lease in self.ledger.leases.values() if lease.state == "verified"}
        return bool(self.hosts) and ended >= set(self.hosts)

    def finish(self) -> None:
        """Let all things settle at a provider that works: nothing is left, and the run is not said to run."""
        self.calm()
        self.pass_time(3600)
        done = self.play("teardown", *self.inventory())
        if done.code or self.ours:
            self.problems.append(f"the last teardown: rc {done.code}, {len(self.ours)} bill\n{done.output[-2000:]}")
        if set(self.states) - {"verified", "failed"}:
            self.problems.append(f"the ledger has {self.states}")
        alive = {item.id for item in self.api.alive()}
        self.problems += [f"{key} of somebody else is gone" for key in self.strangers - alive]
        shown = self.play("status", *self.inventory())
        if re.search(r"r-1 +running", shown.output):
            self.problems.append(f"status: running, and its machines are gone\n{shown.output[-1500:]}")
        if self.hosts and not re.search(r"r-1 +(lost|succeeded|failed)", shown.output):
            self.problems.append(f"status does not know the run\n{shown.output[-1500:]}")
