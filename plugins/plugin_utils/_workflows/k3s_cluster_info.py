# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machines of a K3s cluster looked at all at once, and refused by name before anything is changed on any
of them.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import time
import typing as t

from ...module_utils._model import cluster_checks, k3s, k3s_servers, k3s_upgrade
from ...module_utils._model.errors import InputError, MusterError, RefusedError
from .._hosts import downloads
from .._hosts.node_client import NodeClient, most_telling_error, on_each_node
from .._kube.api.kinds import KubeObject
from .._kube.jobs.spec import RUN_LABEL
from .._kube.nodes.capacity import takes_jobs
from .k3s_node import access
from .node_info import build_record
from .node_table import build_table
from .shared.state_dir import StateHome

Result = dict[str, t.Any]


@dataclasses.dataclass(frozen=True, slots=True)
class ClusterMachine:
    """A machine as the inventory has it: its variables, and the peers of a mesh to which the path is wanted."""

    variables: t.Mapping[str, t.Any]
    peers: tuple[str, ...] = ()

    @property
    def cluster(self) -> str:
        """The cluster that its inventory names, empty where it names none."""
        return str(self.variables.get("muster_cluster") or "")

    @property
    def role(self) -> str:
        """Its role in the cluster, empty where none is set."""
        return str(self.variables.get("muster_k3s_role") or "")

    @property
    def is_rented(self) -> bool:
        """Whether its provider takes it back one day."""
        return (self.variables.get("muster_node") or {}).get("ownership") == "rented"

    def place(self, host: str) -> str:
        """Return where it is managed, an address or a name."""
        return str(self.variables.get("ansible_host") or host)

    def find_node_name(self, host: str) -> str:
        """Return the name of its Node."""
        return str((self.variables.get("muster_node") or {}).get("name") or host)


@dataclasses.dataclass(frozen=True, slots=True)
class K3sUpgrade:
    """An upgrade: how many agents may be closed at once; Nodes, pods and Deployments of the cluster by the API."""

    max_unavailable: str
    nodes: t.Sequence[KubeObject] = ()
    pods: t.Sequence[KubeObject] = ()
    deployments: t.Sequence[KubeObject] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class ClusterGuard:
    """What keeps clusters apart: the state home that may know another one of the name, and what the user permits.

    ``adopt``: another cluster takes the name over. ``downgrade``: K3s may be set back. ``upgrade``: without it a K3s
    that runs keeps its version.
    """

    home: StateHome | None = None
    adopt: bool = False
    downgrade: bool = False
    upgrade: K3sUpgrade | None = None


def check_cluster(
    connect: t.Callable[[], t.Sequence[NodeClient]],
    machines: t.Mapping[str, ClusterMachine],
    chosen: t.Collection[str],
    pods: str,
    services: str,
    joining: t.Collection[str] = (),
    guard: ClusterGuard = ClusterGuard(),
) -> Result:
    """Return the module's result: the server, the agents, the Nodes to wait for, and what keeps none of them out.

    :param connect: opens the connections; called once the roles are known to make a cluster.
    :param machines: all machines of the cluster by host, whatever the play is limited to.
    :param chosen: this play's hosts.
    :param pods: the range of the pods, such as ``10.42.0.0/16``; ``services`` that of the services.
    :param joining: hosts that join a cluster that is up; other agents that do not answer are left out then.
    :raises MusterError: naming what makes no cluster.
    """
    k3s.check_clusters({host: machine.cluster for host, machine in machines.items()})
    if joining:
        # So do rented machines that have joined before: an inventory of a provider says nothing of roles.
        machines = {
            host: _as_agent(machine) if host in joining or machine.is_rented else machine
            for host, machine in machines.items()
        }
    servers = _find_servers(machines, chosen, joining)
    needed = joining or [host for host in machines if host in chosen]
    answers, absent = _ask_all(connect(), machines, needed, servers)
    present = {host: machine for host, machine in machines.items() if host in answers}
    members = [_make_member(host, machine, answers[host]) for host, machine in present.items()]
    running = [item for item in members if item.role == "server"]
    up = any(item.active for item in running)
    if not running or (joining and not up):
        raise RefusedError(f"{', '.join(servers)}: K3s is not running", "Bring the cluster up first (playbook cluster)")
    if guard.home is not None:
        access.require_same_cluster(guard.home, {item.host: item.authority for item in running}, adopt=guard.adopt)
    k3s.check_members(members, pods, services)
    rolling = guard.upgrade is not None
    k3s.check_versions(members, joining or chosen, may_go_back=guard.downgrade, rolling=rolling)
    meant = {host: machine for host, machine in present.items() if not joining or host in joining}
    lead = k3s_servers.choose_lead(running, chosen)
    return {
        "changed": False,
        "server": lead.host,
        "server_address": _find_chosen_address(lead),
        "servers": [item.host for item in running],
        # Where one does not answer, what leads to it is left as it is.
        "server_addresses": [_find_way(item, present[item.host]) for item in running if len(running) == len(servers)],
        "standing": k3s_servers.find_standing(running),
        "agents": [host for host, machine in machines.items() if machine.role == "agent"],
        "up": up,
        "table": _build_table(present, answers),
        "notes": [*absent, *(line for item in members for line in cluster_checks.describe(item))],
        **_list_objects(meant),
        **_plan_waves(members, chosen, answers, guard.upgrade),
        **_describe_members(members, {host: machine for host, machine in machines.items() if host not in present}),
    }


