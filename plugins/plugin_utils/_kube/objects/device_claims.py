# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds the claims by which pods get GPUs from a DRA driver: a template, of which each pod gets a claim of its own."""

from __future__ import annotations

import typing as t

from ....module_utils._model.gpu_stack_plan import CLAIMED_API
from ..api.kinds import JsonObject, KubeObject, ObjectMeta

TEMPLATE: t.Final = f"{CLAIMED_API}/ResourceClaimTemplate"
_CLAIM: t.Final = "gpus"


def template_name(name: str) -> str:
    """Return the name of the template of a run, or of a test, whose objects have this name."""
    return f"{name}-{_CLAIM}"


def build_template(metadata: ObjectMeta, device_class: str, count: int) -> KubeObject:
    """Return a template of claims for so many devices of a class."""
    exactly: JsonObject = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": count}
    spec: JsonObject = {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}}
    return {"apiVersion": CLAIMED_API, "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": spec}


def build_pod_claims(name: str) -> list[JsonObject]:
    """Return the claims of a pod, by the template of this name."""
    return [{"name": _CLAIM, "resourceClaimTemplateName": name}]


def build_container_claims() -> list[JsonObject]:
    """Return what a container of such a pod has among its resources."""
    return [{"name": _CLAIM}]
