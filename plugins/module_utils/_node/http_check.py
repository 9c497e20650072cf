# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a server answers to this node: who asked judges it, so that each kind of service has its rules in one place."""

from __future__ import annotations

import re
import time
import typing as t

from .s3_client import S3Error, Store

NodeRequest = t.Mapping[str, t.Any]
_SHOWN = 300
_HEADERS: t.Final = ("www-authenticate", "retry-after")
_REALM = re.compile(r'realm="(https?://[^"]+)"')


def ask(request: NodeRequest) -> dict[str, t.Any]:
    """Return ``{status, kind, text, headers, latency_ms}`` of an answer, ``{failed, fix}`` where there was none.

    :param request: ``url``, ``method``, ``body`` (text, of JSON), ``ca``; without a credential. ``follow_realm``:
        whether the token service that an answer names must answer, too.
    """
    store = Store(request.get("ca"))
    body = str(request.get("body") or "").encode()
    try:
        began = time.monotonic()
        headers = {"Content-Type": "application/json"} if body else {}
        answer = store.send(request["method"], request["url"], body, headers=headers, allow=range(100, 600))
        found = {
            "status": answer.status,
            "kind": answer.headers.get("content-type", ""),
            "text": answer.body[:_SHOWN].decode(errors="replace"),
            "headers": {name: answer.headers[name] for name in _HEADERS if name in answer.headers},
            "latency_ms": (time.monotonic() - began) * 1000,
        }
        realm = _REALM.search(answer.headers.get("www-authenticate", ""))
        if realm and request.get("follow_realm"):
            # Whatever it answers without a credential: it is there.
            store.send("GET", realm[1], allow=range(100, 600))
        return found
    except S3Error as exc:
        return {"failed": exc.problem, "fix": exc.fix}
    finally:
        store.close()
