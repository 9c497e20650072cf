# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who of a gang is waited for, by what nodes saw of ranks that stand."""

from __future__ import annotations

import typing as t

import hypothesis
import hypothesis.strategies as st
import pytest

from ansible_collections.muster.training.plugins.module_utils._model.hang import (
    Place,
    Standing,
    name_hang,
    read_standing,
)
from ansible_collections.muster.training.plugins.module_utils._model.run_history import RunHistory

LOOP, LOSS, DATA = (
    Place("<module>", "/x/train.py", 20),
    Place("step", "/x/train.py", 30),
    Place("read", "/x/data.py", 7),
)
TORCH = "/v/lib/python3.13/site-packages/torch"


def waits(rank: int, operation: str = "all_reduce", place: Place = LOSS) -> Standing:
    return Standing(rank, f"node-{rank // 2}", 100.0 + rank, operation, place)


def stands(rank: int, **values: t.Any) -> Standing:
    return Standing(rank, f"node-{rank // 2}", 100.0, **{"place": DATA, **values})


def name(*items: Standing, running: t.Collection[int] | None = None, **values: t.Any) -> t.Any:
    return name_hang({item.rank: item for item in items}, running or [item.rank for item in items], **values)


def test_the_rank_outside_of_the_collective_is_waited_for() -> None:
    hang = name(waits(0), stands(1, waits_in="futex_do_wait"), waits(2), waits(3))
    assert hang.is_certain and [item.rank for item in hang.culprits] == [1]
    assert hang.text == (
        "rank 1 on node-0 waits for a lock at data.py:7 (read); ranks 0, 2-3 wait in all_reduce at train.py:30 (step)"
    )
    assert hang.describe(115.0) == f"hangs for 12 s: {hang.text}"
    assert hang.to_event()["ranks"] == [
        {"rank": 1, "node": "node-0", "place": {"name": "read", "path": "/x/data.py", "line": 7}}
    ]


def test_while_a_rank_works_nobody_hangs() -> None:
    # It saves or evaluates, and the others wait for it.
    assert name(waits(1), waits(2), running=[0, 1, 2]) is None
    assert name(stands(1), waits(2), running=[0, 1, 2]) is None
    assert name(running=[0, 1]) is None


def test_a_stopped_rank_is_named_before_the_others_come_to_their_collective() -> None:
    hang = name(stands(1, state="T", operation="backward"), running=[0, 1, 2])
    assert hang.is_certain and "rank 1 on node-0 is stopped by a signal" in hang.text


def test_of_ranks_that_all_wait_those_in_another_operation_are_named() -> None:
    hang = name(waits(0), waits(1, "broadcast", DATA), waits(2))
    assert [item.rank for item in hang.culprits] == [1] and hang.is_certain
    assert hang.text.startswith(
        "rank 1 on node-0 waits in broadcast at data.py:7 (read), unlike the others; ranks 0, 2 "
    )
    # The same collective at two lines of a program is two.
    assert [item.rank for item in name(waits(0), waits(1), waits(2, place=LOOP)).culprits] == [2]


def test_one_line_of_a_program_is_one_on_nodes_that_have_it_in_other_folders() -> None:
    """Each home, and each node of a test, is another path: ranks that wait at one line wait for the same."""
    here, there = (Place("step", f"/home/{user}/runs/r/code/train.py", 30) for user in "ab")
    hang = name(waits(0, place=here), waits(1, place=here), waits(2, place=there))
    assert not hang.culprits and not hang.is_certain
    assert hang.text == "no rank is seen that the others wait for; ranks 0-2 wait in all_reduce at train.py:30 (step)"
    hang = name(waits(0, "init_process_group", here), waits(1, "init_process_group", there))
    assert not hang.is_certain


