# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bootstrap tokens, by which agents join, as ``k3s token`` makes, lists and deletes them."""

from __future__ import annotations

import base64
import calendar
import hashlib
import secrets
import time
import typing as t

from common import DATA, ask_api, random_text

TLS = DATA / "server" / "tls"


def create_token(ttl: str, description: str) -> str:
    """Make a bootstrap token for agents, as ``k3s token create``; return it in K10 form."""
    seconds = _seconds(ttl)
    ident, secret = random_text(6), random_text(16)
    data = {"token-id": ident, "token-secret": secret, "usage-bootstrap-authentication": "true"}
    data |= {"usage-bootstrap-signing": "true", "auth-extra-groups": "system:bootstrappers:k3s:default-node-token"}
    if description:
        data["description"] = description
    if seconds:
        data["expiration"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))
    meta = {"name": f"bootstrap-token-{ident}", "namespace": "kube-system"}
    body = {"apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token", "metadata": meta}
    status, answer = _admin("POST", "/api/v1/namespaces/kube-system/secrets", {**body, "stringData": data})
    if status != 201:
        raise ValueError(str(answer))
    digest = hashlib.sha256((TLS / "server-ca.crt").read_bytes()).hexdigest()
    return f"K10{digest}::{ident}.{secret}"


def list_tokens() -> list[dict[str, str]]:
    """Return what ``k3s token list`` tells of each token."""
    query = "fieldSelector=type%3Dbootstrap.kubernetes.io/token"
    _status, answer = _admin("GET", f"/api/v1/namespaces/kube-system/secrets?{query}")
    return [{key: base64.b64decode(value).decode() for key, value in item["data"].items()} for item in answer["items"]]


def delete_token(token: str) -> None:
    """Take a token away, named by its id or in full."""
    ident = token.rpartition("::")[2].partition(".")[0]
    status, answer = _admin("DELETE", f"/api/v1/namespaces/kube-system/secrets/bootstrap-token-{ident}")
    if status != 200:
        raise ValueError(str(answer["message"] if isinstance(answer, dict) else answer))


def may_join(header: str, password: str) -> bool:
    """Return whether a header lets an agent join: the server's password, or a token that is not over."""
    kind, _, text = header.partition(" ")
    if kind == "Basic":
        return secrets.compare_digest(text, f"node:{password}")
    ident, _, secret = text.partition(".")
    for token in list_tokens():
        if token["token-id"] == ident and secrets.compare_digest(token["token-secret"], secret):
            until_ = token.get("expiration")
            return not until_ or calendar.timegm(time.strptime(until_, "%Y-%m-%dT%H:%M:%SZ")) > time.time()
    return False


def _admin(method: str, path: str, body: t.Any = None) -> tuple[int, t.Any]:
    files = {"ca": f"{TLS}/server-ca.crt", "certificate": f"{TLS}/client-admin.crt"}
    return ask_api("127.0.0.1", method, path, body, key=f"{TLS}/client-admin.key", **files)


def _seconds(text: str) -> int:
    """Return the seconds of a duration of Go's, ``10m0s``; 0 is for ever."""
    total, number = 0, ""
    for letter in text:
        if letter.isdigit():
            number += letter
        elif letter in "hms" and number:
            total += int(number) * {"h": 3600, "m": 60, "s": 1}[letter]
            number = ""
        else:
            raise ValueError(f'invalid value "{text}" for flag -ttl: parse error')
    if number not in ("", "0"):
        raise ValueError(f'invalid value "{text}" for flag -ttl: missing unit in duration')
    return total
