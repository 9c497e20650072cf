# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From two bare machines to a cluster with JobSet and Kueue and back, over SSH, by the playbooks as users run them.

The tests build on each other, in their order. K3S_BINARY names a real K3s; without it the stand-in is installed.
"""

from __future__ import annotations

import json
import stat
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab.k3s import machines
from ansible_collections.muster.training.tests.lab.k3s.operator import AGENT, SERVER, Hosts, Operator
from ansible_collections.muster.training.tests.lab.k3s.session import find_differences, open_operator
from ansible_collections.muster.training.tests.lab.kube.stages import until
from ansible_collections.muster.training.tests.support.kube_lab import NOTES

LISTEN = """
systemd-run --unit=other --quiet python3 -c 'import socket, time; s = socket.create_server((str(), 10250)); time.sleep(600)'
for turn in $(seq 50); do ss -tln | grep -q :10250 && break; sleep 0.1; done
"""
BROKEN = r"Package: docker-ce\nStatus: install ok half-installed\n\n"
# The gates of requests and module runs a host.
FIRST, AGAIN = 6, 2
WRONG_TOKEN = f"K10{'0a' * 32}::abcdef.0123456789abcdef"


@pytest.fixture(scope="module")
def operator() -> t.Iterator[Operator]:
    """Two machines, booted; the module fails when anything of them is left at its end."""
    with open_operator() as made:
        yield made


@pytest.fixture(scope="module")
def before(operator: Operator) -> dict[str, list[str]]:
    """What the machines were before anything was done."""
    return {node.name: operator.lab.state(node.name) for node in operator.lab.nodes}


def count_requests(operator: Operator) -> dict[str, int]:
    """Return how often each machine was asked to do something so far."""
    return {node.name: operator.lab.requests(node.name) for node in operator.lab.nodes}


@pytest.mark.parametrize(
    ("hosts", "values", "said"),
    [
        ({SERVER: {"muster_k3s_role": "agent"}}, {}, "muster_k3s_role: the inventory has no server"),
        ({AGENT: {"muster_k3s_role": "server"}}, {}, "muster_k3s_role: 2 servers (lab-1, lab-2) have no majority"),
        ({AGENT: {"muster_k3s_role": "worker"}}, {}, "muster_k3s_role: 'worker' of lab-2 is not a role"),
        ({AGENT: {"muster_node": {"name": SERVER}}}, {}, "muster_nodes: lab-1, lab-2 are all the node lab-1"),
        ({}, {"k3s_service_cidr": "10.42.128.0/17"}, "k3s_service_cidr: 10.42.128.0/17 overlaps k3s_cluster_cidr"),
        ({}, {"k3s_cluster_cidr": "10.0.0.0/8", "k3s_service_cidr": "192.168.0.0/16"}, "k3s_cluster_cidr: 10.0.0.0/8"),
        ({AGENT: {"k3s_flannel_iface": "eth7"}}, {}, "lab-2: has no interface eth7 (k3s_flannel_iface). It has eth0"),
        ({AGENT: {"k3s_node_ip": "192.0.2.9"}}, {}, "lab-2: has no interface with the address 192.0.2.9"),
        ({AGENT: {"ansible_become": False}}, {}, "lab-2: is not managed as root. Set ansible_become: true"),
    ],
)
def test_what_makes_no_cluster_is_refused_in_one_line_and_changes_nothing(
    operator: Operator, before: dict[str, list[str]], hosts: Hosts, values: dict[str, str], said: str
) -> None:
    result = operator.play("cluster", hosts=hosts, **values)
    assert result.code != 0 and result.changed == 0, result.output
    assert len(result.errors) == 1 and said in result.errors[0], result.output
    assert find_differences(operator, before) == []


def test_a_limit_without_the_server_is_refused(operator: Operator, before: dict[str, list[str]]) -> None:
    result = operator.play("cluster", "--limit", AGENT)
    assert result.code != 0 and "--limit: leaves out lab-1, which is the server" in result.errors[0], result.output
    assert find_differences(operator, before) == []


def test_two_machines_with_one_machine_id_are_refused(operator: Operator, before: dict[str, list[str]]) -> None:
    own = operator.lab.ask(AGENT, "cat", "/etc/machine-id")
    operator.lab.ask(AGENT, "sh", "-c", f"echo {operator.lab.ask(SERVER, 'cat', '/etc/machine-id')} > /etc/machine-id")
    try:
        result = operator.play("cluster")
    finally:
        operator.lab.ask(AGENT, "sh", "-c", f"echo {own} > /etc/machine-id")
    assert len(result.errors) == 1 and "lab-1, lab-2 have one machine id" in result.errors[0], result.output
    assert find_differences(operator, before) == []


def test_somebody_elses_k3s_is_refused(operator: Operator, before: dict[str, list[str]]) -> None:
    unit = "/etc/systemd/system/k3s-agent.service"
    operator.lab.ask(AGENT, "sh", "-c", f"echo '[Service]' > {unit}")
    try:
        result = operator.play("cluster")
    finally:
        operator.lab.ask(AGENT, "rm", unit)
    assert result.code != 0 and len(result.errors) == 1, result.output
    assert f"lab-2: has K3s ({unit}) that this collection did not install" in result.errors[0]
    assert find_differences(operator, before) == []


@pytest.mark.parametrize(
    ("break_it", "mend_it", "said"),
    [
        (
            "echo 'muster ALL=(ALL:ALL) ALL' > /etc/sudoers.d/lab",
            "echo 'muster ALL=(ALL:ALL) NOPASSWD: ALL' > /etc/sudoers.d/lab",
            "lab-2: Missing sudo password. Give it with --ask-become-pass",
        ),
        ("mount --bind /etc /etc && mount -o remount,bind,ro /etc", "umount /etc", "lab-2: /etc is read-only"),
        (
            LISTEN,
            "systemctl stop other",
            "lab-2: another program has port 10250/tcp. Stop it, K3s needs the port",
        ),
        (
            "touch /usr/local/bin/k3s",
            "rm /usr/local/bin/k3s",
            "lab-2: has K3s (/usr/local/bin/k3s) that this collection",
        ),
        (
            "mv /dev/kmsg /dev/kmsg.away",
            "mv /dev/kmsg.away /dev/kmsg",
            "lab-2: cannot run K3s: is a podman container, has no",
        ),
        (
            f"cp /var/lib/dpkg/status /root/status && printf '{BROKEN}' >> /var/lib/dpkg/status",
            "mv /root/status /var/lib/dpkg/status",
            "lab-2: half-installed packages: docker-ce (half-installed)",
        ),
    ],
    ids=["sudo", "read-only", "port", "half-installed", "kmsg", "packages"],
)
def test_a_machine_that_cannot_take_part_is_named_and_nothing_is_changed(
    operator: Operator, before: dict[str, list[str]], break_it: str, mend_it: str, said: str
) -> None:
    operator.lab.ask(AGENT, "bash", "-c", break_it)
    try:
        result = operator.play("cluster")
    finally:
        operator.lab.ask(AGENT, "bash", "-c", mend_it)
    assert result.code != 0 and result.changed == 0 and len(result.errors) == 1, result.output
    assert said in result.errors[0], result.output
    assert find_differences(operator, before) == []


def test_a_check_on_bare_machines_predicts_and_changes_nothing(
    operator: Operator, before: dict[str, list[str]]
) -> None:
    result = operator.play("cluster", "--check")
    assert result.code == 0 and result.recap[SERVER]["changed"] > 0 and result.recap[AGENT]["changed"] > 0, (
        result.output
    )
    assert find_differences(operator, before) == []
    assert not operator.state.exists() and not operator.lock.exists()


def test_vxlan_that_does_not_pass_is_named_and_nothing_is_changed(
    operator: Operator, before: dict[str, list[str]]
) -> None:
    cut = ("PREROUTING", "--protocol", "udp", "--dport", "8472", "--jump", "DROP")
    operator.lab.ask(AGENT, "iptables", "--table", "raw", "--insert", *cut)
    try:
        result = operator.play("cluster")
    finally:
        operator.lab.ask(AGENT, "iptables", "--table", "raw", "--delete", *cut)
    assert result.code != 0 and result.changed == 0 and len(result.errors) == 1, result.output
    said = "lab-2: no datagram of lab-1 arrives on port 8472/udp (VXLAN). Open it between the machines"
    assert said in result.errors[0] and result.seconds < 60, result.output
    assert find_differences(operator, before) == []


def test_a_wrong_token_is_refused_before_the_agent_is_touched(operator: Operator, before: dict[str, list[str]]) -> None:
    asked = count_requests(operator)
    result = operator.play("cluster", hosts={AGENT: {"k3s_token": WRONG_TOKEN}})
    assert result.code != 0 and len(result.errors) == 1, result.output
    # The server is up now: seen with the others, VXLAN tried, seen by itself, files sent, placed, started. Then the token.
    first = count_requests(operator)[SERVER] - asked[SERVER] - 1
    assert first <= FIRST
    NOTES.append(f"requests of a server that comes up, with all files: {first}")
    assert "k3s_token: the token is for another cluster" in result.errors[0]
    assert "0123456789abcdef" not in result.output
    assert find_differences(operator, before, AGENT) == []


def test_a_disk_that_is_full_in_the_middle_is_told_in_one_line(
    operator: Operator, before: dict[str, list[str]]
) -> None:
    # Smaller than the stand-in, which has 62 kB.
    operator.lab.ask(AGENT, "mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", "/usr/local/bin")
    try:
        result = operator.play("cluster")
    finally:
        operator.lab.ask(AGENT, "umount", "/usr/local/bin")
    assert result.code != 0 and len(result.errors) == 1, result.output
    assert "lab-2: " in result.errors[0] and "No space left on device" in result.errors[0], result.errors
    left = operator.play("cluster_absent", "--limit", AGENT)
    assert left.code == 0 and find_differences(operator, before, AGENT) == [], left.output


def test_the_machines_become_a_cluster(operator: Operator) -> None:
    asked = count_requests(operator)
    result = operator.play("cluster", hosts={AGENT: {"k3s_labels": {"example.com/pool": "a"}}})
    assert result.code == 0, result.output
    # Seen with the others, seen by itself, files sent, placed, started; beside a server that is up, which makes and ends
    # a token.
    first = {name: count - asked[name] for name, count in count_requests(operator).items()}
    assert first[SERVER] == 4 and first[AGENT] <= FIRST, first
    NOTES.append(f"requests of an agent that joins: {first[AGENT]}")
    ready = {
        node["metadata"]["name"]: condition["status"]
        for node in operator.items("nodes")
        for condition in node["status"]["conditions"]
        if condition["type"] == "Ready"
    }
    assert ready == {SERVER: "True", AGENT: "True"}
    available = {
        item["metadata"]["name"]: item["status"].get("availableReplicas")
        for item in operator.items("deployments", "-A")
    }
    assert available["jobset-controller-manager"] == available["kueue-controller-manager"] == 1
    labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in operator.items("nodes")}
    assert labels[AGENT]["example.com/pool"] == "a" and "example.com/pool" not in labels[SERVER]


def test_what_is_secret_is_for_nobody_else(operator: Operator) -> None:
    assert stat.S_IMODE((operator.state / "kubeconfig").stat().st_mode) == 0o600
    for path in ("/etc/rancher/k3s/muster-token", "/etc/rancher/k3s/config.yaml.d/50-muster.yaml"):
        assert operator.lab.ask(AGENT, "stat", "-c", "%a %U", path) == "600 root"
    assert operator.lab.ask(SERVER, "stat", "-c", "%a", "/etc/rancher/k3s/k3s.yaml") == "600"


def test_the_agents_token_is_over_and_the_ledger_says_so(operator: Operator) -> None:
    secrets = [item["metadata"]["name"] for item in operator.items("secrets", "-n", "kube-system")]
    assert [name for name in secrets if name.startswith("bootstrap-token-")] == []
    assert f"{AGENT}.node-password.k3s" in secrets
    events = ("intent", "created", "deleted", "verified")
    assert operator.ledger() == [(event, "k3s_token", AGENT) for event in events]


def test_the_digest_of_the_first_download_is_held(operator: Operator) -> None:
    held = json.loads(operator.lock.read_text())
    assert f"k3s {machines.VERSION} amd64 k3s" in held
    program = operator.release / "k3s"
    content = program.read_bytes()
    program.write_bytes(content + b"\n")
    try:
        result = operator.play("cluster")
    finally:
        program.write_bytes(content)
    assert result.code != 0 and "has the SHA-256" in result.errors[0] and "and not" in result.errors[0], result.output


def test_again_nothing_is_changed_or_restarted(operator: Operator) -> None:
    labelled = {AGENT: {"k3s_labels": {"example.com/pool": "a"}}}
    started, asked = operator.lab.started(), count_requests(operator)
    result = operator.play("cluster", hosts=labelled)
    assert result.code == 0 and result.changed == 0, result.output
    assert operator.lab.started() == started
    second = {name: count - asked[name] for name, count in count_requests(operator).items()}
    assert max(second.values()) <= AGAIN, second
    NOTES.append(f"cluster.yml again: {result.seconds:.1f} s")
    checked = operator.play("cluster", "--check", hosts=labelled)
    assert checked.code == 0 and checked.changed == 0, checked.output


def test_a_changed_option_restarts_the_machine_that_it_is_for(operator: Operator) -> None:
    server, agent = operator.lab.started()
    result = operator.play("cluster", hosts={AGENT: {"k3s_memlock": False, "k3s_labels": {}}})
    # The labels of the cluster are counted where they are sent from.
    assert result.code == 0 and result.recap[SERVER]["changed"] == 1, result.output
    now = operator.lab.started()
    assert now[0] == server and now[1] != agent
    labels = next(node["metadata"]["labels"] for node in operator.items("nodes") if node["metadata"]["name"] == AGENT)
    assert "example.com/pool" not in labels


def test_taints_are_changed_and_removed_and_nothing_is_started_again(operator: Operator) -> None:
    def taints() -> list[str]:
        node = next(item for item in operator.items("nodes") if item["metadata"]["name"] == AGENT)
        return [f"{item['key']}={item['value']}:{item['effect']}" for item in node["spec"].get("taints", [])]

    started = operator.lab.started()
    common: dict[str, t.Any] = {"k3s_memlock": False, "k3s_labels": {}}
    for wanted in (["example.com/gpu=a:NoSchedule"], ["example.com/gpu=b:NoSchedule"], []):
        result = operator.play("cluster", hosts={AGENT: {**common, "k3s_taints": wanted}})
        assert result.code == 0 and result.recap[SERVER]["changed"] == 1, result.output
        assert taints() == wanted
    again = operator.play("cluster", hosts={AGENT: {**common, "k3s_taints": []}})
    assert again.code == 0 and again.changed == 0, again.output
    assert operator.lab.started() == started


def test_a_machine_that_was_made_anew_under_its_name_is_refused_with_what_to_do(operator: Operator) -> None:
    keys = "/var/lib/rancher/k3s/agent/client-kubelet"
    forget = f"systemctl stop k3s-agent && rm -r /etc/rancher/node {keys}.crt {keys}.key"
    operator.lab.ask(AGENT, "sh", "-c", forget)
    result = operator.play("cluster")
    assert result.code != 0 and len(result.errors) == 1, result.output
    assert (
        "lab-2: k3s-agent.service is stopped again" in result.errors[0] and "Node password rejected" in result.errors[0]
    )
    assert "Delete the Node lab-2" in result.errors[0]
    assert result.seconds < 60
    assert operator.lab.run(AGENT, "systemctl", "is-active", "k3s-agent").stdout.strip() != b"active"


def test_one_machine_leaves_and_comes_back(operator: Operator, before: dict[str, list[str]]) -> None:
    server = operator.lab.started()[0]
    left = operator.play("cluster_absent", "--limit", AGENT)
    assert left.code == 0, left.output
    assert find_differences(operator, before, AGENT) == []
    assert [node["metadata"]["name"] for node in operator.items("nodes")] == [SERVER]
    secrets = [item["metadata"]["name"] for item in operator.items("secrets", "-n", "kube-system")]
    assert f"{AGENT}.node-password.k3s" not in secrets
    back = operator.play("join", muster_join_hosts=AGENT)
    assert back.code == 0 and back.recap[AGENT]["changed"] > 0 and SERVER not in back.recap, back.output
    assert {node["metadata"]["name"] for node in operator.items("nodes")} == {SERVER, AGENT}
    for playbook, values in (("join", {"muster_join_hosts": AGENT}), ("cluster", {})):
        again = operator.play(playbook, **values)
        assert again.code == 0 and again.changed == 0, again.output
    assert operator.lab.started()[0] == server


def test_an_agent_that_dies_while_it_joins_is_named_and_joins_when_it_is_back(operator: Operator) -> None:
    assert operator.play("cluster_absent", "--limit", AGENT).code == 0
    play = operator.start("join", muster_join_hosts=AGENT)
    token = ("test", "-e", "/etc/rancher/k3s/muster-token")
    assert until(lambda: operator.lab.run(AGENT, *token).returncode == 0 or play.process.poll() is not None, 120)
    operator.lab.power_off(AGENT)
    result = play.wait(240)
    operator.lab.plug_in(AGENT)
    assert result.code != 0 and len(result.errors) == 1 and AGENT in result.errors[0], result.output
    back = operator.play("join", muster_join_hosts=AGENT)
    assert back.code == 0, back.output
    assert {node["metadata"]["name"] for node in operator.items("nodes")} == {SERVER, AGENT}
    NOTES.append(f"an agent that dies while joining: {result.seconds:.0f} s, {result.errors[0][:200]}")


def test_removed_the_machines_are_as_they_were_found(operator: Operator, before: dict[str, list[str]]) -> None:
    result = operator.play("cluster_absent")
    assert result.code == 0, result.output
    assert find_differences(operator, before) == []
    assert not (operator.state / "kubeconfig").exists()
    again = operator.play("cluster_absent")
    assert again.code == 0 and again.changed == 0, again.output