def _plan_waves(
    members: t.Sequence[k3s.K3sMember],
    chosen: t.Collection[str],
    answers: t.Mapping[str, t.Any],
    upgrade: K3sUpgrade | None,
) -> Result:
    """Return the waves in which the chosen machines get their version, and which an earlier upgrade has begun."""
    if upgrade is None:
        return {}
    nodes = {str(node["metadata"]["name"]): node for node in upgrade.nodes}
    states = {}
    for item in members:
        node, found = nodes.get(item.node), answers[item.host].get("upgrade") or {}
        about = ((node or {}).get("status") or {}).get("nodeInfo") or {}
        states[item.host] = k3s_upgrade.UpgradeState(
            bool(found.get("begun")),
            int(found.get("bytes") or 0),
            str(about.get("kubeletVersion") or ""),
            "" if node is None or takes_jobs(node) else "it is not ready, or cordoned",
            _find_runs(upgrade.pods, item.node),
        )
    plan = k3s_upgrade.plan_upgrade(members, states, chosen, upgrade.max_unavailable)
    versions = {item.host: {"current": item.current, "version": item.version} for item in members}
    changes = {host: {**own, "begun": states[host].begun} for host, own in versions.items()}
    table = [*plan.table, *k3s_upgrade.describe_controllers(_find_images(upgrade.deployments), _list_pins())]
    return {"waves": [list(wave) for wave in plan.waves], "wave_table": table, "upgrades": changes}


def _find_images(deployments: t.Sequence[KubeObject]) -> dict[str, list[str]]:
    """Return by the name of a Deployment the images of its containers."""
    return {
        str(item["metadata"]["name"]): [
            str(container.get("image") or "") for container in item["spec"]["template"]["spec"]["containers"]
        ]
        for item in deployments
    }


def _list_pins() -> dict[str, str]:
    return {name: downloads.default_version(name) for name in k3s_upgrade.CONTROLLERS}


def _find_runs(pods: t.Sequence[KubeObject], node: str) -> tuple[str, ...]:
    """Return the runs that have a pod on a node which has not ended."""
    found = (
        (pod["metadata"].get("labels") or {}).get(RUN_LABEL)
        for pod in pods
        if (pod.get("spec") or {}).get("nodeName") == node
        and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
    )
    return tuple(sorted({str(run) for run in found if run}))


def _find_servers(
    machines: t.Mapping[str, ClusterMachine], chosen: t.Collection[str], joining: t.Collection[str]
) -> list[str]:
    """Return the hosts that are servers; one at least must be of this play, unless machines join."""
    roles = {host: machine.role for host, machine in machines.items()}
    k3s.check_roles(roles)
    servers = [host for host, role in roles.items() if role == "server"]
    for host in joining:
        if host in servers:
            raise InputError(
                "muster_join_hosts", f"{host} is a server", "Run the playbook cluster, which lets servers join"
            )
    if not joining and not set(servers) & set(chosen):
        one = len(servers) == 1
        what = f"{', '.join(servers)}, which {'is the server' if one else 'are the servers'}"
        raise InputError("--limit", f"leaves out {what}", f"Add {'it' if one else 'one'}: --limit '…,{servers[0]}'")
    return servers


