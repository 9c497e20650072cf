# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state home in a real bucket (SeaweedFS): a controller that vanishes leaves nothing that the next one cannot end.

Every controller here begins with an empty disk, as a job of AWX does; what one knows of another came from the bucket.
"""

from __future__ import annotations

import pathlib
import shutil
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.muster.training.tests.e2e import service_world
from ansible_collections.muster.training.tests.e2e.rent_world import SHORT, SIGNALS, Point, RentWorld, interrupt
from ansible_collections.muster.training.tests.e2e.service_world import KEYS, Store
from ansible_collections.muster.training.tests.fakes.runpod import FakeRunpod

BUCKET = "data"


class StoredWorld(RentWorld):
    """A world whose controllers keep nothing: ``leave`` makes the next one begin with an empty disk."""

    def __init__(self, root: pathlib.Path, store: Store) -> None:
        super().__init__(root, lambda clock: FakeRunpod(clock, boot_s=60.0), "runpod")
        self.program = pathlib.Path(service_world.services_python()).parent / "ansible-playbook"
        self.store = store

    def values(self, **extra: t.Any) -> dict[str, t.Any]:
        setting = {
            "store": "s3",
            "path": str(self.root / "state"),
            "s3": {"endpoint": self.store.endpoint, "bucket": f"{BUCKET}/team"},
        }
        return super().values(**{"muster_state": setting, **extra})

    def environment(self, **changes: str) -> dict[str, str]:
        return super().environment(**{**KEYS, **changes})

    def leave(self) -> None:
        shutil.rmtree(self.root / "state", ignore_errors=True)


@pytest.fixture
def world(tmp_path: pathlib.Path, store: Store) -> Iterator[StoredWorld]:
    for key in store.keys(BUCKET):
        store.script("s3.delete_object(Bucket=sys.argv[2], Key=sys.argv[3])", BUCKET, key)
    found = StoredWorld(tmp_path, store)
    with found.running():
        yield found
    assert found.api.violations == []


def test_another_controller_ends_what_one_began(world: StoredWorld) -> None:
    assert world.play("rent").code == 0 and world.alive == 2
    world.leave()
    again = world.play("rent")
    assert again.code == 0 and again.changed == 0 and world.alive == 2, again.output
    world.leave()
    done = world.play("teardown")
    assert done.code == 0 and world.alive == 0, done.output
    world.leave()
    assert world.play("teardown").changed == 0
    assert world.states == ["verified", "verified"]
    assert [key for key in world.store.keys(BUCKET) if "locks/" in key or "probe-" in key] == []


def cases() -> Iterator[t.Any]:
    for case in sorted(SHORT):
        # The others differ in the signal, which the local ledger's tests vary.
        marks = [] if case[-1] == "kill" else [pytest.mark.long]
        yield pytest.param(*case, marks=marks, id="-".join(map(str, case)))


@pytest.mark.parametrize(("playbook", "operation", "nth", "side", "name"), list(cases()))
def test_nothing_is_left_whenever_a_controller_vanishes(
    world: StoredWorld, playbook: str, operation: str, nth: int, side: str, name: str
) -> None:
    if playbook == "teardown":
        assert world.play("rent").code == 0
    interrupt(world, playbook, Point(operation, nth, side == "after"), SIGNALS[name], rented_nodes_lease_s=None)
    world.leave()
    world.pass_time(3 * 3600 if playbook == "rent" else 0)
    done = world.play("reap" if playbook == "rent" else "teardown")
    assert done.code == 0, done.output
    assert world.alive == 0 and set(world.states) <= {"verified"}


def test_a_second_controller_waits_for_the_first(world: StoredWorld) -> None:
    seen: list[t.Any] = []

    def rent_elsewhere() -> None:
        other = {"muster_state": {**world.values()["muster_state"], "path": str(world.root / "other")}}
        seen.append(world.play("rent", **other))

    world.door.point = Point("create", 1, False, rent_elsewhere)
    assert world.play("rent").code == 0
    assert seen[0].code != 0 and "is in use by process" in seen[0].output, seen[0].output
    assert world.alive == 2
    assert world.play("teardown").code == 0 and world.alive == 0


def test_nothing_is_ordered_while_the_bucket_is_away(world: StoredWorld) -> None:
    setting = {**world.values()["muster_state"], "s3": {"endpoint": "http://127.0.0.1:9", "bucket": BUCKET}}
    done = world.play("rent", muster_state=setting)
    assert done.code != 0 and "does not answer" in done.output and "Traceback" not in done.output, done.output
    assert world.alive == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"bucket": "dat/team"}, "NoSuchBucket"),
        ({"secret_ref": {"from": "env", "keys": {"secret_key": "WRONG_KEY"}}}, "SignatureDoesNotMatch"),
    ],
)
def test_a_wrong_setting_is_named(world: StoredWorld, change: dict[str, t.Any], said: str) -> None:
    setting = world.values()["muster_state"]
    place = world.start(
        "rent", env={"WRONG_KEY": "not-the-key-1234"}, muster_state={**setting, "s3": {**setting["s3"], **change}}
    )
    done = place.wait()
    assert done.code != 0 and "muster_state.s3" in done.output and said in done.output, done.output
    assert world.alive == 0 and sorted(world.store.buckets()) == ["ckpt", "data"]


def test_no_key_reaches_a_disk_or_the_output(world: StoredWorld) -> None:
    done = world.play("rent", "-vvv")
    assert done.code == 0
    for secret in KEYS.values():
        assert secret not in done.output
        assert not [path for path in world.root.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    assert world.play("teardown").code == 0
