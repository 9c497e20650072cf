# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A file system that is exported from a host: what the role shared_filesystem makes there, and the record of it.

The role's tasks do the work on the host.
"""

from __future__ import annotations

import dataclasses
import typing as t
import urllib.parse

from ....module_utils._model.binding import SecretPointer
from ....module_utils._model.errors import RefusedError
from ....module_utils._model.filesystem_server import FilesystemServer, plan_server
from ....module_utils._model.juicefs_volume import PROVIDER
from ....module_utils._model.service import Service
from ....module_utils._model.service_deploy import Deploy
from ....module_utils._model.shared_filesystem import Filesystem
from ..shared import deployed
from ..shared.request import RunRequest
from ..shared.state_dir import StateHome

Result = dict[str, t.Any]


def run(request: RunRequest, service: Service, place: Deploy, home: StateHome, address: str) -> Result:
    """Return what the host gets, and record where the file system is; of one that is absent the record goes.

    In check mode nothing is written: the role asks so before it works on the host, and records it in the end.
    """
    server = plan_server(service, place, home.folder.name, address)
    before = deployed.read_deployed(home, service.name)
    if before is not None:
        _refuse_other_folder(server, before)
    about = None if service.state == "absent" else _describe(service, server)
    if not request.check:
        if about is not None:
            deployed.write_deployed(home, service.name, about)
        else:
            deployed.remove_deployed(home, service.name, forget=place.delete_data)
    return {
        "changed": before != about,
        "endpoint": server.endpoint if about is not None else None,
        "place": server.host,
        "kept": None if about is not None or place.delete_data else server.export,
        "server": dataclasses.asdict(server),
    }


def _refuse_other_folder(server: FilesystemServer, before: t.Mapping[str, t.Any]) -> None:
    """Refuse another folder than the one that was exported: its files would not come along.

    :raises RefusedError: naming both.
    """
    export = urllib.parse.urlsplit(str(before["endpoint"])).path
    if server.state == "present" and export != server.export:
        raise RefusedError(
            f"muster_services.{server.name}.deploy.host_path: {server.name} is in {export} of {server.host}, and its "
            f"files would not come along to {server.export}",
            "Remove it there first (state: absent), or give the new one another name",
        )


def _describe(service: Service, server: FilesystemServer) -> dict[str, t.Any]:
    return {
        "schema": 1,
        "kind": service.kind,
        "provider": "nfs",
        "backend": "hosts",
        "place": {"host": server.host, "namespace": None},
        "endpoint": server.endpoint,
    }


def fill_volume(service: Service, mounted: Filesystem, known: t.Mapping[str, t.Any]) -> Service:
    """Return a volume that was made as its binding has it: nodes mount it by the address of its metadata."""
    return dataclasses.replace(
        service,
        provider=PROVIDER,
        endpoint=str(known["endpoint"]),
        region=known["region"],
        ca=known["ca"],
        secret_ref=SecretPointer("env", None, {"url": known["variable"]}),
        filesystem=dataclasses.replace(mounted, version=known["version"]),
    )
