# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ten machines of a tailnet, as network namespaces with a real tailscaled each: which of them only reach the relay.

The facts are read in each namespace by the code that runs on nodes. Each machine is cut off once: all ten are named
then, and no other one.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import time
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab import headscale, podman
from ansible_collections.muster.training.tests.lab.fabric import netns
from ansible_collections.muster.training.tests.lab.kube.binaries import Binaries
from ansible_collections.muster.training.tests.support.kube_lab import NOTES, not_run
from ansible_collections.muster.training.tests.support.node_lab import eventually

COUNT = 10
READ = """
import json, sys
from ansible_collections.muster.training.plugins.module_utils._node import facts_host, facts_source
source = facts_source.FactsSource({"path": [sys.argv[1]]})
print(json.dumps(facts_host.read_tailscale(source, {"tailscaled": ""}, True, sys.argv[2:])["mesh_path"]))
"""


class Tailnet:
    """A control server with its relay on the first node, and the machines on the others."""

    def __init__(self, net: netns.Net, folder: pathlib.Path) -> None:
        self.net, self.folder = net, folder
        self.programs = Binaries(podman.cache_home())
        self.head, *self.machines = net.nodes
        self.url = f"https://{net.address(self.head)}:8080"
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        files = {"keyout": "tls.key", "out": "tls.crt"}
        made = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=lab"]
        made += ["-addext", f"subjectAltName=IP:{net.address(self.head)}"]
        made += [word for key, name in files.items() for word in (f"-{key}", str(folder / name))]
        subprocess.run(["openssl", "req", *made], check=True, capture_output=True)
        tls = f"tls_cert_path: {folder}/tls.crt\ntls_key_path: {folder}/tls.key"
        text = headscale.render(self.url, net.address(self.head), str(folder), tls)
        (folder / "config.yaml").write_text(text)

    def up(self) -> None:
        """Start all, and let each machine join with a key of its own."""
        server = [os.fspath(self.programs.get("headscale")), "-c", f"{self.folder}/config.yaml"]
        self._start(self.head, [*server, "serve"])
        ask = lambda *words: subprocess.run([*server, *words, "-o", "json"], capture_output=True, text=True)  # noqa: E731
        eventually(lambda: ask("users", "list").returncode == 0, "headscale to answer")
        user = json.loads(ask("users", "create", "lab").stdout)["id"]
        for name in self.machines:
            place = self.folder / name
            place.mkdir()
            # What asks tailscale on a node finds this machine's daemon.
            command = f'exec {self.programs.get("tailscale")} --socket={place}/socket "$@"'
            (place / "tailscale").write_text(f"#!/bin/sh\n{command}\n")
            (place / "tailscale").chmod(0o755)
            self._start_daemon(name)
        for name in self.machines:
            key = json.loads(ask("preauthkeys", "create", "--user", str(user)).stdout)["key"]
            words = ("up", f"--login-server={self.url}", f"--auth-key={key}", f"--hostname={name}")
            eventually(lambda n=name: (self.folder / n / "socket").exists(), f"tailscaled of {name}")
            self.run(name, f"{self.folder}/{name}/tailscale", *words)

    def run(self, name: str, *argv: str) -> str:
        """Run a command in the namespace of a machine."""
        done = subprocess.run(self._inside(name, argv), capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
        return done.stdout

    def cut(self, name: str, off: bool = True) -> None:
        """Let no datagram of a machine leave it, or let them again."""
        network = f"{self.net.address(name).rpartition('.')[0]}.0/24"
        rule = ("pref", "1", "ipproto", "udp", "to", network, "prohibit")
        self.run(name, "ip", "rule", "add" if off else "del", *rule)

    def start_again(self, name: str) -> None:
        """Start a machine's daemon again: what it knew of paths is forgotten."""
        daemon = self.daemons.pop(name)
        daemon.terminate()
        daemon.wait(20)
        self._start_daemon(name)
        show = [f"{self.folder}/{name}/tailscale", "status", "--json"]
        eventually(
            lambda: '"BackendState": "Running"' in subprocess.run(show, capture_output=True, text=True).stdout, name
        )

    def read(self) -> dict[str, str | None]:
        """Return the path of each machine, all read at once."""
        asked = {}
        for name in self.machines:
            others = [other for other in self.machines if other != name]
            argv = [sys.executable, "-c", READ, str(self.folder / name), *others]
            asked[name] = subprocess.Popen(self._inside(name, argv), stdout=subprocess.PIPE)
        return {name: json.loads(process.communicate(timeout=60)[0]) for name, process in asked.items()}

    def _start_daemon(self, name: str) -> None:
        place = self.folder / name
        words = [f"--statedir={place}", f"--socket={place}/socket", "--tun=tailscale0", "--port=41641"]
        self.daemons[name] = self._start(name, [os.fspath(self.programs.get("tailscaled")), *words])

    def _start(self, name: str, argv: t.Sequence[str]) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "SSL_CERT_FILE": f"{self.folder}/tls.crt", "TS_NO_LOGS_NO_SUPPORT": "true"}
        with (self.folder / f"{name}.log").open("ab") as log:
            streams: dict[str, t.Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            return subprocess.Popen(self._inside(name, argv), env=environment, **streams)

    def _inside(self, name: str, argv: t.Sequence[str]) -> list[str]:
        return ["ip", "netns", "exec", self.net.namespace(name), *argv]


@pytest.fixture
def tailnet(tmp_path: pathlib.Path) -> t.Iterator[Tailnet]:
    if netns.unmet():
        not_run(netns.unmet())
    net = netns.Net([netns.Wire(1000)] * (COUNT + 1))
    net.up()
    try:
        made = Tailnet(net, tmp_path)
        made.up()
        yield made
    finally:
        assert net.down() == []


def test_machines_that_only_reach_the_relay_are_named_and_no_other_one(tailnet: Tailnet) -> None:
    assert tailnet.read() == dict.fromkeys(tailnet.machines, "direct")
    named, false = 0, 0
    for half in (tailnet.machines[: COUNT // 2], tailnet.machines[COUNT // 2 :]):
        for name in half:
            tailnet.cut(name)
            tailnet.start_again(name)
        began = time.monotonic()
        found = tailnet.read()
        seconds = time.monotonic() - began
        named += sum(found[name] == "relayed" for name in half)
        false += sum(path == "relayed" for name, path in found.items() if name not in half)
        for name in half:
            tailnet.cut(name, off=False)
            tailnet.start_again(name)
    NOTES.append(f"relayed machines named: {named} of {COUNT}, false ones: {false}; all read in {seconds:.1f} s")
    assert (named, false) == (COUNT, 0)
