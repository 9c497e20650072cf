# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Brings files of a run from its nodes to the controller: the newest checkpoint, a model, or what patterns name.

Files travel in pieces and get their names once their checksums are right; an interrupted fetch continues.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import pathlib
import typing as t
import zlib

from ....module_utils._model import job_checkpoints
from ....module_utils._model.errors import InputError, MusterError, RefusedError
from ....module_utils._model.job import Job
from ....module_utils._model.run_record import RunRecord
from ....module_utils._node import files
from ..._hosts.node_client import NodeClient, find_answering
from ..shared.progress import Progress
from ..shared.state_dir import StateHome, find_run_folder, load_record
from ..training_job.load import load_recorded_job

# How many of the files that are there an error names.
_SHOWN = 8
Source = t.Literal["checkpoints", "run"]
Connect = t.Callable[[t.Sequence[str]], list[NodeClient]]
# Opens the nodes of a run in pods.
OpenPods = t.Callable[[RunRecord, Job], contextlib.AbstractContextManager[list[NodeClient]]]


@dataclasses.dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file on a node, and where it goes below the destination."""

    remote: NodeClient
    path: str
    size: int
    sha256: str
    target: str


@dataclasses.dataclass(frozen=True, slots=True)
class FetchRequest:
    """What to fetch: ``patterns`` below the checkpoints or the run's folder, none for the newest checkpoint."""

    run_id: str | None
    source: Source
    patterns: tuple[str, ...]
    dest: pathlib.Path | None
    check: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Nodes:
    """How the nodes of runs are reached: hosts of the inventory, and pods."""

    hosts: t.Container[str]
    connect: Connect
    open_pods: OpenPods


def build_pod_opener(options: t.Mapping[str, t.Any], base: pathlib.Path, progress: Progress) -> OpenPods:
    """Return what opens the nodes of a run in pods, on the cluster of ``options`` or else of the run's record."""

    def open_pods(record: RunRecord, job: Job) -> contextlib.AbstractContextManager[list[NodeClient]]:
        # Late: most runs are on hosts.
        from ..shared import kube_connection
        from . import pods

        context = record.backend_ref.context if record.backend_ref else None
        client = kube_connection.open_client(options, base, progress.say, context=context)
        return pods.open_readers(client, record, job, progress)

    return open_pods


def fetch_files(home: StateHome, wanted: FetchRequest, nodes: Nodes, progress: Progress) -> dict[str, object]:
    """Fetch the files and return ``{changed, run_id, dest, files, bytes, msg}``.

    :raises RefusedError: for nodes that do not answer, and where nothing matches.
    """
    folder = find_run_folder(home, wanted.run_id)
    record = t.cast(RunRecord, load_record(folder))
    if wanted.source == "run" and record.backend == "kubernetes":
        raise InputError("source", "run is for runs on hosts: the folder of a run in pods goes with its pods")
    if wanted.source == "run" and not wanted.patterns:
        raise InputError("paths", "is required with source: run", "Name files, such as ['out/*.json']")
    dest = wanted.dest or folder / "files"
    if record.backend == "kubernetes":
        if wanted.check:
            msg = "what there is to fetch is seen by a pod that has the mount; check mode starts none"
            return {"changed": False, "run_id": record.run_id, "dest": str(dest), "files": [], "bytes": 0, "msg": msg}
        with nodes.open_pods(record, load_recorded_job(record)) as remotes:
            return _fetch_from(wanted, record, dest, remotes, progress)
    return _fetch_from(
        wanted, record, dest, nodes.connect([name for name in record.hosts if name in nodes.hosts]), progress
    )


def _fetch_from(
    wanted: FetchRequest, record: RunRecord, dest: pathlib.Path, asked: t.Sequence[NodeClient], progress: Progress
) -> dict[str, object]:
    place = _place(record, wanted.source)
    remotes, errors = find_answering(asked)
    found, there = choose_files(place, wanted.patterns, record, remotes)
    if not found:
        raise _build_missing_error(wanted, record, place, there, errors)
    due = [file for file in found if not _is_there(dest / file.target, file)]
    size = sum(file.size for file in due)
    result = {"run_id": record.run_id, "dest": str(dest), "files": sorted(file.target for file in found), "bytes": size}
    msg = f"{len(due)} of {len(found)} files, {size / 1e6:,.1f} MB"
    if wanted.check:
        return {"changed": bool(due), **result, "msg": f"would fetch {msg} to {dest}"}
    progress.say(f"fetching {msg} from {', '.join(sorted({file.remote.name for file in due}))}" if due else msg)
    for file in due:
        _fetch(file, place, record.run_id, dest / file.target)
    return {"changed": bool(due), **result, "msg": f"fetched {msg} to {dest}"}


