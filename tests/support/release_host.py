# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host of releases and a registry of images on this machine, over real HTTP."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import json
import threading
import typing as t

OCI = "application/vnd.oci.image"


class ReleaseHost:
    """Serves ``files`` by path; a registry's paths are among them. With ``token`` a registry asks for one."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[bytes, str]] = {}
        self.token = ""
        self.asked: list[str] = []
        self.url = ""

    @property
    def host(self) -> str:
        """The name of its registry."""
        return self.url.removeprefix("http://")

    def add(self, path: str, content: bytes, kind: str = "application/octet-stream") -> None:
        """Serve a file."""
        self.files[path] = (content, kind)

    def add_image(self, repository: str, tag: str, architectures: t.Sequence[str] = ("amd64",)) -> dict[str, str]:
        """Serve an image of one layer for each architecture; return the digests of their manifests."""
        listed, digests = [], {}
        for architecture in architectures:
            config, layer = json.dumps({"architecture": architecture}).encode(), f"{repository} {architecture}".encode()
            for blob in (config, layer):
                self.add(f"/v2/{repository}/blobs/{_digest(blob)}", blob)
            kinds = (f"{OCI}.config.v1+json", f"{OCI}.layer.v1.tar")
            parts = [
                {"mediaType": kind, "digest": _digest(blob), "size": len(blob)}
                for kind, blob in zip(kinds, (config, layer), strict=True)
            ]
            manifest = {"schemaVersion": 2, "config": parts[0], "layers": [parts[1]]}
            digests[architecture] = self._add_manifest(repository, manifest, f"{OCI}.manifest.v1+json")
            platform = {"os": "linux", "architecture": architecture}
            listed.append({"digest": digests[architecture], "platform": platform})
        index = {"schemaVersion": 2, "manifests": listed}
        self._add_manifest(repository, index, f"{OCI}.index.v1+json", tag)
        return digests

    def _add_manifest(self, repository: str, value: t.Mapping[str, t.Any], kind: str, tag: str = "") -> str:
        content = json.dumps({**value, "mediaType": kind}).encode()
        for reference in filter(None, (_digest(content), tag)):
            self.add(f"/v2/{repository}/manifests/{reference}", content, kind)
        return _digest(content)


@contextlib.contextmanager
def release_host() -> t.Iterator[ReleaseHost]:
    """Give a host that listens while the context is open."""
    made = ReleaseHost()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            made.asked.append(path)
            wanted = f"Bearer {made.token}"
            if made.token and path.startswith("/v2/") and self.headers.get("Authorization") != wanted:
                challenge = f'Bearer realm="{made.url}/token",service="here",scope="repository:any:pull"'
                return self._answer(401, b"", "text/plain", challenge)
            if path == "/token":
                return self._answer(200, json.dumps({"token": made.token}).encode(), "application/json")
            content, kind = made.files.get(path, (b"", ""))
            return self._answer(200 if kind else 404, content, kind or "text/plain")

        def _answer(self, code: int, content: bytes, kind: str, challenge: str = "") -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            if challenge:
                self.send_header("WWW-Authenticate", challenge)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: t.Any) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield made
        finally:
            server.shutdown()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
