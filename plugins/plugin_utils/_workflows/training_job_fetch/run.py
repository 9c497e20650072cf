# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Brings files of a run from its nodes to the controller: the newest checkpoint, a model, or what patterns name.

Files travel in pieces and get their names once their checksums are right; an interrupted fetch continues.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import functools
import pathlib
import re
import time
import typing as t
import zlib

from ....module_utils._model import job_backends, job_checkpoints
from ....module_utils._model.errors import InputError, MusterError, RefusedError, TransportError
from ....module_utils._model.job import Job
from ....module_utils._model.run_record import RunRecord
from ....module_utils._model.wording import name_some
from ....module_utils._node import checkpoint_sets
from ..._hosts.node_client import NodeClient, find_answering
from ..shared.progress import Progress
from ..shared.state_dir import StateHome, find_run_folder, load_record
from ..training_job.load import load_recorded_job
from . import copies as run_copies
from .remote_file import RemoteFile, add_file, check_path, fetch_file, is_there

if t.TYPE_CHECKING:
    from ..._kube.api.client import Client

# How many of the files that are there an error names.
_SHOWN = 8
_SEEN_BY_POD = "what there is to fetch is seen by a pod; check mode starts none"
Source = t.Literal["checkpoints", "run", "bucket"]
Connect = t.Callable[[t.Sequence[str]], list[NodeClient]]
# Opens the nodes of a run in pods.
_Answer = t.Mapping[str, t.Any]
OpenRunPods = t.Callable[[], contextlib.AbstractContextManager[list[NodeClient]]]


class OpenCluster(t.Protocol):
    """Opens the cluster of a run, or that of the connection where none is named."""

    def __call__(self, record: RunRecord | None = None) -> Client: ...


OpenPods = t.Callable[[RunRecord, Job], contextlib.AbstractContextManager[list[NodeClient]]]


@dataclasses.dataclass(frozen=True, slots=True)
class FetchRequest:
    """What to fetch: ``patterns`` below the checkpoints or the run's folder, none for the newest checkpoint.

    With the source ``checkpoints`` they come from the nodes, and from the job's bucket where no node has any.
    """

    run_id: str | None
    source: Source
    patterns: tuple[str, ...]
    dest: pathlib.Path | None
    check: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Nodes:
    """How the nodes of runs are reached: hosts of the inventory, and pods; and the cluster that a run was on."""

    hosts: t.Container[str]
    connect: Connect
    open_pods: OpenPods
    open_cluster: OpenCluster | None = None


def build_cluster_opener(options: t.Mapping[str, t.Any], base: pathlib.Path, progress: Progress) -> OpenCluster:
    """Return what opens the cluster of ``options``, or else of a run's record."""

    def open_cluster(record: RunRecord | None = None) -> Client:
        # Late: most runs are on hosts.
        from ..shared import kube_connection

        context = record.backend_ref.context if record and record.backend_ref else None
        return kube_connection.open_client(options, base, progress.say, context=context)

    return open_cluster


def build_pod_opener(options: t.Mapping[str, t.Any], base: pathlib.Path, progress: Progress) -> OpenPods:
    """Return what opens the nodes of a run in pods."""
    open_cluster = build_cluster_opener(options, base, progress)

    def open_pods(record: RunRecord, job: Job) -> contextlib.AbstractContextManager[list[NodeClient]]:
        from ..training_job import image_pin
        from . import pods

        home, client = StateHome(options["state_home"], options["cluster"]), open_cluster(record)
        return pods.open_readers(client, record, job, progress, image_pin.find_image(home, job, lambda: client))

    return open_pods


