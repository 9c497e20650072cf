# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program of a pod refuses a specification that is none, and ends when it is asked to, however early."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import typing as t

import pytest

from ansible_collections.muster.training.tests.unit.plugins.module_utils._node.pod_lab import PodLab


@pytest.fixture
def lab(tmp_path: pathlib.Path) -> t.Iterator[PodLab]:
    found = PodLab(tmp_path)
    yield found
    found.close()


@pytest.mark.parametrize("text", ["", "[]", "{", '{"mode": "fly"}'])
def test_a_specification_that_is_none_is_refused_in_one_line(lab: PodLab, tmp_path: pathlib.Path, text: str) -> None:
    (tmp_path / "s.json").write_text(text)
    argv = [sys.executable, "-I", "-S", str(lab.program), str(tmp_path / "s.json")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 78 and done.stdout.count("\n") == 1 and not done.stderr


@pytest.mark.parametrize("blocked", ["spec", "archive"])
def test_who_is_asked_to_end_before_its_program_began_ends_at_once(
    lab: PodLab, tmp_path: pathlib.Path, blocked: str
) -> None:
    """As the first process of a pod it would not even hear it, and the pod would run through the time that it has."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    if blocked == "spec":
        argv = [sys.executable, "-I", "-S", str(lab.program), str(pipe)]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE)
        lab.started.append(process)
    else:
        process = lab.start(lab.spec(0, ["true"], archive=str(pipe)))
    # Opened once the program reads what nothing will write.
    with open(pipe, "wb"):
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 143