def _ask_all(
    remotes: t.Sequence[NodeClient],
    machines: t.Mapping[str, ClusterMachine],
    needed: t.Collection[str],
    servers: t.Collection[str],
) -> tuple[dict[str, t.Any], list[str]]:
    """Return the machines' answers by host, and a line for each that does not answer and is not needed."""
    answers, errors = on_each_node(remotes, lambda remote: _ask(remote, machines[remote.name]))
    without = not any(host in answers for host in servers)
    in_the_way = {host: error for host, error in errors.items() if host in needed or (without and host in servers)}
    lost = [host for host in servers if host in in_the_way]
    running = [host for host in servers if host in answers and answers[host]["unit"]["active"] == "active"]
    if lost and running:
        raise _describe_loss(lost, running, most_telling_error({host: errors[host] for host in lost}))
    if in_the_way:
        raise most_telling_error(in_the_way)
    return answers, [f"{host}: left out, it does not answer" for host in sorted(errors)]


def _describe_loss(lost: t.Sequence[str], running: t.Sequence[str], error: MusterError) -> MusterError:
    """Return the error for servers that are gone while others run: which ones, and how to go on without them."""
    one, without = len(lost) == 1, ":".join(f"!{host}" for host in lost)
    named = f"{', '.join(lost)} {'is' if one else 'are'} gone of the servers, {', '.join(running)} {_verb(running)}"
    back = f"Bring {'it' if one else 'them'} back, or leave {'it' if one else 'them'} out: --limit 'all:{without}'"
    return RefusedError(f"{named}: {error}", back)


def _verb(hosts: t.Sequence[str]) -> str:
    return "runs" if len(hosts) == 1 else "run"


def _build_table(machines: t.Mapping[str, ClusterMachine], answers: t.Mapping[str, t.Any]) -> list[str]:
    measured = {host: {name: answers[host][name] for name in ("facts", "clock_skew_s")} for host in machines}
    records = [build_record(host, machine.variables, measured[host]) for host, machine in machines.items()]
    return build_table([record.to_dict() for record in records])


def _describe_members(members: t.Sequence[k3s.K3sMember], absent: t.Mapping[str, ClusterMachine]) -> Result:
    return {
        "nodes": [
            *(_describe_node(item) for item in members),
            # Firewalls stay open for a machine that does not answer, by the address that its inventory has.
            *(_describe_absent(host, machine) for host, machine in absent.items() if _is_address(machine.place(host))),
        ],
        "unconnected": sorted(item.host for item in members if not item.installed),
        "firewalls": sorted(item.host for item in members if any(_read_firewall(item, "tool", "opened"))),
    }


def check_network(
    connect: t.Callable[[t.Sequence[str]], t.Sequence[NodeClient]], nodes: t.Mapping[str, str], wait_s: int, run: str
) -> Result:
    """Prove that VXLAN passes between machines on which K3s is not running yet; ``nodes``: addresses by host.

    :param run: tells the datagrams of this check from others.
    :raises RefusedError: naming the first pair between which nothing passes.
    """
    if len(nodes) < 2:
        return {"changed": False, "pairs": 0}

    def exchange(remote: NodeClient) -> dict[str, t.Any]:
        peers = {host: address for host, address in nodes.items() if host != remote.name}
        return remote.call("vxlan", own=remote.name, peers=peers, wait_s=wait_s, run=run)

    answers, errors = on_each_node(connect(list(nodes)), exchange)
    if errors:
        raise most_telling_error(errors)
    asked = [host for host in nodes if not answers[host]["busy"]]
    missing = [(one, other) for other in asked for one in asked if one != other and one not in answers[other]["heard"]]
    if missing:
        more = f" (and {len(missing) - 1} more pairs)" if len(missing) > 1 else ""
        raise RefusedError(
            f"{missing[0][1]}: no datagram of {missing[0][0]} arrives on port 8472/udp (VXLAN){more}",
            "Open it between the machines, in the firewall of the site or the security group of the cloud",
        )
    return {"changed": False, "pairs": len(asked) * (len(asked) - 1)}


