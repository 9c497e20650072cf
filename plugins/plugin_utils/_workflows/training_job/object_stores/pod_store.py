# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Object stores of a job in pods: what its pods get so that they stage, store, fetch and stream by themselves."""

from __future__ import annotations

import dataclasses
import gzip
import json
import typing as t

from .....module_utils._model.errors import InputError
from .....module_utils._model.job import Job
from .....module_utils._model.pod_spec import SECRETS_DIR
from ...._kube.api.client import Client
from ...._kube.jobs.mpijob import LAUNCHER
from ...._kube.jobs.spec import KubePlan, object_name, secret_name
from ...._kube.jobs.visit_job import ANY_NODE
from ...shared.pod_visits import PodVisits
from ...shared.progress import Progress
from ...shared.state_dir import StateHome
from ..filesystems import bound_mounts
from ..trackers import tracking
from ..trackers.tracking import BoundTracking
from . import checkpoint_binding, dataset_binding
from .checkpoint_binding import BoundCheckpoints
from .dataset_binding import BoundDataset
from .job_nodes import JobNodes
from .store_stream import StoreStream, find_own_ca, require_one_store, stream_variables

# The key of the run's Secret, and the file in the pods.
FILE: t.Final = "muster-store"
_CA_FILE: t.Final = "muster-store-ca"
_TRACKING_CA_FILE: t.Final = "muster-tracking-ca"
# A Secret holds at most 1 MiB, with the job's own secrets.
_LARGEST: t.Final = 900 << 10
_CREDENTIALS: t.Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


@dataclasses.dataclass(frozen=True)
class PodStore:
    """The buckets of a job, and its tracker. Of ``env``, what is a credential goes through the Secret.

    ``nodes``: those of which one lists the datasets.
    """

    checkpoints: BoundCheckpoints | None
    datasets: tuple[BoundDataset, ...]
    streams: tuple[StoreStream, ...]
    nodes: tuple[str, ...]
    tracking: BoundTracking | None = None

    @property
    def env(self) -> dict[str, str]:
        """The variables with which the program streams, and is tracked."""
        told = {**self.tracking.plain, **self.tracking.hidden} if self.tracking else {}
        return {**told, **stream_variables(self.streams)}

    @property
    def _secret_names(self) -> list[str]:
        names = [*_CREDENTIALS, *(self.tracking.hidden if self.tracking else ())]
        return [name for name in names if name in self.env]

    @property
    def _authorities(self) -> list[tuple[str, str, str]]:
        """The own CAs of services: the key in the Secret, the variable that names the file, and the certificates."""
        store, tracked = find_own_ca(self.streams), self.tracking
        found = [(_CA_FILE, "AWS_CA_BUNDLE", store)] if store else []
        if tracked and tracked.ca_variable:
            found.append((_TRACKING_CA_FILE, tracked.ca_variable, str(tracked.binding.ca)))
        return found

    @property
    def needs_file(self) -> bool:
        """Whether pods get signed addresses."""
        return self.checkpoints is not None or any(item.dataset.mode == "stage" for item in self.datasets)

    def complete(self, plan: KubePlan) -> KubePlan:
        """Return the plan with what its pods find in the run's Secret."""
        hidden = self._secret_names
        entries = [{"name": name, "file": f"{SECRETS_DIR}/{name}", "deliver": "env"} for name in hidden]
        plain = {name: value for name, value in self.env.items() if name not in hidden}
        keys = [*hidden, *([FILE] if self.needs_file else [])]
        for key, variable, _ca in self._authorities:
            keys.append(key)
            plain[variable] = f"{SECRETS_DIR}/{key}"
        changed = {
            role: dataclasses.replace(
                spec,
                env={**spec.env, **plain},
                secrets=(*spec.secrets, *entries),
                # Where mpirun is started there is no rank, and no data.
                store=f"{SECRETS_DIR}/{FILE}" if self.needs_file and role != LAUNCHER else None,
            )
            for role, spec in plan.pods.items()
        }
        secret = secret_name(object_name(plan.run_id)) if keys else plan.secret
        return dataclasses.replace(plan, pods=changed, secret=secret, store_keys=tuple(keys), stream=plain)

    def values(self, visits: PodVisits, progress: Progress) -> dict[str, bytes]:
        """Return what the run's Secret has of it, signed for a week from now.

        :raises InputError: when that does not fit into a Secret.
        """
        found = {name: self.env[name].encode() for name in self._secret_names}
        found |= {key: ca.encode() for key, _variable, ca in self._authorities}
        if not self.needs_file:
            return found
        datasets = [self._list(item, visits, progress) for item in self.datasets if item.dataset.mode == "stage"]
        checkpoints = self.checkpoints.pod_addresses() if self.checkpoints else None
        packed = _pack(checkpoints, datasets)
        if len(packed) > _LARGEST:
            # Without them the MD5 of each object is taken, which lasts longer.
            packed = _pack(checkpoints, [{**item, "checks": {}} for item in datasets])
        if len(packed) > _LARGEST:
            raise InputError(
                "job.datasets" if datasets else "job.checkpoints.binding",
                f"needs {len(packed) >> 10} KiB of signed addresses, and the Secret of a run holds {_LARGEST >> 10}",
                "Pack the objects into fewer files, use mode: stream, or put checkpoints on one mount of all pods",
            )
        return {**found, FILE: packed}

    def _list(self, bound: BoundDataset, visits: PodVisits, progress: Progress) -> dict[str, t.Any]:
        files = dataset_binding.list_files(bound, AskedPod(visits, self.nodes[0]))
        size = sum(item.size for item in files.objects)
        progress.say(f"dataset {bound.dataset.name}: {len(files.objects)} objects, {size / 2**20:.1f} MiB")
        return {
            "name": bound.dataset.name,
            "dataset": files.identity(f"{bound.binding.endpoint} {bound.place.bucket}"),
            "ca": bound.binding.ca,
            "cache": bound.dataset.cache,
            "objects": [[item.path, item.size, item.etag] for item in files.objects],
            "urls": [bound.sign(item.key, bound.signer.longest_s) for item in files.objects],
            "checks": bound.sign_checks(dict(enumerate(files.objects)), bound.signer.longest_s),
        }