def fetch_files(home: StateHome, wanted: FetchRequest, nodes: Nodes, progress: Progress) -> dict[str, object]:
    """Fetch the files and return ``{changed, run_id, dest, files, bytes, msg}``.

    :raises RefusedError: for nodes that do not answer, and where nothing matches.
    """
    folder = find_run_folder(home, wanted.run_id)
    record = t.cast(RunRecord, load_record(folder))
    job = load_recorded_job(record)
    _check_source(wanted, record, job)
    dest = wanted.dest or folder / "files"
    fetch = Fetch(home, wanted, record, job, dest, progress, nodes.open_cluster)
    if record.backend != "kubernetes":
        return fetch.from_hosts(nodes.connect([name for name in record.hosts if name in nodes.hosts]))
    return fetch.from_pods(functools.partial(nodes.open_pods, record, job))


def _check_source(wanted: FetchRequest, record: RunRecord, job: Job) -> None:
    """Refuse a source that the run does not have."""
    if wanted.source == "run" and record.backend == "kubernetes":
        raise InputError("source", "run is for runs on hosts: the folder of a run in pods goes with its pods")
    if wanted.source == "run" and not wanted.patterns:
        raise InputError("paths", "is required with source: run", "Name files, such as ['out/*.json']")
    if wanted.source == "bucket" and not job.checkpoints.binding:
        raise InputError("source", f"the job of run {record.run_id} has no checkpoints.binding", "Leave source out")


