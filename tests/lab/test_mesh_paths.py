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

from ansible_collections.muster.training.plugins.module_utils._model import fabric_gate
from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.island import Island
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.module_utils._model.node import Node
from ansible_collections.muster.training.plugins.plugin_utils._fabric.topology import reachability
from ansible_collections.muster.training.plugins.plugin_utils._fabric.topology.islands import find_islands
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

# What a machine's agent answers when fabric_verify asks it for its ways to the others.
REACH = """
import json, sys
from ansible_collections.muster.training.plugins.module_utils._node import facts_host, facts_source, host_reachability
place, targets, mesh = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
source = facts_source.FactsSource({"path": [place]})
answers = host_reachability.check_addresses([tuple(end) for end in targets], 5)
peers = facts_host.read_tailscale(source, {"tailscaled": ""}, True, mesh)["peers"]
print(json.dumps({"answers": answers, "mesh": peers}))
"""
# Gradients of 4 bytes, 2(n-1)/n of them over an assumed uplink of 1 Gb/s.
PARAMETERS, SECONDS = 750_000_000, "about 32 s per step at an assumed 1 Gb/s"
WAYS = (
    "train on each island with a job of its own (placement.island)",
    "set job.placement.allow_slow_network: true",
)


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

    def separate(self, name: str, others: t.Sequence[str]) -> None:
        """Let no connection pass between a machine and others but over the tailnet."""
        for here, there in [pair for other in others for pair in ((name, other), (other, name))]:
            to = self.tailnet.net.address(there)
            self.tailnet.run(here, "ip", "rule", "add", "pref", "2", "ipproto", "tcp", "to", to, "prohibit")

    def find_islands(self) -> list[Island]:
        """Return the islands of all machines, by what each of them answers about its ways to the others."""
        known = [self._describe(name) for name in self.names]
        targets = reachability.connection_targets(known, {})
        answers = {}
        for name in self.names:
            ends = [end for found in targets.get(name, {}).values() for end in found]
            asked = (json.dumps(ends), json.dumps(reachability.mesh_addresses(known, name)))
            said = self.tailnet.run(name, sys.executable, "-c", REACH, str(self.tailnet.folder / name), *asked)
            answers[name] = reachability.ReachAnswer.from_dict(json.loads(said))
        return find_islands(known, reachability.read_paths(known, targets, answers))

    def _describe(self, name: str) -> Node:
        lan = {"address": self.tailnet.net.address(name), "interface": "eth0", "prefix": 24}
        mesh = {"address": self.tailnet.address_of(name), "interface": "tailscale0", "prefix": 32}
        return Node.from_dict({"name": name, "addresses": {"lan": [lan], "mesh": [mesh]}, "boot_id": name})

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
def three(tmp_path: pathlib.Path) -> t.Iterator[Machines]:
    """Three machines that have joined."""
    with open_tailnet(tmp_path, 3) as tailnet:
        made = Machines(tailnet)
        made.join()
        yield made


def judge(islands: t.Sequence[Island], **placement: t.Any) -> fabric_gate.FabricGate:
    """Ask whether a gang may run on all machines of the islands, whose speed was not measured."""
    hosts = [name for island in islands for name in island.nodes]
    verdicts = [
        {"island": item.name, "outcome": "unproven", "lane": item.lane, "nodes": list(item.nodes)} for item in islands
    ]
    job = {"name": "gang", "nodes": len(hosts), "script": "/train.py", "batch": {"parameters": PARAMETERS}}
    return fabric_gate.judge_fabric(parse_job({**job, "placement": placement}), hosts, verdicts)


def test_a_gang_over_mesh_and_lan_is_refused_with_its_seconds_and_the_ways_out(three: Machines) -> None:
    """Two machines share a LAN, the third one comes in over the tailnet; then all have the tailnet alone."""
    first, second, apart = three.names
    assert [(item.nodes, item.lane) for item in three.find_islands()] == [((first, second, apart), "C")]
    three.separate(apart, [first, second])
    mixed = three.find_islands()
    assert [(item.nodes, item.lane) for item in mixed][0] == ((first, second), "C")
    assert [item.nodes for item in mixed][1:] == [(apart,)]
    with pytest.raises(RefusedError) as raised:
        judge(mixed)
    said = str(raised.value)
    assert f"the nodes are on different islands ({', '.join(item.name for item in mixed)}): {SECONDS}" in said, said
    assert "Choose hosts of one island" in said and all(way in said for way in WAYS), said
    assert "different islands" in judge(mixed, allow_slow_network=True).warnings[-1]
    judge(mixed[:1])

    three.separate(second, [first])
    (mesh,) = three.find_islands()
    assert (mesh.nodes, mesh.lane, mesh.link) == ((first, second, apart), "D", "mesh")
    with pytest.raises(RefusedError) as raised:
        judge([mesh])
    said = str(raised.value)
    assert f"island {mesh.name} is a mesh or the open network (lane D): {SECONDS}" in said, said
    assert "Choose hosts of one LAN" in said and all(way in said for way in WAYS), said
    judge([mesh], allow_slow_network=True)

    for name in (first, second):
        three.cut(name)
    relayed = next(item for item in three.find_islands() if len(item.nodes) > 1)
    assert relayed.lane == "E", relayed
    with pytest.raises(RefusedError, match=r"through a relay only \(lane E\)"):
        judge([relayed], allow_slow_network=True)
    NOTES.append(f"gang over mesh and LAN: {said}")


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
