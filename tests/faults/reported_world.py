# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A controller, one account at a fake provider, and the judgement of what each command did and said.

A reported fault is data: where it was reported, what the fake does then, the commands, and how each must end. What
holds for all of them is judged here, by the fake's own machines.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import pathlib
import re
import time
import typing as t
from collections.abc import Callable, Mapping

from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError
from ansible_collections.muster.training.plugins.module_utils._model.lease import parse_instance_name
from ansible_collections.muster.training.plugins.module_utils._node import files
from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger.ledger_store import read_ledger
from ansible_collections.muster.training.plugins.plugin_utils._workflows.fleet_heal.run import heal_fleet
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool import present, reaper_main
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool.accounts import Externals
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job import run as training_job
from ansible_collections.muster.training.tests.fakes.api import STRANGERS, FakeApi, Thing
from ansible_collections.muster.training.tests.fakes.cycle import MAX_REPLACEMENTS, PRODUCTS, Crash, CrashWire, Server
from ansible_collections.muster.training.tests.fakes.virtual import InlineScheduler, VirtualClock
from ansible_collections.muster.training.tests.fakes.wire import TOKEN
from ansible_collections.muster.training.tests.support.run_world import Said
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._workflows.fleet_heal.heal_world import (
    RECORD,
    HostVars,
    Node,
)
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._workflows.node_pool.pool_accounts import Place

DAY_S = 86400
JSON = dict[str, t.Any]


@dataclasses.dataclass(frozen=True)
class Step:
    """A command and how it must end: ``fails`` None leaves that open, ``says`` must be in its output."""

    command: str
    fails: bool | None = None
    says: str = ""
    count: int = 1
    options: Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    act: Callable[[Life], object] = lambda _life: None


def ok(command: str, count: int = 1, says: str = "", **options: t.Any) -> Step:
    return Step(command, False, says, count, options)


def bad(command: str, says: str = "", count: int = 1, **options: t.Any) -> Step:
    return Step(command, True, says, count, options)


def maybe(command: str, count: int = 1, **options: t.Any) -> Step:
    return Step(command, None, "", count, options)


def wait(seconds: float) -> Step:
    return Step("wait", act=lambda life: life.clock.sleep(seconds))


def then(act: Callable[[Life], object]) -> Step:
    """Something happens at the provider, or on the controller."""
    return Step("then", act=act)


CALM = then(lambda life: life.api.calm())


@dataclasses.dataclass(frozen=True)
class Reported:
    """One fault: its name, product and source, what the fake does, what must hold, and the commands that show it."""

    name: str
    product: str
    source: str
    does: str
    holds: str
    steps: tuple[Step, ...]
    arm: Callable[[Life], object] = lambda _life: None