@dataclasses.dataclass(frozen=True, slots=True)
class Fetch:
    """One fetch: of which run, what, and where to."""

    home: StateHome
    wanted: FetchRequest
    record: RunRecord
    job: Job
    dest: pathlib.Path
    progress: Progress
    open_cluster: OpenCluster | None = None

    def from_hosts(self, asked: t.Sequence[NodeClient]) -> dict[str, object]:
        """Fetch from the hosts of the run, or from its bucket, which a host reads where the controller cannot."""
        if self.wanted.source == "bucket":
            return self._take_stored(lambda: next(iter(find_answering(asked)[0]), None))
        remotes, errors = find_answering(asked)
        place = _place(self.record, self.wanted.source)
        chosen = choose_files(place, self.wanted.patterns, self.record, remotes)
        there = chosen.there
        if chosen.files:
            return _add_silent(_add_newer(self._take(chosen.files, chosen.nodes), chosen.newer), errors)
        missing = self._build_missing_error(str(place["folder"] or "its folder"), there, errors, chosen.half_saved)
        if not self._may_be_stored() or (self.wanted.patterns and there):
            # Of files that are there under other names, the names help more than what the bucket has.
            raise missing
        self.progress.say(f"{missing.message}: looking in the object store {self.job.checkpoints.binding}")
        return self._take_stored(lambda: next(iter(remotes), None))

    def from_pods(self, open_pods: OpenRunPods) -> dict[str, object]:
        """Fetch from the mount of the run's checkpoints, which a pod sees; without one, from its bucket."""
        is_stored = self._may_be_stored() and job_backends.checkpoint_mount(self.job) is None
        if not is_stored and self.wanted.source != "bucket":
            if self.wanted.check:
                return self._build_result([], 0, False, _SEEN_BY_POD)
            with open_pods() as remotes:
                return self.from_hosts(remotes)
        with contextlib.ExitStack() as stack:
            try:
                return self._take_stored(lambda: None if self.wanted.check else stack.enter_context(open_pods())[0])
            except TransportError:
                if not self.wanted.check:
                    raise
                return self._build_result([], 0, False, _SEEN_BY_POD)

    def _may_be_stored(self) -> bool:
        return self.job.checkpoints.binding is not None and self.wanted.source != "run"

    def _take_stored(self, find_proxy: t.Callable[[], NodeClient | None]) -> dict[str, object]:
        # Late: signing needs a package, and few runs have a bucket.
        from ..training_job.object_stores import checkpoint_binding
        from . import stored

        run_id = self.record.run_id
        if self.job.launcher == "ray":
            problem = f"run {run_id}: Ray Train has stored its checkpoints by itself, in a layout of its own"
            address = checkpoint_binding.stored_address(self.home, self.job, run_id)
            raise RefusedError(problem, f"Copy {address} with an S3 client")
        opener = functools.partial(self.open_cluster, self.record) if self.open_cluster else None
        bound = checkpoint_binding.open_for_reading(self.home, self.job, run_id, opener)
        found, there = stored.list_stored(bound, self.wanted.patterns, find_proxy)
        if not found:
            raise self._build_missing_error(f"the object store {bound.binding.name}", there)
        return self._take(found)

    def _take(self, found: t.Sequence[RemoteFile], nodes: t.Sequence[str] = ()) -> dict[str, object]:
        """Fetch what is not there.

        :param nodes: all whose files these are, None of them where it is a bucket.
        """
        due = [file for file in found if not is_there(self.dest / file.target, file)]
        size = sum(file.size for file in due)
        msg = f"{len(due)} of {len(found)} files, {size / 1e6:,.1f} MB"
        names = sorted(file.target for file in found)
        others = self._list_replaced(due)
        if self.wanted.check:
            would = f"would fetch {msg} to {self.dest}: {self._describe(names)}" if due else self._describe_no_op(names)
            return self._add_warning(found, self._build_result(names, size, bool(due), would))
        if due:
            more = f"; {len(others)} in {self.dest} of this run, which are older, are replaced" if others else ""
            self.progress.say(f"fetching {msg} from {', '.join(sorted({file.place for file in due}))}{more}")
        for file in due:
            fetch_file(file, self.dest / file.target)
        digests = {file.target: file.sha256 for file in found}
        run_copies.note_fetch(self.home.run_folder(self.record.run_id), self.dest, digests, time.time(), nodes)
        done = f"fetched {msg} to {self.dest}: {self._describe(names)}" if due else self._describe_no_op(names)
        return self._add_warning(found, self._build_result(names, size, bool(due), done))

    def _list_replaced(self, due: t.Sequence[RemoteFile]) -> list[str]:
        """Return which files a fetch replaces.

        :raises RefusedError: where one is not of this run: it may be the only copy of what another run saved.
        """
        others = [file.target for file in due if (self.dest / file.target).exists()]
        # Nothing but this run is fetched into its own folder.
        if self.dest != self.home.run_folder(self.record.run_id) / "files":
            for name in others:
                problem = run_copies.find_foreign(self.home, self.record.run_id, self.dest / name)
                if problem:
                    fix = "Name another folder (muster_fetch_dest); nothing was fetched"
                    raise RefusedError(f"{self.dest} has another {name}, which {problem}", fix)
        return others

    def _add_warning(self, found: t.Sequence[RemoteFile], result: dict[str, object]) -> dict[str, object]:
        """Return the result with the step of what was fetched, and a warning where the run has saved a later one."""
        steps = [file.step for file in found if file.step is not None]
        if not self._has_last(found) and not steps and not self.wanted.patterns and self.record.unstored:
            words = self.record.unstored
            msg = f"{result['msg']}. NOT the last checkpoint of the run: {words}"
            return {**result, "msg": msg, "warnings": [f"run {self.record.run_id}: {words}"]}
        saved = self.record.checkpoint.step if self.record.checkpoint else None
        if not steps or self.wanted.patterns:
            return result
        result = {**result, "step": min(steps)}
        if saved is None or min(steps) >= saved:
            return result
        place = found[0].place
        about = "about " if self.record.checkpoint and self.record.checkpoint.extra.get("step_by") else ""
        words = (
            f"checkpoint {about}{min(steps)} is the newest that is stored in {place}; the last of the run, "
            f"{about}{saved}, is not"
        )
        more = " yet" if not self.record.is_ended else ""
        msg = f"{result['msg']}. NOT the last checkpoint of the run: {words}{more}"
        return {**result, "msg": msg, "warnings": [f"run {self.record.run_id}: {words}{more}"]}

    def _has_last(self, found: t.Sequence[RemoteFile]) -> bool:
        """Return whether the last checkpoint of the run was fetched: what its store lacks may have come from a node."""
        last, lacking = self.record.checkpoint, re.match(r"checkpoint \D*(\d+)", self.record.unstored or "")
        if last is None or not last.path or (lacking and (last.step or 0) < int(lacking[1])):
            return False
        name = pathlib.PurePosixPath(last.path).name
        return any(name in pathlib.PurePosixPath(file.path).parts for file in found)

    def _describe_no_op(self, names: t.Sequence[str]) -> str:
        return f"{self.dest} is up to date: {self._describe(names)} of run {self.record.run_id}"

    def _describe(self, names: t.Sequence[str]) -> str:
        """Return what was fetched: files and folders, the first by name, and the reported checkpoint if it is none."""
        parts = [name.partition("/") for name in names]
        tops = list(dict.fromkeys(first + slash for first, slash, _rest in parts))
        saved = None if self.wanted.patterns else self.record.checkpoint
        reported = pathlib.PurePosixPath(saved.path or "").name if saved else ""
        others = ""
        if saved and reported and not any(reported in pathlib.PurePosixPath(name).parts for name in names):
            others = (
                f" (the checkpoint that was reported for {saved.describe_step()} is {reported}: muster_fetch_paths)"
            )
        elif saved and not reported and str(saved.step) not in re.findall("[1-9][0-9]*", " ".join(names)):
            found = [int(number) for number in re.findall("[1-9][0-9]*", " ".join(tops))]
            newest = f"; the newest that was found is of step {found[0]}" if len({*found}) == 1 else ""
            others = f" (the last checkpoint that the program reported is of {saved.describe_step()}{newest})"
        return f"{name_some(tops, _SHOWN)}{others}"

    def _build_missing_error(
        self,
        place: str,
        there: t.Sequence[str],
        errors: t.Mapping[str, MusterError] | None = None,
        half_saved: t.Sequence[str] = (),
    ) -> RefusedError:
        """Return the error for patterns that no file matches: it names what can be fetched.

        :param errors: of the nodes that were asked, None where it was the bucket.
        :param half_saved: why the newest checkpoints that are there do not count.
        """
        what = ", ".join(self.wanted.patterns) or "a complete checkpoint"
        silent = sorted(errors or ())
        missing = f"; no answer from {', '.join(silent)} ({errors[silent[0]].message})" if errors else ""
        problem = f"run {self.record.run_id}: {what} was not found in {place}{missing}"
        problem += f": {'; '.join(half_saved)}" if half_saved else ""
        copies = run_copies.read_copies(self.home.run_folder(self.record.run_id))
        removal = run_copies.describe_removal(copies, self.record.pruned_at)
        # A folder of its own (checkpoints.path) is none that prune removes.
        if errors is not None and removal and not place.startswith(("/", "~")):
            dests = run_copies.list_whole(copies)
            fix = f"Its files were fetched to {', '.join(dests)}" if dests else "No copy that was fetched is known here"
            return RefusedError(f"{problem}; it was {removal}", fix)
        if not there:
            nothing = "No checkpoint of this run is" if errors is None else "No node that answers has a file"
            saved = self.record.checkpoint
            if saved is None or errors is None:
                return RefusedError(problem, f"{nothing} there")
            said = f"The program reported a checkpoint of {saved.describe_step()}; prune did not remove it"
            return RefusedError(problem, f"{nothing} there. {said}: it was deleted otherwise, or saved elsewhere")
        return RefusedError(problem, f"Files there are {name_some(there, _SHOWN)} (muster_fetch_paths)")

    def _build_result(self, names: t.Sequence[str], size: int, changed: bool, msg: str) -> dict[str, object]:
        about = {"run_id": self.record.run_id, "dest": str(self.dest)}
        return {"changed": changed, **about, "files": list(names), "bytes": size, "msg": msg}


