# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The logs of a run: their last lines, the lines of one rank, those that match an expression, and following them."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import time
import typing as t

from ....module_utils._model.error_line import last_error
from ....module_utils._model.errors import InputError, RefusedError
from ....module_utils._node import files
from ..._hosts.node_client import NodeClient, on_each_node
from ..shared.state_dir import StateHome, find_run_folder, is_followed, read_record
from ..training_job.movement import read_end
from .read import LiveSource, Record, read_live

_LARGEST_LOG = 4 << 20
_POLL_S = 1.0
# Logs of nodes, what a rank that failed wrote last to standard error, and where ranks stood before they were stopped.
_SUFFIXES = (".log", ".err", ".stacks")
# What torchrun and mpirun write before each line: the rank that printed it.
_RANK = re.compile(r"^\[(?:[A-Za-z_]+(?P<torchrun>\d+)|\d+,(?P<mpirun>\d+))\](?:<std(?:out|err)>)?:")


@dataclasses.dataclass(frozen=True)
class LogView:
    """Which lines are shown: the last ``lines`` of each log, of one rank only, only those that match ``grep``."""

    lines: int
    rank: int | None = None
    grep: re.Pattern[str] | None = None

    def is_shown(self, line: str, index: int | None) -> bool:
        """Return whether a line is shown; ``index`` is the number of its node, whose rank prints bare lines."""
        if self.rank is not None and _rank_of(line, index) != self.rank:
            return False
        return self.grep is None or self.grep.search(line) is not None

    @property
    def selects(self) -> bool:
        """Whether lines are left out, so that more has to be read than is shown."""
        return self.rank is not None or self.grep is not None


def build_view(lines: int, rank: int | None, grep: str | None) -> LogView:
    """Return the view that the options describe; raise InputError for an expression that cannot be compiled."""
    try:
        return LogView(lines, rank, re.compile(grep) if grep else None)
    except re.error as exc:
        raise InputError("grep", f"is not a regular expression: {exc}") from exc


def read_logs(home: StateHome, run_id: str | None, view: LogView, ranks: bool, live: LiveSource) -> dict[str, object]:
    """Return the last lines of each node's log; with ``ranks`` fetch the files of every rank and attempt first.

    Of a run that has not ended, what is new on its hosts is fetched before.
    """
    folder = find_run_folder(home, run_id)
    record: Record = read_record(folder) or {}
    size = (record.get("world_size") or {}).get("asked")
    if view.rank is not None and size and not 0 <= view.rank < size:
        raise InputError("rank", f"run {folder.name} has no rank {view.rank}", f"Its ranks are 0 to {size - 1}")
    problems: dict[str, str] = {}
    names = [name for name in record.get("hosts", []) if name in live.hosts]
    if record["state"] != "ended" and record.get("backend") != "kubernetes":
        record = read_live(home, record, live)
        problems = dict(record["live"]["unreachable"])
    if ranks:
        reached = [name for name in names if name not in problems]
        problems |= _fetch_rank_logs(folder, record, live.connect(reached))
    logs = folder / "logs"
    tails = {
        str(path.relative_to(logs)): _select_last(path, view, _node_index(record, path))
        for path in sorted(logs.glob("**/*"))
        if path.suffix in _SUFFIXES and not _is_repeated(path, view.lines)
    }
    shown = {name: lines for name, lines in tails.items() if lines or not view.selects}
    return {"changed": False, "run_id": record["run_id"], "logs": shown, "problems": problems, "folder": str(folder)}


def say_logs(found: t.Mapping[str, t.Any], say: t.Callable[[str], None]) -> None:
    """Say the lines that :func:`read_logs` has returned, each with the name of its log, or that there are none."""
    if not any(found["logs"].values()):
        folder = pathlib.Path(found["folder"]) / "logs"
        selected = f"no line of its logs in {folder} is selected"
        unread = _describe_unread(read_record(folder.parent) or {})
        say(f"run {found['run_id']}: {selected if any(folder.glob('*.log')) else unread}")
    for name, lines in found["logs"].items():
        for line in lines:
            say(f"{name.removesuffix('.log')}  {line}")


def _describe_unread(record: Record) -> str:
    """Return why no log of a run is on the controller."""
    if record.get("pruned_at"):
        return f"its logs were removed by prune on {record['pruned_at'][:10]}"
    if record.get("state") == "ended":
        return (
            "it has ended, and no log of it was read: nothing was printed, or its nodes have it (muster_log_ranks=true)"
        )
    return "no log of it is here yet: the train playbook with this muster_run_id follows it and fetches them"


def _is_repeated(path: pathlib.Path, count: int) -> bool:
    """Return whether a file of errors says nothing that the last lines of its node's log do not say."""
    if path.suffix != ".err":
        return False
    error, log = last_error(read_end(path)), path.with_suffix(".log")
    return error is None or (log.exists() and error in "\n".join(read_last_lines(log, count)))


