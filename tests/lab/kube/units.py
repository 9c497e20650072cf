# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What systemd runs on the machines of a cluster, as text. Everything starts by itself at every boot of a machine."""

from __future__ import annotations

import typing as t

from . import plan

_LAB = plan.LAB
_PKI = f"{_LAB}/pki"
# Half of the defaults: a dead node is noticed within half a minute, and a busy machine still renews in time.
NODE_LEASE_S = 20
NODE_GRACE_S = 24


def _unit(about: str, command: t.Sequence[str], **service: str) -> str:
    # The API server would wait a minute for those that watch something.
    lines = {"ExecStart": " ".join(command), "Restart": "always", "RestartSec": "1", "TimeoutStopSec": "3", **service}
    body = "\n".join(f"{key}={value}" for key, value in lines.items())
    return f"[Unit]\nDescription={about}\nStartLimitIntervalSec=0\n\n[Service]\n{body}\n"


def _component(name: str, flags: t.Mapping[str, t.Any]) -> str:
    words = [f"--{key}={value}" for key, value in flags.items()]
    return _unit(f"{name} of the lab", [f"{plan.BIN}/labk8s", name, *words])


def worker(machine: plan.Machine) -> dict[str, str]:
    """Return the units of every machine: network, containerd, kubelet, kube-proxy."""
    network = "[Unit]\nDescription=Routes between the pods of the lab\nBefore=lab-kubelet.service\n\n"
    network += f"[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sh {_LAB}/network.sh\n"
    containerd = ["/usr/bin/containerd", "--config", f"{_LAB}/containerd.toml"]
    return {
        "lab-network.service": network,
        "lab-containerd.service": _unit(
            "containerd of the lab", containerd, Type="notify", Delegate="yes", KillMode="process", TasksMax="infinity"
        ),
        "lab-kubelet.service": _component(
            "kubelet",
            {
                "config": f"{_LAB}/kubelet.json",
                "kubeconfig": f"{_LAB}/kubelet.conf",
                "hostname-override": machine.name,
                "node-ip": machine.address,
                "node-labels": f"{plan.ROLE}={'control' if machine.is_control else 'node'}",
                "v": 1,
            },
        ),
        "lab-proxy.service": _component(
            "kube-proxy",
            {
                "kubeconfig": f"{_LAB}/proxy.conf",
                "hostname-override": machine.name,
                "cluster-cidr": plan.PODS,
                "conntrack-max-per-core": 0,
                "iptables-min-sync-period": "200ms",
            },
        ),
    }


def control(machine: plan.Machine) -> dict[str, str]:
    """Return the units of the control plane."""
    access = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
    store = "http://127.0.0.1:2379"
    words = {
        "data-dir": "/var/lib/lab-etcd",
        "listen-client-urls": store,
        "advertise-client-urls": store,
        "listen-peer-urls": "http://127.0.0.1:2380",
        "unsafe-no-fsync": "true",
        "log-level": "error",
    }
    return {
        "lab-etcd.service": _unit("etcd of the lab", ["/usr/bin/etcd", *(f"--{k}={v}" for k, v in words.items())]),
        "lab-apiserver.service": _component("kube-apiserver", _api_server(machine.address, store)),
        "lab-controllers.service": _component(
            "kube-controller-manager",
            {
                **dict.fromkeys(access, f"{_LAB}/controllers.conf"),
                "leader-elect": "false",
                "use-service-account-credentials": "true",
                "service-account-private-key-file": f"{_PKI}/sa.key",
                "root-ca-file": f"{_PKI}/ca.crt",
                "cluster-signing-cert-file": f"{_PKI}/ca.crt",
                "cluster-signing-key-file": f"{_PKI}/ca.key",
                # The plan gives each node its range, so that it is the same after a replacement.
                "allocate-node-cidrs": "false",
                "node-monitor-period": "2s",
                "node-monitor-grace-period": f"{NODE_GRACE_S}s",
                "kube-api-qps": 200,
                "kube-api-burst": 400,
            },
        ),
        "lab-scheduler.service": _component(
            "kube-scheduler",
            {**dict.fromkeys(access, f"{_LAB}/scheduler.conf"), "leader-elect": "false"},
        ),
    }


def simulated_nodes() -> dict[str, str]:
    """Return the unit of kwok, which is started when it is asked for."""
    flags = {
        "kubeconfig": f"{_LAB}/admin.conf",
        "config": plan.KWOK_STAGES,
        "manage-nodes-with-label-selector": "type=kwok",
        "node-lease-duration-seconds": 2 * NODE_LEASE_S,
    }
    command = [f"{plan.BIN}/kwok", *(f"--{key}={value}" for key, value in flags.items())]
    return {"lab-kwok.service": _unit("kwok of the lab", command)}


def _api_server(address: str, store: str) -> dict[str, t.Any]:
    header = "requestheader"
    return {
        "advertise-address": address,
        "secure-port": plan.API_PORT,
        "etcd-servers": store,
        "service-cluster-ip-range": plan.SERVICES,
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "enable-bootstrap-token-auth": "true",
        "allow-privileged": "true",
        "client-ca-file": f"{_PKI}/ca.crt",
        "tls-cert-file": f"{_PKI}/apiserver.crt",
        "tls-private-key-file": f"{_PKI}/apiserver.key",
        "kubelet-client-certificate": f"{_PKI}/admin.crt",
        "kubelet-client-key": f"{_PKI}/admin.key",
        "kubelet-preferred-address-types": "InternalIP",
        "service-account-issuer": f"https://kubernetes.default.svc.{plan.DOMAIN}",
        "service-account-key-file": f"{_PKI}/sa.pub",
        "service-account-signing-key-file": f"{_PKI}/sa.key",
        # Without these an aggregated API refuses all requests, and no namespace can be deleted any more.
        f"{header}-client-ca-file": f"{_PKI}/front.crt",
        f"{header}-allowed-names": "front-proxy",
        f"{header}-extra-headers-prefix": "X-Remote-Extra-",
        f"{header}-group-headers": "X-Remote-Group",
        f"{header}-username-headers": "X-Remote-User",
        "proxy-client-cert-file": f"{_PKI}/front-proxy.crt",
        "proxy-client-key-file": f"{_PKI}/front-proxy.key",
    }