def _add_silent(result: dict[str, object], errors: t.Mapping[str, MusterError]) -> dict[str, object]:
    """Return the result with the nodes that gave no answer: what only they have was not fetched."""
    if not errors:
        return result
    names = sorted(errors)
    words = f"no answer from {', '.join(names)} ({errors[names[0]].message}): what only {names[0]} has is missing"
    warnings = t.cast("list[str]", result.get("warnings") or [])
    return {**result, "msg": f"{result['msg']}. {words}", "warnings": [*warnings, words]}


def _add_newer(result: dict[str, object], newer: t.Sequence[str]) -> dict[str, object]:
    """Return the result with the parts of a later step that is not whole: those of it were not fetched."""
    if not newer:
        return result
    words = f"{name_some(newer, _SHOWN)} is of a later step, which not every rank or node has saved, and was left"
    warnings = t.cast("list[str]", result.get("warnings") or [])
    return {**result, "msg": f"{result['msg']}. {words}", "warnings": [*warnings, words]}


@dataclasses.dataclass(frozen=True, slots=True)
class ChosenFiles:
    """What to fetch, and of which nodes; ``newer``: what there is of a later step that is not whole.

    Where there is nothing: the paths of the files that nodes have there, and why checkpoints there do not count.
    """

    files: tuple[RemoteFile, ...]
    nodes: tuple[str, ...]
    there: tuple[str, ...]
    half_saved: tuple[str, ...]
    newer: tuple[str, ...]


