# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Secret with given values, or none; the values never come back.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import base64
import hashlib
import json
import pathlib
import typing as t
from collections.abc import Mapping

from ...module_utils._model.errors import InputError
from .._kube.api.client import Client
from .._kube.api.kinds import KubeObject
from .._kube.api.kubeconfig import register_secret
from .._kube.objects.apply import apply
from .shared.kube_connection import Dict, open_client

# The hash may be shown; guessing a weak value from it shall cost some time.
_ROUNDS = 50_000


def run(options: Mapping[str, t.Any], base: pathlib.Path, check: bool, want_diff: bool) -> Dict:
    """Return the result of ``kube_secret``."""
    wanted = manifest(options)
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
    answer: Dict = {
        "changed": result.changed,
        "action": change.action,
        "name": options["name"],
        "namespace": namespace,
        "data_keys": sorted(wanted["data"]),
        "hash": keyed_hash(change.after or {}, wanted["data"]) if not (check and change.before is None) else None,
    }
    return {**answer, "diff": result.diff()} if want_diff else answer


def manifest(options: Mapping[str, t.Any]) -> KubeObject:
    """Return the Secret that the options describe; its values are registered as secrets."""
    data: dict[str, str] = {}
    for key, value in (options.get("data") or {}).items():
        if not isinstance(value, str | int | float) or isinstance(value, bool):
            raise InputError(f"data.{key}", "must be text")
        data[str(key)] = base64.b64encode(register_secret(str(value)).encode()).decode()
    for key, value in (options.get("data_base64") or {}).items():
        try:
            raw = base64.b64decode("".join(str(value).split()), validate=True)
        except ValueError:
            raise InputError(f"data_base64.{key}", "is not base64") from None
        register_secret(raw.decode("utf-8", "replace"))
        data[str(key)] = base64.b64encode(raw).decode()
    meta: KubeObject = {"name": str(options["name"])}
    for key in ("labels", "annotations"):
        if options.get(key):
            meta[key] = {str(name): str(text) for name, text in options[key].items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": str(options["type"]), "data": data}


def keyed_hash(live: KubeObject, data: Mapping[str, str]) -> str:
    """Return 16 hex digits that change with the values; the key is the uid of this very Secret."""
    uid = str((live.get("metadata") or {}).get("uid") or "")
    text = json.dumps(dict(sorted(data.items())), separators=(",", ":"))
    return hashlib.pbkdf2_hmac("sha256", text.encode(), uid.encode(), _ROUNDS, 8).hex()


def _delete(client: Client, name: str, namespace: str, check: bool) -> Dict:
    found = client.get("v1/Secret", name, namespace)
    if found is not None and not check:
        client.delete("v1/Secret", name, namespace, uid=str(found["metadata"].get("uid") or ""))
    action = "unchanged" if found is None else "removed"
    names: Dict = {"name": name, "namespace": namespace, "data_keys": [], "hash": None}
    return {"changed": found is not None, "action": action, **names}
