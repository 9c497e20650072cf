# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``checkpoints.binding``: what nodes get to store checkpoints, and what is fetched before a start."""

from __future__ import annotations

import dataclasses
import json
import time
import typing as t

from .....module_utils._model import job_checkpoints
from .....module_utils._model.binding import Binding, require_resource
from .....module_utils._model.errors import InputError, MusterError, RefusedError
from .....module_utils._model.job import Job
from .....module_utils._node.checkpoint_choice import CheckpointChoice, NodeCheckpoints, choose_checkpoints
from ...._hosts.node_client import NodeClient, most_telling_error, on_each_node
from ...._launch.ray import STORAGE as RAY_STORAGE
from ...._services.s3_addresses import LONGEST_S, ObjectPlace, S3Signer
from ...shared import bindings, credentials
from ...shared.progress import Progress
from ...shared.state_dir import StateHome
from .job_nodes import JobNodes
from .store_stream import StoreStream

ADDRESSES_FILE = "checkpoints.json"
_OPTION = "job.checkpoints.binding"
# With keep: all, as many complete checkpoints are in the bucket.
_KEPT = 2
_MOST_KEPT = 8
# The parts of one checkpoint: of 64 MiB, or larger ones where it has more than 8 GiB.
_PARTS = 128
# What all pods of a run get is in one Secret.
_PARTS_OF_PODS = 64
_MANIFEST = "manifest.json"


@dataclasses.dataclass(frozen=True)
class BoundCheckpoints:
    """The bucket in which a run's checkpoints are stored."""

    job: Job
    run_id: str
    binding: Binding
    signer: S3Signer
    ref: str

    @property
    def slots(self) -> int:
        """How many checkpoints a node has room for in the bucket: those that are kept and the one that is written."""
        return min(self.job.checkpoints.keep or _KEPT, _MOST_KEPT) + 1

    def stores(self, rank: int) -> bool:
        """Return whether the node stores checkpoints: of a folder that all share, the first does."""
        return rank == 0 or not job_checkpoints.must_be_shared(self.job)

    def addresses(self, rank: int) -> str:
        """Return what a node needs to store checkpoints by itself for a week, as JSON."""
        place = self._place(rank)
        slots = [
            {
                "manifest": {
                    verb.lower(): self._sign(place, verb, slot, _MANIFEST) for verb in ("GET", "PUT", "DELETE")
                },
                "parts": [self._sign(place, "PUT", slot, _part(number)) for number in range(_PARTS)],
            }
            for slot in range(self.slots)
        ]
        return json.dumps({"ca": self.binding.ca, "expires_at": time.time() + LONGEST_S, "slots": slots})

    def pod_addresses(self) -> dict[str, t.Any]:
        """Return what the pods of a run need for a week: to store, and to fetch before each start; by rank."""
        ranks = [rank for rank in range(self.job.nodes) if self.stores(rank)]
        return {
            "ca": self.binding.ca,
            "expires_at": time.time() + self.signer.longest_s,
            "ranks": {
                str(rank): [self._pod_slot(self._place(rank), slot) for slot in range(self.slots)] for rank in ranks
            },
        }

    def _pod_slot(self, place: ObjectPlace, slot: int) -> dict[str, t.Any]:
        verbs = ("GET", "PUT", "DELETE")
        return {
            "manifest": {verb.lower(): self._sign(place, verb, slot, _MANIFEST) for verb in verbs},
            "parts": [self._sign(place, "PUT", slot, _part(number)) for number in range(_PARTS_OF_PODS)],
            "fetch": [self._sign(place, "GET", slot, _part(number)) for number in range(_PARTS_OF_PODS)],
        }

    def candidates_request(self, rank: int, folder: str) -> dict[str, t.Any]:
        """Return what asks a node for the checkpoints that it could start from."""
        urls = self.manifest_addresses(rank)
        return {"step": "candidates", "run_id": self.run_id, "manifests": urls, **self._common(folder)}

    def manifest_addresses(self, rank: int) -> list[str]:
        """Return the addresses of the manifests of a node's slots, of which some or all may be empty."""
        # More than this job keeps: it may have kept more before.
        return [self._sign(self._place(rank), "GET", slot, _MANIFEST) for slot in range(_MOST_KEPT + 1)]

    def part_address(self, rank: int, slot: int, number: int) -> str:
        """Return the address that reads a part of a stored checkpoint."""
        return self._sign(self._place(rank), "GET", slot, _part(number))

    def restore_request(self, rank: int, folder: str, choice: CheckpointChoice) -> dict[str, t.Any]:
        """Return what has a node fetch what was chosen for it."""
        request = {"step": "restore", "aside": list(choice.aside), **self._common(folder)}
        if choice.fetch is None:
            return request
        place, row = self._place(rank), choice.fetch
        parts = [self.part_address(rank, row["slot"], number) for number in range(row["parts"])]
        manifest = self._sign(place, "GET", row["slot"], _MANIFEST)
        return {**request, "name": row["name"], "saved_at": row["saved_at"], "manifest": manifest, "parts": parts}

    def _common(self, folder: str) -> dict[str, t.Any]:
        return {"ca": self.binding.ca, "folder": folder, "format": self.job.checkpoints.format}

    def _place(self, rank: int) -> ObjectPlace:
        return ObjectPlace.from_ref(self.ref, self.run_id, f"node-{rank}")

    def _sign(self, place: ObjectPlace, method: str, slot: int, name: str) -> str:
        return self.signer.sign(method, place.bucket, place.key(f"slot-{slot}/{name}"), (), LONGEST_S)