def _pack(checkpoints: t.Any, datasets: t.Sequence[t.Any]) -> bytes:
    text = json.dumps({"checkpoints": checkpoints, "datasets": datasets})
    return gzip.compress(text.encode(), 9, mtime=0)


@dataclasses.dataclass(frozen=True, slots=True)
class AskedPod:
    """A node that is asked by a short pod each time."""

    visits: PodVisits
    name: str

    def call(self, op: str, **values: t.Any) -> dict[str, t.Any]:
        """Send a request and return the answer; raises NodeError."""
        answers, errors = self.visits.ask({self.name: {"op": op, **values}})
        if errors:
            raise errors[self.name]
        return answers[self.name]


def open_store(
    home: StateHome,
    job: Job,
    nodes: t.Sequence[str] | None,
    run_id: str,
    client: Client | None = None,
) -> PodStore | None:
    """Return the buckets and the tracker of a job, None for a job without any.

    :param nodes: those that the job may run on, None where they may not be read.
    :param client: the cluster of the job, which may have the keys of a bucket in a Secret.
    :raises InputError: when a binding does not exist or does not fit.
    :raises RefusedError: when a node on which the job may run cannot reach it from its pods, with the matrix.
    """
    named = [*(item.binding for item in job.datasets), *(item.binding for item in job.mounts), job.checkpoints.binding]
    if not (job.tracking or any(named)):
        return None
    asked = (ANY_NODE,) if nodes is None else tuple(nodes)
    among = JobNodes(nodes, "pod")
    if client is not None:
        among = JobNodes(nodes, "pod", client.cluster_id(), lambda: client)
    bound_mounts.require_reachable(home, job, among)
    datasets = dataset_binding.open_bound(home, job, among)
    streams = dataset_binding.streams(datasets)
    if job.engine == "rayjob":
        # Ray Train stores checkpoints, and finds them, by itself.
        streams = (*streams, *checkpoint_binding.open_stream(home, job, among, run_id))
        require_one_store(streams)
        return PodStore(None, datasets, streams, asked, tracking.open_bound(home, job, among, run_id))
    checkpoints = checkpoint_binding.open_bound(home, job, among, run_id)
    return PodStore(checkpoints, datasets, streams, asked, tracking.open_bound(home, job, among, run_id))


def visits_for(client: Client, job: Job, namespace: str, pulls: tuple[str, ...], image: str | None = None) -> PodVisits:
    """Return short pods of the job's own image, or of ``image``; ``pulls`` are the Secrets that it is pulled with."""
    return PodVisits(client, namespace, str(image or job.image), job.python, pulls)
