# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node tells and keeps of a run has none of the values that its programs were given."""

from __future__ import annotations

import json
import pathlib

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import files, secret_mask
from ansible_collections.muster.training.plugins.module_utils._secrets.scrubber import list_forms

VALUE = "geheim/42+ü"


@pytest.fixture
def run(tmp_path: pathlib.Path) -> pathlib.Path:
    for name in ("secrets", "units/agent", "ranks/attempt_1.1/0"):
        (tmp_path / name).mkdir(parents=True)
    files.write_json(tmp_path / secret_mask.FILE, sorted(list_forms(VALUE)))
    return tmp_path


def test_an_answer_has_stars_in_all_its_texts(run: pathlib.Path) -> None:
    answer = {"text": {"log": f"a {VALUE} b"}, "units": [{"detail": json.dumps(VALUE)}], "behind": 3, "at": (VALUE, 1)}
    assert secret_mask.mask_answer(run, answer) == {
        "text": {"log": "a ******** b"},
        "units": [{"detail": '"********"'}],
        "behind": 3,
        "at": ["********", 1],
    }
    (run / secret_mask.FILE).unlink()
    assert secret_mask.mask_answer(run, answer) is answer


@pytest.mark.parametrize("before", [0, 5, secret_mask._PIECE - 3, secret_mask._PIECE + 1])
def test_files_keep_their_length_and_lose_each_value(run: pathlib.Path, before: int) -> None:
    data = b"x" * before + f"{VALUE} {json.dumps(VALUE)} {VALUE}\n".encode()
    kept = [run / "units/agent/log", run / "ranks/attempt_1.1/0/stdout.log", run / "events.jsonl"]
    for place in (*kept, run / "model.bin"):
        place.write_bytes(data)
    (run / "units/agent/supervisor.log").symlink_to(run / "model.bin")
    beats: list[int] = []
    secret_mask.end_masks(run, lambda: beats.append(1))
    for place in kept:
        found = place.read_bytes()
        assert len(found) == len(data) and found.count(b"*" * len(VALUE.encode())) >= 3
        assert not [form for form in list_forms(VALUE) if form.encode() in found]
    assert (run / "model.bin").read_bytes() == data, "what a program saved is its own"
    assert beats and not (run / secret_mask.FILE).exists()


def test_a_run_without_secrets_is_not_read(tmp_path: pathlib.Path) -> None:
    (tmp_path / "events.jsonl").write_text(VALUE)
    secret_mask.end_masks(tmp_path)
    assert (tmp_path / "events.jsonl").read_text() == VALUE


def test_the_spellings_go_also_where_a_file_cannot_be_masked(
    run: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run / "events.jsonl").write_text(VALUE)

    def fail(*_args: object) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(secret_mask.os, "pread", fail)
    with pytest.raises(OSError, match="Input/output"):
        secret_mask.end_masks(run)
    assert not (run / secret_mask.FILE).exists()