def open_bound(home: StateHome, job: Job, nodes: JobNodes, run_id: str) -> BoundCheckpoints | None:
    """Return the bucket of a job's checkpoints, None for a job without ``checkpoints.binding``.

    :raises InputError: when the binding does not exist, or has no bucket for checkpoints.
    :raises RefusedError: when a node of the job cannot reach it, with the matrix.
    """
    found = _find_bucket(home, job, nodes)
    if found is None:
        return None
    binding, ref = found
    return BoundCheckpoints(job, run_id, binding, credentials.open_signer(binding, _OPTION, nodes.open_cluster), ref)


def open_for_reading(
    home: StateHome, job: Job, run_id: str, open_cluster: credentials.OpenCluster | None = None
) -> BoundCheckpoints:
    """Return the bucket of a job's checkpoints, to read what is in it.

    :param open_cluster: where Secrets are that have its keys.
    :raises InputError: when the binding does not exist any more, or its credentials are not there.
    """
    binding, ref = _load_bucket(home, str(job.checkpoints.binding))
    return BoundCheckpoints(job, run_id, binding, credentials.open_signer(binding, _OPTION, open_cluster), ref)


def stored_address(home: StateHome, job: Job, run_id: str) -> str:
    """Return the address below which a run's checkpoints are stored, by its nodes or by Ray Train itself."""
    _binding, ref = _load_bucket(home, str(job.checkpoints.binding))
    return _ray_address(ref, run_id)


def open_stream(home: StateHome, job: Job, nodes: JobNodes, run_id: str) -> tuple[StoreStream, ...]:
    """Return the bucket in which Ray Train stores a job's checkpoints by itself; else nothing.

    :raises InputError: also for a store with a CA of its own, which Ray Train's S3 client does not learn of.
    """
    found = _find_bucket(home, job, nodes)
    if found is None:
        return ()
    binding, ref = found
    if binding.ca:
        raise InputError(
            _OPTION,
            f"{binding.name} has a CA of its own, which the S3 client of Ray Train (pyarrow) does not know",
            "Bind the store by an address whose certificate the image trusts, or keep checkpoints on a mount",
        )
    keys = credentials.read_s3_keys(binding.secret_ref, _OPTION, nodes.open_cluster)
    return (StoreStream("job.checkpoints", binding, keys, RAY_STORAGE, _ray_address(ref, run_id)),)


def _ray_address(ref: str, run_id: str) -> str:
    place = ObjectPlace.from_ref(ref, run_id)
    return f"s3://{place.bucket}/{place.prefix.removesuffix('/')}"


def _find_bucket(home: StateHome, job: Job, nodes: JobNodes) -> tuple[Binding, str] | None:
    """Return the binding and ``BUCKET/PREFIX`` that a job's checkpoints go to."""
    name = job.checkpoints.binding
    if name is None:
        return None
    binding, ref = _load_bucket(home, name)
    if "write" not in binding.access_modes:
        raise InputError(_OPTION, f"the binding '{name}' is read-only (access_modes)", "Bind one that may be written")
    nodes.require_reachable(binding, _OPTION)
    return binding, ref


