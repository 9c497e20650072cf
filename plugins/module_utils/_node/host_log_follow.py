# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers a controller that follows a run: waits for new lines and states of the run on this node.

A request blocks until there is something new, so that the controller does not poll: it returns at once for a start,
an exit or a change of a unit, after ``batch_s`` seconds for metrics and log lines, and empty after ``wait_s`` seconds.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import time
import typing as t

from . import files, host_units

_STREAMS = {"events": "events.jsonl", "metrics": "metrics.jsonl", "usage": "usage.jsonl", "log": "units/agent/log"}
_FOLDER = "folder.json"
_POLL_S = 0.05
_LIMIT = 1 << 20
# A reader that is further behind is shown the end of the log.
_BEHIND = 8 << 20


def wait_for_changes(run: pathlib.Path, request: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return ``{text {stream: new text}, offsets {stream: bytes}, units {unit: status}, digest, behind, holder}``.

    ``holder`` is the controller that owns the run. ``behind`` is the bytes that are left. Of a log that grows faster
    than it is read, the middle is left out.
    :param request: ``offsets``, ``wait_s``, ``batch_s``, ``streams`` and ``digest`` (the last answer's).
    """
    folder = files.read_json(run / _FOLDER)
    # Another machine of the same name has other files, which are read from the start.
    earlier = request["offsets"] if request["offsets"].get("folder") in (None, folder) else {}
    offsets = {name: int(earlier.get(name, 0)) for name in request["streams"]}
    offsets = {name: offset if _stream_size(run, name) >= offset else 0 for name, offset in offsets.items()}
    _wait_for_news(run, request, offsets)
    # Statuses first: the output of a unit before its end is then read below, with its last line.
    statuses, digest = unit_statuses(run), _digest(run)
    ended = statuses.get("agent", {}).get("exit") is not None
    left_out = _skip_to_end(run, offsets)
    text = _read_streams(run, offsets, ended)
    if left_out:
        text["log"] = f"muster: {left_out / 1e6:.1f} MB of output were left out here\n{text.get('log', '')}"
    # Only of what can be read.
    behind = sum(max(0, _stream_size(run, name) - offset) for name, offset in offsets.items() if name in text)
    answer = {"text": text, "offsets": {**offsets, "folder": folder}, "units": statuses, "digest": digest}
    return {**answer, "behind": behind, "holder": _read_holder(run)}


def _wait_for_news(run: pathlib.Path, request: t.Mapping[str, t.Any], offsets: t.Mapping[str, int]) -> None:
    """Wait until a unit changes, an event comes, the batch that began with a new line is over, or ``wait_s``."""
    end = time.monotonic() + request["wait_s"]
    first: float | None = None
    while True:
        now = time.monotonic()
        news = [name for name in offsets if _stream_size(run, name) > offsets[name]]
        # Usage alone does not end the wait: an idle node writes it every two seconds too.
        if first is None and set(news) - {"usage"}:
            first = now
        # What an ended unit has left is not waited for.
        batch_over = first is not None and (now - first >= request["batch_s"] or _has_ended(run))
        if _digest(run) != request.get("digest") or "events" in news or batch_over or now >= end:
            return
        time.sleep(_POLL_S)


def name_folder(run: pathlib.Path) -> None:
    """Give the run's folder a unique id, unless it has one."""
    if not (run / _FOLDER).exists():
        files.write_json(run / _FOLDER, os.urandom(16).hex())


def unit_statuses(run: pathlib.Path) -> dict[str, t.Any]:
    """Return the status of each unit of the run on this node, of one that is lost with how many processes are ``left``.

    They run although their supervisor is gone.
    """
    found = _read_statuses(run)
    for name, status in found.items():
        if status["state"] and not status["alive"] and status["exit"] is None:
            status["left"] = len(host_units.find_left(run, [name]))
    return found


def _read_statuses(run: pathlib.Path) -> dict[str, dict[str, t.Any]]:
    return {folder.name: host_units.unit_status(folder) for folder in sorted((run / "units").glob("*"))}


def _read_holder(run: pathlib.Path) -> dict[str, str]:
    """Return ``{owner, controller}`` of a run; empty when no controller owns it."""
    claim = files.read_json(run / "claim.json")
    return {key: str(claim.get(key, "")) for key in ("owner", "controller")} if isinstance(claim, dict) else {}


def _has_ended(run: pathlib.Path) -> bool:
    return (run / "units" / "agent" / "exit.json").exists()


def _skip_to_end(run: pathlib.Path, offsets: dict[str, int]) -> int:
    """Move the offset of a log that is too far behind to a line near its end; return how many bytes that leaves out."""
    size = _stream_size(run, "log")
    before = offsets.get("log")
    if before is None or size - before <= _BEHIND:
        return 0
    with open(run / _STREAMS["log"], "rb") as handle:
        handle.seek(size - _LIMIT)
        offsets["log"] = size - _LIMIT + handle.read(_LIMIT).find(b"\n") + 1
    return offsets["log"] - before


def _digest(run: pathlib.Path) -> str:
    parts = []
    for name, status in _read_statuses(run).items():
        parts.append(f"{name}={status['state']},{status['alive']},{status['exit'] is not None},{status['lost']}")
    with contextlib.suppress(OSError):
        # Another controller that takes the run over is news.
        parts.append(f"claim={(run / 'claim.json').stat().st_mtime_ns}")
    return ";".join(parts)


def _stream_size(run: pathlib.Path, name: str) -> int:
    try:
        return (run / _STREAMS[name]).stat().st_size
    except OSError:
        return 0


def _read_streams(run: pathlib.Path, offsets: dict[str, int], ended: bool) -> dict[str, str]:
    """Read whole new lines of each stream and move its offset behind them; after the end also an unfinished line."""
    text = {}
    for name, offset in offsets.items():
        try:
            with open(run / _STREAMS[name], "rb") as handle:
                handle.seek(offset)
                data = handle.read(_LIMIT)
        except OSError:
            continue
        cut = data.rfind(b"\n") + 1
        if len(data) < _LIMIT and ended:
            cut = len(data)
        if cut == 0 and len(data) == _LIMIT:
            cut = _LIMIT
        offsets[name] = offset + cut
        if cut:
            text[name] = data[:cut].decode(errors="replace")
    return text
