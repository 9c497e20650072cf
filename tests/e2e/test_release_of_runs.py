# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run's rules end its machines: real playbooks rent, train and release; the pods are this machine's loopback nodes."""

from __future__ import annotations

import pathlib
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import NODES, World, until
from ansible_collections.muster.training.tests.e2e.rent_world import RentWorld
from ansible_collections.muster.training.tests.fakes.runpod import FakeRunpod


class Weekend:
    """Two rented pods, and the two loopback nodes that pass for them."""

    def __init__(self, root: pathlib.Path) -> None:
        (root / "rent").mkdir()
        (root / "train").mkdir()
        self.rent = RentWorld(root / "rent", lambda clock: FakeRunpod(clock, boot_s=30.0), "runpod")
        self.train = World(root / "train")

    def begin(self) -> None:
        done = self.rent.play("rent")
        assert done.code == 0, done.output
        # Jobs run in real time: a node's clock must be its controller's.
        leases = list(self.rent.ledger.leases.values())
        self.hosts = {
            node: {
                "muster_node": {
                    "id": lease.id,
                    "name": lease.name,
                    "provider": "runpod",
                    "ownership": "rented",
                    "price_usd_per_hour": lease.price_usd_per_hour,
                    "owner": {"cluster": "lab", "pool": lease.pool, "token": lease.token},
                }
            }
            for node, lease in zip(NODES, leases, strict=True)
        }
        self.values = {
            "hosts": self.hosts,
            "muster_cluster": "lab",
            "muster_state": {"path": str(self.rent.root / "state")},
            "muster_providers": self.rent.values()["muster_providers"],
        }


@pytest.fixture
def weekend(tmp_path: pathlib.Path) -> Iterator[Weekend]:
    found = Weekend(tmp_path)
    with found.rent.running():
        found.begin()
        yield found
        found.train.close()
    assert found.rent.api.violations == []


@pytest.mark.parametrize(
    ("command", "rule", "left"), [("true", "success", 0), ("false", "success", 2), ("false", "always", 0)]
)
def test_the_end_of_a_run_ends_its_machines(weekend: Weekend, command: str, rule: str, left: int) -> None:
    job = weekend.train.job(command=[command], release=rule)
    done = weekend.train.play(job=job, **weekend.values)
    assert (done.code == 0) == (command == "true"), done.output
    assert weekend.rent.alive == left
    assert set(weekend.rent.states) == ({"joined"} if left else {"verified"})


def test_a_run_that_costs_too_much_is_stopped_and_its_machines_end(weekend: Weekend) -> None:
    job = weekend.train.rank_job(max_cost_usd=0.01)
    play = weekend.train.start(job=job, **weekend.values)
    done = play.wait()
    assert done.code != 0 and "has cost 0." in done.output, done.output
    assert weekend.rent.alive == 0 and not weekend.train.processes()


def test_cancelling_ends_what_is_always_released(weekend: Weekend) -> None:
    job = weekend.train.rank_job(release="always")
    play = weekend.train.start(job=job, **weekend.values)
    until(lambda: len(weekend.train.ranks()) == 2, "both ranks")
    play.kill(9)
    play.wait()
    done = weekend.train.play("cancel", **weekend.values)
    assert done.code == 0, done.output
    assert weekend.rent.alive == 0


def test_a_rule_for_machines_without_a_line_is_refused(weekend: Weekend) -> None:
    strange: dict[str, t.Any] = {"muster_node": {"id": "x", "name": "y", "provider": "lambda", "ownership": "rented"}}
    hosts = dict.fromkeys(NODES, strange)
    done = weekend.train.play(job=weekend.train.job(release="always"), **{**weekend.values, "hosts": hosts})
    assert done.code == 2 and "job.release: node-1 is rented, but not in the ledger" in done.output
