# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two copies of one ledger become one, whatever each has added."""

from __future__ import annotations

import pathlib
import random

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.ledger import EVENTS, LedgerEvent
from ansible_collections.muster.training.plugins.module_utils._model.timestamps import format_time
from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger.ledger_merge import (
    import_incoming,
    merge_events,
)
from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger.ledger_session import LedgerSession
from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger.ledger_store import (
    LEDGER,
    LedgerWriter,
    read_ledger,
)

START = 1_795_255_200.0


def event(second: int, kind: str = "intent", token: str = "1f2e3d4c") -> LedgerEvent:
    return LedgerEvent.from_dict(
        {
            "schema": 1,
            "at": format_time(START + second),
            "cluster": "lab",
            "token": token,
            "event": kind,
            "resource": "instance",
            "provider": "lambda",
            "account": "ours",
            "pool": "h100",
            "name": f"lab-h100-0-{token}",
        }
    )


def write(folder: pathlib.Path, *events: LedgerEvent) -> None:
    with LedgerWriter(folder) as writer:
        for item in events:
            writer.append(item)


def put(folder: pathlib.Path, name: str, *events: LedgerEvent) -> pathlib.Path:
    place = folder / "incoming" / f"{name}.jsonl"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("".join(item.line() for item in events))
    return place


def test_the_lines_of_both_are_kept_once_and_in_time() -> None:
    ours = [event(0), event(5, "created"), event(90, "verified")]
    theirs = [event(0), event(5, "created"), event(7, "joined"), event(8, token="00000002")]
    assert [item.event for item in merge_events(ours, theirs)] == ["intent", "created", "joined", "intent", "verified"]


def test_any_order_and_any_repetition_gives_the_same() -> None:
    numbers = random.Random(1)
    events = [event(numbers.randrange(10**6), kind, f"{numbers.randrange(9):08x}") for kind in EVENTS for _ in range(9)]
    whole = merge_events(events, ())
    for _round in range(20):
        left = [item for item in events if numbers.random() < 0.7]
        right = [item for item in events if item not in left or numbers.random() < 0.5]
        assert merge_events(left, right) == whole
        assert merge_events(merge_events(left, right), right) == whole


def test_what_was_sent_is_taken_and_what_was_done_here_stays(tmp_path: pathlib.Path) -> None:
    write(tmp_path, event(0), event(90, "verified"))
    place = put(tmp_path, "a", event(0), event(5, "created"), event(7, "joined"))
    assert import_incoming(tmp_path) == []
    assert [item.event for item in read_ledger(tmp_path).events] == ["intent", "created", "joined", "verified"]
    assert not place.exists()
    # The lease that was proved gone here must not come to life again by an old copy.
    assert [lease.state for lease in read_ledger(tmp_path).leases.values()] == ["verified"]
    assert (tmp_path / LEDGER).stat().st_mode & 0o777 == 0o600


def test_an_empty_reaper_gets_the_whole_ledger(tmp_path: pathlib.Path) -> None:
    put(tmp_path, "a", event(0))
    put(tmp_path, "b", event(0), event(3, "created"))
    assert import_incoming(tmp_path) == []
    assert len(read_ledger(tmp_path).events) == 2
    assert import_incoming(tmp_path) == []


@pytest.mark.parametrize("text", [b"\0\xff garbage\n{}\n", b'{"schema": 7}\n', b"[1]\n"])
def test_a_copy_that_cannot_be_read_is_told_and_left(tmp_path: pathlib.Path, text: bytes) -> None:
    write(tmp_path, event(0))
    bad = put(tmp_path, "a")
    bad.write_bytes(text)
    put(tmp_path, "b", event(0), event(3, "created"))
    found = import_incoming(tmp_path)
    assert len(found) == 1 and found[0].startswith("a.jsonl was not imported")
    assert bad.exists() and len(read_ledger(tmp_path).events) == 2


def test_a_torn_copy_gives_its_whole_lines(tmp_path: pathlib.Path) -> None:
    place = put(tmp_path, "a", event(0), event(3, "created"))
    place.write_bytes(place.read_bytes()[:-9])
    assert len(import_incoming(tmp_path)) == 1
    assert [item.event for item in read_ledger(tmp_path).events] == ["intent"]


def test_a_ledger_in_use_is_not_changed(tmp_path: pathlib.Path) -> None:
    place = put(tmp_path, "a", event(0))
    with LedgerWriter(tmp_path), pytest.raises(RefusedError):
        import_incoming(tmp_path)
    assert place.exists() and read_ledger(tmp_path).events == ()


class _Disk:
    def __init__(self) -> None:
        self.lines: list[LedgerEvent] = []

    def append(self, item: LedgerEvent) -> None:
        self.lines.append(item)


def test_an_intent_without_its_copy_is_taken_back_and_refused() -> None:
    def broken(_events: object) -> None:
        raise MusterError("the reaper does not answer")

    disk = _Disk()
    book = LedgerSession((), disk, broken)
    with pytest.raises(MusterError, match="does not answer"):
        book.record_intent(event(0))
    assert [(item.event, item.settled) for item in disk.lines] == [("intent", None), ("failed", True)]
    book.update_replica()
    assert "does not answer" in book.replica_problem


def test_every_intent_is_copied_before_it_counts() -> None:
    copies: list[int] = []
    book = LedgerSession([event(0)], _Disk(), lambda events: copies.append(len(events)))
    book.record_intent(event(1, token="00000002"))
    book.record(event(2, "created", "00000002"))
    assert copies == [2]
    book.update_replica()
    assert copies == [2, 3] and book.replica_problem == ""
