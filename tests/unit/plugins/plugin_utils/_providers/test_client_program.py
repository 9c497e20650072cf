# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs of others that list hosts: each failure is one line with what to do."""

from __future__ import annotations

import dataclasses
import pathlib
import sys

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import TransportError
from ansible_collections.muster.training.plugins.plugin_utils._providers.client_program import ClientProgram

CLIENT = ClientProgram("lister ls", "Lister", "lister_binary", 20)


def test_its_output_and_exit_code_are_returned_and_it_has_no_input() -> None:
    process = CLIENT.run(sys.executable, ["-c", "import sys; print(sys.stdin.read() == ''); sys.exit(3)"], "ls", "")
    assert (process.returncode, process.stdout) == (3, b"True\n")


@pytest.mark.parametrize(
    ("binary", "problem", "fix"),
    [
        ("/nowhere/lister", "lister ls: no program '/nowhere/lister'", "Install Lister's client, or set lister_binary"),
        ("folder", "lister ls: '{place}' cannot be run", "Name Lister's client in lister_binary"),
    ],
)
def test_a_program_that_cannot_be_run_is_refused(tmp_path: pathlib.Path, binary: str, problem: str, fix: str) -> None:
    place = str(tmp_path) if binary == "folder" else binary
    with pytest.raises(TransportError) as caught:
        CLIENT.run(place, [], "lister ls a", "")
    assert (caught.value.message, caught.value.fix) == (problem.format(place=place), fix)


def test_one_that_does_not_answer_in_time_is_refused_by_what_it_was_asked() -> None:
    slow = dataclasses.replace(CLIENT, timeout_s=1)
    with pytest.raises(TransportError) as caught:
        slow.run(sys.executable, ["-c", "import time; time.sleep(60)"], "lister ls a", "Look at it by hand")
    assert (caught.value.message, caught.value.fix) == ("lister ls a: no answer in 1 s", "Look at it by hand")
