# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A registry that is strict on the OCI Distribution Specification 1.1, with Basic or Bearer, and with faults.

An upload's parts must follow each other, a manifest's blobs must be there, a token is good for its scope alone, and a
repository's name is lower-case. ``faults`` are answers by ``METHOD PATH`` that come first, each once.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import json
import re
import typing as t
import urllib.parse
from collections.abc import Mapping

from ansible_collections.muster.training.tests.support.loopback import Api

Handled = tuple[int, t.Any, Mapping[str, str]]
USER, PASSWORD = "pusher", "canary-registry-password-0001"
OCI: t.Final = "application/vnd.oci.image"
_PATH = re.compile(r"/v2/([a-z0-9._/-]+)/(manifests|blobs|tags)/(.+)\Z")


@dataclasses.dataclass
class Fault:
    """One answer instead of the registry's own. ``effect``: whether the request is carried out all the same."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    effect: bool = False


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class _Routes(dict[str, t.Any]):
    """Every request has the one handler of a registry."""

    def __init__(self, registry: FakeRegistry) -> None:
        super().__init__()
        self._registry = registry

    def get(self, key: str, default: t.Any = None) -> t.Any:
        method, _space, path = key.partition(" ")
        return functools.partial(self._registry.answer, method, path)


class FakeRegistry(Api):
    """``auth``: none, ``basic`` or ``bearer``. ``rights``: what the user may do, of ``pull`` and ``push``."""

    def __init__(self, auth: str = "", rights: t.Sequence[str] = ("pull", "push")) -> None:
        self.auth, self.rights = auth, rights
        self.manifests: dict[tuple[str, str], tuple[bytes, str]] = {}
        self.blobs: dict[tuple[str, str], bytes] = {}
        self.faults: dict[str, list[Fault]] = {}
        self.calls: list[str] = []
        self._uploads: dict[str, bytearray] = {}
        super().__init__(_Routes(self))

    @property
    def host(self) -> str:
        """The name of the registry in names of images."""
        return self.url.removeprefix("http://")

    def add_image(self, repository: str, tag: str, architectures: t.Sequence[str] = ("amd64",), text: str = "") -> str:
        """Put an image there, an index where it is of several architectures; return the digest of its tag."""
        listed = []
        for architecture in architectures:
            config = json.dumps({"architecture": architecture, "os": "linux"}).encode()
            layer = f"{repository} {architecture} {text}".encode()
            kinds = (f"{OCI}.config.v1+json", f"{OCI}.layer.v1.tar")
            parts = [
                {"mediaType": kind, "digest": digest_of(blob), "size": len(blob)}
                for kind, blob in zip(kinds, (config, layer), strict=True)
            ]
            self.blobs |= {(repository, digest_of(blob)): blob for blob in (config, layer)}
            manifest = {"schemaVersion": 2, "config": parts[0], "layers": [parts[1]]}
            entry = self._add(repository, manifest, f"{OCI}.manifest.v1+json", tag)
            listed.append({**entry, "platform": {"os": "linux", "architecture": architecture}})
        if len(architectures) == 1:
            return str(listed[0]["digest"])
        index = {"schemaVersion": 2, "manifests": listed}
        return str(self._add(repository, index, f"{OCI}.index.v1+json", tag)["digest"])

    def _add(self, repository: str, value: dict[str, t.Any], kind: str, tag: str) -> dict[str, t.Any]:
        content = json.dumps({**value, "mediaType": kind}).encode()
        for reference in (digest_of(content), tag):
            self.manifests[repository, reference] = (content, kind)
        return {"mediaType": kind, "digest": digest_of(content), "size": len(content)}

    def answer(self, method: str, path: str, query: t.Any, headers: Mapping[str, str], body: bytes) -> Handled:
        """Answer a request, or as a fault says."""
        self.calls.append(f"{method} {path}")
        waiting = self.faults.get(f"{method} {path}") or self.faults.get(f"{method} *") or []
        fault = waiting.pop(0) if waiting else None
        if fault is None or fault.effect:
            answer = self._serve(method, path, query, headers, body)
        return answer if fault is None else (fault.status, fault.body, fault.headers)

    def _serve(self, method: str, path: str, query: t.Any, headers: Mapping[str, str], body: bytes) -> Handled:
        if path == "/token":
            return self._give_token(query, headers)
        found = _PATH.match(path)
        repository = found[1] if found else ""
        refused = self._refuse(method, repository, headers)
        if refused:
            return refused
        if path == "/v2/":
            return 200, {}, {}
        if not found:
            return _error(404, "NAME_INVALID" if path != path.lower() else "NAME_UNKNOWN")
        _all, repository, kind, reference = (found[0], *found.groups())
        if kind == "manifests":
            return self._manifest(method, repository, reference, headers, body)
        if kind == "tags":
            names = [tag for name, tag in self.manifests if name == repository and not tag.startswith("sha256:")]
            return (200, {"name": repository, "tags": names}, {}) if names else _error(404, "NAME_UNKNOWN")
        if reference.startswith("uploads/"):
            return self._upload(method, path, repository, query, headers, body)
        content = self.blobs.get((repository, reference))
        if content is None:
            return _error(404, "BLOB_UNKNOWN")
        return 200, content if method == "GET" else b"", {"Content-Type": "application/octet-stream"}

    def _refuse(self, method: str, repository: str, headers: Mapping[str, str]) -> Handled | None:
        action = "pull" if method in ("GET", "HEAD") else "push"
        given = headers.get("authorization", "")
        if self.auth == "basic":
            if given != _basic():
                return 401, _errors("UNAUTHORIZED"), {"WWW-Authenticate": 'Basic realm="registry"'}
            return None if not repository or action in self.rights else _error(403, "DENIED")
        if self.auth == "bearer":
            scope = f"repository:{repository}:{'pull' if action == 'pull' else 'pull,push'}" if repository else ""
            if given.startswith("Bearer ") and self._grants(given, repository, action):
                return None
            challenge = f'Bearer realm="{self.url}/token",service="fake"' + (f',scope="{scope}"' if scope else "")
            return 401, _errors("UNAUTHORIZED"), {"WWW-Authenticate": challenge}
        return None

    def _give_token(self, query: t.Any, headers: Mapping[str, str]) -> Handled:
        if headers.get("authorization") != _basic():
            return 401, _errors("UNAUTHORIZED"), {"WWW-Authenticate": 'Basic realm="token"'}
        values = {name: value[-1] if isinstance(value, list) else value for name, value in dict(query).items()}
        assert values.get("service") == "fake", "a token is asked for the service that the challenge names"
        kind, _colon, rest = values.get("scope", "").partition(":")
        name, _colon, actions = rest.rpartition(":")
        assert not kind or kind == "repository"
        granted = [action for action in actions.split(",") if action in self.rights]
        return 200, {"token": "canary-token:" + json.dumps([name, granted]).encode().hex()}, {}

    def _grants(self, given: str, repository: str, action: str) -> bool:
        name, granted = json.loads(bytes.fromhex(given.rpartition(":")[2]))
        return not repository or (name == repository and action in granted)

    def _manifest(self, method: str, repository: str, reference: str, headers: t.Any, body: bytes) -> Handled:
        if method == "PUT":
            parsed = json.loads(body)
            digests = [item["digest"] for item in (*parsed.get("layers", ()), parsed.get("config")) if item]
            missing = [digest for digest in digests if (repository, digest) not in self.blobs]
            missing += [
                item["digest"]
                for item in parsed.get("manifests", ())
                if (repository, item["digest"]) not in self.manifests
            ]
            if missing or headers.get("content-type") != parsed.get("mediaType", headers.get("content-type")):
                return _error(404 if missing else 400, "MANIFEST_BLOB_UNKNOWN" if missing else "MANIFEST_INVALID")
            if reference.startswith("sha256:") and reference != digest_of(body):
                return _error(400, "DIGEST_INVALID")
            for name in (reference, digest_of(body)):
                self.manifests[repository, name] = (body, headers["content-type"])
            return 201, b"", {"Docker-Content-Digest": digest_of(body)}
        found = self.manifests.get((repository, reference))
        if found is None:
            return _error(404, "MANIFEST_UNKNOWN")
        if found[1] not in headers.get("accept", ""):
            return _error(404, "MANIFEST_UNKNOWN")
        content = found[0] if method == "GET" else b""
        return 200, content, {"Content-Type": found[1], "Docker-Content-Digest": digest_of(found[0])}

    def _upload(
        self, method: str, path: str, repository: str, query: t.Any, headers: Mapping[str, str], body: bytes
    ) -> Handled:
        values = {name: value[-1] if isinstance(value, list) else value for name, value in dict(query).items()}
        if method == "POST":
            name = f"u{len(self._uploads)}"
            self._uploads[name] = bytearray()
            return 202, b"", {"Location": f"/v2/{repository}/blobs/uploads/{name}?_state=0", "Range": "0-0"}
        name = path.rpartition("/")[2]
        taken = self._uploads.get(name)
        if taken is None:
            return _error(404, "BLOB_UPLOAD_UNKNOWN")
        here = {"Location": f"{path}?_state={len(taken) + len(body)}", "Range": f"0-{len(taken) + len(body) - 1}"}
        if method == "GET":
            return 204, b"", {**here, "Range": f"0-{max(len(taken) - 1, 0)}"}
        first = headers.get("content-range", "").partition("-")[0]
        if first and int(first) != len(taken):
            return 416, b"", here
        taken += body
        if method == "PATCH":
            return 202, b"", here
        assert method == "PUT", method
        if digest_of(bytes(taken)) != urllib.parse.unquote(values.get("digest", "")):
            return _error(400, "DIGEST_INVALID")
        self.blobs[repository, digest_of(bytes(taken))] = bytes(taken)
        return 201, b"", {"Location": f"/v2/{repository}/blobs/{digest_of(bytes(taken))}"}


def _basic() -> str:
    return "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


def _errors(code: str) -> bytes:
    return json.dumps({"errors": [{"code": code, "message": code.lower()}]}).encode()


def _error(status: int, code: str) -> Handled:
    return status, _errors(code), {"Content-Type": "application/json"}
