# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The proof that the nodes of a run see one checkpoint folder: one node writes a file, all others read it.

Name and content of the file cannot be guessed, so a file that lies in a folder of a node's own is never taken for it.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import time
import typing as t

from . import files

PREFIX = ".muster-shared-"
ADVICE = (
    "Mount one shared file system there on every node, name a folder on one in checkpoints.path, "
    "or set checkpoints.shared: false where each node has a folder of its own"
)
_AGAIN_S = 0.25
# In the run's folder of the node that wrote: what it has to remove.
_NOTE = "shared.json"


def new_proof() -> dict[str, str]:
    """Return ``{name, content}`` of a file that no other run has."""
    return {"name": PREFIX + os.urandom(12).hex(), "content": os.urandom(16).hex()}


def write_proof(folder: pathlib.Path, proof: t.Mapping[str, str]) -> None:
    """Write the file, and its folder where that is missing; the file of a writer that was killed is removed.

    :raises OSError: when it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in os.listdir(folder):
        if name.startswith(PREFIX) and name != proof["name"]:
            remove_proof(folder, {"name": name})
    files.write_atomic(folder / proof["name"], proof["content"].encode(), 0o644)


def remove_proof(folder: pathlib.Path, proof: t.Mapping[str, str]) -> None:
    """Remove the file, as far as it is there."""
    with contextlib.suppress(OSError):
        (folder / proof["name"]).unlink(missing_ok=True)


def find_problem(
    folder: pathlib.Path,
    proof: t.Mapping[str, str],
    writer: str,
    within_s: float,
    pause: t.Callable[[float], object] = time.sleep,
) -> str:
    """Return why this node does not see what the node ``writer`` wrote into ``folder``; empty when it does."""
    until = time.monotonic() + within_s
    while not _is_visible(folder, proof):
        if time.monotonic() > until or pause(_AGAIN_S) is False:
            return (
                f"does not see in {folder} what {writer} wrote there {within_s:.0f} s ago: "
                "checkpoints.path is not one folder for all nodes"
            )
    return ""


def _is_visible(folder: pathlib.Path, proof: t.Mapping[str, str]) -> bool:
    with contextlib.suppress(OSError, KeyError):
        # Has a network file system ask its server again.
        os.listdir(folder)
        return (folder / proof["name"]).read_text(encoding="ascii", errors="replace") == proof["content"]
    return False


def take_part(run: pathlib.Path, request: t.Mapping[str, t.Any]) -> str:
    """Write the proof, or read it, as the request of a host's preparation says; return the problem, if any."""
    folder = pathlib.Path(request["folder"]).expanduser()
    if request.get("writes"):
        files.write_json(run / _NOTE, {"folder": str(folder), "name": request["name"]})
        try:
            write_proof(folder, t.cast("t.Mapping[str, str]", request))
        except OSError as exc:
            return f"{folder} cannot be written: {exc.strerror or exc}"
        return ""
    problem = find_problem(folder, t.cast("t.Mapping[str, str]", request), str(request["writer"]), request["within_s"])
    if problem:
        # The preparation has just made it.
        with contextlib.suppress(OSError):
            folder.rmdir()
    return problem


def forget(run: pathlib.Path) -> None:
    """Remove what this node wrote for the proof of a run."""
    note = files.read_json(run / _NOTE)
    if isinstance(note, dict):
        remove_proof(pathlib.Path(str(note.get("folder"))), {"name": str(note.get("name"))})
    with contextlib.suppress(OSError):
        (run / _NOTE).unlink(missing_ok=True)
