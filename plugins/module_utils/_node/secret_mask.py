# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job's secrets in what its node tells and keeps: masked in answers while the run has them, and in files at its end.

A program may print what it was given. The controller that started the run knows the values; any other command, such as
``diagnose`` of a colleague, does not. They are in a 0600 file of the run, in all spellings that are looked for, and go
with the other secrets.
"""

from __future__ import annotations

import os
import pathlib
import typing as t

from . import files

FILE: t.Final = "secrets/masks.json"
MASK: t.Final = "********"
# What programs print goes there, and what is read of it.
_KEPT: t.Final = ("units/*/log", "units/*/supervisor.log", "ranks/**/*.log", "events.jsonl", "metrics.jsonl")
_PIECE: t.Final = 4 << 20


def read_masks(run: pathlib.Path) -> list[str]:
    """Return the spellings of the run's secrets, the longest first; none once the run is over."""
    found = files.read_json(run / FILE)
    texts = [item for item in found if isinstance(item, str) and item] if isinstance(found, list) else []
    return sorted(texts, key=lambda item: (-len(item), item))


def mask_answer(run: pathlib.Path, answer: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return an answer of this node without the run's secrets."""
    masks = read_masks(run)
    return t.cast("dict[str, t.Any]", _mask(answer, masks)) if masks else answer


def _mask(value: t.Any, masks: t.Sequence[str]) -> t.Any:
    if isinstance(value, str):
        for form in masks:
            value = value.replace(form, MASK)
        return value
    if isinstance(value, dict):
        return {key: _mask(item, masks) for key, item in value.items()}
    return [_mask(item, masks) for item in value] if isinstance(value, (list, tuple)) else value


def end_masks(run: pathlib.Path, beat: t.Callable[[], None] = lambda: None) -> None:
    """Mask the run's secrets in what it has kept here, and forget them.

    Each byte becomes a star in its place: who reads a file from an offset on is not led astray.

    :param beat: called for each piece of a file.
    """
    masks = [form.encode(errors="replace") for form in read_masks(run)]
    try:
        for pattern in _KEPT if masks else ():
            for place in sorted(run.glob(pattern)):
                if place.is_file() and not place.is_symlink():
                    _mask_file(place, masks, beat)
    finally:
        # Also when a disk fails: it has the values themselves.
        (run / FILE).unlink(missing_ok=True)


def _mask_file(place: pathlib.Path, masks: t.Sequence[bytes], beat: t.Callable[[], None]) -> None:
    longest = max(map(len, masks))
    with open(place, "r+b", buffering=0) as handle:
        descriptor, offset = handle.fileno(), 0
        while data := os.pread(descriptor, _PIECE + longest, offset):
            for form in masks:
                at = data.find(form)
                while at >= 0:
                    os.pwrite(descriptor, b"*" * len(form), offset + at)
                    at = data.find(form, at + len(form))
            # A value may lie across the end of a piece.
            offset += _PIECE
            beat()
