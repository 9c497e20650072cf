# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""K3s over a mesh: a server behind NAT, an agent on another network, and a machine that only reaches the relay.

headscale, its relay and tailscaled are real. The pods' network is VXLAN of the kernel, which the stand-in sets up as
flannel does; with K3S_BINARY it is flannel's own. The tests build on each other, in their order.
"""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.muster.training.tests.fakes.wire import TOKEN
from ansible_collections.muster.training.tests.lab import headscale
from ansible_collections.muster.training.tests.lab.k3s.operator import AGENT, SERVER, Operator
from ansible_collections.muster.training.tests.lab.k3s.session import find_differences, open_operator
from ansible_collections.muster.training.tests.lab.kube import manifests
from ansible_collections.muster.training.tests.lab.tailnet import Minting
from ansible_collections.muster.training.tests.support.kube_lab import NOTES
from ansible_collections.muster.training.tests.support.node_lab import eventually

RELAYED = "lab-3"
CLUSTER_HOSTS = f"{SERVER}:{AGENT}"
# The operator comes in over SSH and uses the API; nobody else begins a connection to the machine behind NAT.
_NAT = ("INPUT", "-i", "eth0", "-m", "conntrack", "--ctstate", "NEW", "-j", "DROP")
_OPEN = ("INPUT", "-i", "eth0", "-p", "tcp", "-m", "multiport", "--dports", "22,6443", "-j", "ACCEPT")
# 1280 of the mesh's interface, less the 50 of VXLAN.
MTU = 1230
# One question to the cluster's DNS, in the network of a pod: the addresses that it answers, null without an answer.
ASK = """
import json, socket, struct, sys
name = b"".join(bytes([len(part)]) + part.encode() for part in sys.argv[1].split(".")) + bytes(1)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
    out.settimeout(5)
    out.sendto(struct.pack(">6H", 7, 256, 1, 0, 0, 0) + name + struct.pack(">2H", 1, 1), ("10.43.0.10", 53))
    try:
        answer = out.recv(4096)
    except TimeoutError:
        print("null")
        sys.exit()
place, found = 12 + len(name) + 4, []
for _turn in range(struct.unpack(">H", answer[6:8])[0]):
    while answer[place] and answer[place] < 192:
        place += answer[place] + 1
    place += 2 if answer[place] >= 192 else 1
    kind, _class, _ttl, size = struct.unpack(">2HIH", answer[place : place + 10])
    place += 10 + size
    if kind == 1:
        found.append(socket.inet_ntoa(answer[place - 4 : place]))
print(json.dumps(found))
"""


class World(t.NamedTuple):
    """The operator, the control server and its keys, and what the machines were before anything was done."""

    operator: Operator
    server: headscale.Headscale
    keys: Minting
    before: dict[str, list[str]]

    def ask(self, node: str, *words: str) -> str:
        return self.operator.lab.ask(node, *words)

    def mesh_address(self, node: str) -> str:
        """Return a machine's address in the mesh."""
        return str(json.loads(self.ask(node, "/usr/local/bin/tailscale", "status", "--json"))["TailscaleIPs"][0])


@pytest.fixture(scope="module")
def world() -> t.Iterator[World]:
    with open_operator(size=3, behind=[SERVER]) as operator:
        release = headscale.release(operator.lab, operator.folder)
        operator.values |= {
            "mesh_source": str(release),
            "mesh_version": headscale.VERSION,
            "k3s_flannel_iface": "tailscale0",
            "muster_gang_scheduling": False,
        }
        made = headscale.Headscale(operator.lab, AGENT, secure=True)
        for rule in (_OPEN, _NAT):
            operator.lab.ask(SERVER, "iptables", "-A", *rule)
        for chain, way in (("INPUT", "-i"), ("OUTPUT", "-o")):
            operator.lab.ask(RELAYED, "iptables", "-A", chain, way, "eth0", "-p", "udp", "-j", "DROP")
        before = {node.name: operator.lab.state(node.name) for node in operator.lab.nodes}
        keys = Minting(made.create_key)
        with keys.loopback() as url:
            token = operator.folder / "token"
            token.write_text(TOKEN)
            token.chmod(0o600)
            operator.values |= {"mesh_api": {"api_url": url, "api_token_file": str(token)}}
            yield World(operator, made, keys, before)


def test_the_machine_behind_nat_is_not_reached_from_the_other_network(world: World) -> None:
    address = world.operator.lab.node(SERVER).address
    ping = ("ping", "-c", "1", "-W", "2")
    assert world.operator.lab.run(AGENT, *ping, address).returncode != 0
    assert world.operator.lab.run(SERVER, *ping, world.operator.lab.node(AGENT).address).returncode == 0


