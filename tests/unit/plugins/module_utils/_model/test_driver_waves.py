# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""In which waves drivers are changed: how many at once, in which order, and what is refused before anything begins."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.driver_waves import (
    WaveMachine,
    describe_waves,
    free_of_pods,
    parse_limit,
    plan_waves,
)
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, RefusedError

CORDONED = "it is not ready, or cordoned"


def stale(*names: str) -> list[WaveMachine]:
    return [WaveMachine(name, stale=True) for name in names]


def test_one_machine_at_a_time_in_the_order_of_the_inventory() -> None:
    assert plan_waves(stale("c", "a", "b"), "1") == (("c",), ("a",), ("b",))


def test_a_percentage_is_of_all_machines_and_rounded_down() -> None:
    machines = [*stale("a", "b", "c", "d", "e"), WaveMachine("f"), WaveMachine("g")]
    assert plan_waves(machines, "30%") == (("a", "b"), ("c", "d"), ("e",))


def test_a_machine_whose_driver_is_as_it_should_be_is_in_no_wave() -> None:
    assert plan_waves([WaveMachine("a"), *stale("b")], "1") == (("b",),)
    assert plan_waves([WaveMachine("a"), WaveMachine("b")], "1") == ()
    assert plan_waves([], "1") == ()


def test_more_than_there_are_is_all_at_once() -> None:
    assert plan_waves(stale("a", "b"), "10") == (("a", "b"),)
    assert plan_waves(stale("a", "b"), "100%") == (("a", "b"),)


def test_what_an_earlier_run_began_is_first_and_takes_nothing_off_the_limit() -> None:
    machines = [*stale("a", "b"), WaveMachine("c", begun=True, closed=CORDONED)]
    assert plan_waves(machines, "1") == (("c",), ("a",), ("b",))


def test_a_machine_that_was_changed_and_not_proven_is_taken_although_its_driver_is_new() -> None:
    assert plan_waves([WaveMachine("a"), WaveMachine("b", begun=True)], "1") == (("b",),)


def test_servers_are_last_and_one_in_a_wave() -> None:
    machines = [
        WaveMachine("s1", stale=True, server=True),
        WaveMachine("s2", stale=True, server=True),
        *stale("a", "b"),
    ]
    assert plan_waves(machines, "4") == (("a", "b"), ("s1",), ("s2",))


def test_a_server_that_was_begun_is_the_first_of_the_servers() -> None:
    machines = [WaveMachine("s1", stale=True, server=True), WaveMachine("s2", begun=True, server=True)]
    assert plan_waves([*machines, *stale("a")], "4") == (("s2",), ("a",), ("s1",))


def test_machines_that_take_no_pods_count_as_unavailable() -> None:
    machines = [*stale("a", "b", "c"), WaveMachine("d", closed=CORDONED)]
    assert plan_waves(machines, "3") == (("a", "b"), ("c",))


def test_a_machine_that_someone_closed_is_changed_before_those_that_are_open() -> None:
    machines = [*stale("a", "b"), WaveMachine("c", stale=True, closed=CORDONED)]
    assert plan_waves(machines, "2") == (("c",), ("a",), ("b",))


def test_no_machine_is_closed_where_as_many_already_are() -> None:
    machines = [*stale("a"), WaveMachine("b", closed=CORDONED)]
    with pytest.raises(RefusedError, match=r"max_unavailable is 1: 1 of 2 machines.*b \(it is not ready") as caught:
        plan_waves(machines, "1")
    assert "--limit" in str(caught.value)


def test_a_server_is_not_closed_either_where_as_many_already_are() -> None:
    machines = [WaveMachine("s", stale=True, server=True), WaveMachine("b", closed=CORDONED)]
    with pytest.raises(RefusedError, match="so many take no pods"):
        plan_waves(machines, "1")


def test_with_nothing_to_do_closed_machines_are_no_problem() -> None:
    assert plan_waves([WaveMachine("a"), WaveMachine("b", closed=CORDONED)], "1") == ()


def test_what_is_closed_already_can_be_changed_although_nothing_else_may_be_closed() -> None:
    assert plan_waves([WaveMachine("a"), WaveMachine("b", stale=True, closed=CORDONED)], "1") == (("b",),)


@pytest.mark.parametrize("text", ["0", "0%", "-1", "101%", "1.5", "half", "", "%", "1 %", "True", "9999999", "١"])
def test_a_limit_that_is_none_is_refused_by_name(text: str) -> None:
    with pytest.raises(InputError, match="max_unavailable"):
        parse_limit(text, 8)


@pytest.mark.parametrize(
    ("text", "count", "limit"), [("1", 8, 1), (" 3 ", 8, 3), ("25%", 8, 2), ("1%", 8, 1), ("9%", 0, 1)]
)
def test_a_limit_is_a_number_or_a_percentage(text: str, count: int, limit: int) -> None:
    assert parse_limit(text, count) == limit


def test_the_pods_of_a_machine_are_gone_by_then_and_processes_of_a_plain_host_are_not() -> None:
    driver = {"module": "580.1.2", "processes": 4}
    assert free_of_pods({"k3s_unit": "k3s-agent", "driver": driver})["driver"]["processes"] == 0
    assert free_of_pods({"k3s_unit": "", "driver": driver})["driver"]["processes"] == 4
    assert driver["processes"] == 4


def test_the_waves_are_said_one_line_each() -> None:
    assert describe_waves((("a", "b"), ("c",)), "25%") == [
        "wave 1 of 2 (at most 25% unavailable): a, b",
        "wave 2 of 2 (at most 25% unavailable): c",
    ]
    assert describe_waves((), "1") == ["the drivers of all machines are as they should be"]


@given(
    st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans(), st.booleans()), max_size=12),
    st.integers(1, 6),
)
def test_each_machine_is_changed_once_and_never_too_many_are_closed(
    rows: list[tuple[bool, bool, bool, bool]], limit: int
) -> None:
    machines = [
        WaveMachine(f"m{number}", row[0], row[1], row[2], CORDONED if row[3] else "") for number, row in enumerate(rows)
    ]
    try:
        waves = plan_waves(machines, str(limit))
    except RefusedError:
        assert sum(bool(item.closed) and not item.begun for item in machines) >= limit
        return
    done = [host for wave in waves for host in wave]
    assert sorted(done) == sorted(item.host for item in machines if item.stale or item.begun)
    by_name = {item.host: item for item in machines}
    begun = [by_name[host].begun for host in done]
    assert begun == sorted(begun, reverse=True), "what is closed is opened before anything else is closed"
    away = sum(bool(item.closed) and not item.begun for item in machines)
    for wave in waves:
        opened = [host for host in wave if not by_name[host].closed and not by_name[host].begun]
        assert not opened or len(opened) + away <= limit
        assert len(wave) <= max(limit, 1) and (len(wave) == 1 or not any(by_name[host].server for host in wave))
