# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines of a cluster, looked at all at once."""

from __future__ import annotations

import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import (
    InputError,
    MusterError,
    NodeError,
    RefusedError,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows import k3s_cluster_info as cluster

ROLES = {"a": "server", "b": "agent"}
ABLE = {"systemd": "1", "cap_eff": "000001ffffffffff", "kmsg": "1", "tun": "1", "cgroup_rw": "1"}
MACHINE: dict[str, t.Any] = {
    "cgroup": {"version": 2, "missing": []},
    "swap_gib": 1.0,
    "free_bytes": 40 << 30,
    "read_only": [],
    "ports": [],
    "broken_packages": [],
    "driver": {"gpus": 0, "module": None, "libraries": None},
}
FACTS: dict[str, t.Any] = {
    "architecture": "x86_64",
    "addresses": [{"interface": "eth0", "address": "192.0.2.1", "prefix": 24}],
    "foreign": [],
    "ability": ABLE,
    "root": True,
    "record": None,
    "authority": None,
    "unit": {"active": "active"},
    "facts": {"k3s_ability": ABLE, "cpu": {"count": 8, "arch": "x86_64"}, "memory_gib": 32.0},
}


class Machine:
    def __init__(self, name: str, **changes: t.Any) -> None:
        self.name = name
        self.changes = changes

    def call(self, op: str, **values: t.Any) -> dict[str, t.Any]:
        assert (op, values["step"]) == ("k3s", "look")
        if self.changes.get("problem"):
            raise NodeError(self.name, self.changes["problem"])
        assert values["machine"] == ROLES.get(self.name, "agent") and values["facts"] is True
        machine = {**MACHINE, "time": time.time() + self.changes.pop("ahead_s", 0)}
        return {**FACTS, "machine_id": self.name, "machine": machine, **self.changes}


def inventory(roles: dict[str, str]) -> dict[str, cluster.ClusterMachine]:
    own: dict[str, dict[str, t.Any]] = {"a": {"muster_node": {"name": "node-a"}}, "b": {"k3s_labels": {"x": "y"}}}
    return {host: cluster.ClusterMachine({"muster_k3s_role": role, **own[host]}) for host, role in roles.items()}


def check(chosen: t.Collection[str] = ("a", "b"), roles: t.Any = None, **changes: t.Any) -> dict[str, t.Any]:
    machines: t.Any = [Machine("a"), Machine("b", **changes)]
    return cluster.check_cluster(lambda: machines, inventory(roles or ROLES), chosen, "10.42.0.0/16", "10.43.0.0/16")


def test_who_is_what() -> None:
    found = check()
    assert found["server"] == "a" and found["agents"] == ["b"] and found["up"] is True and found["changed"] is False
    assert [item["name"] for item in found["objects"]] == ["node-a", "b"]
    assert found["labels"] == [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "b", "labels": {"x": "y"}}},
    ]


def test_what_is_refused_by_the_inventory_contacts_no_machine() -> None:
    def connect() -> t.Any:
        raise AssertionError("a machine was contacted")

    for roles, chosen in (({"a": "agent"}, ["a"]), (ROLES, ["b"])):
        with pytest.raises(InputError):
            cluster.check_cluster(connect, inventory(roles), chosen, "10.42.0.0/16", "10.43.0.0/16")


def test_a_limit_without_the_server_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="--limit: leaves out a, which is the server"):
        check(chosen=["b"])


def test_a_machine_that_does_not_answer_is_named() -> None:
    with pytest.raises(MusterError, match="b: python3 is not installed"):
        check(problem="python3 is not installed")


def test_a_foreign_kubernetes_is_named() -> None:
    with pytest.raises(RefusedError, match="b: has K3s"):
        check(foreign=["K3s (/etc/rancher/k3s)"])


def test_the_machines_are_shown_with_what_is_worth_knowing() -> None:
    found = check()
    assert found["table"][0].startswith("name") and found["table"][1].startswith("a  ") and "yes" in found["table"][1]
    assert found["notes"] == [f"{host}: swap is on (1 GiB): memory of pods can be swapped out" for host in "ab"]


def test_a_clock_that_is_off_is_named() -> None:
    with pytest.raises(RefusedError, match="b: the clock is 90 s ahead of the controller's"):
        check(ahead_s=90)


