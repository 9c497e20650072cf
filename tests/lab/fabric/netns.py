# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes as network namespaces of this machine: one switch namespace with bridges, a veth pair a node, shaped by tbf.

Nothing is made outside the namespaces: deleting them deletes all links, and the machine's own network is not touched.
Each has a resolv.conf of its own, which ip-netns(8) shows to programs as the machine's: a VPN's daemon writes to it.
``tbf`` on both ends of a pair shapes both directions, headers of the packets included (tc-tbf(8)).
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import typing as t
import uuid

FABRIC, MANAGEMENT = "fab0", "mgmt0"
PREFIX = "muster-net-"
_SUBNETS = {FABRIC: "10.77.0", MANAGEMENT: "10.78.0"}
_FIRST_HOST = 11
# At least two of the largest packets that TCP hands over at once, and what the rate allows in the time that a busy
# processor wakes later than tbf's timer asked: what the bucket cannot hold meanwhile is lost. A longer burst would
# pass above the rate.
_BURST_BYTES = 131072
_BURST_S = 2.1e-3
_PROGRAMS = ("ip", "tc")
_GONE_S = 10.0
_OWN_FILES = pathlib.Path("/etc/netns")
_RESOLVER = pathlib.Path("/etc/resolv.conf")


class NetError(Exception):
    """The links cannot be had; the message is one line that says why."""


def unmet() -> str:
    """Return why namespaces cannot be made on this machine, empty when they can."""
    if sys.platform != "linux":
        return f"network namespaces need Linux, this is {sys.platform}"
    if os.geteuid() != 0:
        return "network namespaces need root"
    lacking = [name for name in _PROGRAMS if not shutil.which(name)]
    return f"{', '.join(lacking)} of iproute2 is not installed" if lacking else ""


@dataclasses.dataclass(frozen=True, slots=True)
class Wire:
    """What joins one node to the switch: the rates in Mbit/s; ``management`` None means no second network.

    ``management_first`` makes the slow interface the one with the lower number, as on most machines that have two.
    """

    fabric: float
    management: float | None = None
    management_first: bool = False

    def interfaces(self) -> list[tuple[str, float]]:
        """Return (interface, rate in Mbit/s) in the order in which they are made."""
        found = [(FABRIC, self.fabric)]
        if self.management is not None:
            found.insert(0 if self.management_first else 1, (MANAGEMENT, self.management))
        return found


