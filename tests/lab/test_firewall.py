# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The firewalls of real machines, opened for a cluster by the role: packets are what decides, not rules.

Two machines are the cluster, the third is the world. Every firewall is switched on as its own manual says.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import Play, Result
from ansible_collections.muster.training.tests.lab import image
from ansible_collections.muster.training.tests.lab.k3s import machines
from ansible_collections.muster.training.tests.lab.k3s.session import open_machines
from ansible_collections.muster.training.tests.support.kube_lab import NOTES

SERVER, AGENT, WORLD = "lab-1", "lab-2", "lab-3"
CLUSTER = (SERVER, AGENT)
NFTABLES = """flush ruleset
table inet filter {
  chain input {
    type filter hook input priority filter; policy drop;
    ct state established,related accept
    iifname "lo" accept
    meta l4proto { icmp, icmpv6 } accept
    tcp dport 22 accept
  }
  chain forward { type filter hook forward priority filter; policy drop; }
}
"""
# How each is switched on and off again.
FIREWALLS = {
    "ufw": ("ufw allow 22/tcp && ufw --force enable", "ufw --force disable && ufw --force delete allow 22/tcp"),
    "firewalld": ("systemctl start firewalld", "systemctl stop firewalld"),
    "nftables": (
        f"cp /etc/nftables.conf /root && cat > /etc/nftables.conf <<'END'\n{NFTABLES}END\nsystemctl start nftables",
        "systemctl stop nftables && mv /root/nftables.conf /etc/nftables.conf",
    ),
}
PLAYBOOK = """
- hosts: muster_nodes
  gather_facts: false
  become: true
  tasks:
    - name: Check the machines of the cluster
      ansible.builtin.include_role:
        name: muster.training.preflight
        tasks_from: cluster
      when: firewall_state | default('present') == 'present'

    - name: Open or close the firewalls
      ansible.builtin.include_role:
        name: muster.training.firewall
      vars:
        firewall_nodes: "{{ (__preflight_cluster | default({})).nodes | default([]) }}"
        firewall_hosts: "{{ (__preflight_cluster | default({})).firewalls | default([]) }}"
"""
LISTENER = """
import select, socket
sockets = [socket.create_server(("", port)) for port in (6443, 10250, 30123)]
for port in (8472, 4791):
    sockets.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    sockets[-1].bind(("", port))
print("ready", flush=True)
while True:
    for ready in select.select(sockets, [], [])[0]:
        if ready.type == socket.SOCK_STREAM:
            ready.accept()[0].close()
        else:
            data, origin = ready.recvfrom(100)
            ready.sendto(data, origin)
"""
PROBE = """
import socket, sys
def reaches(kind, port):
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.settimeout(0.7)
        try:
            probe.connect((sys.argv[1], port))
            if kind == socket.SOCK_DGRAM:
                probe.send(b"x")
                probe.recv(10)
        except OSError:
            return False
        return True
open_ports = [f"{port}/tcp" for port in (6443, 10250, 30123) if reaches(socket.SOCK_STREAM, port)]
print(*open_ports, *(f"{port}/udp" for port in (8472, 4791) if reaches(socket.SOCK_DGRAM, port)))
"""
ALL = ["6443/tcp", "10250/tcp", "30123/tcp", "8472/udp", "4791/udp"]


class World:
    """Three machines, of which two are in the inventory, and a controller."""

    def __init__(self, lab: machines.BareLab) -> None:
        self.lab = lab
        self.inventory = lab.inventory(image.USER, ansible_become=True)
        content = json.loads(self.inventory.read_text())
        hosts = content["muster_nodes"]["hosts"]
        del hosts[WORLD]
        hosts[SERVER]["muster_k3s_role"], hosts[AGENT]["muster_k3s_role"] = "server", "agent"
        content["muster_nodes"]["vars"]["k3s_version"] = machines.VERSION
        self.inventory.write_text(json.dumps(content))
        self.playbook = lab.folder / "firewall.yml"
        self.playbook.write_text(PLAYBOOK)
        self.plays = 0

    def play(self, *words: str, **values: t.Any) -> Result:
        """Run the role as a user does."""
        program = os.fspath(pathlib.Path(sys.executable).parent / "ansible-playbook")
        argv = [program, "-i", os.fspath(self.inventory), os.fspath(self.playbook), "-e", json.dumps(values), *words]
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("ANSIBLE_", "PYTHON", "MUSTER_", "XDG_"))}
        home = {"ANSIBLE_HOME": str(self.lab.folder / "ansible"), "ANSIBLE_NOCOLOR": "1", "LC_ALL": "C.UTF-8"}
        self.plays += 1
        log = self.lab.folder / f"play-{self.plays}.log"
        return Play(argv, {**kept, **home}, log, self.lab.folder, 0o022).wait(120)

    def state(self) -> dict[str, list[str]]:
        """What the machines are, their rules included."""
        return {name: [*self.lab.state(name), *self.rules(name)] for name in CLUSTER}

    def rules(self, name: str) -> list[str]:
        """The rules in force, without counters and handles."""
        text = self.lab.ask(name, "sh", "-c", "nft --stateless list ruleset")
        return [f"nft {line.strip()}" for line in text.splitlines()]

    def find_open(self, origin: str, target: str) -> list[str]:
        """Return the ports of a machine that packets from another one reach."""
        address = self.lab.node(target).address
        return self.lab.ask(origin, "python3", "-I", "-c", PROBE, address).split()


