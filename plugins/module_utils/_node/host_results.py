# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What runs leave on a node: files to fetch, piece by piece with their checksums, and the disk that runs take."""

from __future__ import annotations

import base64
import itertools
import os
import pathlib
import shutil
import time
import typing as t
import zlib

from . import (
    checkpoint_copies,
    checkpoint_layouts,
    checkpoint_sets,
    checkpoints,
    dataset_stage,
    files,
    host_environment,
    host_log_follow,
    host_preflight,
)

_PIECE = 8 << 20
# A blob without a second name that is younger may belong to a run that is being prepared.
_BLOB_AGE_S = 3600.0
# How many names are returned where nothing matches.
_LARGEST_LIST = 1000


def answer(state: pathlib.Path, request: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Carry out ``step``: ``saved``, ``list``, ``read``, ``disk`` or ``clean``."""
    steps = {"saved": _list_saved, "list": _list_files, "read": _read_piece, "disk": _measure_disk, "clean": _clean}
    return steps[request["step"]](state, request)


def _list_saved(state: pathlib.Path, request: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return ``{root, checkpoints}`` of a folder of the run: what it holds, each a ``checkpoint_sets.Held``.

    Where nothing is whole, ``there`` names its files, and ``half_saved`` says why the newest does not count.

    :param request: ``run_id``, ``folder`` and ``format``, and ``reported``, the path that the program named last.
    """
    root = _root(state, request)
    reported = request.get("reported")
    name = checkpoints.reported_name(root, {"checkpoint_step": 0, "path": reported}) if reported else ""
    found = checkpoint_sets.list_held(root, request["format"], name)
    any_whole = any(held.whole for held in found)
    half = "" if any_whole else checkpoints.describe_half_saved(root, request["format"])
    there = [] if any_whole else _list_names(root)
    return {"root": str(root), "checkpoints": [held._asdict() for held in found], "there": there, "half_saved": half}


def _list_files(state: pathlib.Path, request: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return ``{root, exists, files [{path, size, sha256, modified_at}]}`` below a folder of the run that match.

    Where none does, ``there`` names the files of the folder.

    :param request: ``run_id``, ``folder`` (null: the run's own; relative: below it), and ``patterns`` (globs), or
        ``names`` of checkpoints of ``format``, with which comes what is beside them.
    """
    root = _root(state, request)
    places = sorted({place for glob in request["patterns"] for place in root.glob(glob)})
    places += [root / name for name in _add_beside(root, request)]
    inner = [child for place in places if place.is_dir() for child in sorted(place.rglob("*"))]
    found = []
    for place in dict.fromkeys([*places, *inner]):
        if place.is_file() and not place.is_symlink() and place.name != checkpoint_copies.LEDGER:
            stat = place.stat()
            entry = {"path": str(place.relative_to(root)), "size": stat.st_size, "modified_at": stat.st_mtime}
            found.append({**entry, "sha256": files.sha256_of(place)})
    return {"root": str(root), "exists": root.is_dir(), "files": found, "there": [] if found else _list_names(root)}


def _add_beside(root: pathlib.Path, request: t.Mapping[str, t.Any]) -> list[str]:
    """Return the paths of checkpoints in a folder and of what comes along with them."""
    names = request.get("names") or ()
    wanted = (
        [saved for saved in checkpoints.list_saved(root, request["format"]) if saved.name in names] if names else []
    )
    return [path for saved in wanted for path in (saved.name, *checkpoint_layouts.list_beside(root, saved))]


def _list_names(root: pathlib.Path) -> list[str]:
    """Return the paths of the first files below a folder."""
    there = (place for place in sorted(root.rglob("*")) if place.is_file() and place.name != checkpoint_copies.LEDGER)
    return [place.relative_to(root).as_posix() for place in itertools.islice(there, _LARGEST_LIST)]


def _read_piece(state: pathlib.Path, request: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return ``{data}``: up to 8 MiB of the file ``path`` from ``offset``, packed; empty at its end."""
    root = _root(state, request)
    place = root / request["path"]
    if root.resolve() not in place.resolve().parents:
        return {"problem": f"{request['path']} is not in {root}"}
    with open(place, "rb") as handle:
        handle.seek(int(request["offset"]))
        data = handle.read(_PIECE)
    return {"data": base64.b64encode(zlib.compress(data, 1)).decode()}


def _measure_disk(state: pathlib.Path, request: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return ``{runs [{run_id, bytes, alive, owner, checkpoints}], environments, blobs}`` (bytes).

    Datasets count as blobs. ``checkpoints`` are those that would go with the run's folder (``checkpoint_sets.Held``).

    :param request: ``places``: run id -> ``folder`` (relative: below the run's own), ``format``, and ``reported``, the
        path that the program named last.
    """
    places = request.get("places") or {}
    runs = []
    for folder in sorted(item for item in (state / "runs").glob("*") if item.is_dir()):
        claim = files.read_json(folder / "claim.json") or {}
        alive = any(unit["alive"] for unit in host_log_follow.unit_statuses(folder).values())
        entry = {"run_id": folder.name, "bytes": _disk_bytes(folder), "alive": alive, "owner": claim.get("owner")}
        own = _list_own_checkpoints(folder, places.get(folder.name) or {})
        runs.append({**entry, "checkpoints": [held._asdict() for held in own]})
    environments = _disk_bytes(state.parent / host_environment.FOLDER)
    data = _disk_bytes(state / "blobs") + _disk_bytes(state / dataset_stage.FOLDER)
    return {"runs": runs, "environments": environments, "blobs": data}


def _list_own_checkpoints(run: pathlib.Path, place: t.Mapping[str, t.Any]) -> list[checkpoint_sets.Held]:
    """Return what a run's folder holds of checkpoints, or the reported file in it where there is none."""
    root = run / os.path.expanduser(str(place.get("folder") or "checkpoints"))
    if run.resolve() in root.resolve().parents:
        found = checkpoint_sets.list_held(root, str(place.get("format") or "files"))
        if any(held.whole for held in found):
            return found
    if not place.get("reported"):
        return []
    own = (root / str(place["reported"])).resolve()
    if run.resolve() not in own.parents or not own.exists():
        return []
    state = own.stat()
    size = _disk_bytes(own) if own.is_dir() else state.st_size
    return [checkpoint_sets.Held(own.name, state.st_mtime_ns, size)]


def _clean(state: pathlib.Path, request: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Remove the folders of runs that have ended, blobs and datasets that no run has; return ``{removed, freed}``.

    :param request: ``runs`` (ids).
    """
    before = _disk_bytes(state)
    removed = []
    for run_id in request["runs"]:
        folder = state / "runs" / files.plain_name(run_id)
        if folder.is_dir() and not any(unit["alive"] for unit in host_log_follow.unit_statuses(folder).values()):
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(run_id)
    if not host_preflight.list_live_runs(state):
        # Copies of code can be sent again; linked data takes disk only while a run has it.
        for blob in (state / "blobs").glob("*"):
            if time.time() - blob.stat().st_mtime > _BLOB_AGE_S:
                blob.unlink(missing_ok=True)
        dataset_stage.remove_unused(state)
    return {"removed": removed, "freed": max(0, before - _disk_bytes(state))}


def _root(state: pathlib.Path, request: t.Mapping[str, t.Any]) -> pathlib.Path:
    run = state / "runs" / files.plain_name(request["run_id"])
    return run / os.path.expanduser(str(request.get("folder") or ""))


def _disk_bytes(folder: pathlib.Path) -> int:
    """Return the bytes of the disk that a folder takes; a file with several names counts once."""
    seen: set[tuple[int, int]] = set()
    total = 0
    for place, _folders, names in os.walk(folder):
        for name in names:
            try:
                stat = os.lstat(os.path.join(place, name))
            except OSError:
                continue
            if (stat.st_dev, stat.st_ino) not in seen:
                seen.add((stat.st_dev, stat.st_ino))
                total += stat.st_blocks * 512
    return total
