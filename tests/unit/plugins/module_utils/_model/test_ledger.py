# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ledger events: the written form, what is refused, and what a list of them adds up to."""

from __future__ import annotations

import json
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.ledger import (
    EVENTS,
    RESOURCES,
    LedgerEvent,
    fold_events,
    make_event,
)
from ansible_collections.muster.training.plugins.module_utils._model.timestamps import format_time, parse_time

LINE = {
    "schema": 1,
    "at": "2026-11-21T10:00:00.000Z",
    "cluster": "lab",
    "token": "1f2e3d4c",
    "event": "intent",
    "resource": "instance",
    "provider": "lambda",
    "account": "acc1",
    "pool": "h100",
    "name": "lab-h100-0-1f2e3d4c",
}
words = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20)
events = st.builds(
    LedgerEvent,
    at=st.floats(0, 4e9).map(format_time),
    cluster=words,
    token=st.from_regex(r"[0-9a-f]{8}", fullmatch=True),
    event=st.sampled_from(EVENTS),
    resource=st.sampled_from(RESOURCES),
    provider=words,
    account=words,
    pool=words,
    name=words,
    region=st.none() | words,
    id=st.none() | words,
    price_usd_per_hour=st.none() | st.floats(0, 1e6),
    deadline=st.none() | st.floats(0, 4e9).map(format_time),
    release=st.none() | st.sampled_from(["success", "always", "never"]),
    settled=st.none() | st.booleans(),
    evidence=st.none() | st.dictionaries(words, words, max_size=3),
)


def line(**changes: t.Any) -> LedgerEvent:
    return LedgerEvent.from_dict({**LINE, **changes})


@given(events)
def test_an_event_survives_its_line(event: LedgerEvent) -> None:
    text = event.line()
    assert text.endswith("\n") and text.count("\n") == 1
    assert LedgerEvent.from_dict(json.loads(text)) == event


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(), lambda s: st.lists(s) | st.dictionaries(st.text(), s)
    )
)
def test_anything_is_an_event_or_an_input_error(value: t.Any) -> None:
    try:
        LedgerEvent.from_dict(value)
    except InputError:
        return
    raise AssertionError("accepted")


@given(st.dictionaries(st.sampled_from([*LINE, "id", "deadline", "evidence"]), st.integers() | st.text() | st.none()))
def test_changed_fields_never_end_in_another_error(changes: dict[str, t.Any]) -> None:
    try:
        fold_events([line(**changes)])
    except InputError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"schema": 2}, "schema"),
        ({"schema": None}, "schema"),
        ({"event": "bought"}, "event"),
        ({"token": "XYZ"}, "token"),
        ({"token": "1f2e3d4c5"}, "token"),
        ({"at": "yesterday"}, "at"),
        ({"at": "2026-11-21T10:00:00"}, "at"),
        ({"account": ""}, "account"),
        ({"price_usd_per_hour": -1}, "price_usd_per_hour"),
    ],
)
def test_a_wrong_field_is_named(changes: dict[str, t.Any], word: str) -> None:
    with pytest.raises(InputError) as caught:
        line(**changes)
    assert word in caught.value.option


def test_a_newer_field_is_ignored() -> None:
    assert line(colour="red") == line()


def test_times() -> None:
    assert format_time(0.0015) == "1970-01-01T00:00:00.001Z"
    assert parse_time("1970-01-01T01:00:00+01:00") == 0.0
    assert parse_time(format_time(1_795_255_200.25)) == 1_795_255_200.25


def test_an_intent_without_an_answer_is_open_and_not_settled() -> None:
    lease = fold_events([line()])[("1f2e3d4c", "instance")]
    assert (lease.state, lease.settled, lease.open, lease.id) == ("intent", False, True, None)


def test_a_life() -> None:
    lives = [
        line(price_usd_per_hour=2.0, deadline="2026-11-22T10:00:00Z"),
        line(event="created", id="i-1", at="2026-11-21T10:00:05Z"),
        line(event="joined", at="2026-11-21T10:05:00Z"),
        line(event="deleted", id="i-1", at="2026-11-21T11:00:00Z"),
    ]
    lease = fold_events(lives)[("1f2e3d4c", "instance")]
    assert (lease.state, lease.settled, lease.open, lease.id) == ("deleted", True, True, "i-1")
    assert lease.created_at == parse_time("2026-11-21T10:00:05Z")
    assert lease.deadline == "2026-11-22T10:00:00Z"
    assert lease.cost_usd(parse_time("2026-11-21T10:30:00Z")) == pytest.approx(1.0)
    done = fold_events([*lives, line(event="verified")])[("1f2e3d4c", "instance")]
    assert not done.open


def test_every_id_of_a_token_is_remembered() -> None:
    lease = fold_events([line(), line(event="created", id="a"), line(event="adopted", id="b")])[
        ("1f2e3d4c", "instance")
    ]
    assert lease.ids == ("a", "b")


def test_things_of_one_token_are_leases_of_their_own() -> None:
    assert set(fold_events([line(), line(resource="device", event="adopted", id="n1")])) == {
        ("1f2e3d4c", "instance"),
        ("1f2e3d4c", "device"),
    }


def test_the_credentials_that_saw_a_lease_are_kept_and_a_foreign_id_is_forgotten() -> None:
    events = [
        line(fingerprint="aaaa"),
        line(event="created", id="bobs", fingerprint="aaaa"),
        line(event="adopted", id="i-2", fingerprint="bbbb", evidence={"not_ours": ["bobs"]}),
    ]
    (lease,) = fold_events(events).values()
    assert lease.fingerprints == ("aaaa", "bbbb") and lease.ids == ("i-2",)
    assert lease.key == ("1f2e3d4c", "instance")
    with pytest.raises(InputError, match="not_ours"):
        line(evidence={"not_ours": 7})


def test_an_event_of_a_lease_keeps_what_is_known_of_it() -> None:
    event = {"schema": 1, "cluster": "lab", "token": "0123abcd", "resource": "instance", "provider": "lambda"}
    event |= {"account": "acc", "pool": "p", "name": "lab-p-0-0123abcd", "id": "i", "price_usd_per_hour": 2.0}
    made = LedgerEvent.from_dict({**event, "event": "joined", "at": format_time(1000.0), "run_id": "r"})
    (lease,) = fold_events([made]).values()
    line = make_event(lease, "lost", 2000.0, reason="notice")
    (after,) = fold_events([made, line]).values()
    assert (after.state, after.id, after.run_id, after.open) == ("lost", "i", "r", True)
    assert after.price_usd_per_hour == 2.0 and line.reason == "notice"