def test_the_address_that_the_server_has_on_its_interface_is_the_agents_way_to_it() -> None:
    mesh = {"interface": "tailscale0", "address": "100.64.0.1", "prefix": 32}
    machines, found = inventory(ROLES), {}
    interfaces = (
        ("plain", {}),
        ("interface", {"k3s_flannel_iface": "tailscale0"}),
        ("LAN", {"k3s_flannel_iface": "eth0"}),
    )
    for name, own in interfaces:
        machines["a"] = cluster.ClusterMachine({**machines["a"].variables, **own})
        clients: t.Any = [Machine("a", addresses=[*FACTS["addresses"], mesh]), Machine("b")]
        answer = cluster.check_cluster(lambda c=clients: c, machines, ["a", "b"], "10.42.0.0/16", "10.43.0.0/16")
        found[name] = (answer["server_address"], answer["nodes"][0]["address"])
    assert found["interface"] == ("100.64.0.1", "100.64.0.1")
    assert found["plain"] == ("", "192.0.2.1") and found["LAN"][0] == ""


def test_rented_machines_that_have_joined_are_agents_though_their_inventory_says_no_role() -> None:
    machines = {**inventory(ROLES), "c": cluster.ClusterMachine({})}
    machines["d"] = cluster.ClusterMachine({"muster_node": {"ownership": "rented"}})
    given: t.Any = [Machine("a"), Machine("b"), Machine("c"), Machine("d")]
    found = cluster.check_cluster(lambda: given, machines, ["c"], "10.42.0.0/16", "10.43.0.0/16", ["c"])
    assert found["agents"] == ["b", "c", "d"] and [item["name"] for item in found["objects"]] == ["c"]
    with pytest.raises(InputError, match="d has none"):
        machines["d"] = cluster.ClusterMachine({"muster_node": {"ownership": "owned"}})
        cluster.check_cluster(lambda: given, machines, ["c"], "10.42.0.0/16", "10.43.0.0/16", ["c"])


def test_an_option_of_a_host_is_checked_on_it() -> None:
    machines = inventory(ROLES)
    machines["b"] = cluster.ClusterMachine({**machines["b"].variables, "k3s_flannel_iface": "eth7"})
    clients: t.Any = [Machine("a"), Machine("b")]
    with pytest.raises(RefusedError, match=r"b: has no interface eth7 \(k3s_flannel_iface\). It has eth0"):
        cluster.check_cluster(lambda: clients, machines, ["a", "b"], "10.42.0.0/16", "10.43.0.0/16")


def join(joining: t.Sequence[str], *clients: Machine) -> dict[str, t.Any]:
    machines = {**inventory(ROLES), "c": cluster.ClusterMachine({})}
    given: t.Any = clients
    return cluster.check_cluster(lambda: given, machines, ["c"], "10.42.0.0/16", "10.43.0.0/16", joining)


def test_a_machine_joins_a_cluster_of_which_another_one_is_lost() -> None:
    found = join(["c"], Machine("a"), Machine("b", problem="no answer"), Machine("c"))
    assert found["server"] == "a" and [item["name"] for item in found["objects"]] == ["c"]
    assert [(item["host"], item["role"]) for item in found["nodes"]] == [("a", "server"), ("c", "agent")]
    assert found["notes"][0] == "b: left out, it does not answer" and found["labels"] == []


def test_a_machine_that_joins_eight_has_each_of_them_looked_at_once() -> None:
    asked: list[str] = []

    class Counted(Machine):
        def call(self, op: str, **values: t.Any) -> dict[str, t.Any]:
            asked.append(self.name)
            return super().call(op, **values)

    names = ["a", "b", *(f"n{index}" for index in range(6))]
    machines = {name: cluster.ClusterMachine({"muster_k3s_role": ROLES.get(name, "agent")}) for name in names}
    clients: t.Any = [Counted(name) for name in [*names, "c"]]
    machines["c"] = cluster.ClusterMachine({})
    found = cluster.check_cluster(lambda: clients, machines, ["c"], "10.42.0.0/16", "10.43.0.0/16", ["c"])
    assert sorted(asked) == sorted([*names, "c"]) and len(asked) == 9
    # What follows is for the machine that joins alone; of the others no firewall is active.
    assert [item["name"] for item in found["objects"]] == ["c"] and found["firewalls"] == []


