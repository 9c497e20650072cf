# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The end of a failed run in its last line: the program's error, and what to do about its cause."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

from ....module_utils._model import error_line
from ....module_utils._node import checkpoint_room, files
from ..._fabric.diagnosis.known_causes import find_end_code, find_named_code
from ..._fabric.diagnosis.live_causes import find_cause_info, is_peer_gone
from ..shared import run_record
from .follower import RunOutcome, error_file
from .movement import read_end

Backend = t.Literal["hosts", "kubernetes"]
# Causes of a disk that may have been full.
_NO_ROOM: t.Final = ("disk_full", "checkpoint_failed")
# With less free a disk is full, in bytes.
_LEAST: t.Final = 1 << 20
_CRASHES = ("crash", "fatal_exit_code")
# 128 + SIGKILL.
_KILLED = 137
_UNKNOWN_KILLER: t.Final = (
    "killed (SIGKILL), and nothing says by whom; where it was the kernel's out-of-memory killer, "
    "dmesg on the node names it"
)
_PLACE_AGAIN: t.Final = (
    "Train again with the same run id: it places the code and the environment of job.requirements again, and says what "
    "else is missing, as an interpreter"
)


def explain_end(folder: pathlib.Path, outcome: RunOutcome, backend: Backend) -> RunOutcome:
    """Return the outcome with the error line of the failed program and what to do, as far as its logs say.

    Its node's log comes first; mpirun prints what all ranks say where it runs itself.
    """
    if outcome.outcome not in ("failed", "lost") or outcome.explained:
        return outcome
    if gone := _describe_gone(folder):
        # What its programs say of it is an import that fails, or a file that cannot be opened.
        return dataclasses.replace(outcome, detail=f"{outcome.detail.rstrip('.')}: {gone}")
    if outcome.cause not in _CRASHES or outcome.node is None:
        # What is to do about a lost node is for a run that waits for it: this one has ended.
        code = (
            None
            if outcome.cause == "node_lost"
            else find_end_code(outcome.cause, outcome.detail, gpus=_has_gpus(folder))
        )
        return _with_fix(_with_room(folder, outcome, code), code, backend)
    own = folder / run_record.log_file(outcome.node)
    others = [other for other in sorted(own.parent.glob("*.log")) if other != own]
    # What other nodes say after a rank was killed is a consequence.
    places = [error_file(folder, outcome.node), own, *([] if outcome.exit_code == _KILLED else others)]
    logs = [error_line.without_victims(read_end(place), is_own=place not in others) for place in places]
    if backend == "hosts":
        # There the crash is a rank's own: a launcher without any counts as lost, or as one that waited in vain.
        logs = [error_line.without_rendezvous(text) for text in logs]
    said = next((line for text in logs if (line := error_line.last_error(text))), None)
    codes = [code for text in logs if (code := _find_code(text))]
    code = next(iter(codes), None)
    if outcome.left and is_peer_gone(codes):
        # The others failed because they waited for it: neither they nor the network are at fault.
        outcome, code = dataclasses.replace(outcome, detail=f"{outcome.left}; {outcome.detail}"), "rank_left"
    if code is None and said is None and outcome.exit_code == _KILLED:
        said = _UNKNOWN_KILLER
    if said is None and code is not None:
        said = find_cause_info(code).title
    outcome = dataclasses.replace(outcome, detail=": ".join(filter(None, [outcome.detail, said])))
    return _with_fix(_with_room(folder, outcome, code), code, backend)


def _describe_gone(folder: pathlib.Path) -> str:
    """Return which files of the program are gone from its nodes since it was started, and what to do; else nothing."""
    gone: dict[str, str] = {}
    for line in _read_events(folder):
        if line.get("kind") == "submitted":
            gone = {}
        elif line.get("kind") == "agent_exit" and line.get("missing"):
            gone[str(line.get("node"))] = str(line["missing"][0])
    places = ", ".join(f"{path} is gone from {node}" for node, path in sorted(gone.items()))
    return f"{places} since the run was started. {_PLACE_AGAIN}" if places else ""


def _find_code(text: str) -> str | None:
    """Return the cause that a log names, without what its launcher says of it."""
    return find_named_code(error_line.without_launcher(text))


def _with_room(folder: pathlib.Path, outcome: RunOutcome, code: str | None) -> RunOutcome:
    """Return the outcome of a full disk with what its node had free at the end, and what a checkpoint takes.

    A crash of which that is known ends by the disk. torch does not say why it could not write a checkpoint.
    """
    if code not in _NO_ROOM:
        return outcome
    events = [line for line in _read_events(folder) if outcome.node in (None, line.get("node"))]
    seen = next((line for line in reversed(events) if line.get("kind") == checkpoint_room.KIND), None)
    left = next((line for line in reversed(events) if line.get("kind") == "agent_exit" and line.get("room")), None)
    sizes, needed = "", _LEAST
    if seen is not None and left is not None and seen.get("folder") == left["room"].get("folder"):
        needed = max(needed, seen["checkpoint_bytes"])
    is_full = code == "disk_full" or (left is not None and left["room"].get("free_bytes", needed) < needed)
    if is_full and outcome.cause == "crash":
        outcome = dataclasses.replace(outcome, cause="disk_full")
    if left is not None:
        takes = f", a checkpoint takes {checkpoint_room.format_size(seen['checkpoint_bytes'])}" if seen else ""
        sizes = f"{left['node']}: {checkpoint_room.describe_free(left['room'])} at the end{takes}"
    elif seen is not None:
        sizes = f"{seen['node']}: {checkpoint_room.describe_sizes(seen)}, as seen at a checkpoint before"
    return dataclasses.replace(outcome, detail=f"{outcome.detail.rstrip('.')} ({sizes})") if sizes else outcome


def _has_gpus(folder: pathlib.Path) -> bool:
    """Return whether the ranks of the recorded run have GPUs."""
    record = files.read_json(folder / "run.json")
    return bool(isinstance(record, dict) and (record.get("job") or {}).get("gpus_per_node"))


def _read_events(folder: pathlib.Path) -> list[dict[str, t.Any]]:
    return list(files.parse_json_lines(read_end(folder / "events.jsonl")))


def _with_fix(outcome: RunOutcome, code: str | None, backend: Backend) -> RunOutcome:
    fix = find_cause_info(code).fix_on(backend, over=True) if code else ""
    return dataclasses.replace(outcome, detail=f"{outcome.detail.rstrip('.')}. {fix}") if fix else outcome
