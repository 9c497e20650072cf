# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ten machines of a tailnet, as network namespaces with a real tailscaled each: which of them only reach the relay.

The facts are read in each namespace by the code that runs on nodes. Each machine is cut off once: all ten are named
then, and no other one.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import time
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab.tailnet import Tailnet, open_tailnet
from ansible_collections.muster.training.tests.support.kube_lab import NOTES
from ansible_collections.muster.training.tests.support.node_lab import eventually

COUNT = 10
READ = """
import json, sys
from ansible_collections.muster.training.plugins.module_utils._node import facts_host, facts_source
source = facts_source.FactsSource({"path": [sys.argv[1]]})
print(json.dumps(facts_host.read_tailscale(source, {"tailscaled": ""}, True, sys.argv[2:])["mesh_path"]))
"""


class Machines:
    """Machines of a tailnet, each with a daemon of its own."""

    def __init__(self, tailnet: Tailnet) -> None:
        self.tailnet, self.names = tailnet, tailnet.machines
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}

    def join(self) -> None:
        """Start all daemons, and let each machine join."""
        for name in self.names:
            place = self.tailnet.folder / name
            place.mkdir()
            # What asks tailscale on a node finds this machine's daemon.
            command = f'exec {self.tailnet.program("tailscale")} --socket={place}/socket "$@"'
            (place / "tailscale").write_text(f"#!/bin/sh\n{command}\n")
            (place / "tailscale").chmod(0o755)
            self._start(name)
        for name in self.names:
            key = f"--auth-key={self.tailnet.create_key()}"
            eventually(lambda n=name: (self.tailnet.folder / n / "socket").exists(), f"tailscaled of {name}")
            self.tailscale(
                name, "up", f"--login-server={self.tailnet.url}", "--accept-dns=false", key, f"--hostname={name}"
            )

    def tailscale(self, name: str, *words: str) -> str:
        """Run tailscale on a machine."""
        return self.tailnet.run(name, f"{self.tailnet.folder}/{name}/tailscale", *words)

    def cut(self, name: str, off: bool = True) -> None:
        """Let no datagram of a machine leave it, or let them again; what its daemon knew of paths is forgotten."""
        network = f"{self.tailnet.net.address(name).rpartition('.')[0]}.0/24"
        rule = ("pref", "1", "ipproto", "udp", "to", network, "prohibit")
        self.tailnet.run(name, "ip", "rule", "add" if off else "del", *rule)
        daemon = self.daemons.pop(name)
        daemon.terminate()
        daemon.wait(20)
        self._start(name)
        show = [f"{self.tailnet.folder}/{name}/tailscale", "status", "--json"]
        eventually(
            lambda: '"BackendState": "Running"' in subprocess.run(show, capture_output=True, text=True).stdout, name
        )

    def read(self) -> dict[str, str | None]:
        """Return the path of each machine, all read at once."""
        asked = {}
        for name in self.names:
            others = [other for other in self.names if other != name]
            argv = [sys.executable, "-c", READ, str(self.tailnet.folder / name), *others]
            asked[name] = subprocess.Popen(self.tailnet.inside(name, argv), stdout=subprocess.PIPE)
        return {name: json.loads(process.communicate(timeout=60)[0]) for name, process in asked.items()}

    def _start(self, name: str) -> None:
        place = self.tailnet.folder / name
        words = [f"--statedir={place}", f"--socket={place}/socket", "--tun=tailscale0", "--port=41641"]
        self.daemons[name] = self.tailnet.start(name, [self.tailnet.program("tailscaled"), *words])


@pytest.fixture
def machines(tmp_path: pathlib.Path) -> t.Iterator[Machines]:
    """Machines that have joined."""
    with open_tailnet(tmp_path, COUNT) as tailnet:
        made = Machines(tailnet)
        made.join()
        yield made


def test_machines_that_only_reach_the_relay_are_named_and_no_other_one(machines: Machines) -> None:
    assert machines.read() == dict.fromkeys(machines.names, "direct")
    named, false = 0, 0
    for half in (machines.names[: COUNT // 2], machines.names[COUNT // 2 :]):
        for name in half:
            machines.cut(name)
        began = time.monotonic()
        found = machines.read()
        seconds = time.monotonic() - began
        named += sum(found[name] == "relayed" for name in half)
        false += sum(path == "relayed" for name, path in found.items() if name not in half)
        for name in half:
            machines.cut(name, off=False)
    NOTES.append(f"relayed machines named: {named} of {COUNT}, false ones: {false}; all read in {seconds:.1f} s")
    assert (named, false) == (COUNT, 0)
