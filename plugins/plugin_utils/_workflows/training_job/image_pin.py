# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``job.image`` of a registry that is bound: its digest, resolved once a start, its architectures, and who pulls it."""

from __future__ import annotations

import dataclasses
import io
import json
import typing as t

from ....module_utils._model.binding import Binding, Reachability, describe_matrix
from ....module_utils._model.cluster_id import is_other_cluster
from ....module_utils._model.errors import ApiError, InputError, RefusedError, TransportError
from ....module_utils._model.image_name import full_name
from ....module_utils._model.job import Job
from ....module_utils._model.service_registry import hosts_of, is_repository
from ..._kube.api.kinds import KubeObject
from ..._kube.jobs.spec import KubePlan, pull_secret_name
from ..shared import bindings, credentials
from ..shared.progress import Progress
from ..shared.state_dir import StateHome
from .job_secrets.values import JobSecrets, build_registry_config

if t.TYPE_CHECKING:
    from ..._services.registry.client import ImageName, RegistryAccess

_OPTION: t.Final = "job.image"
_ARCHITECTURE: t.Final = "kubernetes.io/arch"
# The registry keeps these answers for other askers: what a controller may not do, nodes may.
_PASSING: t.Final = (429, 500, 502, 503, 504)


@dataclasses.dataclass(frozen=True, slots=True)
class JobImage:
    """The image of a job, and the binding of its registry.

    ``digest``: of the image that its tag stood for at the start, of the index where it is made for several
    architectures; empty before, and where the controller cannot ask. ``architectures`` are those that it is made for,
    empty where that is not known.
    """

    image: str
    binding: Binding
    access: RegistryAccess
    digest: str = ""
    architectures: tuple[str, ...] = ()

    @property
    def name(self) -> ImageName:
        """The full name of the image."""
        from ..._services.registry.client import ImageName

        return ImageName.from_text(full_name(self.image))

    @property
    def pinned_name(self) -> str | None:
        """The name with the digest, None where there is none."""
        return self.name.at(self.digest) if self.digest else None

    def build_login(self) -> bytes | None:
        """Return the configuration file with which the kubelet pulls the image, None for one that all may pull."""
        password = self.access.password
        if password is None:
            return None
        return build_registry_config(f"{self.access.user}:{password.reveal()}".encode(), self.image, _OPTION)

    def add_login(self, secrets: JobSecrets) -> JobSecrets:
        """Return the secrets of the job with what the kubelet pulls the image with."""
        config = self.build_login()
        if config is None:
            return secrets
        return dataclasses.replace(secrets, registries={**secrets.registries, self.binding.name: config})

    def complete(self, plan: KubePlan) -> KubePlan:
        """Return the plan with the digest, the Secret for the registry, and the nodes that can run the image."""
        if self.access.password is not None and plan.pull_secret is None:
            own = pull_secret_name(plan.name)
            plan = dataclasses.replace(plan, pull_secret=own, pull_secrets=(*plan.pull_secrets, own))
        if self.architectures:
            wanted = {"key": _ARCHITECTURE, "operator": "In", "values": list(self.architectures)}
            fleet = dataclasses.replace(plan.fleet, expressions=(*plan.fleet.expressions, wanted))
            plan = dataclasses.replace(plan, fleet=fleet)
        return dataclasses.replace(plan, pinned=self.pinned_name)

    def require_reachable(self, nodes: t.Sequence[str] | None, cluster_id: str) -> None:
        """Refuse an image that a node of the job was seen not to reach; a node that was not asked may.

        :raises RefusedError: with what those nodes saw.
        """
        failed = [
            row
            for row in self.binding.reachable_from
            if not row.ok and row.node in (nodes or ()) and not is_other_cluster(row.cluster_id, cluster_id)
        ]
        if failed:
            text = f"{_OPTION}: its registry '{self.binding.name}' is not reachable from all nodes"
            raise RefusedError(f"{text}: {describe_matrix(failed)}", _first_fix(failed))

    def pin(self, progress: Progress) -> JobImage:
        """Return the image with its digest and architectures, as the registry has them now.

        :raises RefusedError: when the registry has no such image, or refuses the credentials.
        """
        from ..._services.registry.client import Registry, digest_of

        registry = Registry(self.name, self.access)
        try:
            content, kind = registry.manifest(self.name.reference)
            found = _read_architectures(registry, content, kind)
        except ApiError as exc:
            if exc.status not in _PASSING:
                raise RefusedError(f"{_OPTION}: {exc.message}", exc.fix) from None
            return self._leave_tag(progress, exc)
        except TransportError as exc:
            return self._leave_tag(progress, exc)
        pinned = dataclasses.replace(self, digest=digest_of(content), architectures=found)
        progress.say(f"image {self.image}: {pinned.digest}, for {', '.join(found) or 'an unknown architecture'}")
        return pinned

    def _leave_tag(self, progress: Progress, exc: TransportError) -> JobImage:
        """Say that each pod takes what the tag stands for when it pulls: nodes may reach what a controller cannot."""
        said = f"warning: image {self.image} has no digest, and its tag may lead ranks to different ones"
        progress.say(f"{said}: {exc.message}. {exc.fix}")
        return self

    def split(self, nodes: t.Sequence[KubeObject]) -> tuple[list[KubeObject], list[str]]:
        """Return the nodes that the image is made for, and the others with their architectures."""
        if not self.architectures:
            return list(nodes), []
        fitting, others = [], []
        for node in nodes:
            found = architecture_of(node)
            if found is None or found in self.architectures:
                fitting.append(node)
            else:
                others.append(f"{node['metadata']['name']} ({found})")
        return fitting, others

    def require_fitting(self, fitting: t.Sequence[KubeObject], others: t.Sequence[str]) -> None:
        """Refuse an image that no node can run.

        :raises RefusedError: naming the architectures of both.
        """
        if others and not fitting:
            problem = f"{self.image} is made for {', '.join(self.architectures)}, and nodes are {', '.join(others)}"
            raise RefusedError(f"{_OPTION}: {problem}", "Build it for their architecture, or push an index of both")