def follow_logs(
    home: StateHome,
    run_id: str | None,
    view: LogView,
    live: LiveSource,
    say: t.Callable[[str], None],
    wait: t.Callable[[float], None] = time.sleep,
) -> dict[str, object]:
    """Say each new line of the nodes' logs until the run has ended; return what :func:`read_logs` returns.

    The run's own follower may write them, or else they are fetched from its hosts.

    :raises RefusedError: for a run in pods without a follower: its logs are read by ``train`` alone.
    """
    folder = find_run_folder(home, run_id)
    _require_follower(home, folder)
    # The oldest lines that are shown are those that a look at the logs shows.
    offsets: dict[pathlib.Path, int] = {}
    first = read_logs(home, folder.name, view, False, live)
    for path in _node_logs(folder):
        for line in t.cast("dict[str, list[str]]", first["logs"]).get(path.name, []):
            say(f"{path.stem}  {line}")
        offsets[path] = path.stat().st_size
    while True:
        record: Record = read_record(folder) or {}
        ended = record["state"] == "ended"
        if not ended and record.get("backend") != "kubernetes":
            record = read_live(home, record, live)
            ended = record["state"] == "ended"
        for path in _node_logs(folder):
            offsets[path] = _say_new(path, offsets.get(path, 0), view, _node_index(record, path), say, ended)
        if ended:
            break
        wait(_POLL_S)
    say(f"run {folder.name} {record['outcome']}: {record.get('detail') or ''}".rstrip(": "))
    return read_logs(home, folder.name, view, False, live)


def read_last_lines(path: pathlib.Path, count: int) -> list[str]:
    """Return the last ``count`` lines of a text file, reading only its end."""
    with open(path, "rb") as handle:
        handle.seek(0, 2)
        size = handle.tell()
        handle.seek(max(0, size - 512 * max(count, 1)))
        return handle.read().decode(errors="replace").splitlines()[-count:] if count else []


def _require_follower(home: StateHome, folder: pathlib.Path) -> None:
    record: Record = read_record(folder) or {}
    if record["state"] == "ended" or record.get("backend") != "kubernetes":
        return
    if is_followed(home, folder.name):
        return
    raise RefusedError(
        f"run {folder.name} is in pods and is not being followed from here",
        "Run train with this muster_run_id: it follows the run and fetches the logs",
    )


def _select_last(path: pathlib.Path, view: LogView, index: int | None) -> list[str]:
    if not view.selects:
        return read_last_lines(path, view.lines)
    found: list[str] = []
    with open(path, encoding="utf-8", errors="replace") as handle:
        for line in handle:
            if view.is_shown(line, index):
                found.append(line.rstrip("\n"))
                del found[: -view.lines or None]
    return found


def _say_new(
    path: pathlib.Path,
    offset: int,
    view: LogView,
    index: int | None,
    say: t.Callable[[str], None],
    ended: bool,
) -> int:
    """Say the new whole lines of a log; return the offset behind them. A log that became shorter was cut."""
    size = path.stat().st_size
    with open(path, "rb") as handle:
        handle.seek(offset if offset <= size else 0)
        start = handle.tell()
        data = handle.read(_LARGEST_LOG)
    cut = len(data) if ended else data.rfind(b"\n") + 1
    for line in data[:cut].decode(errors="replace").splitlines():
        if view.is_shown(line, index):
            say(f"{path.stem}  {line}")
    return start + cut


def _node_logs(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted((folder / "logs").glob("*.log"))


def _node_index(record: Record, path: pathlib.Path) -> int | None:
    """Return the number of the node whose log ``path`` is, where its one rank prints lines without a number."""
    if record.get("launcher") != "command":
        return None
    names = [files.plain_name(name) for name in record.get("hosts") or []]
    return names.index(path.stem) if path.parent.name == "logs" and path.stem in names else None


def _rank_of(line: str, index: int | None) -> int | None:
    """Return the rank that printed a line: as its launcher says, else the only one of its node."""
    found = _RANK.match(line)
    if found is None:
        return index
    return int(found["torchrun"] or found["mpirun"])


def _fetch_rank_logs(folder: pathlib.Path, record: Record, remotes: t.Sequence[NodeClient]) -> dict[str, str]:
    """Copy the logs of every rank and unit into the run's folder; return the problem of each node that has one."""

    def fetch(remote: NodeClient) -> None:
        for pattern in ("ranks/**/std*.log", "units/*/log", "units/*/supervisor.log"):
            answer = remote.call("read", run_id=record["run_id"], pattern=pattern, limit=_LARGEST_LOG)
            for log in answer["files"]:
                _write_rank_log(folder / "logs" / remote.name, log["path"], log["text"])

    _unused, errors = on_each_node(remotes, fetch)
    return {name: str(error) for name, error in errors.items()}


def _write_rank_log(folder: pathlib.Path, path: str, text: str) -> None:
    name = pathlib.PurePosixPath(path)
    if name.is_absolute() or ".." in name.parts:
        # A node must not choose a path outside the run's folder on the controller.
        return
    target = folder / name
    if target.suffix != ".log":
        target = target.with_suffix(".log")
    files.private_dir(target.parent)
    files.write_atomic(target, text.encode())