def test_a_machine_joins_only_what_is_up() -> None:
    down = Machine("a", unit={"active": "inactive"})
    with pytest.raises(RefusedError, match="a: K3s is not running. Bring the cluster up first"):
        join(["c"], down, Machine("b"), Machine("c"))
    for lost in ("a", "c"):
        clients = [Machine(name, **({"problem": "no answer"} if name == lost else {})) for name in "abc"]
        with pytest.raises(MusterError, match=f"{lost}: no answer"):
            join(["c"], *clients)


class Peer:
    """A machine that hears whom it is told to."""

    def __init__(self, name: str, hears: t.Sequence[str], busy: bool = False) -> None:
        self.name, self.answer = name, {"heard": list(hears), "busy": busy}

    def call(self, op: str, **values: t.Any) -> dict[str, t.Any]:
        assert op == "vxlan" and values["own"] == self.name and self.name not in values["peers"]
        assert values["run"] == "r" and values["wait_s"] == 9
        return self.answer


def probe(*peers: Peer) -> dict[str, t.Any]:
    given: t.Any = peers
    nodes = {peer.name: f"192.0.2.{number}" for number, peer in enumerate(peers)}
    return cluster.check_network(lambda names: [peer for peer in given if peer.name in names], nodes, 9, "r")


def test_the_network_passes_where_all_hear_each_other_or_run_k3s_already() -> None:
    assert probe(Peer("a", "bc"), Peer("b", "ac"), Peer("c", "ab")) == {"changed": False, "pairs": 6}
    assert probe(Peer("a", "b"), Peer("b", "a"), Peer("c", "", busy=True)) == {"changed": False, "pairs": 2}
    assert probe(Peer("a", "")) == {"changed": False, "pairs": 0}


def test_a_pair_between_which_nothing_passes_is_named() -> None:
    with pytest.raises(RefusedError) as raised:
        probe(Peer("a", "b"), Peer("b", ""))
    assert "b: no datagram of a arrives on port 8472/udp (VXLAN). Open it between the machines" in str(raised.value)
    with pytest.raises(RefusedError, match=r"\(and 1 more pairs\)"):
        probe(Peer("a", ""), Peer("b", ""))


def test_the_address_in_the_cluster_is_the_one_that_k3s_takes() -> None:
    assert check()["nodes"][0]["address"] == "192.0.2.1" and check()["unconnected"] == ["a", "b"]
    assert check(record={"role": "agent"})["unconnected"] == ["a"]


THREE = {"a": "server", "b": "server", "c": "server", "d": "agent"}


def check_servers(
    chosen: str = "abcd", joining: t.Collection[str] = (), **changes: dict[str, t.Any]
) -> dict[str, t.Any]:
    """Look at three servers and an agent; ``changes``: by host what its machine answers."""
    plain = {"datastore": "etcd", "record": {"role": "server"}, "authority": "1"}
    own = {host: {**(plain if THREE[host] == "server" else {}), **changes.get(host, {})} for host in THREE}
    machines: t.Any = [Machine(host, **own[host]) for host in THREE]
    known = {host: cluster.ClusterMachine({"muster_k3s_role": role, "ansible_host": f"192.0.2.{ord(host) - 96}"})
             for host, role in THREE.items()}  # fmt: skip
    return cluster.check_cluster(lambda: machines, known, list(chosen), "10.42.0.0/16", "10.43.0.0/16", joining)


GONE: dict[str, t.Any] = {"problem": "no route"}


def test_of_three_servers_the_first_that_runs_is_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROLES", THREE)
    found = check_servers()
    assert (found["server"], found["servers"], found["standing"]) == ("a", ["a", "b", "c"], [])
    assert found["server_addresses"] == ["192.0.2.1", "192.0.2.2", "192.0.2.3"]
    stopped = {"unit": {"active": "inactive"}}
    assert check_servers(a=stopped)["server"] == "b"
    two = check_servers(a=stopped, b=stopped)
    assert two["server"] == "c" and two["standing"] == ["a", "b"] and two["up"] is True


def test_a_server_that_is_gone_is_named_with_the_way_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROLES", THREE)
    with pytest.raises(RefusedError) as raised:
        check_servers(a=GONE)
    said = "a is gone of the servers, b, c run: a: no route. Bring it back, or leave it out: --limit 'all:!a'"
    assert str(raised.value) == said
    with pytest.raises(RefusedError, match="a, b are gone of the servers, c runs: "):
        check_servers(a=GONE, b=GONE)
    # None is left to tell of the others.
    with pytest.raises(MusterError, match=r"a: no route \(also failed: b, c\)"):
        check_servers(a=GONE, b=GONE, c=GONE)


