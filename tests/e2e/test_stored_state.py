# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state home in a real bucket (SeaweedFS): a controller that vanishes leaves nothing that the next one cannot end.

Every controller here begins with an empty disk, as a job of AWX does; what one knows of another came from the bucket.
"""

from __future__ import annotations

import pathlib
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.muster.training.tests.e2e import service_world
from ansible_collections.muster.training.tests.e2e.rent_world import SHORT
from ansible_collections.muster.training.tests.e2e.service_world import KEYS, Store
from ansible_collections.muster.training.tests.e2e.stored_world import (
    Case,
    StoredWorld,
    check_second_controller,
    check_vanished,
)

BUCKET = "data"


class BucketWorld(StoredWorld):
    """A world whose store is a bucket."""

    def __init__(self, root: pathlib.Path, store: Store) -> None:
        super().__init__(root, {"store": "s3", "s3": {"endpoint": store.endpoint, "bucket": f"{BUCKET}/team"}})
        self.program = pathlib.Path(service_world.services_python()).parent / "ansible-playbook"
        self.store = store

    def environment(self, **changes: str) -> dict[str, str]:
        return super().environment(**{**KEYS, **changes})


@pytest.fixture
def world(tmp_path: pathlib.Path, store: Store) -> Iterator[BucketWorld]:
    for key in store.keys(BUCKET):
        store.script("s3.delete_object(Bucket=sys.argv[2], Key=sys.argv[3])", BUCKET, key)
    found = BucketWorld(tmp_path, store)
    with found.running():
        yield found
    assert found.api.violations == []


def test_another_controller_ends_what_one_began(world: BucketWorld) -> None:
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
        yield pytest.param(case, marks=marks, id="-".join(map(str, case)))


@pytest.mark.parametrize("case", list(cases()))
def test_nothing_is_left_whenever_a_controller_vanishes(world: BucketWorld, case: Case) -> None:
    check_vanished(world, case)


def test_a_second_controller_waits_for_the_first(world: BucketWorld) -> None:
    check_second_controller(world)


def test_nothing_is_ordered_while_the_bucket_is_away(world: BucketWorld) -> None:
    setting = world.setting(s3={"endpoint": "http://127.0.0.1:9", "bucket": BUCKET})
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
def test_a_wrong_setting_is_named(world: BucketWorld, change: dict[str, t.Any], said: str) -> None:
    setting = world.setting(s3={**world.store_setting["s3"], **change})
    place = world.start("rent", env={"WRONG_KEY": "not-the-key-1234"}, muster_state=setting)
    done = place.wait()
    assert done.code != 0 and "muster_state.s3" in done.output and said in done.output, done.output
    assert world.alive == 0 and sorted(world.store.buckets()) == ["ckpt", "data"]


def test_no_key_reaches_a_disk_or_the_output(world: BucketWorld) -> None:
    done = world.play("rent", "-vvv")
    assert done.code == 0
    for secret in KEYS.values():
        assert secret not in done.output
        assert not [path for path in world.root.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    assert world.play("teardown").code == 0
