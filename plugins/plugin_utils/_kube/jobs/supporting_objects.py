# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds a job's supporting objects: its program, its code, and the NetworkPolicy that isolates its pods."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import typing as t

from ....module_utils._model import pod_spec
from ....module_utils._model.errors import InputError
from ....module_utils._model.pod_spec import PodSpec
from ..api.kinds import JsonObject, KubeObject
from ..objects import device_claims
from .spec import ROLE_LABEL, RUN_LABEL, KubePlan


class LabelSelector(t.TypedDict, total=False):
    """A label selector of Kubernetes (LabelSelector in the API's reference)."""

    matchLabels: dict[str, str]
    matchExpressions: list[LabelExpression]


class LabelExpression(t.TypedDict):
    """One requirement of a label selector."""

    key: str
    operator: str
    values: t.NotRequired[list[str]]


# A ConfigMap holds at most 1 MiB, its keys included.
ARCHIVE_LIMIT = 900 << 10
_CODE_KEY = "code.tar.gz"


def build_program(plan: KubePlan, specs: t.Mapping[str, PodSpec]) -> KubeObject:
    """Return the ConfigMap of the pods' program and of each role's specification."""
    data = {f"{role}.json": spec.to_json() for role, spec in sorted(specs.items())}
    data.update({name: plan.program[name] for name in pod_spec.PROGRAM_FILES})
    return _config_map(plan, "program", {"data": data})


def build_code(plan: KubePlan) -> KubeObject | None:
    """Return the ConfigMap of the job's code, None when it is in the image.

    :raises InputError: when the code is too large for one.
    """
    if not plan.archive:
        return None
    if len(plan.archive) > ARCHIVE_LIMIT:
        raise InputError(
            "job.code",
            f"is {len(plan.archive) >> 10} KiB when packed, the limit is {ARCHIVE_LIMIT >> 10} KiB",
            "Leave out data, or put the code in the image (from: image) or on a claim (mounts)",
        )
    return _config_map(plan, "code", {"binaryData": {_CODE_KEY: base64.b64encode(plan.archive).decode()}})


def build_network_policy(plan: KubePlan, *, extra: t.Sequence[JsonObject] = ()) -> KubeObject:
    """Return the policy of the job's pods: they reach each other at every port, other pods reach them at none.

    Egress is listed only when the namespace denies it: a policy that lists it denies all other egress.

    :param extra: further ingress rules, for an engine whose operator must reach a pod.
    """
    own = {"podSelector": {"matchLabels": {RUN_LABEL: plan.labels[RUN_LABEL]}}}
    spec: JsonObject = {**own, "policyTypes": ["Ingress"], "ingress": [{"from": [own]}, *extra]}
    if plan.egress_denied:
        # Without a destination: a node-local resolver is not a pod that could be selected.
        names = {"ports": [{"protocol": kind, "port": 53} for kind in ("UDP", "TCP")]}
        spec.update(policyTypes=["Ingress", "Egress"], egress=[{"to": [own]}, names])
    meta = plan.metadata(f"{plan.name}-peers")
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": meta, "spec": spec}


def denies_egress(policies: t.Iterable[KubeObject], labels: t.Mapping[str, str]) -> bool:
    """Return whether one of a namespace's policies denies the egress of pods with these labels.

    Labels that only controllers add to pods are not known here: a policy that selects by one is ignored.
    """
    return any(
        "Egress" in policy["spec"].get("policyTypes", ())
        and _matches_selector(policy["spec"].get("podSelector") or {}, labels)
        for policy in policies
    )


def _matches_selector(selector: LabelSelector, labels: t.Mapping[str, str]) -> bool:
    """Return whether a label selector of Kubernetes matches these labels; an empty one matches all."""
    wanted: t.Mapping[str, str] = selector.get("matchLabels") or {}
    matches = [labels.get(key) == value for key, value in wanted.items()]
    for item in selector.get("matchExpressions") or ():
        value = labels.get(item["key"])
        matches.append(
            {
                "In": value in (item.get("values") or ()),
                # Also matches pods without the label.
                "NotIn": value not in (item.get("values") or ()),
                "Exists": value is not None,
                "DoesNotExist": value is None,
            }.get(item["operator"], False)
        )
    return all(matches)


def build_headless_service(plan: KubePlan, role: str, name: str = "") -> KubeObject:
    """Return the Service under which pods with its name as subdomain find each other, also before they are ready."""
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {RUN_LABEL: plan.labels[RUN_LABEL], ROLE_LABEL: role},
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": plan.metadata(name or plan.name), "spec": spec}


def build_all(
    plan: KubePlan, specs: t.Mapping[str, PodSpec], *more: KubeObject, reached_by: t.Sequence[JsonObject] = ()
) -> list[KubeObject]:
    """Return all supporting objects of a job; ``specs``: of its pods; ``reached_by``: further rules of its policy."""
    rules = build_network_policy(plan, extra=reached_by)
    parts = [build_program(plan, specs), build_code(plan), rules, build_claims(plan), *more]
    return [part for part in parts if part is not None]


def build_claims(plan: KubePlan) -> KubeObject | None:
    """Return the template by which each pod gets GPUs of its own, None where pods request them."""
    if plan.device_class is None:
        return None
    meta = plan.metadata(device_claims.template_name(plan.name))
    return device_claims.build_template(meta, plan.device_class, plan.job.gpus_per_node)


def complete_spec(plan: KubePlan, role: str, coordinator: str | None = None) -> PodSpec:
    """Return a role's specification with what the plan and the engine decide; ``coordinator``: its first pod's name."""
    spec = plan.pods[role]
    return dataclasses.replace(
        spec,
        archive=pod_spec.ARCHIVE if plan.archive else None,
        rdma=plan.rdma and spec.gpus > 0,
        begun=plan.begun,
        coordinator=coordinator or spec.coordinator,
    )


def _config_map(plan: KubePlan, part: str, content: KubeObject) -> KubeObject:
    # The digest of the content is in the name: what a running gang has mounted never changes.
    digest = hashlib.sha256(repr(sorted(content.items())).encode()).hexdigest()[:8]
    meta = plan.metadata(f"{plan.name}-{part}-{digest}")
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "immutable": True, **content}
