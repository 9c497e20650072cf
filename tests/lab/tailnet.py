# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A tailnet in network namespaces: a real headscale with its relay on the first node, nothing on the others yet."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import typing as t

from ansible_collections.muster.training.plugins.module_utils._http.clock import SystemClock
from ansible_collections.muster.training.tests.fakes.api import Answer, Call
from ansible_collections.muster.training.tests.fakes.tailscale import FakeTailscale
from ansible_collections.muster.training.tests.fakes.virtual import VirtualClock
from ansible_collections.muster.training.tests.support.kube_lab import not_run
from ansible_collections.muster.training.tests.support.node_lab import eventually

from . import headscale, podman
from .fabric import netns
from .kube.binaries import Binaries

_KEY = ("-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")


class Tailnet:
    """A control server on the first node; ``machines`` are the others. What it has is below ``folder``."""

    def __init__(self, net: netns.Net, folder: pathlib.Path) -> None:
        self.net, self.folder = net, folder
        self.programs = Binaries(podman.cache_home())
        self.head, *self.machines = net.nodes
        address = net.address(self.head)
        self.url = f"https://{address}:{headscale.PORT}"
        self.certificate = folder / "tls.crt"
        named = ("-subj", "/CN=lab", "-addext", f"subjectAltName=IP:{address}")
        files = ("-keyout", f"{folder}/tls.key", "-out", str(self.certificate))
        subprocess.run(["openssl", "req", *_KEY, *named, *files], check=True, capture_output=True)
        tls = f"tls_cert_path: {self.certificate}\ntls_key_path: {folder}/tls.key"
        (folder / "config.yaml").write_text(headscale.render(self.url, address, str(folder), tls))
        self._server = [self.program("headscale"), "-c", f"{folder}/config.yaml"]
        self.user = ""

    def program(self, name: str) -> str:
        """Return the path of a program."""
        return os.fspath(self.programs.get(name))

    def up(self) -> None:
        """Start the control server."""
        self.start(self.head, [*self._server, "serve"])
        eventually(lambda: self._ask("users", "list").returncode == 0, "headscale to answer")
        self.user = str(json.loads(self._ask("users", "create", "lab").stdout)["id"])

    def create_key(self) -> str:
        """Return a key for one machine."""
        words = ("preauthkeys", "create", "--user", self.user, "--expiration", "1h", "--tags", "tag:muster")
        return str(json.loads(self._ask(*words).stdout)["key"])

    def names(self, online: bool = False) -> list[str]:
        """Return the names of the machines in the tailnet, or of those that are connected to it now."""
        return sorted(str(item["given_name"]) for item in self._nodes() if item.get("online") or not online)

    def address_of(self, name: str) -> str:
        """Return a machine's address in the tailnet."""
        return next(str(item["ip_addresses"][0]) for item in self._nodes() if item["given_name"] == name)

    def _nodes(self) -> list[dict[str, t.Any]]:
        return json.loads(self._ask("nodes", "list").stdout) or []

    def start(self, node: str, argv: t.Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a program on a node, which trusts the control server."""
        environment = {**os.environ, "SSL_CERT_FILE": str(self.certificate), "TS_NO_LOGS_NO_SUPPORT": "true"}
        with (self.folder / f"{node}.log").open("ab") as log:
            streams: dict[str, t.Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            return subprocess.Popen(self.inside(node, argv), env=environment, **streams)

    def run(self, node: str, *argv: str) -> str:
        """Run a command on a node and return its output."""
        done = subprocess.run(self.inside(node, argv), capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
        return done.stdout

    def inside(self, node: str, argv: t.Sequence[str]) -> list[str]:
        """Return the words that run a command on a node."""
        return ["ip", "netns", "exec", self.net.namespace(node), *argv]

    def _ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        # It listens on a socket in the folder, which all namespaces see.
        return subprocess.run([*self._server, *words, "-o", "json"], capture_output=True, text=True, check=False)


class Minting(FakeTailscale):
    """Tailscale's API for keys, whose keys a headscale takes."""

    def __init__(self, create_key: t.Callable[[], str]) -> None:
        super().__init__(t.cast(VirtualClock, SystemClock()))
        self.create_key = create_key
        self.given: list[str] = []

    def _mint(self, call: Call) -> Answer:
        answer = super()._mint(call)
        self.given.append(self.create_key())
        return Answer(200, {**answer.data, "key": self.given[-1]})


@contextlib.contextmanager
def open_tailnet(folder: pathlib.Path, machines: int) -> t.Iterator[Tailnet]:
    """A tailnet without machines yet, and namespaces for them; nothing of it may be left at its end."""
    if netns.unmet():
        not_run(netns.unmet())
    net = netns.Net([netns.Wire(1000)] * (machines + 1))
    net.up()
    try:
        made = Tailnet(net, folder)
        made.up()
        yield made
    finally:
        assert net.down() == []
