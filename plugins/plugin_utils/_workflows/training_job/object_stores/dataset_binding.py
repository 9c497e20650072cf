# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``datasets[].binding``: staged from a bucket by addresses that the controller signs, or streamed.

The controller never connects to the store: a node lists the bucket and each node fetches what it lacks.
"""

from __future__ import annotations

import dataclasses
import threading
import time
import typing as t

from .....module_utils._model.binding import Binding, require_resource
from .....module_utils._model.dataset_objects import DatasetFiles, DatasetObject, build_files
from .....module_utils._model.errors import MusterError
from .....module_utils._model.job import Dataset, Job
from .....module_utils._model.wording import name_some
from .....module_utils._node import dataset_digests
from ...._hosts import agent_package
from ...._hosts.node_client import NodeClient, most_telling_error, on_each_node
from ...._launch.environment import dataset_variable
from ...._services.s3_addresses import ObjectPlace, S3Keys, S3Signer
from ...shared import bindings, credentials
from ...shared.progress import Progress
from ...shared.state_dir import StateHome
from .job_nodes import JobNodes
from .store_stream import StoreStream, require_one_store

_EXPIRES_S: t.Final = 3600
# Addresses of one request: together about 700 KB.
_BATCH: t.Final = 1000
_PAGE: t.Final = 1000
# Of an object of this size the store is asked for its checksum: another request costs less than an MD5.
_CHECKED_BYTES: t.Final = 8 << 20
# A request for objects ends after this, so that its progress is seen; what was received stays.
_REQUEST_S: t.Final = 30.0


@dataclasses.dataclass(frozen=True)
class BoundDataset:
    """A dataset of a job with the bucket that holds it."""

    dataset: Dataset
    binding: Binding
    keys: S3Keys
    signer: S3Signer
    place: ObjectPlace

    @property
    def option(self) -> str:
        """The option that names it."""
        return f"job.datasets.{self.dataset.name}"

    @property
    def address(self) -> str:
        """The bucket and prefix as S3 clients write them."""
        return f"s3://{self.place.bucket}/{self.place.prefix.removesuffix('/')}"

    def sign(self, key: str, expires_s: int = _EXPIRES_S) -> str:
        """Return an address of one object."""
        return self.signer.sign("GET", self.place.bucket, key, (), expires_s)

    def sign_checks(self, objects: t.Mapping[int, DatasetObject], expires_s: int = _EXPIRES_S) -> dict[str, list[str]]:
        """Return addresses, by number, of the checksum of large objects, and of the first part of those in parts."""
        signed = {}
        for number, item in objects.items():
            about = ("HEAD", self.place.bucket, item.key)
            first = [self.signer.sign(*about, [("partNumber", "1")], expires_s)] if "-" in item.etag else []
            if first or item.size >= _CHECKED_BYTES:
                signed[str(number)] = [self.signer.sign(*about, (), expires_s, dataset_digests.MODE), *first]
        return signed


def open_bound(home: StateHome, job: Job, nodes: JobNodes) -> tuple[BoundDataset, ...]:
    """Return the datasets of a job that name a binding.

    :raises InputError: when a binding does not exist, or has no bucket for datasets.
    :raises RefusedError: when a node of the job cannot reach it, with the matrix.
    """
    found = []
    for dataset in job.datasets:
        if dataset.binding is None or dataset.mode == "mount":
            continue
        option = f"job.datasets.{dataset.name}.binding"
        binding = bindings.load_binding(home, dataset.binding, option)
        resource = require_resource(binding, "object_store", "datasets", option)
        nodes.require_reachable(binding, option)
        place = ObjectPlace.from_ref(resource.ref, (dataset.prefix or "").strip("/"))
        keys = credentials.read_s3_keys(binding.secret_ref, option, nodes.open_cluster)
        found.append(BoundDataset(dataset, binding, keys, S3Signer(binding, keys), place))
    require_one_store(streams(found))
    return tuple(found)


def streams(bound: t.Sequence[BoundDataset]) -> tuple[StoreStream, ...]:
    """Return what of the datasets is streamed."""
    return tuple(
        StoreStream(item.option, item.binding, item.keys, dataset_variable(item.dataset.name), item.address)
        for item in bound
        if item.dataset.mode == "stream"
    )


def stage(
    bound: t.Sequence[BoundDataset], remotes: t.Sequence[NodeClient], run_id: str, progress: Progress
) -> dict[str, str]:
    """Bring the staged datasets of a run to all nodes at once; return their contents' identities by name.

    :raises MusterError: of the node that cannot have one: no space, or objects that changed, are gone or damaged.
    """
    staged = [item for item in bound if item.dataset.mode == "stage"]
    found: dict[str, str] = {}
    for item in staged:
        files = list_files(item, remotes[0])
        identity = files.identity(f"{item.binding.endpoint} {item.place.bucket}")
        _fetch_all(_Staging(item, files, identity, progress), remotes)
        found[item.dataset.name] = identity
    if found:
        _require_all(
            on_each_node(remotes, lambda remote: remote.call("s3", step="link", run_id=run_id, datasets=found))
        )
    return found


class Asked(t.Protocol):
    """What lists a bucket: a host, or a pod of a cluster."""

    @property
    def name(self) -> str:
        """The name of the node."""

    def call(self, op: str, **values: t.Any) -> dict[str, t.Any]:
        """Send a request; raise MusterError where it fails."""


def list_files(bound: BoundDataset, remote: Asked) -> DatasetFiles:
    """Return the files of a dataset, which ``remote`` lists.

    :raises RefusedError: when there is none, or one has no path below a folder.
    """
    folder = bound.place
    rows = _list_rows(bound, folder, remote)
    if rows or not folder.prefix:
        return build_files(rows, folder.prefix, bound.option)
    # Not a folder: then the prefix is the key of one object.
    key = folder.prefix.removesuffix("/")
    rows = [row for row in _list_rows(bound, ObjectPlace(folder.bucket, key), remote) if row[0] == key]
    return build_files(rows, key, bound.option)


def _list_rows(bound: BoundDataset, place: ObjectPlace, remote: Asked) -> list[list[t.Any]]:
    rows: list[list[t.Any]] = []
    after = ""
    while True:
        url = bound.signer.sign_list(place, _EXPIRES_S, _PAGE, after)
        answer = remote.call("s3", step="list", ca=bound.binding.ca, list=url)
        rows += answer["objects"]
        if not answer["next"]:
            return rows
        after = str(answer["next"])


class _Staging:
    """One dataset on its way to the nodes: what is said of it, from the threads of all nodes."""

    def __init__(self, bound: BoundDataset, files: DatasetFiles, identity: str, progress: Progress) -> None:
        self.bound, self.files, self.identity = bound, files, identity
        self._progress, self._lock = progress, threading.Lock()
        self._needed, self._received, self._began = 0, 0, time.monotonic()

    def count(self, size: int) -> None:
        """Say how much is here after ``size`` more bytes."""
        with self._lock:
            self._received += size
            done, needed = self._received, self._needed
        if size and done < needed:
            self._progress.say(f"dataset {self.bound.dataset.name}: staged {_describe(done)} of {_describe(needed)}")

    def begin(self, needed: t.Mapping[str, int]) -> None:
        """Say what the nodes lack, in bytes by node."""
        self._needed = sum(needed.values())
        lacking = sorted(node for node, size in needed.items() if size)
        if lacking:
            self._progress.say(
                f"dataset {self.bound.dataset.name}: {len(self.files.objects)} objects, "
                f"{_describe(self.files.size)}; staging {_describe(self._needed)} to {name_some(lacking, 5)}"
            )

    def end(self, unverified: int) -> None:
        """Say that all nodes have it."""
        name, seconds = self.bound.dataset.name, max(time.monotonic() - self._began, 1e-3)
        if self._received:
            speed = f"{_describe(self._received)} in {seconds:.1f} s, {self._received / 1e6 / seconds:.0f} MB/s"
            self._progress.say(f"dataset {name}: staged ({speed})")
        if unverified:
            self._progress.say(
                f"warning: dataset {name}: {unverified} objects were compared by size alone: their ETag is not a "
                "digest of their content that can be computed here"
            )


def _fetch_all(work: _Staging, remotes: t.Sequence[NodeClient]) -> None:
    rows = [[item.path, item.size, item.etag] for item in work.files.objects]
    name = work.bound.dataset.name

    def plan(remote: NodeClient) -> dict[str, t.Any]:
        if not remote.program:
            remote.program = remote.call("install", **agent_package.install_request())["program"]
        return remote.call("s3", step="plan", dataset=work.identity, name=name, objects=rows)

    plans = _require_all(on_each_node(remotes, plan))
    work.begin({node: int(plan.get("needed", 0)) for node, plan in plans.items()})
    acting = [remote for remote in remotes if plans[remote.name]["missing"]]
    unverified = _require_all(on_each_node(acting, lambda remote: _fetch(work, remote, plans[remote.name]["missing"])))
    work.end(max(unverified.values(), default=0))


def _fetch(work: _Staging, remote: NodeClient, missing: t.Sequence[int]) -> int:
    """Have one node fetch what it lacks; return how many of its files have no digest to compare."""
    objects, unverified = work.files.objects, 0
    for first in range(0, len(missing), _BATCH):
        batch = list(missing[first : first + _BATCH])
        while batch:
            urls = {str(number): work.bound.sign(objects[number].key) for number in batch}
            answer = remote.call(
                "s3",
                step="stage",
                dataset=work.identity,
                ca=work.bound.binding.ca,
                urls=urls,
                checks=work.bound.sign_checks({number: objects[number] for number in batch}),
                seconds=_REQUEST_S,
            )
            batch, unverified = answer["missing"], int(answer["unverified"])
            work.count(int(answer["received"]))
    return unverified


def announce_stage(bound: t.Sequence[BoundDataset], remote: Asked, progress: Progress) -> None:
    """Say what a run would stage, for check mode.

    :raises RefusedError: as :func:`list_files`.
    """
    for item in bound:
        if item.dataset.mode == "stage":
            files = list_files(item, remote)
            progress.say(f"dataset {item.dataset.name}: {len(files.objects)} objects, {_describe(files.size)}")


def _describe(size: int) -> str:
    return f"{size / 2**30:.2f} GiB" if size >= 1 << 30 else f"{size / 2**20:.1f} MiB"


def _require_all[T](outcome: tuple[dict[str, T], dict[str, MusterError]]) -> dict[str, T]:
    if outcome[1]:
        raise most_telling_error(outcome[1])
    return outcome[0]
