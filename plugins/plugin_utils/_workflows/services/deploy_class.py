# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A StorageClass for the folders of an export: what the role shared_filesystem makes in the cluster, and its record."""

from __future__ import annotations

import dataclasses
import typing as t

from ....module_utils._model import nfs_class
from ....module_utils._model.errors import InputError
from ....module_utils._model.nfs_class import ClassFacts
from ....module_utils._model.service import Service
from ....module_utils._model.service_deploy import Deploy
from ....module_utils._model.shared_filesystem import read_source
from ..._kube.api.client import Client
from ..shared import bindings, deployed
from ..shared.kube_connection import open_client
from ..shared.request import RunRequest
from ..shared.state_dir import StateHome

Result = dict[str, t.Any]
_CLASS: t.Final = "storage.k8s.io/v1/StorageClass"


def run(request: RunRequest, service: Service, place: Deploy, home: StateHome) -> Result:
    """Return what the cluster gets, and record the class; of one that is absent the record goes."""
    option = f"muster_services.{service.name}"
    storage_class = str(service.filesystem.storage_class if service.filesystem else "")
    is_present = service.state == "present"
    client = open_client(request.options, request.base, request.progress.say)
    source = _find_source(home, str(place.export), f"{option}.deploy.export") if is_present else ""
    wanted = nfs_class.build_class(service.name, storage_class, source) if is_present else None
    plan = nfs_class.decide(wanted, _read_facts(client, storage_class), option)
    before = deployed.read_deployed(home, service.name)
    about = {
        "schema": 1,
        "kind": service.kind,
        "provider": nfs_class.PROVIDER,
        "backend": "kubernetes",
        "place": {"host": None, "namespace": place.namespace},
        "endpoint": f"storageclass/{storage_class}",
    }
    if not request.check and is_present:
        deployed.write_deployed(home, service.name, about)
    elif not request.check:
        deployed.remove_deployed(home, service.name, forget=True)
    return {
        "changed": before != about if is_present else before is not None,
        "endpoint": about["endpoint"] if is_present else None,
        "place": f"namespace {place.namespace}",
        "kept": None,
        "server": {
            "name": service.name,
            "provider": nfs_class.PROVIDER,
            "state": service.state,
            "namespace": place.namespace,
            "storage_class": storage_class,
            **dataclasses.asdict(plan),
        },
    }


def _read_facts(client: Client, storage_class: str) -> ClassFacts:
    used = False
    for volume in client.list("v1/PersistentVolume").items:
        csi = t.cast("dict[str, t.Any]", volume.get("spec") or {}).get("csi") or {}
        used = used or csi.get("driver") == nfs_class.DRIVER
    return ClassFacts(
        live=client.get(_CLASS, storage_class),
        has_driver=client.get("storage.k8s.io/v1/CSIDriver", nfs_class.DRIVER) is not None,
        has_helm_charts=client.catalog.serves("helm.cattle.io/v1"),
        used=used,
    )


def _find_source(home: StateHome, name: str, option: str) -> str:
    """Return the export as a mount names it, of a file system that was deployed in this run or is bound."""
    known = deployed.read_deployed(home, name)
    if known is None:
        binding = bindings.load_binding(home, name, option)
        known = {"provider": binding.provider, "endpoint": binding.endpoint}
    if known["provider"] != "nfs":
        raise InputError(option, f"'{name}' is of {known['provider']}, not of NFS", "Name a file system of NFS")
    return read_source("nfs", str(known["endpoint"]), option)
