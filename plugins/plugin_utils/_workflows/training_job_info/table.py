# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of runs that ``status`` shows: one line a run, the newest first, and JMESPath queries on the records."""

from __future__ import annotations

import datetime
import pathlib
import typing as t

from ....module_utils._model.account import useful_share
from ....module_utils._model.errors import InputError, RefusedError, one_line
from ....module_utils._model.run_history import parse_time
from ....module_utils._model.stall import format_span
from ....module_utils._node import files
from ..training_job.movement import read_end

Record = t.Mapping[str, t.Any]
_COLUMNS = ("run", "state", "step", "loss", "age", "duration", "useful", "nodes", "why")
_UNKNOWN = "-"
_REASON = 200
# As much of a digest as tells two templates apart.
_DIGEST = 12
# In place of the state of a run that another controller holds.
_TAKEN_OVER: t.Final = "taken over"


def build_table(entries: t.Sequence[tuple[Record, pathlib.Path]], now: float) -> list[str]:
    """Return the lines of the table: a header, and one line for each record, whose folder comes with it."""
    rows = [_COLUMNS, *(_row(record, folder, now) for record, folder in entries)]
    # Most teams have no run of a template: the column is there where one has.
    if any(record.get("catalogue_template") for record, _folder in entries):
        cells = ["template", *(_template(record) for record, _folder in entries)]
        rows = [(*row[:-1], cell, row[-1]) for row, cell in zip(rows, cells, strict=True)]
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def search(expression: str, value: t.Any) -> t.Any:
    """Return what a JMESPath expression selects.

    :raises InputError: where it is not one.
    :raises RefusedError: where the package jmespath is missing.
    """
    try:
        import jmespath
    except ImportError as exc:
        raise RefusedError(
            "query: needs the Python package jmespath on the controller", "pip install jmespath"
        ) from exc
    try:
        return jmespath.search(expression, value)
    except jmespath.exceptions.JMESPathError as exc:
        raise InputError("query", f"is not a JMESPath expression: {one_line(str(exc))}") from exc


def _row(record: Record, folder: pathlib.Path, now: float) -> tuple[str, ...]:
    attempts = record["attempts"]
    step = next((item["last_step"] for item in reversed(attempts) if item.get("last_step") is not None), None)
    loss = _last_loss(folder / "metrics.jsonl", step, is_ended=bool(record.get("ended_at")))
    return (
        str(record["run_id"]),
        str(record.get("outcome") or (_TAKEN_OVER if record.get("taken_over") else record["state"])),
        _UNKNOWN if step is None else str(step),
        _UNKNOWN if loss is None else f"{loss:.4g}",
        _span(record, "submitted_at", None, now),
        _span(record, "submitted_at", "ended_at", now),
        _useful(record),
        _nodes(record),
        _reason(record),
    )


def _span(record: Record, begin: str, end: str | None, now: float) -> str:
    """Return the time between two moments of a record, until now where the second is not known."""
    until = record.get(end) if end else None
    last = datetime.datetime.fromisoformat(until).timestamp() if until else now
    return format_span(max(0.0, last - datetime.datetime.fromisoformat(record[begin]).timestamp()))


def _useful(record: Record) -> str:
    """Return the share of its time that went to steps which count."""
    share = useful_share((record.get("account") or {}).get("seconds") or {})
    return _UNKNOWN if share is None else f"{100 * share:.0f}%"


def _nodes(record: Record) -> str:
    names = [str(name) for name in record.get("hosts") or []]
    names = names or list(dict.fromkeys(str(node["id"]) for item in record["attempts"] for node in item["nodes"]))
    if not names:
        return str(record["job"].get("nodes") or _UNKNOWN)
    return ",".join(names) if len(names) < 4 else f"{len(names)}: {names[0]} … {names[-1]}"


def _template(record: Record) -> str:
    found = record.get("catalogue_template")
    return f"{found['name']} {found['version']} ({found['digest'][:_DIGEST]})" if found else _UNKNOWN


def _reason(record: Record) -> str:
    """Return why the run ended as it did, or what of its nodes is known now; a success needs no reason."""
    live, taken = record.get("live") or {}, record.get("taken_over")
    if taken and record["state"] != "ended":
        told = f"{taken['by']} has held it since {str(taken['at'])[:16].replace('T', ' ')} UTC: it is followed there"
        return _shorten(f"{told}; what is shown is as it was last read here")
    silent = [f"no answer from {', '.join(sorted(live['unreachable']))}"] if live.get("unreachable") else []
    if live.get("unasked"):
        silent.append(f"not asked, as the inventory lacks them: {', '.join(live['unasked'])}")
    if silent:
        return _shorten("; ".join(silent))
    if live.get("stalled"):
        return str(live["stalled"])
    if live.get("detail"):
        return _shorten(str(live["detail"]))
    if record.get("outcome") in ("failed", "lost"):
        return _shorten(f"{record.get('cause') or 'unknown'}: {record.get('detail') or ''}".rstrip(": "))
    pruned = [f"its logs and metrics were removed by prune on {at[:10]}"] if (at := record.get("pruned_at")) else []
    return _shorten("; ".join([*map(str, record.get("problems") or []), *pruned])) or _UNKNOWN


def _shorten(text: str) -> str:
    text = one_line(text)
    return text if len(text) <= _REASON else text[: _REASON - 1].rsplit(" ", 1)[0] + "…"


def _last_loss(metrics: pathlib.Path, last_step: int | None, *, is_ended: bool) -> float | None:
    """Return the loss that the program reported last, NaN included, reading only the end of the file.

    :param last_step: of the record. Of a run that is running the file may be ahead of it: the loss is that of the step
        which is shown. Of a run that has ended a file that lacks it is cut, and the last loss is not known.
    """
    if not is_ended and last_step is None:
        return None
    lines = sorted(files.parse_json_lines(read_end(metrics)), key=lambda line: parse_time(line.get("at")) or 0.0)
    for line in reversed(lines):
        loss, step = line.get("loss"), line.get("step")
        if not is_ended and isinstance(step, int) and step > t.cast(int, last_step):
            continue
        if is_ended and last_step is not None and isinstance(step, int) and step < last_step:
            return None
        last_step = None if is_ended and isinstance(step, int) else last_step
        if isinstance(loss, int | float) and not isinstance(loss, bool):
            return float(loss)
    return None
