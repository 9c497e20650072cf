# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A registry on every node, so that images are really pulled: what the lab gives to containerd is never asked for."""

from __future__ import annotations

import contextlib
import hashlib
import json
import pathlib
import shutil
import tarfile
import typing as t
import uuid

from ansible_collections.muster.training.tests.lab.kube import images, oci, plan
from ansible_collections.muster.training.tests.support.kube_lab import KubeLab

# containerd speaks plain HTTP with a registry of this name only.
_HOST, _PORT, _PRIVATE_PORT = "localhost", 5005, 5007
# The smallest program that Linux starts, said to be for 64-bit Arm: its machine is at byte 18 (ELF, e_machine).
ARM_PROGRAM: t.Final = images.PAUSE[:18] + (183).to_bytes(2, "little") + images.PAUSE[20:]
# argv: port, folder. Blobs are files by their digest, tags are files with an index or a manifest; the file "login" has
# the user and the password that are asked for, where there is one.
_SERVE = """
import base64, hashlib, http.server, json, pathlib, sys

login = pathlib.Path(sys.argv[2], "login")
wanted = "Basic " + base64.b64encode(login.read_bytes()).decode() if login.exists() else None

class Registry(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if wanted and self.headers.get("Authorization") != wanted:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="lab"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        *_rest, kind, name = ("/" + self.path).split("/")
        place = pathlib.Path(sys.argv[2], name.removeprefix("sha256:")) if kind in ("manifests", "blobs") else None
        found = place.read_bytes() if place and place.exists() else b""
        self.send_response(200 if found or self.path == "/v2/" else 404)
        said = json.loads(found)["mediaType"] if kind == "manifests" and found else "application/octet-stream"
        self.send_header("Content-Type", said)
        self.send_header("Docker-Content-Digest", "sha256:" + hashlib.sha256(found).hexdigest())
        self.send_header("Content-Length", str(len(found)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(found)

    do_HEAD = do_GET

http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Registry).serve_forever()
"""

# argv: port. As behind a proxy that has lost what it speaks for.
_SILENT = """
import socket, sys
server, held = socket.create_server(("127.0.0.1", int(sys.argv[1]))), []
while True:
    held.append(server.accept())
"""
_SILENT_PORT = 5006


class Registry:
    """Images below ``folder``, which all nodes see."""

    def __init__(self, folder: pathlib.Path, port: int = _PORT) -> None:
        self.folder, self.port = folder, port

    def push(self, tag: str, files: t.Mapping[str, bytes], architecture: str, listed: bool) -> str:
        """Put an image of one layer there; return its name. ``listed``: its tag is an index of architectures."""
        layer, archive = self.folder / "layer", self.folder / "archive.tar"
        oci.layer_of(files, layer)
        oci.write(archive, tag, layer, oci.Settings(), architecture)
        layer.unlink()
        try:
            return self.copy(tag, archive, listed)
        finally:
            archive.unlink()

    def copy(self, tag: str, archive: pathlib.Path, listed: bool = False) -> str:
        """Put the image of an archive there; return its name."""
        with tarfile.open(archive) as opened:
            content = {item.name: opened.extractfile(item).read() for item in opened if item.isfile()}  # type: ignore[union-attr]
        for name, data in content.items():
            if name.startswith("blobs/"):
                (self.folder / pathlib.PurePath(name).name).write_bytes(data)
        index = {**json.loads(content["index.json"]), "mediaType": "application/vnd.oci.image.index.v1+json"}
        manifest = content[f"blobs/{index['manifests'][0]['digest'].replace(':', '/')}"]
        tagged = json.dumps(index).encode() if listed else manifest
        for name in (tag, hashlib.sha256(tagged).hexdigest()):
            (self.folder / name).write_bytes(tagged)
        return self.name(tag)

    def name(self, tag: str) -> str:
        """Return what the image of a tag is called, whether it is there or not."""
        return f"{_HOST}:{self.port}/lab/{tag}:{tag}"


@contextlib.contextmanager
def registry(lab: KubeLab, login: str = "") -> t.Iterator[Registry]:
    """Give a registry that every node reaches, and take it away again. ``login``: ``USER:PASSWORD``, if it asks."""
    name = f"registry-{uuid.uuid4().hex[:8]}"
    folder = lab.cluster.folder / "shared" / name
    folder.mkdir(mode=0o755)
    if login:
        (folder / "login").write_text(login)
    port = _PRIVATE_PORT if login else _PORT
    words = ("python3", "-c", _SERVE, str(port), f"{plan.SHARED}/{name}")
    try:
        with _service(lab, name, *words):
            yield Registry(folder, port)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def silent_registry(lab: KubeLab) -> t.Iterator[str]:
    """Give a registry on every node that takes connections and answers nothing; return its name."""
    with _service(lab, f"silent-{uuid.uuid4().hex[:8]}", "python3", "-c", _SILENT, str(_SILENT_PORT)):
        yield f"{_HOST}:{_SILENT_PORT}"


@contextlib.contextmanager
def _service(lab: KubeLab, name: str, *words: str) -> t.Iterator[None]:
    try:
        for node in lab.nodes:
            lab.on_node(node, "systemd-run", "--quiet", f"--unit={name}", *words)
        yield
    finally:
        for node in lab.nodes:
            # A node that was booted meanwhile knows no such unit.
            lab.on_node(node, "sh", "-c", f"systemctl stop {name} || ! systemctl cat {name}")
