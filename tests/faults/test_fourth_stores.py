# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fourth round's faults of ledgers in buckets; the bucket is a stand-in of botocore's client."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import pathlib
import typing as t

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

FIGURES: collections.Counter[str] = collections.Counter()


class Bucket(Client):
    """A bucket with faults: the next answers by operation, and what it shows instead of its objects."""

    def __init__(self) -> None:
        super().__init__()
        self.age_s = 0.0
        self.put_errors: list[tuple[str, int, bool]] = []
        self.get_error: tuple[str, int] | None = None
        self.stale: dict[str, tuple[bytes, str]] = {}
        self.cut = False
        self.puts: dict[str, int] = collections.defaultdict(int)

    def put_object(self, Bucket: str, Key: str, Body: bytes, **condition: str) -> dict[str, str]:
        is_ledger = Key.endswith("ledger.jsonl")
        self.puts[Key] += 1
        if is_ledger and self.put_errors:
            code, status, acts = self.put_errors.pop(0)
            if acts:
                super().put_object(Bucket, Key, Body, **condition)
            raise RefusalError(code, status)
        return super().put_object(Bucket, Key, Body, **condition)

    def get_object(self, Bucket: str, Key: str) -> dict[str, t.Any]:
        if self.get_error and Key.endswith("ledger.jsonl"):
            raise RefusalError(*self.get_error)
        if Key in self.stale:
            kept = self.objects[Key]
            self.objects[Key] = self.stale[Key]
            try:
                answer = super().get_object(Bucket, Key)
            finally:
                self.objects[Key] = kept
        else:
            answer = super().get_object(Bucket, Key)
        if self.cut and Key.endswith("ledger.jsonl"):
            body = answer["Body"].read()
            answer["Body"].__init__(body[: len(body) // 2])
        return {**answer, "LastModified": NOW - datetime.timedelta(seconds=self.age_s)}


@dataclasses.dataclass
class Stored:
    """A life whose ledger is in a bucket."""

    life: StoredLife
    bucket: Bucket

    @property
    def key(self) -> str:
        return next(key for key in self.bucket.objects if key.endswith("ledger.jsonl"))

    def clear(self) -> None:
        self.bucket.put_errors, self.bucket.get_error, self.bucket.cut = [], None, False
        self.bucket.stale.clear()

    def finish(self) -> None:
        """Let a controller end all, and judge."""
        self.clear()
        self.life.arrive()
        self.life.clock.sleep(7200)
        assert not (last := self.life.perform("teardown")).get("failed"), last
        figures = {
            "machines alive": len(self.life.ours),
            "touched": self.life.touched,
            "orders beyond": self.life.excess,
            "untrue outputs": len(self.life.untrue),
        }
        FIGURES.update({"cases": 1, "cases of stores": 1, **figures})
        assert not any(figures.values()), (figures, self.life.untrue)


@pytest.fixture
def stored(tmp_path: pathlib.Path, served: tuple[Server, str], monkeypatch: pytest.MonkeyPatch) -> Stored:
    bucket = Bucket()
    monkeypatch.setattr(s3_state, "_open_client", lambda *_unused: (bucket, RefusalError))
    store = S3State(S3Setting("http://s3.example", "state/team"), KEYS, "lab")
    return Stored(StoredLife(tmp_path, *served, monkeypatch, store, lambda: setattr(bucket, "age_s", 61.0)), bucket)


def test_a_conflict_at_a_conditional_write_is_tried_again(stored: Stored) -> None:
    """S3, PutObject: 409 ConditionalRequestConflict asks for the same request again."""
    stored.bucket.put_errors = [("ConditionalRequestConflict", 409, False)]
    assert not stored.life.perform("rent").get("failed")
    stored.finish()


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_write_that_was_done_and_answered_500(stored: Stored, nth: int) -> None:
    """S3, InternalError: the effect of a 500 is not known."""
    original = stored.bucket.put_object
    seen = [0]

    def put(Bucket: str, Key: str, Body: bytes, **condition: str) -> dict[str, str]:
        if Key.endswith("ledger.jsonl"):
            seen[0] += 1
            if seen[0] == nth:
                stored.bucket.put_errors = [("InternalError", 500, True)]
        return original(Bucket, Key, Body, **condition)

    stored.bucket.put_object = put  # type: ignore[method-assign]
    stored.life.perform("rent")
    stored.life.perform("rent")
    stored.finish()


def test_a_full_bucket_orders_nothing(stored: Stored) -> None:
    """Ceph, 403 QuotaExceeded; nothing is ordered that could not be noted."""
    stored.bucket.put_errors = [("QuotaExceeded", 403, False)] * 50
    assert stored.life.perform("rent")["failed"]
    assert stored.life.ours == []
    stored.finish()


def test_a_bucket_that_is_full_once_something_was_ordered(stored: Stored) -> None:
    """The line of the order's answer is refused: the machine is given back or named, in that command."""
    original = stored.bucket.put_object

    def put(Bucket: str, Key: str, Body: bytes, **condition: str) -> dict[str, str]:
        if Key.endswith("ledger.jsonl") and stored.life.ours:
            raise RefusalError("QuotaExceeded", 403)
        return original(Bucket, Key, Body, **condition)

    stored.bucket.put_object = put  # type: ignore[method-assign]
    assert stored.life.perform("rent")["failed"]
    stored.life.perform("teardown")
    stored.bucket.put_object = original  # type: ignore[method-assign]
    stored.finish()


@pytest.mark.parametrize("command", ["teardown", "reap", "reaper", "rent"])
@pytest.mark.parametrize("error", [("AccessDenied", 403), ("RequestTimeTooSkewed", 403), ("SlowDown", 503)])
def test_a_bucket_that_cannot_be_read_is_no_empty_ledger(stored: Stored, command: str, error: tuple[str, int]) -> None:
    """S3's error list: the policy has changed, the clock is off, too many requests."""
    assert not stored.life.perform("rent").get("failed")
    stored.life.arrive()
    stored.life.clock.sleep(26 * 3600.0)
    before = len(stored.life.ours)
    stored.bucket.get_error = error
    assert stored.life.perform(command)["failed"]
    assert len(stored.life.ours) <= before
    stored.finish()


@pytest.mark.parametrize("command", ["reap", "reaper", "rent"])
def test_a_ledger_that_a_lifecycle_rule_has_removed(stored: Stored, command: str) -> None:
    """S3, lifecycle expiration: the object is gone, the machines bill; they are named, and nothing is added."""
    assert not stored.life.perform("rent").get("failed")
    stored.life.arrive()
    del stored.bucket.objects[stored.key]
    result = stored.life.perform(command)
    assert result["failed"], result
    assert len(stored.life.ours) == 2
    assert all(item.name in str(result) for item in stored.life.ours)
    for item in stored.life.ours:
        item.gone_at = stored.life.clock.time()
    stored.finish()


@pytest.mark.parametrize("command", ["teardown", "reap", "rent"])
def test_an_older_version_of_the_ledger_is_restored(stored: Stored, command: str) -> None:
    """Versioned buckets: the ledger is put back to what it was before its last lines."""
    assert not stored.life.perform("rent").get("failed")
    data, tag = stored.bucket.objects[stored.key]
    lines = data.splitlines(keepends=True)
    stored.bucket.objects[stored.key] = (b"".join(lines[: len(lines) // 2]), tag + "x")
    stored.life.arrive()
    stored.life.perform(command)
    assert len(stored.life.ours) <= 2
    stored.finish()


@pytest.mark.parametrize("command", ["teardown", "reap", "rent"])
def test_half_of_the_object_arrives(stored: Stored, command: str) -> None:
    """botocore, IncompleteRead of proxies that end a body early: half a ledger hides no machine that bills."""
    assert not stored.life.perform("rent").get("failed")
    stored.life.arrive()
    stored.bucket.cut = True
    result = stored.life.perform(command)
    assert len(stored.life.ours) <= 2, result
    stored.finish()


def test_a_replica_that_lags_shows_the_ledger_before_the_order(stored: Stored) -> None:
    """Stores with replication: a read after a write shows the object before it."""
    stored.life.perform("teardown")
    keys = [key for key in stored.bucket.objects if key.endswith("ledger.jsonl")]
    empty = {key: stored.bucket.objects[key] for key in keys}
    assert not stored.life.perform("rent").get("failed")
    stored.life.arrive()
    stored.bucket.stale.update(empty or {})
    stored.life.perform("rent")
    assert len(stored.life.ours) <= 2
    stored.finish()