def _as_agent(machine: ClusterMachine) -> ClusterMachine:
    """Return a machine that joins: an agent, unless its inventory says what it is."""
    role = machine.role or "agent"
    return dataclasses.replace(machine, variables={**machine.variables, "muster_k3s_role": role})


def _list_objects(machines: t.Mapping[str, ClusterMachine]) -> Result:
    """Return the Nodes of machines, and what their inventory says of labels and taints, as modules take them."""
    nodes = {host: machine.find_node_name(host) for host, machine in machines.items()}
    return {
        "objects": [{"apiVersion": "v1", "kind": "Node", "name": name} for name in nodes.values()],
        "labels": [
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": nodes[host], "labels": dict(machine.variables["k3s_labels"])},
            }
            for host, machine in machines.items()
            if "k3s_labels" in machine.variables
        ],
        "taints": {
            nodes[host]: [str(item) for item in machine.variables["k3s_taints"]]
            for host, machine in machines.items()
            if "k3s_taints" in machine.variables
        },
    }


def _describe_node(member: k3s.K3sMember) -> dict[str, t.Any]:
    return {
        "host": member.host,
        "role": member.role,
        "node": member.node,
        "architecture": member.architecture,
        "addresses": [item["address"] for item in member.addresses],
        "address": _find_cluster_address(member),
        "client": _read_firewall(member, "client")[0],
        "firewall": dict(zip(("tool", "in_force"), _read_firewall(member, "tool", "in_force"), strict=True)),
    }


def _describe_absent(host: str, machine: ClusterMachine) -> dict[str, t.Any]:
    return {
        "host": host,
        "role": machine.role,
        "node": machine.find_node_name(host),
        "architecture": "",
        "addresses": [machine.place(host)],
        "address": machine.place(host),
        "client": None,
        "firewall": {"tool": None, "in_force": None},
    }


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _find_way(member: k3s.K3sMember, machine: ClusterMachine) -> str:
    """Return the address by which others of the cluster come to a server."""
    return _find_chosen_address(member) or machine.place(member.host)


def _find_cluster_address(member: k3s.K3sMember) -> str:
    """Return the address by which K3s will reach a machine: as K3s chooses it."""
    return _find_chosen_address(member) or next((str(item["address"]) for item in member.addresses), "")


def _find_chosen_address(member: k3s.K3sMember) -> str:
    """Return the address at which agents come to a server where that is not the one of SSH; else nothing.

    The inventory names it, or has the cluster's traffic in the mesh: the address there is known when it has joined.
    """
    in_mesh = member.flannel_iface.startswith("tailscale")
    found = [item["address"] for item in member.addresses if in_mesh and item["interface"] == member.flannel_iface]
    return next((str(address) for address in [member.node_ip, *found] if address), "")


def _read_firewall(member: k3s.K3sMember, *names: str) -> list[t.Any]:
    found = member.machine.get("firewall") or {}
    return [found.get(name) for name in names]


def _ask(remote: NodeClient, machine: ClusterMachine) -> dict[str, t.Any]:
    began = time.time()
    unit = "k3s.service" if machine.role == "server" else "k3s-agent.service"
    answer = remote.call("k3s", step="look", unit=unit, machine=machine.role, facts=True, peers=list(machine.peers))
    return {**answer, "clock_skew_s": round(answer["machine"]["time"] - (began + time.time()) / 2, 3)}


def _make_member(host: str, machine: ClusterMachine, answer: t.Mapping[str, t.Any]) -> k3s.K3sMember:
    own = machine.variables
    return k3s.K3sMember.from_answer(
        host,
        machine.role,
        machine.find_node_name(host),
        answer,
        clock_skew_s=answer["clock_skew_s"],
        version=str(own.get("k3s_version") or downloads.default_version("k3s")),
        node_ip=str(own.get("k3s_node_ip") or ""),
        flannel_iface=str(own.get("k3s_flannel_iface") or ""),
        site=str((own.get("muster_node") or {}).get("site") or ""),
        settings=_read_settings(own),
    )


def _read_settings(own: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the options of K3s that a host's variables name, as far as all servers must have them alike."""
    named = {name: own.get(f"k3s_{name}") is True for name in ("traefik", "servicelb")}
    return {"disable": [name for name, wanted in named.items() if not wanted], **(own.get("k3s_config") or {})}
