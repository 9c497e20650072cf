# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the training side made of prompts, read and compared."""

from __future__ import annotations

import json
import pathlib

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.plugin_utils._workflows.serve_check.reference import (
    Reference,
    read_references,
)

WANTED = Reference("The licenses", " are", -0.1)


@pytest.mark.parametrize(
    ("token", "logprob", "said"),
    [
        (" are", -0.1, ""),
        (" are", -0.109, ""),
        (" are", -0.12, "' are' has the log-probability -0.1200, in training -0.1000"),
        (" of", -0.1, "is followed by ' of' (-0.100), in training by ' are' (-0.100)"),
        # A piece of a letter: servers write it in ways of their own.
        ("bytes:\\xe2", -0.1, ""),
        ("\ufffd", -0.3, "has the log-probability -0.3000"),
    ],
)
def test_token_and_probability_are_compared(token: str, logprob: float, said: str) -> None:
    found = WANTED.find_problem(token, logprob, 0.01)
    assert (said in found) if said else found == ""


def test_lines_are_read(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "reference.jsonl"
    line = {"prompt": "The licenses", "token": " are", "logprob": -0.1}
    place.write_text(f"{json.dumps(line)}\n\n{json.dumps({**line, 'logprob': 0})}\n")
    assert read_references(place) == (WANTED, Reference("The licenses", " are", 0.0))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has 0 prompts"),
        ("{}", "line 1: lacks a key"),
        ("text", "line 1: lacks a key: text"),
        ('{"prompt": 1, "token": "a", "logprob": -1}', "another type"),
        ('{"prompt": "a", "token": "a", "logprob": NaN}', "another type"),
        ('{"prompt": "a", "token": "a", "logprob": 0.5}', "a logprob above 0"),
    ],
)
def test_another_file_is_named_with_the_line_and_what_makes_one(tmp_path: pathlib.Path, text: str, said: str) -> None:
    place = tmp_path / "x"
    place.write_text(text)
    with pytest.raises(InputError, match=said) as caught:
        read_references(place)
    assert "examples/serving/reference_logprobs.py" in str(caught.value) and "\n" not in str(caught.value)
    assert (pathlib.Path(__file__).parents[6] / "examples/serving/reference_logprobs.py").is_file()
    with pytest.raises(InputError, match="cannot read"):
        read_references(tmp_path / "missing")