def choose_files(
    place: t.Mapping[str, t.Any], patterns: t.Sequence[str], record: RunRecord, remotes: t.Sequence[NodeClient]
) -> ChosenFiles:
    """Return what to fetch: each file once, and under its node's name where another node has one that differs.

    :raises RefusedError: where nodes have parts of checkpoints, and no step is whole.
    """
    asked = {"run_id": record.run_id, **place}
    chosen: dict[str, RemoteFile] = {}
    newest = checkpoint_sets.CheckpointSet({})
    answers: list[_Answer] = []
    if not patterns:
        answers = [remote.call("results", step="saved", **asked) for remote in remotes]
        held = zip(remotes, answers, strict=True)
        newest = checkpoint_sets.choose_set(
            {remote.name: [checkpoint_sets.Held(**row) for row in answer["checkpoints"]] for remote, answer in held}
        )
    if newest.problem:
        fix = "Fetch what there is by name (muster_fetch_paths); prune leaves the run as it is"
        raise RefusedError(f"run {record.run_id}: {newest.problem}", fix)
    for remote in remotes:
        names = newest.names.get(remote.name)
        if not patterns and not names:
            continue
        answer = remote.call("results", step="list", patterns=list(patterns), names=names, **asked)
        answers.append(answer)
        for item in answer["files"]:
            path = check_path(str(item["path"]))
            read = functools.partial(_read_piece, remote, record.run_id, place["folder"], path)
            file = RemoteFile(remote.name, path, int(item["size"]), str(item["sha256"]), path, read)
            add_file(chosen, file, remote.name)
    there = sorted({str(name) for answer in answers for name in answer["there"]})
    half = dict.fromkeys(str(answer["half_saved"]) for answer in answers if answer.get("half_saved"))
    asked_of = [remote.name for remote in remotes if patterns or remote.name in newest.names]
    return ChosenFiles(tuple(chosen.values()), tuple(asked_of), tuple(there), tuple(half), newest.newer)


def _read_piece(remote: NodeClient, run_id: str, folder: str | None, path: str, offset: int) -> bytes:
    answer = remote.call("results", step="read", run_id=run_id, path=path, offset=offset, folder=folder)
    return zlib.decompress(base64.b64decode(answer["data"]))


def _place(record: RunRecord, source: Source) -> dict[str, t.Any]:
    job = load_recorded_job(record)
    if source == "run":
        return {"folder": None, "format": job.checkpoints.format}
    folder = job_checkpoints.folder_on_hosts(job, record.run_id, record.generation)
    saved = record.checkpoint
    return {"folder": folder, "format": job.checkpoints.format, "reported": saved.path if saved else None}
