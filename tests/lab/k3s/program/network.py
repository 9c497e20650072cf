# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The network between pods as flannel makes it: VXLAN by the kernel, or routes alone (host-gw).

Names, annotations, port and MTU are flannel's (backend/vxlan): who has which pods, and at which address and hardware
address its VXLAN ends, each node writes to its Node.
"""

from __future__ import annotations

import http.client
import json
import pathlib
import subprocess
import threading
import time
import typing as t

from common import DATA, ask_api, write

AGENT = DATA / "agent"
BACKENDS = ("vxlan", "host-gw", "none")
LINK = "flannel.1"
_VNI, _PORT, _OVERHEAD = 1, 8472, 50
_PREFIX = "flannel.alpha.coreos.com/"


class Peer(t.NamedTuple):
    """Another node: the range of its pods, its address, and the hardware address of its end of the VXLAN."""

    pods: str
    address: str
    hardware: str


def start(name: str, api: str, settings: t.Mapping[str, str], interface: str, address: str) -> Network:
    """Make this node's part of the network, and keep it as the cluster's nodes are; ``address``: this node's own."""
    subprocess.run(["mount", "--make-rshared", "/"], check=True)
    subprocess.run(["sysctl", "-qw", "net.ipv4.ip_forward=1"], check=True)
    pods = settings["pods"]
    comment = ["-m", "comment", "--comment", "flanneld masq"]
    rule = ["POSTROUTING", "-s", pods, "!", "-d", pods, *comment, "-j", "MASQUERADE"]
    if subprocess.run(["iptables", "-w", "-t", "nat", "-C", *rule], capture_output=True).returncode:
        subprocess.run(["iptables", "-w", "-t", "nat", "-A", *rule], check=True)
    kinds = {"vxlan": Vxlan, "host-gw": Routes, "none": Network}
    made = kinds[settings["backend"]](name, api, interface or interface_of(address), address)
    threading.Thread(target=made.follow, daemon=True).start()
    return made


class Network:
    """What all backends do: nodes are looked at for ever. This one, ``none``, leaves the network to others."""

    def __init__(self, name: str, api: str, interface: str, address: str) -> None:
        self.name, self.api, self.interface, self.address = name, api, interface, address
        self.there: set[Peer] = set()

    def follow(self) -> None:
        """Look at the cluster's nodes for ever."""
        while True:
            try:
                # A kubelet may read its own Node only.
                status, answer = self.ask("kube-proxy", "GET", "/api/v1/nodes")
                if status == 200:
                    self.apply(answer["items"])
            except (OSError, http.client.HTTPException, ValueError, subprocess.CalledProcessError):
                pass
            time.sleep(1)

    def ask(self, user: str, method: str, path: str, body: t.Any = None) -> tuple[int, t.Any]:
        """Ask the API as a user of this node."""
        keys = {"certificate": f"{AGENT}/client-{user}.crt", "key": f"{AGENT}/client-{user}.key"}
        return ask_api(self.api, method, path, body, ca=f"{AGENT}/server-ca.crt", **keys)

    def apply(self, nodes: t.Sequence[t.Mapping[str, t.Any]]) -> None:
        """Bring this machine to what the nodes are."""

    def remove(self) -> None:
        """Take away what does not outlive K3s."""


class Routes(Network):
    """host-gw: one route for each other node's pods, through that node, which has to be on the same network."""

    def apply(self, nodes: t.Sequence[t.Mapping[str, t.Any]]) -> None:
        wanted = set()
        for node in nodes:
            pods, at = node["spec"].get("podCIDR"), _address(node)
            if pods and node["metadata"]["name"] == self.name:
                write_cni(pods, 0)
            elif pods and at:
                wanted.add(Peer(pods, at, ""))
        for peer in wanted - self.there:
            _ip("route", "replace", peer.pods, "via", peer.address)
        self._drop(self.there - wanted, {peer.pods for peer in wanted})
        self.there = wanted

    def remove(self) -> None:
        self._drop(self.there, set())

    def _drop(self, peers: t.Collection[Peer], kept: t.Collection[str]) -> None:
        for peer in peers:
            if peer.pods not in kept:
                _ip("route", "del", peer.pods)


