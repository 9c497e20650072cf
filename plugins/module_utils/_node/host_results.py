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
    """Carry out ``step``: ``list``, ``read``, ``disk`` or ``clean``."""
    steps = {"list": _list_files, "read": _read_piece, "disk": _measure_disk, "clean": _clean}
    return steps[request["step"]](state, request)


def _list_files(state: pathlib.Path, request: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return ``{root, exists, files [{path, size, sha256, modified_at}]}`` below a folder of the run that match.

    Where none does, ``there`` names the files of the folder, and ``half_saved`` says why a checkpoint does not count.
    ``copied``: another node saved this newest checkpoint.

    :param request: ``run_id``, ``folder`` (null: the run's own; relative: below it), ``patterns`` (globs; without any
        the newest complete checkpoint of ``format``), and ``reported``, the path that the program named last.
    """
    root = _root(state, request)
    if request["patterns"]:
        places = sorted({place for glob in request["patterns"] for place in root.glob(glob)})
    else:
        places = [root / name for name in _list_newest(root, request)]
    is_copy = not request["patterns"] and any(place.name in checkpoint_copies.read_ledger(root) for place in places)
    inner = [child for place in places if place.is_dir() for child in sorted(place.rglob("*"))]
    found = []
    for place in dict.fromkeys([*places, *inner]):
        if place.is_file() and not place.is_symlink() and place.name != checkpoint_copies.LEDGER:
            stat = place.stat()
            entry = {"path": str(place.relative_to(root)), "size": stat.st_size, "modified_at": stat.st_mtime}
            found.append({**entry, "sha256": files.sha256_of(place)})
    there = [] if found else _list_names(root)
    half = "" if found or request["patterns"] else checkpoints.describe_half_saved(root, request["format"])
    about = {"root": str(root), "exists": root.is_dir(), "copied": is_copy, "half_saved": half}
    return {**about, "files": found, "there": there}


def _list_newest(root: pathlib.Path, request: t.Mapping[str, t.Any]) -> list[str]:
    """Return the paths of the newest complete checkpoint in a folder and of what comes along with it."""
    reported = request.get("reported")
    name = checkpoints.reported_name(root, {"checkpoint_step": 0, "path": reported}) if reported else ""
    newest = checkpoints.list_complete(root, request["format"], name)[:1]
    return [path for saved in newest for path in (saved.name, *checkpoint_layouts.list_beside(root, saved))]


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
    """Return ``{runs [{run_id, bytes, alive, owner, checkpoint}], environments, blobs}`` (bytes).

    Datasets count as blobs. ``checkpoint`` is the newest one that would go with the run's folder, null without any.

    :param request: ``places``: run id -> ``folder`` (relative: below the run's own), ``format``, and ``reported``, the
        path that the program named last.
    """
    places = request.get("places") or {}
    runs = []
    for folder in sorted(item for item in (state / "runs").glob("*") if item.is_dir()):
        claim = files.read_json(folder / "claim.json") or {}
        alive = any(unit["alive"] for unit in host_log_follow.unit_statuses(folder).values())
        entry = {"run_id": folder.name, "bytes": _disk_bytes(folder), "alive": alive, "owner": claim.get("owner")}
        runs.append({**entry, "checkpoint": _find_own_checkpoint(folder, places.get(folder.name) or {})})
    environments = _disk_bytes(state.parent / host_environment.FOLDER)
    data = _disk_bytes(state / "blobs") + _disk_bytes(state / dataset_stage.FOLDER)
    return {"runs": runs, "environments": environments, "blobs": data}


def _find_own_checkpoint(run: pathlib.Path, place: t.Mapping[str, t.Any]) -> dict[str, t.Any] | None:
    """Return ``{name, bytes, saved_at}`` of the newest complete checkpoint inside a run's folder."""
    root = run / os.path.expanduser(str(place.get("folder") or "checkpoints"))
    complete = checkpoints.list_complete(root, str(place.get("format") or "files"))
    found = [root / saved.name for saved in complete[:1]]
    if not found and place.get("reported"):
        found = [root / str(place["reported"])]
    inside = [own for path in found if run.resolve() in (own := path.resolve()).parents and own.exists()]
    if not inside:
        return None
    size = _disk_bytes(inside[0]) if inside[0].is_dir() else inside[0].stat().st_size
    return {"name": inside[0].name, "bytes": size, "saved_at": inside[0].stat().st_mtime}


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