class Life(Place):
    """The controller; ``problems`` is what a command did or said wrong, ``figures`` what is counted."""

    def __init__(self, folder: pathlib.Path, case: Reported, server: Server, url: str) -> None:
        # heal dates its lines by the machine's own time.
        clock = VirtualClock(time.time())
        super().__init__(folder, "", "", clock)
        self.case, self.provider = case, case.product.removesuffix("_cluster")
        self.api: t.Any = PRODUCTS[case.product].fake(clock)
        server.api = t.cast(FakeApi, self.api)
        self.urls[self.provider] = url + self.api.base_path
        self.wire = CrashWire(clock, None)
        externals = Externals(clock, self.wire, {})
        self.context = present.Context(folder, False, externals, InlineScheduler(clock), self.prober)
        self.strangers = [self.api.stranger(name).id for name in STRANGERS]
        self.problems: list[str] = []
        self.untrue: list[str] = []
        self.allowed = 0
        self.credentials = True

    @property
    def ours(self) -> list[Thing]:
        """What bills and is ours."""
        return [item for item in self.api.alive() if item.id not in self.strangers]

    @property
    def first(self) -> Thing:
        """The first machine that bills."""
        return self.ours[0]

    @property
    def touched(self) -> int:
        """How many machines of others are gone."""
        alive = {item.id for item in self.api.alive()}
        return sum(key not in alive for key in self.strangers)

    @property
    def excess(self) -> int:
        """How many orders took effect beyond what may be replaced."""
        kinds = {"cluster"} if self.case.product.endswith("_cluster") else {"pod", None}
        made = [item for item in self.api.things.values() if item.id not in self.strangers]
        return max(0, sum(item.fields.get("kind") in kinds for item in made) - self.allowed)

    @property
    def accounts(self) -> list[JSON]:
        return self.providers(self.provider) if self.credentials else []

    def count_orders(self, count: int) -> None:
        """Note another number of machines that were ever made for us."""
        made = sum(key not in self.strangers for key in self.api.things)
        if made != count:
            self.problems.append(f"{made} machines were made, {count} expected")

    def count_calls(self, operation: str, count: int) -> None:
        """Note more calls of an operation."""
        made = sum(call[0] == operation for call in self.api.calls)
        if made > count:
            self.problems.append(f"{made} calls of {operation}, {count} expected")

    def count_paths(self, pattern: str) -> None:
        """Note calls whose path matches."""
        found = [call for call in self.api.calls if re.search(pattern, call[2]) and call[1] == "DELETE"]
        self.problems += [f"{call[1]} {call[2]}" for call in found]

    # Commands.

    def rent(self, count: int, **options: t.Any) -> JSON:
        unit = "cluster" if self.case.product.endswith("_cluster") else "machine"
        self.allowed += (1 if unit == "cluster" else count) * (MAX_REPLACEMENTS + 1)
        asked = {"gpu_model": "H100", "gpu_count": 1, "unit": unit, **options.pop("candidate", {})}
        if self.provider in ("runpod", "vastai"):
            asked["image"] = "ubuntu"
        given = {"lease_s": DAY_S, "max_price_usd_per_hour": 5.0, "providers": self.accounts, **options}
        return self.pool(count=count, candidates=[{"provider": self.provider, **asked}], **given)

    def teardown(self, _count: int, **options: t.Any) -> JSON:
        return self.pool(state="absent", pool=None, providers=self.accounts, **options)

    def reap(self, count: int, **options: t.Any) -> JSON:
        return self.teardown(count, due_only=True, **options)

    def reaper(self, _count: int, **options: t.Any) -> JSON:
        """Run the unit's command with its settings file."""
        key, place = self.folder / "key", self.folder / "reaper.json"
        key.write_text(TOKEN + "\n")
        accounts = [{"name": self.provider, "api_token_file": str(key), "api_url": self.urls[self.provider]}]
        home = {"path": str(self.folder / "state")}
        accounts = accounts if self.credentials else []
        place.write_text(json.dumps({"cluster": "lab", "state_home": home, "providers": accounts, **options}))
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = reaper_main.main([str(place)], self.context)
        shown = json.loads(out.getvalue()) if out.getvalue() else {}
        return {**shown, "failed": code != 0, "msg": err.getvalue()}

    def heal(self, count: int, **options: t.Any) -> JSON:
        """Heal a run on the pool's machines, and rent what it asks for, as the playbook does."""
        leases = [item for item in read_ledger(self.state).leases.values() if item.state == "joined"]
        names = [item.name for item in leases]
        hostvars = {item.name: {"muster_node": self._node(item.token, str(item.id))} for item in leases}
        job = {"name": "x", "nodes": count, "template": "t", "python": None, "restart": {"on_lost_node": "replace"}}
        folder = files.private_dir(self.state / "runs" / "r")
        files.write_json(folder / "run.json", {**RECORD, "hosts": names, "job": job})
        asked = {"state_home": {"path": str(self.folder / "state")}, "cluster": "lab", "patience_s": 100.0}
        asked |= {"providers": self.accounts, "rentable": True, **options}
        said, hosts = Said(), HostVars(hostvars)
        request = training_job.RunRequest(
            asked, names, hosts, self.folder, False, lambda wanted: [Node(name, None) for name in wanted], said
        )
        result = heal_fleet(request, self.context)
        return self.rent(count) if result["rent"] else {**result, "msg": result.get("msg", str(said.lines))}

    def _node(self, token: str, key: str) -> JSON:
        return {"id": key, "ownership": "rented", "owner": {"cluster": "lab", "pool": "h100", "token": token}}

    # The judgement.

    def run(self) -> None:
        """Arm the fault, run every command, then let all things settle at a provider that works again."""
        self.case.arm(self)
        for number, step in enumerate(self.case.steps, 1):
            if step.command in ("wait", "then"):
                step.act(self)
            else:
                self._judge(step, f"{number}. {step.command}")
        self.api.calm()
        self.credentials = True
        self.clock.sleep(7200)
        for _attempt in range(3):
            if not self._perform(Step("reaper")).get("failed"):
                break
            self.clock.sleep(600)
        self._judge(ok("teardown"), "last teardown")

    def _perform(self, step: Step) -> JSON:
        try:
            return t.cast(JSON, getattr(self, step.command)(step.count, **step.options))
        except MusterError as error:
            return {"failed": True, "msg": str(error)}
        except Crash:
            return {"failed": True, "killed": True, "msg": "killed"}

    def _judge(self, step: Step, what: str) -> None:
        made_before = set(self.api.things)
        result = self._perform(step)
        failed, text = bool(result.get("failed")), json.dumps(result, default=str)
        if step.fails is not None and failed != step.fails:
            self.problems.append(f"{what}: {'failed' if failed else 'did not fail'}: {result.get('msg', '')[:300]}")
        # What a tired operator reads is the message; the rest is for programs.
        if step.says not in (str(result.get("msg", "")) if failed else text):
            self.problems.append(f"{what}: does not say {step.says!r}: {result.get('msg', '')[:300]}")
        if "cannot be read (" in text or "internal error" in text:
            self.problems.append(f"{what}: an answer was not foreseen: {result.get('msg', '')[:300]}")
        if not result.get("killed"):
            is_rent = step.command in ("rent", "heal")
            lines = self._judge_rent(result, text, made_before) if is_rent else self._judge_ending(result, failed, text)
            self.untrue += [f"{what}: {line}" for line in lines]

    def _judge_rent(self, result: JSON, text: str, made_before: set[str]) -> list[str]:
        # Some listings write ids in another case.
        ready = {str(item["id"]).lower() for item in result.get("nodes") or ()}
        alive = {item.id: item for item in self.ours if item.fields.get("kind") != "cluster"}
        lines = [f"{key} is ready, but does not exist" for key in ready - alive.keys()]
        joined = {token for (token, _), item in read_ledger(self.state).leases.items() if item.state == "joined"}
        for key, item in alive.items():
            parts = parse_instance_name(item.name)
            # A rent that fails answers for what it has ordered, one that is complete for all that bills.
            is_others = bool(result.get("failed")) and key in made_before
            is_kept = parts is not None and parts.token in joined
            if not (key in ready or is_kept or is_others or key in text or item.name in text):
                lines.append(f"{item.name} bills without a word")
        return lines

    def _judge_ending(self, result: JSON, failed: bool, text: str) -> list[str]:
        within = {str(item["id"]) for item in result.get("within_lease") or ()}
        alive = {item.id: item for item in self.ours}
        # A cluster's lease is that of its machines.
        beyond = {key: item for key, item in alive.items() if not {key, item.fields.get("cluster")} & within}
        lines = [f"{item['id']} is proved gone and bills" for item in result.get("leases") or () if item["id"] in alive]
        if beyond and not failed:
            lines.append(f"rc 0, but {sorted(item.name for item in beyond.values())} bill")
        if failed:
            named = {key for key, item in beyond.items() if key in text or item.name in text}
            lines += [f"{item.name} is not named" for key, item in beyond.items() if key not in named]
        return lines
