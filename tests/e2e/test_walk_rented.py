# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rented machines from order to proof of deletion: rent, train, heal, teardown, each on what the one before it left."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import signal
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.ledger import LedgerEvent
from ansible_collections.muster.training.plugins.module_utils._model.timestamps import format_time, parse_time
from ansible_collections.muster.training.tests.e2e.playbook_world import World, until
from ansible_collections.muster.training.tests.e2e.rent_world import RentWorld
from ansible_collections.muster.training.tests.e2e.walk_world import LIMIT_S, Machines, Walk, last_step, read_steps
from ansible_collections.muster.training.tests.fakes.runpod import PRICE, FakeRunpod

pytestmark = pytest.mark.usefixtures("sshd_works")


class RentedWalk(Walk):
    """RunPod with pods whose SSH really answers."""

    def __init__(self, root: pathlib.Path, machines: Machines) -> None:
        for name in ("rent", "train"):
            (root / name).mkdir()
        super().__init__(root, machines, World(root / "train"))
        self.rent = RentWorld(root / "rent", self._make_api, "runpod")
        self.state = self.rent.root / "state"

    def _make_api(self, clock: t.Any) -> FakeRunpod:
        api = FakeRunpod(clock, boot_s=30.0)
        api.endpoints = list(self.machines.endpoints)
        return api

    @property
    def values(self) -> dict[str, t.Any]:
        readiness = {"cuda": False, "disk_free_gib_min": 0}
        keys = {"rented_nodes_ssh_private_key_file": self.machines.key, "rented_nodes_readiness": readiness}
        return {**self.rent.values(), **keys, **super().values}

    @property
    def folder(self) -> pathlib.Path:
        return self.state / "lab" / "runs" / self.train.run_id

    def play(self, playbook: str, inventory: str, **extra: t.Any) -> str:
        """Run a playbook in which the minutes of watching a provider are seconds."""
        done = self.rent.play(playbook, "-i", inventory, env=self.variables, **self.values, **extra)
        assert done.code == 0, done.output
        return str(done.output)

    def lose(self, name: str) -> None:
        """Let the provider take a machine away, with everything on it."""
        (thing,) = (item for item in self.rent.api.alive() if item.name == name)
        self.kill_machine(name)
        self.rent.api.end(thing)
        # A listing may lag for a minute behind what the ledger says; this was some time ago.
        ledger = self.state / "lab" / "ledger.jsonl"
        events = [LedgerEvent.from_dict(json.loads(line)) for line in ledger.read_text().splitlines()]
        past = [dataclasses.replace(event, at=format_time(parse_time(event.at) - 7200)) for event in events]
        ledger.write_text("".join(event.line() for event in past))


@pytest.fixture
def walk(tmp_path: pathlib.Path) -> Iterator[RentedWalk]:
    machines = Machines(tmp_path / "machines", 4)
    found = RentedWalk(tmp_path, machines)
    with found.rent.running():
        yield found
        found.train.close()
    machines.close()
    assert found.rent.api.violations == []


def test_from_rent_over_train_and_heal_to_teardown(walk: RentedWalk) -> None:
    inventory = walk.inventory(
        "rented_only", ["runpod.yml"], api_url=walk.rent.url, known_hosts_dir=str(walk.state / "lab" / "known_hosts")
    )
    walk.play("rent", inventory)
    assert walk.rent.alive == 2 and walk.rent.states == ["joined", "joined"]

    play = walk.start("train", inventory, muster_job=walk.job(restart={"on_lost_node": "replace"}))
    until(lambda: last_step(walk.folder) > 20 or play.process.poll() is not None, "some steps", LIMIT_S)
    assert play.process.poll() is None, play.output
    play.kill(signal.SIGKILL)
    play.wait()
    record = json.loads((walk.folder / "run.json").read_text())
    first, second = sorted(record["hosts"])
    rented = {lease.name: lease.token for lease in walk.rent.ledger.leases.values() if lease.machine}
    assert record["leases"] == rented, "from before the agents start: this controller may have heard of one by now"
    assert first.startswith("lab-h100-0-") and second.startswith("lab-h100-1-")

    walk.lose(second)
    reached = last_step(walk.folder)
    healing = walk.start("heal", inventory)
    until(lambda: last_step(walk.folder) > reached + 20 or healing.process.poll() is not None, "new steps", LIMIT_S)
    walk.train.finish()
    healed = healing.wait(LIMIT_S)
    assert healed.code == 0 and "Traceback" not in healed.output, healed.output
    record = json.loads((walk.folder / "run.json").read_text())
    assert record["outcome"] == "succeeded" and record["world_size"] == {"asked": 2, "seen": 2}
    assert record["hosts"][0] == first and record["hosts"][1] not in (first, second)
    # The lost machine, too, which bills until it was lost: nobody has read its part since the controller was killed.
    stays = {stay["id"]: (stay["token"], stay["price_usd_per_hour"]) for stay in record["attempts"][0]["nodes"]}
    assert stays == {name: (token, PRICE) for name, token in rented.items()} and record["cost"]["usd"] > 0
    assert record["attempts"][-1]["resumed_from_step"] >= 20
    assert [line["resumed_from_step"] for line in read_steps(walk.folder) if "resumed_from_step" in line][0] == 0
    assert walk.rent.alive == 2 and walk.rent.states == ["joined", "joined", "verified"]

    ended = walk.play("teardown", inventory)
    assert walk.rent.alive == 0 and set(walk.rent.states) == {"verified"}
    assert "2 proved gone, 0 within their lease (0.00 USD per hour)" in ended, ended
    proof = json.loads((walk.state / "lab" / "teardown.json").read_text())
    assert proof["residual_usd_per_hour"] == 0 and proof["leftovers"] == []

    # What the runs and the idle time cost is what the ledger says, and the run has its share.
    used = [line.strip(' ",') for line in walk.play("usage", inventory, muster_usage_by="job").splitlines()]
    cells = [line.split() for line in used if re.fullmatch(r"\S+(?: +[\d.]+\+?){4} +(?:\d+ %|-)", line)]
    figures = {line[0]: float(line[4].rstrip("+")) for line in cells}
    leases = [lease for lease in walk.rent.ledger.leases.values() if lease.machine]
    billed = sum(PRICE * (lease.changed_at - lease.intent_at) / 3600 for lease in leases)
    assert figures["total"] == pytest.approx(billed, abs=0.01) and len(figures) == 3, used
    # A run of seconds may cost less than half a cent, which is printed as none.
    assert 0 < figures["(idle)"] <= figures["total"]
