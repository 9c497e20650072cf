# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Renting with the state home in a namespace of a real API server: controllers that die, vanish or come at once.

The same cases as for a ledger on a disk (tests/e2e/test_renting_killed.py) and in a bucket. Every controller begins
with an empty disk; what one knows of another came from the namespace.
"""

from __future__ import annotations

import itertools
import os
import pathlib
import re
import typing as t
from collections.abc import Callable, Iterator

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.secret_state import SecretState
from ansible_collections.muster.training.tests.e2e.rent_world import SHORT
from ansible_collections.muster.training.tests.e2e.stored_world import (
    Case,
    StoredWorld,
    check_second_controller,
    check_vanished,
)
from ansible_collections.muster.training.tests.fakes.cycle import Server
from ansible_collections.muster.training.tests.support.crash_store import StoredLife
from ansible_collections.muster.training.tests.support.kube_api import ApiServer

# A controller dies in process at every write; one case shows that a process that is killed is no other.
CASES = sorted(SHORT) if os.environ.get("MUSTER_TEST_ALL") == "1" else [("rent", "create", 1, "before", "kill")]
LEASE = "coordination.k8s.io/v1/Lease"
_numbers = itertools.count(1)


def expire_locks(client: Client, namespace: str) -> None:
    """Make the locks of a namespace old, as if their holders had been gone for long."""
    for item in client.list(LEASE, namespace).items:
        old: t.Any = {"spec": {"renewTime": "2020-01-01T00:00:00.000000Z"}}
        client.patch(LEASE, str(item["metadata"]["name"]), old, namespace)


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Server, str]]:
    server = Server()
    with server.running() as url:
        yield server, url


@pytest.fixture
def make(
    tmp_path: pathlib.Path, served: tuple[Server, str], monkeypatch: pytest.MonkeyPatch, client: Client, namespace: str
) -> Callable[[], StoredLife]:
    def begin() -> StoredLife:
        name = f"{namespace}-{next(_numbers)}"
        client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        folder = tmp_path / name
        folder.mkdir()
        store = SecretState(client, name, "lab")
        return StoredLife(folder, *served, monkeypatch, store, lambda: expire_locks(client, name))

    return begin


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("command", "then"), [("rent", "reap"), ("teardown", "teardown")])
def test_nothing_is_left_at_whichever_write_a_controller_dies(
    make: Callable[[], StoredLife], command: str, after: bool, then: str
) -> None:
    nth = 1
    while make().die_at(command, nth, after, then):
        nth += 1
    assert nth > 4, "each machine has lines of its own"


@pytest.mark.parametrize("nth", [2, 4])
def test_one_that_slept_while_another_rented_changes_nothing_more(make: Callable[[], StoredLife], nth: int) -> None:
    life = make()
    seen: list[t.Any] = []

    def overtake() -> None:
        life.expire()
        seen.append(life.elsewhere("rent", 2))

    life.store.nth, life.store.act = nth, overtake
    slept = life.perform("rent")
    assert slept["failed"] and "another controller" in slept["msg"] and not seen[0].get("failed"), (slept, seen)
    assert len(life.ours) == 2
    life.arrive()
    life.perform("teardown")
    assert (life.ours, life.untrue) == ([], [])


@pytest.fixture
def world(tmp_path: pathlib.Path, api: ApiServer, namespace: str) -> Iterator[StoredWorld]:
    kubernetes = {"namespace": namespace, "kubeconfig": str(api.kubeconfig)}
    found = StoredWorld(tmp_path, {"store": "kubernetes", "kubernetes": kubernetes})
    with found.running():
        yield found
    assert found.api.violations == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_nothing_is_left_whenever_a_controller_vanishes(world: StoredWorld, case: Case) -> None:
    check_vanished(world, case)


def test_a_second_controller_waits_for_the_first(world: StoredWorld) -> None:
    check_second_controller(world)


def test_an_ending_needs_no_store(world: StoredWorld, tmp_path: pathlib.Path) -> None:
    """Where the machines are known on this disk, they end while the API server is away; that it is fails the play."""
    assert world.play("rent").code == 0
    kubernetes = world.store_setting["kubernetes"]
    whole = pathlib.Path(kubernetes["kubeconfig"]).read_text()
    away = tmp_path / "away.kubeconfig"
    away.write_text(re.sub(r"https://127.0.0.1:[0-9]+", "https://127.0.0.1:9", whole))
    setting = world.setting(kubernetes={**kubernetes, "kubeconfig": str(away)})
    reaped = world.play("reap", muster_state=setting)
    assert reaped.code != 0 and world.alive == 2, reaped.output
    ended = world.play("teardown", muster_state=setting)
    assert ended.code != 0 and world.alive == 0 and "127.0.0.1:9" in ended.output, ended.output
    done = world.play("teardown")
    assert done.code == 0 and world.states == ["verified", "verified"], done.output


def test_a_job_of_awx_rents_with_a_store_and_not_without(world: StoredWorld) -> None:
    """Each job is a container of its own: its folder, its home and its disk go with it."""
    refused = world.play("rent", awx_job_id=7, muster_state={})
    assert refused.code != 0 and world.api.calls == [], refused.output
    assert "the state directory is ephemeral (AWX job)" in refused.output and "muster_state.store" in refused.output
    done = world.play("rent", awx_job_id=8)
    assert done.code == 0 and world.alive == 2, done.output
    for number, playbook, alive in ((9, "rent", 2), (10, "reap", 2), (11, "teardown", 0)):
        world.leave()
        done = world.play(playbook, awx_job_id=number)
        assert done.code == 0 and world.alive == alive, done.output
    assert len(world.api.things) == 2 and world.states == ["verified", "verified"]