def test_of_two_ranks_in_two_operations_none_is_called_the_wrong_one() -> None:
    hang = name(waits(0), waits(1, "broadcast", DATA))
    assert (
        hang.is_certain and hang.culprits == () and hang.text.startswith("ranks wait in different operations; rank 0 ")
    )


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"ended": {2: 0}}, "rank 2 has ended with exit code 0; ranks 0-1 wait in all_reduce"),
        ({"missing": [3]}, "rank 3 has not started; ranks 0-1 wait in all_reduce"),
        ({}, "no rank is seen that the others wait for; ranks 0-1 wait in all_reduce"),
    ],
)
def test_where_all_wait_in_one_place_it_may_be_a_pause(values: t.Any, words: str) -> None:
    hang = name(waits(0), waits(1), **values)
    assert words in hang.text and not hang.is_certain and hang.culprits == ()
    # So it may where no rank waits in a collective at all.
    assert not name(stands(0), stands(1)).is_certain


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"state": "t"}, "is stopped by a debugger"),
        ({"frames": (Place("get", f"{TORCH}/utils/data/dataloader.py", 9),)}, "waits for its data loader"),
        ({"frames": (Place("wait", "/p/lib/python3.13/subprocess.py", 9),)}, "waits for a process that it started"),
        ({"frames": (Place("join", "/p/lib/python3.13/threading.py", 9),)}, "waits for a thread or a lock"),
        ({"waits_in": "hrtimer_nanosleep"}, "sleeps"),
        ({"waits_in": "anon_pipe_read"}, "reads from a pipe"),
        ({"waits_in": "nfs_wait_bit_killable", "state": "D"}, "waits for a file system"),
        ({"waits_in": "sk_wait_data"}, "waits for the network"),
        ({"state": "D"}, "waits for a disk or file system"),
        ({"state": "R", "frames": (DATA,)}, "computes and goes round in circles"),
        ({}, "stands"),
        ({"place": None, "problem": "not permitted"}, "stands (its stack cannot be read: not permitted)"),
    ],
)
def test_what_a_rank_does_is_said_in_the_words_of_its_user(values: t.Any, words: str) -> None:
    assert f"rank 1 on node-0 {words}" in name(waits(0), stands(1, **values), waits(2)).text


def test_a_worker_of_the_rank_is_named_with_its_own_line() -> None:
    assert (
        "at data.py:7 (read) and a process of it at train.py:20 (<module>)"
        in name(waits(0), stands(1, child=LOOP)).text
    )


EVENT = {
    "kind": "rank_stands", "rank": 1, "node": "b", "since": 5.0, "operation": None, "state": "S", "waits_in": "x",
    "place": {"name": "f", "path": "/x/a.py", "line": 3}, "child": None, "frames": [["f", "/x/a.py", 3]], "problem": "",
}  # fmt: skip


def test_an_event_of_a_node_is_read_and_one_that_does_not_hold_together_is_not() -> None:
    found = read_standing(EVENT)
    assert found == Standing(
        1, "b", 5.0, None, Place("f", "/x/a.py", 3), "S", "x", None, (Place("f", "/x/a.py", 3),), ""
    )
    assert read_standing({**EVENT, "rank": "1"}) is None and read_standing({**EVENT, "since": "now"}) is None
    torn = read_standing({**EVENT, "place": {"name": "a\n\x1bb", "path": "/x", "line": 3}, "frames": [["f"], 3]})
    assert torn is not None and torn.frames == () and str(torn.place) == "x:3 (a??b)"


@hypothesis.given(
    st.dictionaries(st.sampled_from(sorted(EVENT)), st.none() | st.integers() | st.text() | st.lists(st.text()))
)
def test_any_event_is_read_without_an_error(values: dict[str, t.Any]) -> None:
    found = read_standing({**EVENT, **values})
    assert found is None or name(found) is not None


def test_a_run_knows_who_hangs_until_the_gang_moves() -> None:
    history = RunHistory()
    for rank, node in ((0, "a"), (1, "b")):
        start = {"kind": "worker_started", "rank": rank, "node": node, "attempt": 1, "gang": "g", "world_size": 2}
        history.event({"at": 1.0, **start})
    history.event({"at": 10.0, **EVENT})
    assert history.find_hang(0.0) is None, "rank 0 works"
    history.event({"at": 11.0, **EVENT, "rank": 0, "operation": "backward"})
    hang = history.find_hang(0.0)
    assert hang is not None and [item.rank for item in hang.culprits] == [1]
    history.event({"at": 12.0, "kind": "hang", **hang.to_event()})
    history.event({"at": 20.0, "kind": "rank_moves", "rank": 1, "node": "b"})
    assert history.find_hang(0.0) is None
    history.event({"at": 21.0, "kind": "hang_over"})
    assert history.attempts[0].hangs == [(5.0, 21.0, hang.text)]


def test_a_gang_that_is_stopped_does_not_hang() -> None:
    """Its ranks end one after the other, and the last ones still wait for the first."""
    history = RunHistory()
    for rank, node in ((0, "a"), (1, "b")):
        start = {"kind": "worker_started", "rank": rank, "node": node, "attempt": 1, "gang": "g", "world_size": 2}
        history.event({"at": 1.0, **start})
        history.event({"at": 10.0, **EVENT, "rank": rank, "operation": "backward" if rank == 0 else None})
    assert history.attempts[-1].name_hang() is not None
    history.event({"at": 20.0, "kind": "worker_exit", "rank": 1, "attempt": 1, "gang": "g", "exit_code": 143})
    assert history.attempts[-1].name_hang() is None
