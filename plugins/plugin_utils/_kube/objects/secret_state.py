# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's state in a namespace: Secrets by resourceVersion, and a Lease for each lock."""

from __future__ import annotations

import base64
import datetime
import gzip
import hashlib
import time
import typing as t

from ....module_utils._model.errors import RefusedError
from ....module_utils._model.state_store import StateConflictError, StoredItem
from ..api.client import Client
from ..api.errors import KubeError
from ..api.kinds import JsonObject, KubeObject

LABEL: t.Final = "muster.training/state"
# Names that begin so are locks.
LOCKS: t.Final = "locks/"
# A Secret holds 1 MiB, base64 not counted (Kubernetes reference, Secret).
_LIMIT: t.Final = 1 << 20
_KEY: t.Final = "data"
_NAME: t.Final = "muster.training/name"


class SecretState:
    """Items of one cluster of ours in one namespace; content is compressed."""

    def __init__(self, client: Client, namespace: str, cluster: str) -> None:
        self._client, self._namespace, self._cluster = client, namespace, cluster
        self.title = f"namespace {namespace} at {client.server}"

    def read(self, name: str) -> StoredItem | None:
        """Return an item, None when it does not exist."""
        found = self._client.get(_kind(name), self._object_name(name), self._namespace)
        if found is None:
            return None
        value = t.cast("t.Any", found)
        version = str(value["metadata"]["resourceVersion"])
        if _is_lock(name):
            spec = value["spec"]
            age_s = max(0.0, self._now() - _read_time(spec.get("renewTime")))
            return StoredItem(str(spec.get("holderIdentity") or "").encode(), version, age_s)
        return StoredItem(gzip.decompress(base64.b64decode(value["data"][_KEY])), version, 0.0)

    def write(self, name: str, data: bytes, version: str | None) -> str:
        """Create or replace an item under the condition of its resourceVersion; see the protocol."""
        body = self._build(name, data)
        metadata = t.cast("JsonObject", body["metadata"])
        try:
            if version is None:
                wanted: KubeObject = t.cast("t.Any", body)
                made = self._client.create(wanted)
            else:
                metadata["resourceVersion"] = version
                made = self._client.patch(_kind(name), self._object_name(name), body, self._namespace)
            return str(t.cast("t.Any", made)["metadata"]["resourceVersion"])
        except KubeError as exc:
            if exc.status not in (404, 409) or exc.is_terminating or self._lacks_namespace(exc):
                raise
        # An answer that was lost is asked for again: what is refused then may be our own writing.
        found = self.read(name)
        if found is not None and found.data == data:
            return found.version
        raise StateConflictError(f"{name} in {self.title} was written by another controller")

    def delete(self, name: str, version: str) -> None:
        """Delete an item if it is of this version."""
        found = self._client.get(_kind(name), self._object_name(name), self._namespace)
        metadata = t.cast("t.Any", found)["metadata"] if found else {}
        if metadata.get("resourceVersion") == version:
            self._client.delete(_kind(name), metadata["name"], self._namespace, uid=str(metadata["uid"]))

    def _lacks_namespace(self, exc: KubeError) -> bool:
        return exc.status == 404 and self._client.get("v1/Namespace", self._namespace) is None

    def _object_name(self, name: str) -> str:
        """Return a name that fits every kind, whatever the item's own name has in it."""
        return f"muster-state-{hashlib.sha256(f'{self._cluster}/{name}'.encode()).hexdigest()[:20]}"

    def _now(self) -> float:
        # By the API server's clock: two controllers whose own ones differ must agree on what has expired.
        return self._client.transport.stats.server_time() or time.time()

    def _build(self, name: str, data: bytes) -> JsonObject:
        metadata: JsonObject = {
            "name": self._object_name(name),
            "namespace": self._namespace,
            "labels": {LABEL: self._cluster},
            "annotations": {_NAME: name},
        }
        if _is_lock(name):
            now = datetime.datetime.fromtimestamp(self._now(), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            spec = {"holderIdentity": data.decode(), "renewTime": now}
            return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        packed = gzip.compress(data, mtime=0)
        if len(packed) > _LIMIT:
            raise RefusedError(
                f"muster_state.kubernetes: {name} has {len(packed) >> 10} KiB compressed, a Secret holds 1024",
                "Use muster_state.store: s3",
            )
        content = {_KEY: base64.b64encode(packed).decode()}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": content}


def _is_lock(name: str) -> bool:
    return name.startswith(LOCKS)


def _kind(name: str) -> str:
    return "coordination.k8s.io/v1/Lease" if _is_lock(name) else "v1/Secret"


def _read_time(stamp: object) -> float:
    """Return a time of a Lease as seconds since 1970; an unreadable one is long ago."""
    try:
        return datetime.datetime.fromisoformat(str(stamp).replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 0.0