def test_an_interface_that_is_not_there_yet_is_named_and_nothing_is_changed(world: World) -> None:
    result = world.operator.play("cluster", muster_node_hosts=CLUSTER_HOSTS)
    assert result.code != 0 and result.changed == 0 and len(result.errors) == 1, result.output
    assert "has no interface tailscale0 (k3s_flannel_iface)" in result.errors[0], result.output
    assert find_differences(world.operator, world.before) == []


def test_all_machines_join_at_once_with_a_key_each_that_is_made_and_ended(world: World) -> None:
    values = {"mesh_tags": ["tag:muster"], "mesh_login_server": world.server.url}
    result = world.operator.play("mesh", "-vvv", **values)
    assert result.code == 0, result.output
    eventually(lambda: world.server.online() == names(world), "all machines to be connected")
    assert len(set(world.keys.given)) == 3 and not [key for key in world.keys.given if key in result.output]
    assert world.keys.alive() == [] and world.keys.violations == []
    events = sorted(world.operator.ledger())
    assert [event for event, resource, _name in events if resource == "auth_key"] == sorted(
        ["intent", "created", "draining", "deleted", "verified"] * 3
    )
    NOTES.append(f"mesh.yml, three machines with a key each: {result.seconds:.1f} s")


def test_the_relayed_machine_is_named_and_no_other_one(world: World) -> None:
    asked = [world.operator.lab.requests(name) for name in names(world)]
    result = world.operator.play("mesh", mesh_tags=["tag:muster"], mesh_login_server=world.server.url)
    assert result.code == 0 and result.changed == 0, result.output
    # What it is, and the paths to the others.
    assert [world.operator.lab.requests(name) for name in names(world)] == [count + 2 for count in asked]
    assert len(world.keys.given) == 3
    told = [line.strip() for line in result.output.splitlines() if '"msg"' in line]
    assert [line for line in told if "relayed" in line] == [line for line in told if f'"{RELAYED}' in line], told
    assert len([line for line in told if ", direct" in line]) == 2 and len(told) == 3, told


def test_the_table_of_machines_shows_it_before_anything_is_installed(world: World) -> None:
    result = world.operator.play("cluster", "--check", hosts={RELAYED: {"muster_k3s_role": "agent"}})
    assert result.code == 0, result.output
    rows = {name: next(line for line in result.output.splitlines() if f'"{name} ' in line) for name in names(world)}
    assert {name: "relayed" in row for name, row in rows.items()} == {SERVER: False, AGENT: False, RELAYED: True}, rows
    assert all("direct" in rows[name] for name in (SERVER, AGENT)), rows


def names(world: World) -> list[str]:
    """Return the names of all machines."""
    return [node.name for node in world.operator.lab.nodes]


def test_a_k3s_that_loses_its_network_with_the_mesh_is_refused(world: World) -> None:
    result = world.operator.play("cluster", muster_node_hosts=CLUSTER_HOSTS, k3s_version="v1.34.8+k3s1")
    assert result.code != 0 and result.changed == 0 and len(result.errors) == 1, result.output
    assert "K3s v1.34.8+k3s1 loses the network between pods" in result.errors[0], result.output


def test_the_cluster_comes_up_over_the_mesh(world: World) -> None:
    result = world.operator.play("cluster", muster_node_hosts=CLUSTER_HOSTS)
    assert result.code == 0, result.output
    found = {
        node["metadata"]["name"]: [
            item["address"] for item in node["status"]["addresses"] if item["type"] == "InternalIP"
        ]
        for node in world.operator.items("nodes")
    }
    assert found == {name: [world.mesh_address(name)] for name in (SERVER, AGENT)}
    again = world.operator.play("cluster", muster_node_hosts=CLUSTER_HOSTS)
    assert again.code == 0 and again.changed == 0, again.output
    NOTES.append(f"K3s over the mesh, server behind NAT: {result.seconds:.1f} s, again {again.seconds:.1f} s")