def find_image(home: StateHome, job: Job, open_cluster: credentials.OpenCluster | None = None) -> JobImage | None:
    """Return the image of a job with its registry, None where that is not bound. The registry is not asked.

    :raises InputError: when no registry can have an image of this name, or the credentials are not there.
    """
    if job.image is None:
        return None
    host, _slash, rest = full_name(job.image).partition("/")
    found = [item for item in bindings.list_bindings(home) if item.component == "registry" and host in hosts_of(item)]
    if not found:
        return None
    # Where several lead there, the one that says so: a mirror is bound to be used.
    binding = next((item for item in found if host in item.hosts), found[0])
    image = JobImage(
        job.image, binding, credentials.open_registry(binding, f"muster_services.{binding.name}", open_cluster)
    )
    if not is_repository(image.name.repository):
        fix = "Names of repositories are lower-case"
        raise InputError(_OPTION, f"'{rest}' is not the name of an image", fix)
    return image


def architecture_of(node: KubeObject) -> str | None:
    """Return the architecture of a Node, None where it does not say."""
    labels = node["metadata"].get("labels") or {}
    info: t.Any = (node.get("status") or {}).get("nodeInfo") or {}
    return labels.get(_ARCHITECTURE) or info.get("architecture") or None


def _read_architectures(registry: t.Any, content: bytes, kind: str) -> tuple[str, ...]:
    from ..._services.registry.client import INDEXES

    parsed = json.loads(content)
    if kind in INDEXES:
        platforms = [item.get("platform") or {} for item in parsed.get("manifests") or ()]
        # Signatures and attestations are listed beside the images, for no architecture.
        return tuple(sorted({str(item["architecture"]) for item in platforms if item.get("os") == "linux"}))
    config = io.BytesIO()
    registry.blob(str(parsed["config"]["digest"]), config)
    found = json.loads(config.getvalue())
    architecture = found.get("architecture") if isinstance(found, dict) else None
    return (str(architecture),) if architecture else ()


def _first_fix(rows: t.Sequence[Reachability]) -> str:
    return next((row.fix for row in rows if row.fix), "Check it with the services playbook")