class Net:
    """Namespaces that live from :meth:`up` to :meth:`down`; nodes are called ``node-1``, ``node-2``, …"""

    # How the namespaces of all that this process has made begin: others may be at work on the same machine.
    made: t.ClassVar[list[str]] = []

    def __init__(self, wires: t.Sequence[Wire]) -> None:
        self.wires = tuple(wires)
        self.id = f"{PREFIX}{uuid.uuid4().hex[:8]}"
        self.made.append(self.id)
        self.nodes = tuple(f"node-{number}" for number in range(1, len(wires) + 1))

    def up(self) -> None:
        """Make all namespaces, links, addresses and rates.

        :raises NetError: naming the command that failed; what was made until then is removed again.
        """
        try:
            self._make(self.switch)
            for interface in _SUBNETS:
                if any(interface == name for wire in self.wires for name, _ in wire.interfaces()):
                    self._ip(self.switch, "link", "add", interface, "type", "bridge")
                    self._ip(self.switch, "link", "set", interface, "up")
            for number, (node, wire) in enumerate(zip(self.nodes, self.wires, strict=True), 1):
                self._make(self.namespace(node))
                for interface, rate in wire.interfaces():
                    self._join(node, number, interface, rate)
        except NetError:
            self.down()
            raise

    def down(self) -> list[str]:
        """End all processes in the namespaces and remove them; return what is still there: nothing, if all is well."""
        mine = [name for name in namespaces() if name.startswith(self.id)]
        end = time.monotonic() + _GONE_S
        while (pids := [pid for name in mine for pid in inside(name)]) and time.monotonic() < end:
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(0.02)
        for name in mine:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
            shutil.rmtree(_OWN_FILES / name, ignore_errors=True)
        # Another lab's files, or the machine's own, keep the folder.
        with contextlib.suppress(OSError):
            _OWN_FILES.rmdir()
        return [f"process {pid}" for pid in pids] + [name for name in namespaces() if name.startswith(self.id)]

    @property
    def switch(self) -> str:
        """The namespace that holds the bridges."""
        return f"{self.id}-switch"

    def namespace(self, node: str) -> str:
        """Return the namespace of a node."""
        return f"{self.id}-{node}"

    def address(self, node: str, interface: str = FABRIC) -> str:
        """Return a node's address on one of its interfaces."""
        return f"{_SUBNETS[interface]}.{_FIRST_HOST + self.nodes.index(node)}"

    def shape(self, node: str, rate: float, interface: str = FABRIC) -> None:
        """Give both directions of a node's link a rate in Mbit/s."""
        for space, device in ((self.namespace(node), interface), (self.switch, self._port(node, interface))):
            burst = max(_BURST_BYTES, round(rate * 1e6 / 8 * _BURST_S))
            words = ["rate", f"{rate:g}mbit", "burst", str(burst), "latency", "50ms"]
            _run("tc", "-n", space, "qdisc", "replace", "dev", device, "root", "tbf", *words)

    def unplug(self, node: str, interface: str = FABRIC) -> None:
        """Take a node's link down at the switch, as a pulled cable does."""
        self._ip(self.switch, "link", "set", self._port(node, interface), "down")

    def plug(self, node: str, interface: str = FABRIC) -> None:
        """Take a node's link up again."""
        self._ip(self.switch, "link", "set", self._port(node, interface), "up")

    def join_switch(self, interface: str = FABRIC) -> str:
        """Give the switch an address of its own, so that a controller can run there; return it."""
        address = f"{_SUBNETS[interface]}.1"
        self._ip(self.switch, "address", "add", f"{address}/24", "dev", interface)
        return address

    def sent(self, node: str, interface: str = FABRIC) -> int:
        """Return the bytes that a node's interface has sent so far."""
        done = _run("ip", "-n", self.namespace(node), "-j", "-s", "link", "show", "dev", interface)
        return int(json.loads(done)[0]["stats64"]["tx"]["bytes"])

    def wrapper(
        self, node: str, program: str, place: pathlib.Path, variables: t.Mapping[str, str] | None = None
    ) -> str:
        """Write a script that runs ``program`` in a node's namespace, with ``variables`` set, and return its path."""
        words = ["env", *(f"{name}={value}" for name, value in (variables or {}).items())] if variables else []
        line = " ".join(["exec", "ip", "netns", "exec", self.namespace(node), *words, program, '"$@"'])
        place.write_text(f"#!/bin/sh\n{line}\n")
        place.chmod(0o755)
        return str(place)

    def _make(self, name: str) -> None:
        _run("ip", "netns", "add", name)
        own = _OWN_FILES / name
        own.mkdir(parents=True)
        (own / _RESOLVER.name).write_bytes(_RESOLVER.read_bytes() if _RESOLVER.exists() else b"")
        self._ip(name, "link", "set", "lo", "up")

    def _join(self, node: str, number: int, interface: str, rate: float) -> None:
        space, port = self.namespace(node), self._port(node, interface)
        self._ip(self.switch, "link", "add", port, "type", "veth", "peer", "name", interface, "netns", space)
        self._ip(self.switch, "link", "set", port, "master", interface, "up")
        self._ip(space, "address", "add", f"{self.address(node, interface)}/24", "dev", interface)
        self._ip(space, "link", "set", interface, "up")
        self.shape(node, rate, interface)

    def _port(self, node: str, interface: str) -> str:
        return f"{interface[0]}-{node}"

    def _ip(self, space: str, *words: str) -> None:
        _run("ip", "-n", space, *words)


def namespaces() -> list[str]:
    """Return the names of all network namespaces that this module has made and not removed."""
    names = [line.split()[0] for line in _run("ip", "netns", "list").splitlines() if line.strip()]
    return [name for name in names if name.startswith(PREFIX)]


def inside(namespace: str) -> list[int]:
    """Return the processes in a namespace."""
    done = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=False)
    return [int(word) for word in done.stdout.split()]


def _run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise NetError(f"{' '.join(argv)} failed: {said}")
    return done.stdout
