# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's own small client of the API server: one request at a time, with the administrator's certificate."""

from __future__ import annotations

import http.client
import json
import ssl
import typing as t

from . import plan
from .pki import Pair

_LIMIT_S = 10


class Api:
    """Requests to the API server at ``address``."""

    def __init__(self, address: str, authority: Pair, client: Pair) -> None:
        self.address = address
        self.context = ssl.create_default_context(cafile=str(authority.certificate))
        self.context.load_cert_chain(client.certificate, client.key)

    def ask(self, method: str, path: str, body: t.Any = None, kind: str = "application/json") -> tuple[int, t.Any]:
        """Return status and value of the answer; status 0 and the reason when there is none."""
        connection = http.client.HTTPSConnection(self.address, plan.API_PORT, context=self.context, timeout=_LIMIT_S)
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, path, data, {"Content-Type": kind, "Accept": "application/json"})
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as exc:
            return 0, str(exc)
        finally:
            connection.close()
        try:
            return answer.status, json.loads(text)
        except ValueError:
            return answer.status, text

    def get(self, path: str) -> t.Any:
        """Return what is at a path, None when it is not there or the server does not answer."""
        status, value = self.ask("GET", path)
        return value if status == 200 else None

    def is_ready(self) -> bool:
        """Return whether the server says that it is ready."""
        return self.ask("GET", "/readyz")[0] == 200

    def would_create(self, path: str, body: t.Any) -> bool:
        """Return whether an object would be created, asked as a dry run: its webhooks have then answered."""
        return self.ask("POST", f"{path}?dryRun=All", body)[0] in (200, 201)

    def available(self, namespace: str, deployment: str) -> bool:
        """Return whether a Deployment has the pods that it wants."""
        found = self.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/{deployment}")
        conditions = ((found or {}).get("status") or {}).get("conditions") or []
        return any(item["type"] == "Available" and item["status"] == "True" for item in conditions)

    def nodes(self) -> dict[str, bool]:
        """Return name -> readiness of every node that has registered."""
        listed = self.get("/api/v1/nodes") or {"items": []}
        return {item["metadata"]["name"]: is_ready(item) for item in listed["items"]}


def is_ready(node: t.Mapping[str, t.Any]) -> bool:
    """Return whether a Node is ready."""
    conditions = (node.get("status") or {}).get("conditions") or []
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)
