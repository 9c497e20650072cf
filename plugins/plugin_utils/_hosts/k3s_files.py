# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files by which a machine runs K3s, as text: its unit, its configuration, its registries."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import typing as t

import yaml

PROGRAM = "/usr/local/bin/k3s"
CONFIG = "/etc/rancher/k3s/config.yaml.d/50-muster.yaml"
# Apart: they apply when a node is registered, and K3s is not started again for a change of them.
TAINTS = "/etc/rancher/k3s/config.yaml.d/60-muster-taints.yaml"
TOKEN = "/etc/rancher/k3s/muster-token"
REGISTRIES = "/etc/rancher/k3s/registries.yaml"
IMAGES = "/var/lib/rancher/k3s/agent/images"
API_PORT = 6443
_UNIT = """# Written by muster.training; changes are overwritten.
[Unit]
Description=Lightweight Kubernetes ({role})
Documentation=https://docs.k3s.io
Wants=network-online.target
After=network-online.target tailscaled.service

[Service]
Type=notify
EnvironmentFile=-/etc/default/%N
EnvironmentFile=-/etc/sysconfig/%N
KillMode=process
Delegate=yes
LimitNOFILE=1048576
LimitNPROC=infinity
LimitCORE=infinity
TasksMax=infinity
TimeoutStartSec=0
Restart=always
RestartSec=5s
ExecStartPre=-/sbin/modprobe br_netfilter
ExecStartPre=-/sbin/modprobe overlay
ExecStart={program} {role}

[Install]
WantedBy=multi-user.target
"""
# RDMA registers memory of the processes in pods, which inherit the limit of this unit.
_MEMLOCK = "# Written by muster.training for RDMA.\n[Service]\nLimitMEMLOCK=infinity\n"


@dataclasses.dataclass(frozen=True, slots=True)
class NodeFile:
    """A file of the machine with its text."""

    path: str
    mode: int
    text: str

    @property
    def sha256(self) -> str:
        """The digest of its text."""
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclasses.dataclass(frozen=True, slots=True)
class K3sSettings:
    """The settings of K3s on one machine. ``server``: the URL that an agent, or a further server, joins.

    ``init``: whether it is the first of several servers, with which the embedded etcd begins. ``authorities``: the
    files of CAs that ``registries`` name.
    """

    role: str
    node: str
    server: str = ""
    init: bool = False
    node_ip: str = ""
    flannel_iface: str = ""
    names: tuple[str, ...] = ()
    pods: str = ""
    services: str = ""
    taints: tuple[str, ...] = ()
    traefik: bool = False
    servicelb: bool = False
    memlock: bool = True
    default_runtime: str = ""
    registries: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    authorities: tuple[NodeFile, ...] = ()
    more: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)

    @property
    def has_etcd(self) -> bool:
        """Whether it is one of several servers."""
        return self.role == "server" and bool(self.init or self.server)

    @property
    def unit(self) -> str:
        """The name of its unit."""
        return "k3s.service" if self.role == "server" else "k3s-agent.service"


def render(settings: K3sSettings) -> list[NodeFile]:
    """Return the files of a machine, without its token."""
    unit = f"/etc/systemd/system/{settings.unit}"
    found = [
        NodeFile(unit, 0o644, _UNIT.format(role=settings.role, program=PROGRAM)),
        NodeFile(CONFIG, 0o600, _yaml(_config(settings))),
    ]
    if settings.memlock:
        found.append(NodeFile(f"{unit}.d/50-memlock.conf", 0o644, _MEMLOCK))
    if settings.taints:
        found.append(NodeFile(TAINTS, 0o600, _yaml({"node-taint": list(settings.taints)})))
    if settings.registries:
        found += [NodeFile(REGISTRIES, 0o600, _yaml(settings.registries)), *settings.authorities]
    return found


def _config(settings: K3sSettings) -> dict[str, t.Any]:
    values: dict[str, t.Any] = {"node-name": settings.node}
    if settings.node_ip:
        values["node-ip"] = settings.node_ip
    if settings.flannel_iface:
        values["flannel-iface"] = settings.flannel_iface
    if settings.default_runtime:
        values["default-runtime"] = settings.default_runtime
    if settings.role == "server":
        values |= {
            "cluster-cidr": settings.pods,
            "service-cidr": settings.services,
            "tls-san": list(settings.names),
            "secrets-encryption": True,
            "write-kubeconfig-mode": "0600",
            "disable": [
                name
                for name, wanted in (("traefik", settings.traefik), ("servicelb", settings.servicelb))
                if not wanted
            ],
        }
    if settings.server:
        values |= {"server": settings.server, "token-file": TOKEN}
    elif settings.init:
        values |= {"cluster-init": True}
    return {key: value for key, value in {**values, **settings.more}.items() if value != []}


def _yaml(value: t.Any) -> str:
    # Ansible's own kinds of text are not known to the writer of YAML.
    plain = json.loads(json.dumps(value))
    return "# Written by muster.training; changes are overwritten.\n" + str(yaml.safe_dump(plain, sort_keys=True))
