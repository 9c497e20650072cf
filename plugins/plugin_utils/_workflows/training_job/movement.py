# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a run is, by what a controller keeps of it: whether it moves (the rule is ``_model/stall.py``), in one line."""

from __future__ import annotations

import os
import pathlib
import typing as t

from ....module_utils._model import stall
from ....module_utils._model.run_history import fold
from ....module_utils._node import files

_TAIL = 64 << 10
# What is older is shown with its age.
_FRESH_S = 15.0


def read_movement(folder: pathlib.Path, now: float) -> tuple[stall.Movement, str]:
    """Return whether the newest attempt of a run moves, and in words who hangs, else for how long it made no step."""
    events = files.parse_json_lines(files.read_text(folder / "events.jsonl"))
    history = fold(events, files.parse_json_lines(read_end(folder / "metrics.jsonl")))
    if not history.attempts:
        return "moving", ""
    newest = history.attempts[-1]
    since = max(0.0, now - (newest.last_step_at or newest.started_at))
    hang = history.find_hang(since)
    if hang is not None:
        return "stalled", hang.describe(now)
    return history.judge_movement(since), stall.describe(since, history.pace_meter.read())


def describe_state(values: t.Mapping[str, t.Any]) -> str:
    """Return one progress line for people; what is unknown is left out."""
    parts = [f"nodes {values['nodes']}/{values['nodes_asked']}"] if values.get("nodes") else []
    parts += [str(values["sharing"])] if values.get("sharing") else []
    silent = sorted((values.get("silent") or {}).items())
    parts += [f"last answer of {node} {seconds} s ago" for node, seconds in silent]
    parts += [str(values["waiting"])] if values.get("waiting") else []
    parts.append(f"ranks {values['ranks']}/{values['ranks_asked']}")
    formats = (
        ("step", "step {:d}"),
        ("loss", "loss {:.4f}"),
        ("tokens_per_s", "{:,.0f} tokens/s"),
        ("samples_per_s", "{:,.1f} samples/s"),
        ("checkpoint_step", "checkpoint {:d}"),
        ("stored", "{}"),
    )
    figures = [text.format(values[key]) for key, text in formats if values.get(key) is not None]
    if values.get("stalled_s"):
        figures.append(f"no step for {stall.format_span(values['stalled_s'])}")
    elif (values.get("step_age_s") or 0.0) >= _FRESH_S and figures:
        figures.append(f"{values['step_age_s']:.0f} s ago")
    parts += figures
    if values.get("hang"):
        # Of all that is known, the first words fit a line.
        parts.append(str(values["hang"]).partition("; ")[0])
    if values["restarts"]:
        parts.append(f"restarts {values['restarts']}")
    if values.get("cost_usd"):
        parts.append(f"${values['cost_usd']:.2f}")
    return " · ".join(parts)


def read_end(place: pathlib.Path) -> str:
    """Return the last lines of a file, empty where it cannot be read."""
    try:
        with open(place, "rb") as handle:
            handle.seek(max(0, handle.seek(0, os.SEEK_END) - _TAIL))
            return handle.read().decode(errors="replace")
    except OSError:
        return ""
