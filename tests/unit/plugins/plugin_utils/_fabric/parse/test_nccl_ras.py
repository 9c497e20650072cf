# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NCCL's RAS in the words of its source (src/ras/client_support.cc of 2.24 to 2.30; values are ours)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._fabric.parse.nccl_ras import parse_ras
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._fabric.diagnosis.test_live_rules import (
    HUNG,
    codes,
    judged,
    look,
    rank,
)

HEAD = """NCCL version 2.27.3 compiled with CUDA 12.9
CUDA runtime version 12090, driver version 12090

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          8            1         32       32

Communicators... (0.04s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4         8        32        32   RUNNING  {word}

Errors
======

{errors}Warnings
========

{warnings}"""
ONE_BEHIND = """#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different AllReduce operation counts
  31 ranks have launched up to operation 6650
  Rank 9 has launched up to operation 6649 -- GPU 1 managed by process 4711 on node 10.0.0.2

"""
GONE = """INCOMPLETE
  Missing communicator data from 1 job process
  Process 4711 on node 10.0.0.2 managing GPU 1

#0-0 (27a079b828ff1a75) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 9 -- GPU 1 managed by process 4711 on node 10.0.0.2

"""
DEAD = """DEAD
  2 job processes are considered dead (unreachable via the RAS network)
  Process 4711 on node 10.0.0.2 managing GPU 1
  Process 4712 on node 10.0.0.2 managing GPUs 2,3

"""
ERROR = """#0-0 (27a079b828ff1a75) ERROR
  Asynchronous errors on 2 ranks
  2 ranks reported Remote process exited or there was a network error
  Rank 3 -- GPU 3 managed by process 100 on node 10.0.0.1
  Rank 9 -- GPU 1 managed by process 4711 on node 10.0.0.2

"""
TIMEOUT = """TIMEOUT
  Encountered 1 communication timeout while gathering communicator data

"""


def answer(errors: str = "", warnings: str = "", word: str = "OK") -> str:
    return HEAD.format(errors=errors, warnings=warnings, word=word)


def found(text: str) -> list[tuple[str, str | None]]:
    ras = {"address": "localhost:28028", "text": text, "problem": None}
    return codes(judged(look("a", rank(0), steps=HUNG, ras=ras), look("b", rank(1))))


def test_a_job_that_is_well_has_no_entries() -> None:
    status = parse_ras(answer())
    assert (status.recognised, status.version, status.entries) == (True, "2.27.3", ())


def test_the_rank_that_has_launched_less_is_the_one_behind() -> None:
    (entry,) = parse_ras(answer(warnings=ONE_BEHIND, word="MISMATCH")).entries
    assert (entry.kind, entry.communicator) == ("mismatch", "27a079b828ff1a75")
    assert entry.usual == "31 ranks have launched up to operation 6650"
    assert [(who.rank, who.pid, who.node) for who in entry.behind] == [(9, 4711, "10.0.0.2")]
    assert ("collective_mismatch", "b") in found(answer(warnings=ONE_BEHIND))


def test_a_rank_that_is_ahead_is_not_behind() -> None:
    ahead = ONE_BEHIND.replace("operation 6649", "operation 6651")
    assert parse_ras(answer(warnings=ahead)).entries[0].behind == ()


def test_ranks_that_have_launched_nothing_are_behind() -> None:
    several = ONE_BEHIND.replace(
        "  Rank 9 has launched up to operation 6649 --",
        "  2 ranks have not launched any operations\n  Rank 8 -- GPU 0 managed by process 4710 on node 10.0.0.2\n"
        "  Rank 9 --",
    )
    (entry,) = parse_ras(answer(warnings=several)).entries
    assert [who.rank for who in entry.behind] == [8, 9]


def test_processes_that_do_not_answer_and_dead_ones_are_named_with_their_node() -> None:
    status = parse_ras(answer(GONE + DEAD, TIMEOUT, "INCOMPLETE"))
    assert [entry.kind for entry in status.entries] == ["incomplete", "incomplete", "dead", "timeout"]
    assert [str(who) for who in status.entries[2].members] == ["process 4711 on 10.0.0.2", "process 4712 on 10.0.0.2"]
    named = found(answer(GONE + DEAD, TIMEOUT))
    assert ("ranks_missing", "b") in named and ("rank_ended", "b") in named


def test_errors_that_nccl_keeps_are_told() -> None:
    (entry,) = parse_ras(answer(ERROR, word="ERROR")).entries
    assert entry.kind == "error" and [who.rank for who in entry.members] == [3, 9]
    # Two nodes: neither alone is to blame.
    assert ("nccl_error", None) in found(answer(ERROR))


def test_what_ras_says_of_itself_is_no_cause_of_the_job() -> None:
    assert not {"ranks_missing", "rank_ended", "nccl_error"} & {code for code, _ in found(answer(warnings=TIMEOUT))}


def test_other_text_is_not_known() -> None:
    assert not parse_ras("HTTP/1.1 400 Bad Request\n").recognised and not parse_ras("").recognised


@given(
    st.text(max_size=400)
    | st.lists(st.sampled_from(answer(GONE + DEAD + ERROR, ONE_BEHIND).splitlines())).map("\n".join)
)
def test_any_text_gives_a_value(text: str) -> None:
    status = parse_ras(text)
    assert all(isinstance(entry.behind, tuple) for entry in status.entries)
    assert isinstance(found(text), list)


def test_a_cut_answer_tells_what_it_has() -> None:
    text = answer(GONE, ONE_BEHIND)
    for size in range(0, len(text), 7):
        kinds = [entry.kind for entry in parse_ras(text[:size]).entries]
        assert kinds == ["incomplete", "incomplete", "mismatch"][: len(kinds)]
