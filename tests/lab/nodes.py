# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's nodes: containers that boot systemd, on a network of their own, reached over SSH with a key of the run."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import ipaddress
import json
import pathlib
import shutil
import socket
import subprocess
import time
import typing as t
import uuid

from . import traces
from .host import LabError
from .podman import Podman

SHARED = "/shared"
_BOOT_S = 60
_STOP_S = 20
# The first addresses of the subnet are the bridge's own.
_FIRST_ADDRESS = 11


@dataclasses.dataclass(frozen=True, slots=True)
class Mount:
    """A folder of this machine that the nodes see read-only at the same path."""

    path: str


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """One node: its inventory name, its container, its address on the lab's network."""

    name: str
    container: str
    address: str


class Lab:
    """Nodes that live from :meth:`up` to :meth:`down`. ``folder`` holds keys, the shared disk and inventories.

    ``behind``: names of nodes on a network of their own, which reach the others by address translation only. This
    machine is their router, and reaches all.
    """

    def __init__(self, podman: Podman, folder: pathlib.Path, size: int = 2, behind: t.Collection[str] = ()) -> None:
        self.podman = podman
        self.folder = folder
        self.shared = folder / "shared"
        self.id = f"{traces.LABEL}-{uuid.uuid4().hex[:8]}"
        self.size = size
        self.behind = behind
        self.nodes: tuple[Node, ...] = ()
        self.made: frozenset[str] = frozenset()

    def up(self, root_image: str, mounts: t.Sequence[Mount] = ()) -> None:
        """Make keys, network and nodes, and wait until systemd and sshd of each are ready.

        :raises LabError: naming the node that did not boot and its failed units.
        """
        traces.remember(self.podman)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.shared.mkdir(exist_ok=True)
        self.shared.chmod(0o777)
        subnets = {network: self._network(network) for network in dict.fromkeys(map(self.network_of, self._names()))}
        self.nodes = tuple(
            Node(name, f"{self.id}-{index + 1}", str(subnets[self.network_of(name)][_FIRST_ADDRESS + index]))
            for index, name in enumerate(self._names())
        )
        self._keys()
        with concurrent.futures.ThreadPoolExecutor(self.size) as pool:
            for done in [pool.submit(self._create, node, root_image, mounts) for node in self.nodes]:
                done.result()
        self.made = traces.own(self.podman, self.id)

    def down(self) -> list[str]:
        """Remove all that :meth:`up` made; return what is still there afterwards (nothing, if all is well)."""
        self._close_connections()
        self.made |= traces.own(self.podman, self.id)
        traces.remove(self.podman, self.id)
        tidied = traces.tidy(self.podman)
        shutil.rmtree(self.folder, ignore_errors=True)
        left = [*traces.left(self.podman, self.id, self.made), *tidied]
        return [*left, f"folder {self.folder}"] if self.folder.exists() else left

    def node(self, name: str) -> Node:
        """Return a node by its inventory name."""
        return next(node for node in self.nodes if node.name == name)

    def run(self, node: str, *argv: str, limit_s: float = 60) -> subprocess.CompletedProcess[bytes]:
        """Run a command as root on a node, past SSH, and return how it ended."""
        return self.podman.run("exec", self.node(node).container, *argv, limit_s=limit_s)

    def ask(self, node: str, *argv: str) -> str:
        """Run a command as root on a node, past SSH, and return its output.

        :raises LabError: when it fails.
        """
        done = self.run(node, *argv)
        if done.returncode != 0:
            said = (done.stderr or done.stdout).decode(errors="replace").strip()
            raise LabError(f"{argv[0]} on {node} answered {done.returncode}: {said[-500:]}")
        return done.stdout.decode(errors="replace").strip()

    def power_off(self, node: str) -> None:
        """Take a node away at once, as a lost machine goes: no process gets a signal that it could act on."""
        self.podman("kill", "--signal=KILL", self.node(node).container)
        self.podman("wait", self.node(node).container, limit_s=_STOP_S)

    def shut_down(self, node: str) -> None:
        """Stop a node in an orderly way: systemd ends its units and then itself."""
        self.podman("stop", f"--time={_STOP_S}", self.node(node).container, limit_s=_STOP_S + 30)

    def power_on(self, node: str) -> None:
        """Boot a node that was stopped, with the disk and the address that it had, and wait until it is ready."""
        self.podman("start", self.node(node).container)
        self._wait_ready(self.node(node))

    def plug_in(self, node: str) -> None:
        """Boot a node that was stopped and wait for sshd alone: a unit of it may wait for another machine.

        :raises LabError: when it does not answer.
        """
        self.podman("start", self.node(node).container)
        end = time.monotonic() + _BOOT_S
        while not _speaks_ssh(self.node(node).address):
            if time.monotonic() > end:
                raise LabError(f"{node}: sshd does not answer")
            time.sleep(0.1)

    def inventory(self, user: str, **variables: t.Any) -> pathlib.Path:
        """Write an inventory by which Ansible reaches all nodes as ``user``; return its path."""
        return write_inventory(self.folder, self.nodes, user, **variables)

    def network_of(self, name: str) -> str:
        """Return the name of the network that a node is on."""
        return f"{self.id}-behind" if name in self.behind else self.id

    def _names(self) -> list[str]:
        return [f"lab-{index + 1}" for index in range(self.size)]

    def _network(self, name: str) -> list[ipaddress.IPv4Address]:
        # Not an internal one: netavark gives its bridge no address, and then this machine has no route to the nodes.
        self.podman("network", "create", "--disable-dns", *traces.labels(self.id), name)
        found = self.podman.json("network", "inspect", name)[0]["subnets"][0]["subnet"]
        return list(ipaddress.IPv4Network(found))

    def _keys(self) -> None:
        login_key(self.folder)
        for node in self.nodes:
            host_key(self.folder, node)

    def _create(self, node: Node, root_image: str, mounts: t.Sequence[Mount]) -> None:
        binds = [
            ssh_volume(self.folder, node),
            f"--volume={self.shared}:{SHARED}",
            *(f"--volume={mount.path}:{mount.path}:ro" for mount in mounts),
        ]
        start(self.podman, self.id, node, root_image, binds, self.network_of(node.name))
        self._wait_ready(node)

    def _wait_ready(self, node: Node) -> None:
        end = time.monotonic() + _BOOT_S
        state = ""
        while time.monotonic() < end and state != "degraded":
            done = self.podman.run("exec", node.container, "systemctl", "is-system-running")
            state = done.stdout.decode().strip() or "not there"
            if state == "running" and _speaks_ssh(node.address):
                return
            time.sleep(0.1)
        failed = self.podman.run(
            "exec", node.container, "systemctl", "list-units", "--failed", "--plain", "--no-legend"
        )
        units = "".join(f", failed: {line.split()[0]}" for line in failed.stdout.decode().splitlines())
        raise LabError(f"{node.name} is not ready: systemd is {state}, sshd does not answer or a unit failed{units}")

    def _close_connections(self) -> None:
        for place in (self.folder / "ansible" / "cp").glob("*"):
            argv = ["ssh", "-o", f"ControlPath={place}", "-O", "exit", "any"]
            subprocess.run(argv, capture_output=True, timeout=10, check=False)


