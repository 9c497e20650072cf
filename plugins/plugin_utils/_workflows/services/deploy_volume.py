# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A volume of JuiceFS over a bound object store: made once, by its own program on one host, and recorded.

The roles install the program, and mount the volume on nodes.
"""

from __future__ import annotations

import dataclasses
import time
import typing as t

from ....module_utils._model import juicefs_volume
from ....module_utils._model.errors import InputError, RefusedError
from ....module_utils._model.juicefs_volume import Volume, VolumeStatus
from ....module_utils._model.service import Service
from ....module_utils._model.service_deploy import Deploy
from ....module_utils._secrets.secret import Secret
from ..._hosts import downloads
from ..._hosts.node_client import NodeClient
from ..._services.component import ACCESS, SECRET, ArtifactStore
from ..shared import credentials, deployed
from ..shared.request import RunRequest
from ..shared.state_dir import StateHome
from . import deploy

Result = dict[str, t.Any]
# A volume with many objects is deleted one by one.
_LIMIT_S: t.Final = {"format": 120.0, "destroy": 3600.0}


@dataclasses.dataclass(frozen=True, slots=True)
class VolumeOrder:
    """One volume that is made or deleted; ``option`` is what errors call the place."""

    volume: Volume
    option: str
    password: Secret | None
    keys: t.Mapping[str, str] = dataclasses.field(repr=False)

    def ask(self, remote: NodeClient, step: str, **values: t.Any) -> dict[str, t.Any]:
        """Have the program do one step on its host."""
        volume, within_s = self.volume, _LIMIT_S.get(step, 30.0)
        return remote.call(
            "volume",
            step=step,
            program=program_of(volume.name, volume.version),
            address=volume.address,
            password=self.password.reveal() if self.password else "",
            ca=volume.ca or "",
            region=volume.region,
            within_s=within_s,
            deadline_s=within_s + 30.0,
            **values,
        )

    def read_status(self, remote: NodeClient) -> VolumeStatus:
        """Return what there is at the address of the metadata."""
        return VolumeStatus.read(self.ask(remote, "status"))

    def format(self, remote: NodeClient) -> bool:
        """Make the volume unless it is there; return whether it was made.

        :raises RefusedError: where another one is there, or its store or database is not to be used.
        """
        if not juicefs_volume.decide(self.volume, self.read_status(remote), self.option):
            return False
        made = self.ask(remote, "format", bucket=self.volume.bucket, name=self.volume.name, keys=dict(self.keys))
        self._require(made, "is not made")
        return True

    def destroy(self, remote: NodeClient) -> bool:
        """Delete the volume with its files, unless it is mounted, or another one is there; return whether it was."""
        status = self.read_status(remote)
        if juicefs_volume.decide(self.volume, status, self.option):
            return False
        juicefs_volume.refuse_used(self.volume, status, self.option, time.time())
        done = self.ask(remote, "destroy", uuid=str((status.setting or {}).get("UUID")))
        self._require(done, "is not deleted")
        return True

    def _require(self, answer: t.Mapping[str, t.Any], what: str) -> None:
        if answer["code"] != 0:
            problem, fix = juicefs_volume.explain(juicefs_volume.find_error(str(answer["stderr"])))
            raise RefusedError(
                f"{self.option}: {self.volume.host}: the volume {self.volume.name} {what}: {problem}", fix
            )


def program_of(name: str, version: str) -> str:
    """Return where the program of a volume is on a machine."""
    return f"/usr/local/lib/muster/{name}/{version}/juicefs"


def run(request: RunRequest, service: Service, place: Deploy, home: StateHome) -> Result:
    """Make or delete the volume, and record where it is.

    In check mode nothing is asked: the role asks so before the program is on the host.
    """
    option = f"muster_services.{service.name}.deploy"
    # Refuses a host that the inventory does not have.
    deploy.find_address(request, place)
    before = deployed.read_deployed(home, service.name) or deployed.read_removed(home, service.name)
    order = _plan(request, service, place, home, before)
    if before is not None:
        _refuse_other(order.volume, before, option)
    is_there = deployed.read_deployed(home, service.name) is not None
    is_present = service.state == "present"
    about = _describe(service, order.volume) if is_present else None
    changed = (about != before or not is_there) if is_present else is_there
    deletes = not is_present and place.delete_data and before is not None
    if not request.check:
        if is_present or deletes:
            (remote,) = request.connect([order.volume.host])
            changed = order.format(remote) or changed if is_present else order.destroy(remote)
        if about is not None:
            deployed.write_deployed(home, service.name, about)
        else:
            deployed.remove_deployed(home, service.name, forget=place.delete_data)
    return {
        "changed": changed or deletes,
        "endpoint": order.volume.address if is_present else None,
        "place": order.volume.host,
        "kept": None if is_present or place.delete_data else (before or {}).get("bucket"),
        "server": _show(order.volume, needs_program=is_present or deletes),
    }


def _plan(
    request: RunRequest, service: Service, place: Deploy, home: StateHome, before: t.Mapping[str, t.Any] | None
) -> VolumeOrder:
    """Return what is to be made. In check mode its store may be among what would be bound first."""
    option = f"muster_services.{service.name}.deploy"
    known = before or {}
    address, password = str(known.get("endpoint") or ""), None
    if place.database is not None and (service.state == "present" or place.delete_data):
        address, password = credentials.read_metadata(place.database, f"{option}.database")
    store = deploy.find_bucket(request, home, service, place.store, juicefs_volume.PURPOSE, f"{option}.store")
    volume = Volume(
        name=service.name,
        host=str(place.host),
        address=address,
        bucket=_find_bucket(store, f"{option}.store") if store else str(known.get("bucket") or ""),
        region=store.region if store else str(known.get("region") or ""),
        ca=store.ca if store else known.get("ca"),
        version=place.version or downloads.default_version(juicefs_volume.PROVIDER),
        state=service.state,
        delete_data=place.delete_data,
    )
    keys = {"ACCESS_KEY": store.keys[ACCESS], "SECRET_KEY": store.keys[SECRET]} if store else {}
    return VolumeOrder(volume, option, password, keys)


def _find_bucket(store: ArtifactStore, option: str) -> str:
    if "/" in store.ref:
        fix = "Name a bucket alone for files: the volume has a folder of its name in it"
        raise InputError(option, f"'{store.ref}' is a part of a bucket", fix)
    return juicefs_volume.bucket_address(store.endpoint, store.ref, store.addressing)


def _refuse_other(volume: Volume, before: t.Mapping[str, t.Any], option: str) -> None:
    """Refuse another program, database or store than the volume has: its files would not come along.

    :raises RefusedError: naming both.
    """
    fix = "Remove it there first (state: absent), or give the new one another name"
    if before["provider"] != juicefs_volume.PROVIDER:
        raise RefusedError(
            f"{option}: {volume.name} is deployed as {before['provider']}, whose files would not come along", fix
        )
    for key, was, now in (("database", before["endpoint"], volume.address), ("store", before["bucket"], volume.bucket)):
        if now and was != now:
            problem = f"{option}.{key}: {volume.name} is at {was}, and its files would not come along to {now}"
            raise RefusedError(problem, fix)


def _describe(service: Service, volume: Volume) -> dict[str, t.Any]:
    pointer = service.deploy.database if service.deploy else None
    named = pointer.keys.get("url") if pointer else None
    return {
        "schema": 1,
        "kind": service.kind,
        "provider": juicefs_volume.PROVIDER,
        "backend": "hosts",
        "place": {"host": volume.host, "namespace": None},
        "endpoint": volume.address,
        "bucket": volume.bucket,
        "region": volume.region,
        "ca": volume.ca,
        "version": volume.version,
        "variable": named or juicefs_volume.VARIABLE,
    }


def _show(volume: Volume, needs_program: bool) -> dict[str, t.Any]:
    return {
        "name": volume.name,
        "host": volume.host,
        "provider": juicefs_volume.PROVIDER,
        "version": volume.version,
        "program": program_of(volume.name, volume.version),
        "needs_program": needs_program,
        "state": volume.state,
        "delete_data": volume.delete_data,
    }