def test_pods_reach_each_other_through_the_mesh_with_its_mtu(world: World) -> None:
    for name in (SERVER, AGENT):
        world.operator.kubectl("run", f"on-{name}", f"--image={manifests.image_name('pause')}", *placed_on(name))
    addresses: dict[str, str] = {}

    def running() -> bool:
        pods = world.operator.items("pods", "-n", "default")
        addresses.update({pod["spec"]["nodeName"]: pod["status"]["podIP"] for pod in pods if "podIP" in pod["status"]})
        return set(addresses) == {SERVER, AGENT}

    eventually(running, "both pods to run")
    for here, there in ((SERVER, AGENT), (AGENT, SERVER)):
        pids = world.ask(here, "pidof", "pause").split()
        inside = next(
            pid for pid in pids if f" {addresses[here]}/" in world.ask(here, *enter(pid), "ip", "-4", "address")
        )
        assert f"mtu {MTU} " in world.ask(here, *enter(inside), "ip", "link", "show", "eth0")
        # The largest datagram goes through in one piece (28 octets are the headers), one more octet does not leave.
        ping = (*enter(inside), "ping", "-M", "do", "-c", "2", "-W", "5", addresses[there])
        world.ask(here, *ping, "-s", str(MTU - 28))
        assert world.operator.lab.run(here, *ping, "-s", str(MTU - 27)).returncode != 0
        route = world.ask(here, "ip", "route", "get", addresses[there])
        assert " dev flannel.1 " in route and "dev tailscale0" in world.ask(
            here, "ip", "-d", "link", "show", "flannel.1"
        )


def test_pods_know_the_names_of_services_while_they_are_given(world: World) -> None:
    """CoreDNS is the real one, mounted as in K3s' manifest; the kubelet renews what it mounts within a minute or two."""
    ours = {"muster_node_hosts": CLUSTER_HOSTS, "mesh_tags": ["tag:muster"], "mesh_login_server": world.server.url}
    named = {**ours, "mesh_names": {"mlflow": AGENT}}
    given = world.operator.play("cluster", **named)
    assert given.code == 0, given.output
    # The name of a host, and of a Service: all that pods knew before they still know.
    eventually(lambda: look_up(world, "mlflow.mesh") == [world.mesh_address(AGENT)], "pods to know the name", 180)
    assert look_up(world, "kubernetes.default.svc.cluster.local") == ["10.43.0.1"]
    again = world.operator.play("cluster", **named)
    assert again.code == 0 and again.changed == 0, again.output
    assert "mlflow.mesh" in world.ask(SERVER, "cat", "/etc/hosts")
    taken = world.operator.play("cluster", **ours)
    assert taken.code == 0, taken.output
    for name in (SERVER, AGENT):
        assert "mesh" not in world.ask(name, "cat", "/etc/hosts")
    eventually(lambda: look_up(world, "mlflow.mesh") == [], "pods to know the name no more", 180)
    after = world.operator.play("cluster", **ours)
    assert after.code == 0 and after.changed == 0, after.output
    world.operator.kubectl("delete", "pods", "-n", "default", "--all", "--grace-period=1")


def look_up(world: World, name: str) -> list[str] | None:
    """Return the addresses that CoreDNS tells a pod on the agent of a name, None when it does not answer."""
    pid = world.ask(AGENT, "pidof", "pause").split()[0]
    answer = world.ask(AGENT, *enter(pid), "python3", "-I", "-c", ASK, name)
    found = json.loads(answer)
    return None if found is None else [str(address) for address in found]


def test_a_machine_leaves_cluster_and_mesh_and_joins_both_again(world: World) -> None:
    ours = {"muster_node_hosts": CLUSTER_HOSTS, "mesh_tags": ["tag:muster"], "mesh_login_server": world.server.url}
    left = world.operator.play("remove_nodes", muster_remove_nodes=AGENT, **ours)
    assert left.code == 0, left.output
    assert [node["metadata"]["name"] for node in world.operator.items("nodes")] == [SERVER]
    assert find_differences(world.operator, world.before, AGENT) == []
    back = world.operator.play("join", muster_join_hosts=AGENT, **ours)
    assert back.code == 0 and SERVER not in back.recap, back.output
    (node,) = [item for item in world.operator.items("nodes") if item["metadata"]["name"] == AGENT]
    assert node["status"]["addresses"][0]["address"] == world.mesh_address(AGENT)
    again = world.operator.play("join", muster_join_hosts=AGENT, **ours)
    assert again.code == 0 and again.changed == 0, again.output
    assert world.keys.alive() == []


def placed_on(node: str) -> list[str]:
    """Return options of kubectl for a pod on a node, of an image that is there."""
    return [f"--overrides={json.dumps({'spec': {'nodeName': node}})}", "--image-pull-policy=Never"]


def enter(pid: str) -> tuple[str, ...]:
    """Return the words that run a command in the network of a pod."""
    return ("nsenter", "-t", pid, "-n")


def test_removed_the_machines_are_as_they_were_found(world: World) -> None:
    gone = world.operator.play("cluster_absent", muster_node_hosts=CLUSTER_HOSTS)
    assert gone.code == 0, gone.output
    result = world.operator.play("mesh", mesh_state="absent")
    assert result.code == 0, result.output
    eventually(lambda: world.server.online() == [], "the control server to see nobody")
    world.server.down()
    assert find_differences(world.operator, world.before) == []