class Vxlan(Network):
    """VXLAN over the interface that flannel-iface names, or over the one of the node's address."""

    def apply(self, nodes: t.Sequence[t.Mapping[str, t.Any]]) -> None:
        own = next((node for node in nodes if node["metadata"]["name"] == self.name), None)
        if own is None or not own["spec"].get("podCIDR"):
            return
        pods = own["spec"]["podCIDR"]
        lower = json.loads(_ip("-j", "link", "show", "dev", self.interface))[0]
        mtu = lower["mtu"] - _OVERHEAD
        if not self._is_there():
            # Gone with the interface below it, for instance when tailscaled was started again.
            self.there = set()
            self._make(pods, mtu)
        write_cni(pods, mtu)
        self._announce(own)
        wanted = {peer for peer in map(_read_peer, nodes) if peer is not None and peer.pods != pods}
        kept = {peer.pods for peer in wanted}
        for peer in self.there - wanted:
            self._forget(peer, peer.pods in kept)
        for peer in wanted - self.there:
            self._connect(peer)
        self.there = wanted

    def _is_there(self) -> bool:
        """Return whether the link is there as it shall be; another one of its name is removed."""
        if not pathlib.Path(f"/sys/class/net/{LINK}").exists():
            return False
        found = json.loads(_ip("-d", "-j", "link", "show", "dev", LINK))[0]["linkinfo"]["info_data"]
        if (found.get("local"), found.get("link")) == (self.address, self.interface):
            return True
        _ip("link", "del", LINK)
        return False

    def _make(self, pods: str, mtu: int) -> None:
        words = ["id", str(_VNI), "local", self.address, "dev", self.interface, "dstport", str(_PORT), "nolearning"]
        _ip("link", "add", LINK, "mtu", str(mtu), "type", "vxlan", *words)
        _ip("address", "add", f"{_base(pods)}/32", "dev", LINK)
        _ip("link", "set", LINK, "up")

    def _announce(self, own: t.Mapping[str, t.Any]) -> None:
        hardware = json.loads(_ip("-j", "link", "show", "dev", LINK))[0]["address"]
        wanted = {
            f"{_PREFIX}backend-type": "vxlan",
            f"{_PREFIX}backend-data": json.dumps({"VNI": _VNI, "VtepMAC": hardware}),
            f"{_PREFIX}kube-subnet-manager": "true",
            f"{_PREFIX}public-ip": self.address,
        }
        found = own["metadata"].get("annotations", {})
        if any(found.get(key) != value for key, value in wanted.items()):
            self.ask("kubelet", "PATCH", f"/api/v1/nodes/{self.name}", {"metadata": {"annotations": wanted}})

    def _connect(self, peer: Peer) -> None:
        base = _base(peer.pods)
        _ip("neighbour", "replace", base, "lladdr", peer.hardware, "dev", LINK, "nud", "permanent")
        words = ["fdb", "replace", peer.hardware, "dev", LINK, "dst", peer.address, "self", "permanent"]
        subprocess.run(["bridge", *words], check=True, capture_output=True)
        _ip("route", "replace", peer.pods, "via", base, "dev", LINK, "onlink")

    def _forget(self, peer: Peer, moved: bool) -> None:
        words = ["fdb", "del", peer.hardware, "dev", LINK, "dst", peer.address, "self"]
        subprocess.run(["bridge", *words], check=False, capture_output=True)
        if not moved:
            for argv in (["route", "del", peer.pods], ["neighbour", "del", _base(peer.pods), "dev", LINK]):
                subprocess.run(["ip", *argv], check=False, capture_output=True)


def address_of(interface: str) -> str:
    """Return the first IPv4 address of an interface; ValueError as K3s says it."""
    done = subprocess.run(["ip", "-j", "-4", "address", "show", "dev", interface], capture_output=True, text=True)
    found = [item["local"] for link in json.loads(done.stdout or "[]") for item in link.get("addr_info", [])]
    if not found:
        raise ValueError(f"unable to find IP address on interface {interface}")
    return str(found[0])


def interface_of(address: str) -> str:
    """Return the interface that has an address."""
    for link in json.loads(_ip("-j", "-4", "address", "show")):
        if any(item.get("local") == address for item in link.get("addr_info", [])):
            return str(link["ifname"])
    raise ValueError(f"failed to find the interface for IP {address}")


def write_cni(pods: str, mtu: int) -> None:
    """Write how containerd connects this node's pods: a bridge; ``mtu`` 0 for the default one."""
    ranges = {"type": "host-local", "dataDir": f"{AGENT}/cni", "ranges": [[{"subnet": pods}]]}
    bridge: dict[str, t.Any] = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False}
    bridge |= {"hairpinMode": True, **({"mtu": mtu} if mtu else {})}
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    plugins = [{**bridge, "ipam": {**ranges, "routes": [{"dst": "0.0.0.0/0"}]}}, ports]
    text = json.dumps({"cniVersion": "0.4.0", "name": "cbr0", "plugins": plugins})
    place = AGENT / "etc/cni/net.d/10-flannel.conflist"
    if not place.exists() or place.read_text() != text:
        write(place, text)


def _read_peer(node: t.Mapping[str, t.Any]) -> Peer | None:
    notes = node["metadata"].get("annotations", {})
    pods, data = node["spec"].get("podCIDR"), notes.get(f"{_PREFIX}backend-data")
    if not pods or not data:
        return None
    return Peer(pods, notes[f"{_PREFIX}public-ip"], json.loads(data)["VtepMAC"])


def _address(node: t.Mapping[str, t.Any]) -> str:
    found = [item["address"] for item in node["status"].get("addresses", []) if item["type"] == "InternalIP"]
    return str(found[0]) if found else ""


def _base(pods: str) -> str:
    return pods.partition("/")[0]


def _ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout
