# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configuration files of the machines of a cluster, as text: kubelet, containerd, CNI, routes, kubeconfigs."""

from __future__ import annotations

import base64
import json
import typing as t

from . import plan, units
from .manifests import image_name
from .pki import Pair

_CONTAINERD = """version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  # Lowering it is denied on a host without CAP_SYS_RESOURCE.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{lab}/cni"
  [plugins."io.containerd.grpc.v1.cri".registry]
    # Read at each pull: what K3s makes of registries.yaml.
    config_path = "/etc/containerd/certs.d:{lab}/certs.d"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
"""
_KUBECONFIG = """apiVersion: v1
kind: Config
current-context: lab
contexts:
- name: lab
  context:
    cluster: lab
    user: {user}
clusters:
- name: lab
  cluster:
    server: {server}
    certificate-authority-data: {authority}
users:
- name: {user}
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
"""


def plain_registry(name: str) -> str:
    """Return the hosts.toml of a registry of the lab, with which containerd speaks plain HTTP."""
    return f'server = "http://{name}"\n[host."http://{name}"]\n  capabilities = ["pull", "resolve"]\n'


def containerd() -> str:
    """Return containerd's configuration."""
    return _CONTAINERD.format(pause=image_name("pause"), lab=plan.LAB)


def cni(machine: plan.Machine) -> str:
    """Return the pod network of a machine: a bridge with the addresses of its own range."""
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        # Between pods addresses stay what they are; the machine's own rule masks what leaves the cluster.
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": machine.pods}]], "routes": [{"dst": "0.0.0.0/0"}]},
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return json.dumps({"cniVersion": "0.4.0", "name": "lab", "plugins": [bridge, ports]}, indent=1)


def network(machine: plan.Machine, subnet: str) -> str:
    """Return the script that gives a machine its routes; it may run again."""
    outside = f"-s {plan.PODS} ! -d {plan.PODS}"
    lines = [f"ip route replace {pods} via {address}" for pods, address in plan.routes(subnet, machine.index)]

    def services(verb: str, chain: str) -> str:
        return f"iptables -w {verb} {chain} -d {plan.SERVICES} -j REJECT"

    rule = f"POSTROUTING {outside} -o eth0 -j MASQUERADE"
    return "\n".join(
        [
            "set -e",
            # Volumes that a pod mounts for its node need a tree that hands mounts down.
            "mount --make-rshared /",
            "sysctl -qw net.ipv4.ip_forward=1",
            f"iptables -w -t nat -C {rule} 2>/dev/null || iptables -w -t nat -A {rule}",
            "iptables -w -P FORWARD ACCEPT",
            # What asks for a Service before kube-proxy knows it would go out to whoever answers there, and the API
            # server keeps such a connection for good: a network that answers for everybody then breaks discovery.
            *(f"{services('-C', chain)} 2>/dev/null || {services('-A', chain)}" for chain in ("OUTPUT", "FORWARD")),
            *lines,
            "",
        ]
    )


def kubelet(machine: plan.Machine) -> str:
    """Return the kubelet's configuration."""
    taints = [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}] if machine.is_control else []
    value: dict[str, t.Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "cgroupfs",
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "100Mi"},
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "clusterDNS": [plan.DNS_SERVICE],
        "clusterDomain": plan.DOMAIN,
        "authentication": {"x509": {"clientCAFile": f"{plan.LAB}/pki/ca.crt"}, "webhook": {"enabled": True}},
        "authorization": {"mode": "Webhook"},
        "nodeLeaseDurationSeconds": units.NODE_LEASE_S,
        "nodeStatusUpdateFrequency": "5s",
        "registerWithTaints": taints,
        # Job pods of a drill are many and short.
        "maxPods": 200,
        "serializeImagePulls": False,
        "shutdownGracePeriod": "0s",
    }
    if machine.is_control:
        # Controllers end when the API server is away; after a drill with it they shall not wait for minutes.
        value["featureGates"] = {"KubeletCrashLoopBackOffMax": True}
        value["crashLoopBackOff"] = {"maxContainerRestartPeriod": "3s"}
    return json.dumps(value, indent=1)


def kubeconfig(address: str, user: str, authority: Pair, client: Pair) -> str:
    """Return a kubeconfig that has everything in it."""
    return _KUBECONFIG.format(
        user=user,
        server=f"https://{address}:{plan.API_PORT}",
        authority=_data(authority.certificate.read_bytes()),
        certificate=_data(client.certificate.read_bytes()),
        key=_data(client.key.read_bytes()),
    )


def _data(content: bytes) -> str:
    return base64.b64encode(content).decode()