def test_without_it_the_rest_goes_on_and_its_addresses_stay_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROLES", THREE)
    found = check_servers("bcd", a=GONE)
    assert (found["server"], found["servers"], found["server_addresses"]) == ("b", ["b", "c"], [])
    assert found["notes"][0] == "a: left out, it does not answer"
    assert ("a", ["192.0.2.1"]) in [(node["host"], node["addresses"]) for node in found["nodes"]]
    assert "a" not in [item["name"] for item in found["objects"]]
    with pytest.raises(InputError, match="--limit: leaves out a, b, c, which are the servers. Add one"):
        check_servers("d")


def test_an_agent_joins_while_a_server_is_gone_and_a_server_does_not_join_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROLES", THREE)
    found = check_servers("d", joining=["d"], a=GONE)
    assert found["server"] == "b" and [item["name"] for item in found["objects"]] == ["d"]
    with pytest.raises(InputError, match="muster_join_hosts: c is a server. Run the playbook cluster"):
        check_servers("c", joining=["c"])
    with pytest.raises(MusterError, match=r"a: no route \(also failed: b, c\)"):
        check_servers("d", joining=["d"], a=GONE, b=GONE, c=GONE)


def test_options_that_servers_must_have_alike_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROLES", THREE)
    with pytest.raises(
        InputError, match="muster_k3s_role: a is installed as agent, not as server. Let it leave as agent"
    ):
        check_servers(a={"record": {"role": "agent"}})
    own = {host: cluster.ClusterMachine({"muster_k3s_role": "server", "k3s_traefik": host == "b"}) for host in "abc"}
    machines: t.Any = [Machine(host) for host in "abc"]
    with pytest.raises(InputError, match="disable: differs between the servers a and b"):
        cluster.check_cluster(lambda: machines, own, "abc", "10.42.0.0/16", "10.43.0.0/16")


def upgrade(limit: str | None = "1") -> dict[str, t.Any]:
    machines = {
        host: cluster.ClusterMachine({**own.variables, "k3s_version": "v1.34.11+k3s1"})
        for host, own in inventory(ROLES).items()
    }
    has = {"record": {"role": "server"}, "version": "v1.34.10+k3s1", "joined": True}
    clients: t.Any = [
        Machine("a", **has, upgrade={"begun": False, "bytes": 1}),
        Machine("b", **{**has, "record": {"role": "agent"}}, upgrade={"begun": True, "bytes": 1}),
    ]
    pods: list[t.Any] = [
        {"metadata": {"labels": {"muster.training/run-id": name}}, "spec": {"nodeName": node}, "status": {"phase": phase}}
        for name, node, phase in (("r2", "b", "Running"), ("r1", "b", "Pending"), ("r1", "b", "Running"),
                                  ("r3", "b", "Succeeded"), ("r4", "node-a", "Running"))
    ]  # fmt: skip
    containers = [{"image": "registry.example.com/kueue:v0.1.0"}]
    template: t.Any = {"spec": {"containers": containers}}
    old: t.Any = {"metadata": {"name": "kueue-controller-manager"}, "spec": {"template": template}}
    order = None if limit is None else cluster.K3sUpgrade(limit, (), pods, [old])
    guard = cluster.ClusterGuard(upgrade=order)
    return cluster.check_cluster(lambda: clients, machines, ["a", "b"], "10.42.0.0/16", "10.43.0.0/16", (), guard)


def test_an_upgrade_has_its_waves_and_names_the_runs_that_it_touches() -> None:
    found = upgrade()
    assert found["waves"] == [["a"], ["b"]]
    assert found["wave_table"][1].endswith("v1.34.10+k3s1 -> v1.34.11+k3s1; runs on it: r4")
    assert found["wave_table"][3].endswith("begun by an earlier upgrade; runs on it: r1, r2")
    assert found["wave_table"][4].startswith("kueue: v0.1.0, and v") and len(found["wave_table"]) == 5
    assert found["upgrades"]["b"] == {"current": "v1.34.10+k3s1", "version": "v1.34.11+k3s1", "begun": True}
    assert "waves" not in check()


def test_without_an_upgrade_another_version_is_refused_where_k3s_runs() -> None:
    with pytest.raises(RefusedError, match="a has K3s v1.34.10.k3s1, b has .*Run muster.training.upgrade"):
        upgrade(None)
