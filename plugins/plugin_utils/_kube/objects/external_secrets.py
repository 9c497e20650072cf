# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Secrets that the operator External Secrets brings into a namespace: what it is asked for, and whether it has done it.

The values go from the service that holds them into the cluster; nothing here reads them.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ....module_utils._model.errors import InputError, RefusedError
from ..api.client import Client
from ..api.errors import KubeError
from ..api.kinds import KubeObject, ObjectMeta
from . import events, status
from .wait import WaitTarget, wait

API_VERSION: t.Final = "external-secrets.io/v1"
KIND: t.Final = f"{API_VERSION}/ExternalSecret"
_CLUSTER: t.Final = "cluster/"
# The operator tries again by itself, in longer and longer steps.
LIMIT_S: t.Final = 60.0


@dataclasses.dataclass(frozen=True, slots=True)
class RemoteValue:
    """One value: its name in the Secret, its place at the service, and the store by which the operator reads it."""

    name: str
    path: str
    key: str | None
    store: str


def store_of(name: str) -> dict[str, str]:
    """Return the reference to a store: ``NAME`` is one of the namespace, ``cluster/NAME`` one of the cluster."""
    kind = "ClusterSecretStore" if name.startswith(_CLUSTER) else "SecretStore"
    return {"kind": kind, "name": name.removeprefix(_CLUSTER)}


def build(meta: ObjectMeta, values: t.Sequence[RemoteValue]) -> KubeObject:
    """Return the request for a Secret of the same name: read once, and gone with the request."""
    first = store_of(values[0].store)
    data: list[dict[str, t.Any]] = []
    for value in values:
        remote = {"key": value.path, **({"property": value.key} if value.key else {})}
        item: dict[str, t.Any] = {"secretKey": value.name, "remoteRef": remote}
        if store_of(value.store) != first:
            item["sourceRef"] = {"storeRef": store_of(value.store)}
        data.append(item)
    labels = meta.get("labels") or {}
    target = {
        "name": meta["name"],
        "creationPolicy": "Owner",
        "deletionPolicy": "Retain",
        "template": {"type": "Opaque", "metadata": {"labels": dict(labels)}},
    }
    spec = {
        "refreshPolicy": "CreatedOnce",
        "refreshInterval": "0s",
        "secretStoreRef": first,
        "target": target,
        "data": data,
    }
    return {"apiVersion": API_VERSION, "kind": "ExternalSecret", "metadata": meta, "spec": spec}


def is_served(client: Client) -> bool:
    """Return whether the cluster has External Secrets in the version that is asked here."""
    try:
        client.resource(KIND)
    except InputError:
        return False
    return True


def require_store(client: Client, namespace: str, name: str, option: str) -> None:
    """Refuse a store that is not there, or of which the operator says that it cannot be used.

    :raises RefusedError: naming it, with the reason of its condition.
    """
    reference = store_of(name)
    kind = reference["kind"]
    where = None if kind == "ClusterSecretStore" else namespace
    try:
        live = client.get(f"{API_VERSION}/{kind}", reference["name"], where)
    except KubeError as exc:
        if not exc.is_forbidden:
            raise
        # Who may not read it learns of it from the request.
        return
    shown = f"{kind} {reference['name']}"
    if live is None:
        place = "in the cluster" if where is None else f"in the namespace {namespace}"
        fix = "Name one that exists: NAME for one of the namespace, cluster/NAME for one of the cluster"
        raise RefusedError(f"{option}: there is no {shown} {place}", fix)
    if status.conditions(live).get("Ready", {}).get("status") == "False":
        said = status.condition_rule("Ready")(live).reason
        raise RefusedError(f"{option}: {shown} cannot be used: {said}", "Mend the store, or its credential")


def wait_ready(client: Client, asked: KubeObject, limit_s: float = LIMIT_S) -> None:
    """Wait until the operator has made the Secret.

    :raises RefusedError: after ``limit_s`` seconds, with the reason of the request's condition.
    """
    name, namespace = asked["metadata"]["name"], asked["metadata"]["namespace"]
    target = WaitTarget(client.resource(KIND), namespace, name)
    outcome = wait(client, [target], rule=status.condition_rule("Ready"), timeout_s=limit_s)
    if outcome.end != "done":
        told = _last_warning(client, asked)
        raise RefusedError(
            f"job.secret_refs: External Secrets has not made the Secret {namespace}/{name} in {limit_s:.0f} s: "
            f"{outcome.summary()}{f' ({told})' if told else ''}",
            "Check path, key and store of the secrets, and that the operator runs",
        )


def _last_warning(client: Client, asked: KubeObject) -> str:
    """Return the last warning about a request: the operator puts the cause into its events, not into the condition."""
    meta = asked["metadata"]
    about = f"type=Warning,involvedObject.kind=ExternalSecret,involvedObject.name={meta['name']}"
    try:
        listed: list[t.Any] = list(client.list("v1/Event", meta["namespace"], fields=about).items)
    except KubeError as exc:
        if not exc.is_forbidden:
            raise
        return ""
    return str(max(listed, key=events.last_seen).get("message") or "") if listed else ""
