# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one line that tells why a program failed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model import error_line
from ansible_collections.muster.training.plugins.module_utils._model.error_line import last_error

LAUNCHER = """\
[default0]:[rank0]: Traceback (most recent call last):
[default0]:[rank0]:   File "train.py", line 6, in <module>
[default0]:[rank0]: torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
  exitcode: 1
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (LAUNCHER, "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"),
        ("[1,0]<stderr>:ValueError: bad\n[1,1]<stdout>:later\n", "ValueError: bad"),
        ("ValueError: first\nKeyError: 'second'\n", "KeyError: 'second'"),
        ("KeyboardInterrupt\n", "KeyboardInterrupt"),
        ("a line that mentions ValueError: in passing\n", None),
        ("UserWarning: old\nok\n", None),
        ("", None),
    ],
)
def test_the_last_error_is_found(text: str, expected: str | None) -> None:
    assert last_error(text) == expected


def test_a_long_error_is_cut() -> None:
    assert len(last_error("ValueError: " + "x" * 5000) or "") == 300


@given(st.text())
def test_any_text_is_taken(text: str) -> None:
    found = last_error(text)
    assert found is None or len(found) <= 300


def test_what_the_launcher_says_afterwards_is_not_the_reason() -> None:
    """torchrun's agent fails at its store when the run is over; its lines bear no rank's mark."""
    text = """[default0]:Traceback (most recent call last):
[default0]:ValueError: the real reason
torch.distributed.DistNetworkError: Broken pipe
torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed.
"""
    assert error_line.last_error(text) == "ValueError: the real reason"
    assert error_line.without_launcher(text).splitlines() == text.splitlines()[:2]
    alone = "step 1\nOSError: its own\n"
    assert error_line.without_launcher(alone) == alone and error_line.last_error(alone) == "OSError: its own"
    silent = "[default0]:step 1\ntorch.distributed.DistNetworkError: Broken pipe\n"
    assert error_line.without_launcher(silent) == silent


@pytest.mark.parametrize(
    "line",
    [
        "/usr/bin/python3: can't open file '/run/code/train.py': [Errno 2] No such file or directory",
        "/opt/venv/bin/python: No module named trainer",
        "train.py: error: unrecognized arguments: --itres 10",
        "bash: line 1: nvidia-smi: command not found",
        "sh: 1: ./run.sh: Permission denied",
    ],
)
def test_what_stopped_a_program_before_it_began(line: str) -> None:
    assert error_line.last_error(f"usage: train.py [-h]\n{line}\nbye\n") == line
    assert error_line.last_error(f"[default1]:{line}\nE1124 torch: failed\n") == line
    both = f"{line}\nTraceback (most recent call last):\nValueError: the reason\n"
    assert error_line.last_error(both) == "ValueError: the reason"


def test_the_words_of_nccl_follow_those_of_torch() -> None:
    torch = "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1287, invalid usage"
    nccl = "Duplicate GPU detected : rank 3 and rank 2 both on CUDA device e2000"
    for prefix in ("", "[rank3]: "):
        lines = [torch, "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.", "Last error:", nccl]
        text = "".join(f"{prefix}{line}\n" for line in lines)
        assert error_line.last_error(text) == f"{torch}: {nccl}"
    assert error_line.last_error(f"{torch}\nbye\n") == torch
    assert error_line.last_error(f"Last error:\n{nccl}\nValueError: its own\n") == "ValueError: its own"