def login_key(folder: pathlib.Path) -> None:
    """Make the key of a lab, by which its user logs in on every node."""
    if not (folder / "key").exists():
        _key(folder / "key")


def host_key(folder: pathlib.Path, node: Node) -> None:
    """Make the key by which a node is known, and note it where the lab's SSH clients look; a former one is forgotten."""
    place = folder / "ssh" / node.name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(mode=0o755, parents=True)
    _key(place / "host_key")
    (place / "authorized_keys").write_text((folder / "key.pub").read_text())
    known = folder / "known_hosts"
    lines = known.read_text().splitlines() if known.exists() else []
    kept = [line for line in lines if line.split()[0] != node.address]
    own = (place / "host_key.pub").read_text().strip()
    known.write_text("".join(f"{line}\n" for line in [*kept, f"{node.address} {own}"]))


def ssh_volume(folder: pathlib.Path, node: Node) -> str:
    """Return podman's option that gives a node its host key and the key that may log in."""
    return f"--volume={folder}/ssh/{node.name}:/etc/ssh/lab:ro"


def write_inventory(folder: pathlib.Path, nodes: t.Sequence[Node], user: str, **variables: t.Any) -> pathlib.Path:
    """Write an inventory by which Ansible reaches ``nodes`` as ``user``; return its path."""
    options = [
        f"UserKnownHostsFile={folder}/known_hosts",
        "StrictHostKeyChecking=yes",
        "IdentitiesOnly=yes",
        "ServerAliveInterval=2",
        "ServerAliveCountMax=3",
    ]
    common = {
        "ansible_user": user,
        "ansible_ssh_private_key_file": f"{folder}/key",
        "ansible_ssh_common_args": " ".join(f"-o {option}" for option in options),
        **variables,
    }
    hosts = {node.name: {"ansible_host": node.address} for node in nodes}
    path = folder / f"inventory-{uuid.uuid4().hex[:6]}.json"
    path.write_text(json.dumps({"muster_nodes": {"hosts": hosts, "vars": common}}, indent=1))
    return path


def start(
    podman: Podman, lab_id: str, node: Node, root_image: str, options: t.Sequence[str], network: str = ""
) -> None:
    """Boot a machine of a lab in a container of its own on the lab's network; ``options`` are further ones of podman.

    :raises LabError: when podman refuses.
    """
    podman(
        "run",
        "--detach",
        f"--name={node.container}",
        f"--hostname={node.name}",
        # The private cgroup namespace makes the node's systemd, and what it measures, see a clean root.
        "--privileged",
        "--cgroupns=private",
        *_systemd_options(),
        "--tmpfs=/run",
        "--tmpfs=/run/lock",
        "--tmpfs=/tmp:exec",
        "--shm-size=256m",
        f"--network={network or lab_id}",
        f"--ip={node.address}",
        # A node that comes back with another hardware address is not found until its neighbours forget the old one.
        f"--mac-address={_mac(node.address)}",
        *traces.labels(lab_id),
        *options,
        root_image,
        # As on a machine that is none in a container: what systemd mounts for a unit, such as its credentials, is seen.
        *("sh", "-c", "mount --make-rshared / && exec /sbin/init"),
    )


def _systemd_options() -> list[str]:
    """Return podman's options for a container that boots systemd (its Container Interface: ``container``, signal)."""
    if pathlib.Path("/sys/fs/cgroup/cgroup.controllers").exists():
        return ["--systemd=always"]
    # On cgroup version 1 podman's preparation mounts the host's name=systemd hierarchy into every node: they share one
    # root, and a node that shuts down takes the others' control groups away (seen with podman 4.3.1).
    return ["--systemd=false", "--env=container=podman", "--stop-signal=SIGRTMIN+3"]


def _mac(address: str) -> str:
    """Return a locally administered hardware address that is as unique as the IPv4 address."""
    return ":".join(["0a", "58", *(f"{byte:02x}" for byte in ipaddress.IPv4Address(address).packed)])


def _key(path: pathlib.Path) -> None:
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", traces.LABEL, "-f", str(path)]
    subprocess.run(argv, check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=30)


def _speaks_ssh(address: str) -> bool:
    try:
        with socket.create_connection((address, 22), timeout=2) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False
