# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The components that can be deployed, by the kind of service; the first of a kind is the one without ``provider``."""

from __future__ import annotations

import typing as t

from ...module_utils._model.errors import InputError
from ...module_utils._model.service import Service
from . import hashicorp_vault, minio, openbao, rustfs, seaweedfs
from .component import Component
from .monitoring import alertmanager, grafana
from .monitoring import component as prometheus
from .registry import distribution
from .tracking import mlflow

COMPONENTS: t.Final[dict[str, tuple[Component, ...]]] = {
    "object_store": (seaweedfs.COMPONENT, rustfs.COMPONENT, minio.COMPONENT),
    "secrets": (openbao.COMPONENT, hashicorp_vault.COMPONENT),
    "registry": (distribution.COMPONENT,),
    "tracking": (mlflow.COMPONENT,),
    "monitoring": (prometheus.COMPONENT, alertmanager.COMPONENT, grafana.COMPONENT),
}


def require_deployable(service: Service, option: str) -> Component:
    """Return what is deployed for a service, at the kind of place that its entry names.

    :raises InputError: when it cannot be deployed, or not there.
    """
    component = find_component(service.kind, service.provider, f"{option}.provider")
    if service.deploy and service.deploy.host and component.host_fix:
        raise InputError(f"{option}.deploy.host", f"{component.provider} is deployed in clusters", component.host_fix)
    return component


def find_component(kind: str, provider: str | None, option: str) -> Component:
    """Return what is deployed for a service.

    :raises InputError: when nothing of that name can be deployed, with what can.
    """
    known = COMPONENTS.get(kind, ())
    found = next((item for item in known if provider in (None, item.provider)), None)
    if found is None:
        names = ", ".join(item.provider for item in known)
        fix = f"Deployed are: {names}" if names else "Install it and use mode: bind"
        what = f"'{provider}' for {kind}" if provider else f"a service of the kind {kind}"
        raise InputError(option, f"{what} cannot be deployed", fix)
    return found