def choose_files(
    place: t.Mapping[str, t.Any], patterns: t.Sequence[str], record: RunRecord, remotes: t.Sequence[NodeClient]
) -> tuple[list[RemoteFile], list[str]]:
    """Return what to fetch: each file once, and under its node's name where another node has one that differs.

    Where nothing matches, also the paths of the files that nodes have there.
    """
    chosen: dict[str, RemoteFile] = {}
    there: set[str] = set()
    for remote in remotes:
        answer = remote.call("results", step="list", run_id=record.run_id, patterns=list(patterns), **place)
        there.update(str(name) for name in answer["there"])
        for item in answer["files"]:
            path = _check_path(str(item["path"]))
            known = chosen.get(path)
            if known is not None and known.sha256 == item["sha256"]:
                continue
            target = path if known is None else f"{files.plain_name(remote.name)}/{path}"
            chosen[target] = RemoteFile(remote, path, int(item["size"]), str(item["sha256"]), target)
    return list(chosen.values()), sorted(there)


def _build_missing_error(
    wanted: FetchRequest,
    record: RunRecord,
    place: t.Mapping[str, t.Any],
    there: t.Sequence[str],
    errors: t.Mapping[str, MusterError],
) -> RefusedError:
    """Return the error for patterns that no file matches: it names what can be fetched."""
    what = ", ".join(wanted.patterns) or "a complete checkpoint"
    first = next((errors[name] for name in sorted(errors)), None)
    missing = f"; no answer from {', '.join(sorted(errors))} ({first.message})" if first is not None else ""
    problem = f"run {record.run_id}: {what} was not found in {place['folder'] or 'its folder'}{missing}"
    if not there:
        return RefusedError(problem, "No node that answers has a file there")
    more = f" and {len(there) - _SHOWN} more" if len(there) > _SHOWN else ""
    return RefusedError(problem, f"Files there are {', '.join(there[:_SHOWN])}{more} (muster_fetch_paths)")


def _place(record: RunRecord, source: Source) -> dict[str, t.Any]:
    job = load_recorded_job(record)
    if source == "run":
        return {"folder": None, "format": job.checkpoints.format}
    part = job_checkpoints.folder_of_start(job, record.generation)
    own = job_checkpoints.checkpoint_folder(job, record.run_id) or "checkpoints"
    return {"folder": f"{own}/{part}" if part else own, "format": job.checkpoints.format}


def _check_path(path: str) -> str:
    """Return a path that a node answered: it must not lead out of the destination."""
    pure = pathlib.PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or not pure.parts:
        raise RefusedError(f"a node answered with the path {path!r}, which is outside of the run's folder")
    return str(pure)


def _is_there(target: pathlib.Path, file: RemoteFile) -> bool:
    return target.is_file() and target.stat().st_size == file.size and files.sha256_of(target) == file.sha256


def _fetch(file: RemoteFile, place: t.Mapping[str, t.Any], run_id: str, target: pathlib.Path) -> None:
    """Fetch one file, from where a former fetch of the same content stopped.

    :raises RefusedError: when what arrived has another checksum.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{file.sha256[:12]}.part")
    offset = part.stat().st_size if part.exists() else 0
    with open(part, "ab") as handle:
        while offset < file.size:
            answer = file.remote.call(
                "results", step="read", run_id=run_id, path=file.path, offset=offset, folder=place["folder"]
            )
            data = zlib.decompress(base64.b64decode(answer["data"]))
            if not data:
                break
            handle.write(data)
            offset += len(data)
    if files.sha256_of(part) != file.sha256:
        part.unlink()
        raise RefusedError(f"{file.remote.name}: {file.path} changed while it was being fetched", "Run again")
    part.replace(target)
