# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Creates, updates or deletes a Secret (``kube_secret``); its values are never returned."""

from __future__ import annotations

import pathlib
import typing as t
from collections.abc import Mapping

from ..._kube.api.client import Client
from ..._kube.api.kinds import KubeObject, ObjectMeta
from ..._kube.objects.apply import apply
from ..._kube.objects.secrets import build_secret, keyed_hash
from ..shared.kube_connection import open_client


def run(options: Mapping[str, t.Any], base: pathlib.Path, check: bool, want_diff: bool) -> dict[str, object]:
    """Return the result of ``kube_secret``."""
    wanted = _build_secret(options)
    client = open_client(options, base)
    namespace = str(options.get("namespace") or client.namespace)
    if options["state"] == "absent":
        return _delete(client, str(options["name"]), namespace, check)
    result = apply(
        client,
        [wanted],
        str(options["field_manager"]),
        bool(options["force_conflicts"]),
        check,
        namespace=namespace,
    )
    change = result.changes[0]
    answer: dict[str, object] = {
        "changed": result.changed,
        "action": change.action,
        "name": options["name"],
        "namespace": namespace,
        "data_keys": sorted(wanted["data"]),
        "hash": keyed_hash(change.after or {}, wanted["data"]) if not (check and change.before is None) else None,
    }
    return {**answer, "diff": result.diff()} if want_diff else answer


def _build_secret(options: Mapping[str, t.Any]) -> KubeObject:
    meta: ObjectMeta = {"name": str(options["name"])}
    if options.get("labels"):
        meta["labels"] = {str(key): str(text) for key, text in options["labels"].items()}
    if options.get("annotations"):
        meta["annotations"] = {str(key): str(text) for key, text in options["annotations"].items()}
    return build_secret(meta, str(options["type"]), options.get("data") or {}, options.get("data_base64") or {})


def _delete(client: Client, name: str, namespace: str, check: bool) -> dict[str, object]:
    live = client.get("v1/Secret", name, namespace)
    if live is not None and not check:
        client.delete("v1/Secret", name, namespace, uid=str(live["metadata"].get("uid") or ""))
    action = "unchanged" if live is None else "removed"
    names: dict[str, object] = {"name": name, "namespace": namespace, "data_keys": [], "hash": None}
    return {"changed": live is not None, "action": action, **names}