@pytest.fixture(scope="module")
def world() -> t.Iterator[World]:
    """The machines, booted, with something that answers on each port."""
    with open_machines(image.FIREWALLS, size=3) as lab:
        yield World(lab)


def listen(world: World, name: str) -> None:
    """Have something answer on all ports of a machine."""
    start = ["systemd-run", "--unit=listener", "--quiet", "python3", "-I", "-c", LISTENER]
    world.lab.ask(name, *start)
    wait = "for turn in $(seq 100); do journalctl -u listener | grep -q ready && exit 0; sleep 0.05; done; exit 1"
    world.lab.ask(name, "sh", "-c", wait)


@pytest.fixture(params=sorted(FIREWALLS))
def tool(request: pytest.FixtureRequest, world: World) -> t.Iterator[str]:
    """A firewall, switched on on both machines of the cluster."""
    on, off = FIREWALLS[request.param]
    for name in CLUSTER:
        world.lab.ask(name, "bash", "-c", on)
    try:
        yield request.param
    finally:
        for name in CLUSTER:
            world.lab.run(name, "systemctl", "stop", "listener")
            world.lab.ask(name, "bash", "-c", off)


def test_the_cluster_gets_through_and_the_world_does_not(world: World, tool: str) -> None:
    before = world.state()
    checked = world.play("--check")
    assert checked.code == 0 and checked.changed == 1, checked.output
    assert world.state() == before
    done = world.play()
    assert done.code == 0 and done.changed == 1, done.output
    opened = {name: world.rules(name) for name in CLUSTER}
    for name in CLUSTER:
        listen(world, name)
    assert world.find_open(AGENT, SERVER) == world.find_open(SERVER, AGENT) == ALL
    assert world.find_open(WORLD, SERVER) == world.find_open(WORLD, AGENT) == []
    assert reach_from_here(world, SERVER, 6443) and not reach_from_here(world, SERVER, 10250)
    assert not reach_from_here(world, AGENT, 6443)
    for name in CLUSTER:
        world.lab.ask(name, "systemctl", "stop", "listener")
    asked = {name: world.lab.requests(name) for name in CLUSTER}
    again = world.play()
    assert again.code == 0 and again.changed == 0, again.output
    assert {name: world.rules(name) for name in CLUSTER} == opened
    # What was seen with the rest of the machine is enough.
    assert {name: world.lab.requests(name) - asked[name] for name in CLUSTER} == dict.fromkeys(CLUSTER, 1)
    NOTES.append(f"{tool}: opened in {done.seconds:.1f} s, again {again.seconds:.1f} s")
    closed = world.play(firewall_state="absent")
    assert closed.code == 0 and closed.recap[SERVER]["changed"] == closed.recap[AGENT]["changed"] == 1, closed.output
    assert world.state() == before
    gone = world.play(firewall_state="absent")
    assert gone.code == 0 and gone.changed == 0, gone.output


def test_what_was_opened_stays_open_when_the_firewall_is_read_again(world: World, tool: str) -> None:
    assert world.play().code == 0
    reload = {"ufw": "ufw reload", "firewalld": "firewall-cmd --reload", "nftables": "systemctl restart nftables"}
    world.lab.ask(SERVER, "sh", "-c", reload[tool])
    listen(world, SERVER)
    assert world.find_open(AGENT, SERVER) == ALL and world.find_open(WORLD, SERVER) == []
    world.lab.ask(SERVER, "systemctl", "stop", "listener")
    again = world.play()
    assert again.code == 0 and again.changed == 0, again.output
    assert world.play(firewall_state="absent").code == 0


def test_without_a_firewall_nothing_is_done(world: World) -> None:
    before = world.state()
    done = world.play()
    assert done.code == 0 and done.changed == 0, done.output
    assert world.state() == before


def reach_from_here(world: World, name: str, port: int) -> bool:
    """Whether the controller, which manages the machines over SSH, reaches a port."""
    code = f"import socket; socket.create_connection(('{world.lab.node(name).address}', {port}), timeout=1)"
    return subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, check=False).returncode == 0
