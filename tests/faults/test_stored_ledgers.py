# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A ledger in a bucket: its controller dies at each of its writes, is overtaken there, or is not alone.

The bucket is a stand-in of botocore's client; the same cases run against a real API server in tests/kube_api.
"""

from __future__ import annotations

import datetime
import pathlib
import typing as t
from collections.abc import Callable

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.state_store import S3Setting
from ansible_collections.muster.training.plugins.plugin_utils._services import s3_state
from ansible_collections.muster.training.plugins.plugin_utils._services.s3_state import S3State
from ansible_collections.muster.training.tests.fakes.cycle import Server
from ansible_collections.muster.training.tests.support.crash_store import StoredLife
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._services.test_s3_state import (
    KEYS,
    NOW,
    Client,
    RefusalError,
)


class AgingClient(Client):
    """A bucket whose objects are as old as ``age_s`` says."""

    age_s = 0.0

    def get_object(self, Bucket: str, Key: str) -> dict[str, t.Any]:
        answer = super().get_object(Bucket, Key)
        return {**answer, "LastModified": NOW - datetime.timedelta(seconds=self.age_s)}


@pytest.fixture
def make(
    tmp_path: pathlib.Path, served: tuple[Server, str], monkeypatch: pytest.MonkeyPatch
) -> Callable[[], StoredLife]:
    def begin() -> StoredLife:
        client = AgingClient()
        monkeypatch.setattr(s3_state, "_open_client", lambda *_unused: (client, RefusalError))
        folder = tmp_path / f"life-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()

        def expire() -> None:
            client.age_s = 61.0

        store = S3State(S3Setting("http://s3.example", "state/team"), KEYS, "lab")
        return StoredLife(folder, *served, monkeypatch, store, expire)

    return begin


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("command", "then"), [("rent", "reap"), ("rent", "rent"), ("teardown", "teardown")])
def test_nothing_is_left_at_whichever_write_a_controller_dies(
    make: Callable[[], StoredLife], command: str, after: bool, then: str
) -> None:
    nth = 1
    while make().die_at(command, nth, after, then):
        nth += 1
    assert nth > 4, "each machine has lines of its own"


@pytest.mark.parametrize("ahead_s", [-7200.0, 7200.0, 72000.0])
@pytest.mark.parametrize("then", ["reap", "rent", "teardown"])
def test_another_clock_leaves_nothing_either(make: Callable[[], StoredLife], then: str, ahead_s: float) -> None:
    for nth in (1, 2, 4):
        assert make().die_at("rent", nth, True, then, ahead_s)


@pytest.mark.parametrize("command", ["teardown", "reap", "reaper"])
@pytest.mark.parametrize("credentials", [True, False])
def test_a_store_that_is_away_is_no_empty_ledger(
    make: Callable[[], StoredLife], command: str, credentials: bool
) -> None:
    """A controller with an empty disk knows nothing then, and must not say that nothing bills."""
    life = make()
    assert not life.perform("rent").get("failed")
    life.arrive().is_away = True
    life.credentials = credentials
    life.clock.sleep(26 * 3600.0)
    before = list(life.untrue)
    result = life.perform(command)
    assert result["failed"] and "does not answer" in result["msg"], result
    # Without the ledger and without the account nothing can name them.
    life.untrue = life.untrue if credentials else before
    life.store.is_away, life.credentials = False, True
    assert not life.perform(command).get("failed")
    assert (life.ours, life.untrue) == ([], [])


def test_a_reaper_without_credentials_reads_the_ledger_all_the_same(make: Callable[[], StoredLife]) -> None:
    life = make()
    assert not life.perform("rent").get("failed")
    life.arrive()
    life.credentials = False
    life.clock.sleep(26 * 3600.0)
    result = life.perform("reaper")
    assert result["failed"] and "lab-h100-0" in result["msg"], result


def test_a_second_controller_is_refused_at_every_write(make: Callable[[], StoredLife]) -> None:
    life = make()
    seen: list[t.Any] = []
    life.store.nth, life.store.act = 2, lambda: seen.append(life.elsewhere("rent", 2))
    assert not life.perform("rent").get("failed")
    assert seen[0]["failed"] and "is in use by process" in seen[0]["msg"]
    assert len(life.ours) == 2
    life.arrive()
    life.perform("teardown")
    assert (life.ours, life.untrue) == ([], [])


@pytest.mark.parametrize(
    ("command", "nth"), [*(("rent", nth) for nth in range(1, 6)), *(("teardown", nth) for nth in range(2, 6))]
)
def test_one_that_slept_while_another_went_on_changes_nothing_more(
    make: Callable[[], StoredLife], command: str, nth: int
) -> None:
    """A laptop whose lid was closed: its lock has expired, and the other one has done the work."""
    life = make()
    seen: list[t.Any] = []

    def overtake() -> None:
        life.expire()
        seen.append(life.elsewhere(command, 2))

    life.store.nth, life.store.act = nth, overtake
    slept = life.perform("rent")
    alive = [item.name for item in life.ours]
    assert slept["failed"] and not seen[0].get("failed"), (slept.get("msg"), seen)
    assert len(alive) == (2 if command == "rent" else 0), (alive, slept.get("msg"))
    assert "another controller" in slept["msg"]
    life.arrive()
    life.perform("teardown")
    assert (life.ours, life.untrue) == ([], [])


def test_a_reaper_that_slept_leaves_a_pool_that_grew_meanwhile(make: Callable[[], StoredLife]) -> None:
    life = make()
    life.perform("rent")
    life.arrive()
    life.clock.sleep(26 * 3600.0)

    def overtake() -> None:
        life.expire()
        life.elsewhere("rent", 3)

    life.store.nth, life.store.act = 1, overtake
    slept = life.perform("reap")
    assert slept["failed"] and "another controller" in slept["msg"] and "lab-h100-0" in slept["msg"], slept
    assert len(life.ours) == 3
    # It has not looked at the account: what the other one has ordered since is not its to name.
    assert [line for line in life.untrue if "lab-h100-2-" not in line] == []
    life.untrue.clear()
    life.arrive()
    # The other one has set the deadlines anew.
    assert not life.perform("reap").get("failed") and len(life.ours) == 3
    assert not life.perform("teardown").get("failed")
    assert (life.ours, life.untrue) == ([], [])
