# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The check of a StorageClass whose volumes many pods mount: pods use a claim. One made for the check is removed.

Where the claim that jobs mount is there already, it is that one which is checked, and nothing is made.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import typing as t

from ....module_utils._model.binding import Binding
from ....module_utils._model.errors import MusterError, NodeError, RefusedError
from ....module_utils._model.shared_filesystem import CLAIM_PATH, Filesystem
from ..._kube.api.client import Client
from ..._kube.api.errors import KubeError
from ..._kube.api.kinds import KubeObject
from ..shared.pod_visits import Answers, PodVisits

_CLASS: t.Final = "storage.k8s.io/v1/StorageClass"
_CLAIM: t.Final = "v1/PersistentVolumeClaim"
_VOLUME: t.Final = "v1/PersistentVolume"
_SHARED: t.Final = "ReadWriteMany"
# Of the claim that a check makes; some drivers have no smaller volumes.
_SIZE: t.Final = "1Gi"
# A driver makes a volume of a server within seconds; one of a cloud takes minutes.
_LIMIT_S: t.Final = 180.0
_DRIVER: t.Final = "Name a StorageClass whose driver has ReadWriteMany (NFS, CephFS, JuiceFS), or correct its driver"
ONE_POD: t.Final = "one pod has used it: whether pods on other nodes see what it writes was not checked"
Requests = t.Mapping[str, t.Mapping[str, object]]
Errors = dict[str, MusterError]
Ask = t.Callable[[Requests], tuple[Answers, Errors]]


@dataclasses.dataclass(frozen=True, slots=True)
class ClassCheck:
    """A StorageClass that is checked, from pods of one namespace."""

    binding: Binding
    visits: PodVisits

    @property
    def client(self) -> Client:
        """The cluster."""
        return self.visits.client

    @property
    def filesystem(self) -> Filesystem:
        """What is asked for."""
        return self.binding.filesystem or Filesystem()

    @property
    def option(self) -> str:
        """What errors call the place."""
        return f"muster_services.{self.binding.name}.filesystem"

    def require_class(self) -> None:
        """Refuse a class that the cluster does not have; one that may not be read is not judged.

        :raises RefusedError: naming those that it has.
        """
        try:
            names = sorted(item["metadata"]["name"] for item in self.client.list(_CLASS).items)
        except KubeError as error:
            if not error.is_forbidden:
                raise
            return
        wanted = self.filesystem.storage_class
        if wanted not in names:
            has = f"it has {', '.join(names)}" if names else "it has none"
            raise RefusedError(
                f"{self.option}.storage_class: the cluster has no StorageClass {wanted} ({has})", _DRIVER
            )

    def find_pvc(self) -> KubeObject | None:
        """Return the claim that jobs mount, None where the namespace has none yet.

        :raises RefusedError: for one of another class, or that one node alone can mount.
        """
        name = str(self.filesystem.claim)
        found: t.Any = self.client.get(_CLAIM, name, self.visits.namespace)
        if found is None:
            return None
        about, actual = found["spec"], found["spec"].get("storageClassName")
        fix = "Name another one in filesystem.claim, or have it made again by the role team (team_claims)"
        if actual != self.filesystem.storage_class:
            raise RefusedError(f"{self.option}.claim: {name} is of the StorageClass {actual}", fix)
        if _SHARED not in (about.get("accessModes") or ()):
            modes = ", ".join(about.get("accessModes") or ("none",))
            raise RefusedError(f"{self.option}.claim: {name} has the access mode {modes}, not {_SHARED}", fix)
        return t.cast("KubeObject", found)

    @contextlib.contextmanager
    def open(self, token: str) -> t.Iterator[Ask]:
        """Yield how pods that mount the claim are asked; one that was made for the check is removed in the end.

        :raises RefusedError: when one is needed and may not be made.
        """
        live = self.find_pvc()
        if live is not None:
            yield functools.partial(self._ask, live)
            return
        made = self._make(f"muster-check-{token}")
        try:
            yield functools.partial(self._ask, made)
        finally:
            self._remove(str(made["metadata"]["name"]))

    def _make(self, name: str) -> KubeObject:
        size = self.filesystem.size or _SIZE
        claim: t.Any = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": self.visits.namespace},
            "spec": {
                "accessModes": [_SHARED],
                "storageClassName": self.filesystem.storage_class,
                "resources": {"requests": {"storage": size}},
            },
        }
        try:
            return self.client.create(claim)
        except KubeError as error:
            if not error.is_forbidden:
                raise
            raise RefusedError(
                f"{self.option}.claim: there is no claim {self.filesystem.claim} in the namespace "
                f"{self.visits.namespace}, and this user may not make one to check {self.filesystem.storage_class}",
                "Have an administrator make it: team_claims of the role team",
            ) from None

    def _ask(self, claim: KubeObject, requests: Requests) -> tuple[Answers, Errors]:
        answers, errors = self.visits.ask(requests, (CLAIM_PATH,), claim, _LIMIT_S)
        return answers, {node: self._explain(claim, node, error) for node, error in errors.items()}

    def _explain(self, claim: KubeObject, node: str, error: MusterError) -> NodeError:
        """Return why a pod did not start: of a claim without a volume, that is the reason."""
        name = str(claim["metadata"]["name"])
        live: t.Any = self.client.get(_CLAIM, name, self.visits.namespace) or {}
        if (live.get("status") or {}).get("phase") == "Bound":
            return NodeError(node, error.message.removeprefix(f"{node}: "), error.fix)
        about = f"the StorageClass {self.filesystem.storage_class} gave no volume for {_SHARED} within {_LIMIT_S:.0f} s"
        refused = "ProvisioningFailed" in error.message
        return NodeError(node, error.message.removeprefix(f"{node}: ") if refused else about, _DRIVER)

    def _remove(self, name: str) -> None:
        """Delete the claim that the check made, and its volume also where its class keeps volumes."""
        live: t.Any = self.client.get(_CLAIM, name, self.visits.namespace) or {}
        volume = (live.get("spec") or {}).get("volumeName")
        if volume:
            with contextlib.suppress(KubeError):
                self.client.patch(_VOLUME, str(volume), {"spec": {"persistentVolumeReclaimPolicy": "Delete"}})
        self.client.delete(_CLAIM, name, self.visits.namespace)
