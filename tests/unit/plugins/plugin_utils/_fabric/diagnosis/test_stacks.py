# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stacks as py-spy and faulthandler print them, and the line that says where a rank stands."""

from __future__ import annotations

import hypothesis
import hypothesis.strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._fabric.diagnosis import stacks

PY_SPY = """Process 71: python3 train.py --out runs
Python v3.12.3 (/usr/bin/python3.12)

Thread 71 (idle): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:2810)
    wrapper (torch/distributed/c10d_logger.py:81)
    sync (train.py:54)
    main (train.py:70)
    <module> (train.py:80)
Thread 90 (active): "loader"
    read (data.py:3)
"""
HANDLER = """Thread 0x00007f1 (most recent call first):
  File "/usr/lib/python3.12/threading.py", line 355 in wait
  File "/usr/lib/python3.12/threading.py", line 1010 in run

Current thread 0x00007f2 (most recent call first):
  File "/home/me/train.py", line 20 in waits
  File "/home/me/train.py", line 30 in <module>
"""


def test_where_a_rank_stands() -> None:
    said = stacks.describe_rank("alpha", {"rank": 1, "text": PY_SPY})
    assert said == "rank 1 on alpha: all_reduce (distributed_c10d.py:2810), called from sync (train.py:54)"
    assert stacks.describe_rank("b", {"rank": 0, "text": HANDLER}) == "rank 0 on b: waits (train.py:20)"
    kernel = {"rank": 0, "text": "", "kernel": ["process 7: python3, S (sleeping), waits in futex_wait_queue"]}
    assert stacks.describe_rank("b", kernel).endswith("b: process 7: python3, S (sleeping), waits in futex_wait_queue")
    assert stacks.describe_rank("b", {"rank": 0}) == "rank 0 on b: nothing is known"


def test_all_of_it_is_kept_and_the_lines_that_matter_come_last() -> None:
    ranks = [
        {"rank": 0, "pid": 71, "how": "py-spy", "text": PY_SPY, "kernel": ["process 71: python3, S"], "problem": ""},
        {"rank": 1, "pid": 72, "how": None, "text": "", "kernel": ["process 72: x, D"], "problem": "py-spy: denied"},
    ]
    lines = stacks.format_stacks("alpha", ranks).splitlines()
    assert lines[0] == "rank 0 (pid 71), py-spy" and "    sync (train.py:54)" in lines
    assert "rank 1 (pid 72), py-spy: denied" in lines and "process 72: x, D" in lines
    assert [line.partition(":")[0] for line in lines[-2:]] == ["rank 0 on alpha", "rank 1 on alpha"]


@hypothesis.given(st.text(alphabet='Thread (most recent call first):\n  File "/x.py", line 12 in f(\u2028'))
def test_any_text_is_read(text: str) -> None:
    assert all(frame.line >= 0 for frame in stacks.read_main_stack(text))