def _load_bucket(home: StateHome, name: str) -> tuple[Binding, str]:
    binding = bindings.load_binding(home, name, _OPTION)
    return binding, require_resource(binding, "object_store", "checkpoints", _OPTION).ref


def restore(
    bound: BoundCheckpoints,
    remotes: t.Mapping[int, NodeClient],
    folders: t.Mapping[int, str],
    progress: Progress,
) -> None:
    """Bring the nodes (by rank) to the newest checkpoint that they have in common; damaged ones are passed over.

    :raises RefusedError: when one is required and there is none.
    """
    if bound.job.checkpoints.resume == "never":
        return
    ranks = {remote.name: rank for rank, remote in remotes.items() if bound.stores(rank)}
    clients = [remote for remote in remotes.values() if remote.name in ranks]

    def ask(remote: NodeClient) -> NodeCheckpoints:
        rank = ranks[remote.name]
        answer = remote.call("s3", **bound.candidates_request(rank, folders[rank]))
        return NodeCheckpoints(tuple(answer["local"]), tuple(answer["stored"]))

    nodes = _require_all(on_each_node(clients, ask))
    in_order = {name: nodes[name] for name in sorted(nodes, key=lambda name: ranks[name])}
    excluded: set[tuple[str, int]] = set()
    while True:
        choices = choose_checkpoints(in_order, excluded)
        damaged = _fetch(bound, clients, ranks, folders, choices, progress)
        if not damaged:
            break
        excluded |= damaged
    if bound.job.checkpoints.resume == "required" and not any(choice.name for choice in choices.values()):
        raise RefusedError(
            f"job.checkpoints.resume is required, and neither the nodes nor {bound.binding.name} have a checkpoint of "
            f"run {bound.run_id}",
            "Set resume: auto to begin anew",
        )


def _fetch(
    bound: BoundCheckpoints,
    clients: t.Sequence[NodeClient],
    ranks: t.Mapping[str, int],
    folders: t.Mapping[int, str],
    choices: t.Mapping[str, CheckpointChoice],
    progress: Progress,
) -> set[tuple[str, int]]:
    """Fetch what was chosen, on all nodes at once; return the stored copies that are damaged."""
    acting = [client for client in clients if choices[client.name].fetch or choices[client.name].aside]

    def send(remote: NodeClient) -> dict[str, t.Any]:
        rank = ranks[remote.name]
        return remote.call("s3", **bound.restore_request(rank, folders[rank], choices[remote.name]))

    damaged: set[tuple[str, int]] = set()
    for name, answer in sorted(_require_all(on_each_node(acting, send)).items()):
        row = choices[name].fetch
        for hidden in choices[name].aside:
            progress.say(f"{name}: checkpoint {hidden} is not used: it is damaged, or newer than what all nodes have")
        if answer.get("damaged") and row:
            progress.say(f"{name}: {answer['damaged']}; taking the one before")
            damaged.add((row["name"], row["saved_at"]))
        elif row:
            size = answer["bytes"] / 2**20
            progress.say(f"{name}: fetched checkpoint {row['name']} from {bound.binding.name} ({size:.1f} MiB)")
    return damaged


def renew(bound: BoundCheckpoints, remotes: t.Sequence[NodeClient]) -> None:
    """Give the nodes of a running run addresses that are good for another week."""
    ranks = {remote.name: rank for rank, remote in enumerate(remotes) if bound.stores(rank)}
    on_each_node(
        [remote for remote in remotes if remote.name in ranks],
        lambda remote: remote.call(
            "s3",
            step="renew",
            run_id=bound.run_id,
            file=ADDRESSES_FILE,
            content=bound.addresses(ranks[remote.name]),
        ),
    )


def _require_all[T](outcome: tuple[dict[str, T], dict[str, MusterError]]) -> dict[str, T]:
    if outcome[1]:
        raise most_telling_error(outcome[1])
    return outcome[0]


def _part(number: int) -> str:
    return f"part-{number:04d}"
