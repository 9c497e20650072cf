# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run ends by a full disk when a restart brought it no further, and not before."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.run_attempt import Attempt, RankExit
from ansible_collections.muster.training.plugins.module_utils._node import full_disk

PYTHON = "[default0]:OSError: [Errno 28] No space left on device: '/data/c-7.pt'\n"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (f"step 7\n{PYTHON}", "/data/c-7.pt"),
        ("OSError: [Errno 122] Disk quota exceeded\n", ""),
        ("cat: write error: No space left on device\n", ""),
        ("RuntimeError: ENOSPC\n", ""),
        ("step 7\n", None),
        ("it would say No space left on device if it were full\n", None),
        ("", None),
    ],
)
def test_what_programs_say_of_a_full_disk(text: str, place: str | None) -> None:
    found = full_disk.find_no_space("a", text)
    assert (found.place if found else None) == place
    if place:
        assert found is not None and found.describe() == "no space left on a for /data/c-7.pt"


def attempt(n: int, last: int | None, saved: int | None = None, code: int = 1) -> Attempt:
    made = Attempt(n, 10.0 * n, ranks={0: "a"}, exits={0: RankExit(10.0 * n + 5, code, "a")}, last_step=last)
    made.saved_steps = None if saved is None else (saved, saved)
    return made


def find_end(attempts: list[Attempt], *full: int) -> str | None:
    disks = full_disk.FullDisks()
    for number in full:
        disks.event({"kind": "no_space", "attempt": number, "node": "a", "detail": "/data/c"})
    found = disks.find_end(attempts)
    return found.detail if found else None


def test_the_second_one_without_progress_ends_it() -> None:
    assert find_end([attempt(1, 20)], 1) is None
    said = find_end([attempt(1, 20, 10), attempt(2, 20)], 1, 2)
    assert said == (
        "no space left on a for /data/c, in attempt 2 at step 20 as in attempt 1 before it: no restart frees any"
    )
    assert "in attempt 2 as in attempt 1" in str(find_end([attempt(1, None), attempt(2, None)], 1, 2))
    # The follower of a continuation has all attempts of the run.
    assert find_end([attempt(1, 20), attempt(2, 30), attempt(3, 30)], 1, 2, 3) is not None


def test_what_is_read_with_the_next_start_is_of_the_attempt_before() -> None:
    disks, begun = full_disk.FullDisks(), Attempt(2, 20.0, ranks={0: "a"})
    assert disks.take_text("a", PYTHON, []) is None
    found = disks.take_text("a", PYTHON, [attempt(1, 7), begun])
    assert found is not None and found.attempt == 1
    assert found.to_event() == {"kind": "no_space", "attempt": 1, "node": "a", "detail": "/data/c-7.pt"}
    again = disks.take_text("a", PYTHON, [attempt(1, 7), begun])
    assert again is not None and again.attempt == 2, "what comes next is its own"
    stepped = full_disk.FullDisks().take_text("a", PYTHON, [attempt(1, 7), attempt(2, 7)])
    assert stepped is not None and stepped.attempt == 1
    begun.first_step = 7
    own = full_disk.FullDisks().take_text("a", PYTHON, [attempt(1, 7), begun])
    assert own is not None and own.attempt == 2


TORCH = "RuntimeError: PytorchStreamWriter failed writing file data/1: file write failed\n"


@pytest.mark.parametrize(("fits", "place"), [(0, "/data"), (1, None), (None, None)])
def test_a_checkpoint_that_torch_could_not_write_is_one_without_room_where_none_fits(
    fits: int | None, place: str | None
) -> None:
    """torch names no reason; the node had said how many more fit."""
    disks = full_disk.FullDisks()
    disks.event({"kind": "checkpoint_room", "node": "a", "folder": "/data", "fits": 0})
    if fits is not None:
        disks.event({"kind": "checkpoint_room", "node": "a", "folder": "/data", "fits": fits})
    text = TORCH if fits is not None else "RuntimeError: another error\n"
    found = disks.take_text("a", text, [attempt(1, 7)])
    assert (found.found.place if found else None) == place
    assert disks.take_text("b", TORCH, [attempt(1, 7)]) is None


def test_progress_or_another_cause_keeps_it_going() -> None:
    assert find_end([attempt(1, 20), attempt(2, 30)], 1, 2) is None, "it came further"
    assert find_end([attempt(1, 20, 10), attempt(2, 20, 20)], 1, 2) is None, "it saved"
    assert find_end([attempt(1, 20), attempt(2, 20)], 1) is None, "the second one failed otherwise"
    assert find_end([attempt(1, 20), attempt(2, 20, code=0)], 1, 2) is None, "the second one went on in spite of it"
