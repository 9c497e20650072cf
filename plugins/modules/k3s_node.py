# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the k3s_node action; the work is done in plugins/action/k3s_node.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: k3s_node
version_added: 0.1.0
short_description: Install K3s on a machine as server or agent, or remove it
description:
  - Places the binary, archives of images, a systemd unit, C(config.yaml.d/50-muster.yaml) and C(registries.yaml). Only
    what differs is sent. K3s' install script is never run.
  - An agent joins with a token of its own that expires after minutes and is deleted when the agent has joined. Each
    token has a line in the ledger of the state home.
  - Further servers join with the token of the cluster, which has no end. That a server has it is in the ledger until
    the server is removed.
  - The administrator's kubeconfig is written to C(kubeconfig) in the folder of the cluster in the state home,
    with mode 0600.
  - With O(state=absent) everything is removed that was installed, and what K3s has made, including pods, mounts, links
    and firewall rules. Files that were there before stay. The Node is deleted with M(muster.training.kube_node). Of a
    machine that does not answer and leaves a cluster that stays, RV(problem) says what remains on it.
  - A machine with a Kubernetes that another tool installed is refused, and so is a server that would take the name of
    another cluster whose kubeconfig is in the state home. The binary must be of the version that was asked for.
options:
  state:
    description:
      - V(present) installs K3s and enables the unit. V(restarted) starts or restarts the unit, unless it is running
        with what V(present) has installed, and waits until the machine is in the cluster. The role C(k3s) does that in
        a handler when V(present) has changed something.
      - V(leaving) is for one of several servers that is to be removed while the others stay, before its Node is deleted
        with M(muster.training.kube_node). It is refused when those that stay would have no majority. K3s is not started
        again by itself from then on, which would have it join once more, and the kubeconfig names another server.
    type: str
    choices: [present, restarted, leaving, absent]
    default: present
  role:
    description: The part of the machine in the cluster.
    type: str
    choices: [server, agent]
    required: true
  node_name:
    description: The name of its Node. The default is the name of the host in the inventory.
    type: str
  server:
    description:
      - The host of the inventory that is the server. Required for an agent, except with O(state=absent). A server for
        which it is another host joins it as one of several, with the servers' own token.
    type: str
  server_address:
    description: The address by which the machine reaches O(server). The default is O(server).
    type: str
  server_addresses:
    description:
      - The addresses of all servers. A machine that has joined by one of them stays with it, as K3s knows all servers
        then. Empty where one is not known, then it stays with the one that it has.
    type: list
    elements: str
    default: []
  embedded_etcd:
    description:
      - Whether the cluster has several servers. Then the one that is O(server) begins with embedded etcd, and K3s moves
        what it has in SQLite into it.
    type: bool
    default: false
  servers:
    description:
      - The hosts of the inventory that are servers. The kubeconfig stays as it is while it names one of them; for
        O(state=leaving) and O(state=absent) they are all servers of the cluster.
    type: list
    elements: str
    default: []
  leaving:
    description: For O(state=leaving) and O(state=absent), those of O(servers) that leave by the same command.
    type: list
    elements: str
    default: []
  api_address:
    description: The address by which the controller reaches the server, for the kubeconfig.
    type: str
  version:
    description: The version of K3s. The default is the one in the collection's list of downloads.
    type: str
  source:
    description:
      - A folder of the controller that holds the files of a release, or a URL below which they are. The default is
        the release on GitHub, from which each machine downloads.
    type: str
  images:
    description:
      - File names of archives of images in the release, which K3s imports when it starts, such as
        C(k3s-airgap-images-amd64.tar.zst).
    type: list
    elements: str
    default: []
  lock_file:
    description:
      - Where the SHA-256 of a first download is written when the collection's list of downloads has none. The default
        is
        C(muster-downloads.lock.json) beside the inventory. A file with another digest is refused from then on.
    type: path
  node_ip:
    description: The address of the machine in the cluster. Without it K3s takes the one of the default route.
    type: str
  flannel_iface:
    description: The interface of the network between pods.
    type: str
  tls_san:
    description: Further names and addresses of the server.
    type: list
    elements: str
    default: []
  cluster_cidr:
    description: The range of pods.
    type: str
    default: 10.42.0.0/16
  service_cidr:
    description: The range of Services.
    type: str
    default: 10.43.0.0/16
  taints:
    description:
      - Taints such as C(key=value:NoSchedule). They apply when the Node is registered; M(muster.training.kube_node)
        changes them later.
    type: list
    elements: str
    default: []
  traefik:
    description: Whether K3s deploys Traefik.
    type: bool
    default: false
  servicelb:
    description: Whether K3s deploys ServiceLB.
    type: bool
    default: false
  memlock:
    description: Whether pods may lock any amount of memory, which RDMA needs.
    type: bool
    default: true
  default_runtime:
    description:
      - The runtime of containers that name none. V(auto) is C(nvidia) on a machine with an NVIDIA GPU and the NVIDIA
        container toolkit, else the one of K3s.
    type: str
    default: auto
  registries:
    description:
      - The content of C(registries.yaml). Mirrors and CAs of the registries that are bound in the state home are added,
        without credentials.
    type: dict
    default: {}
  config:
    description: Further options of K3s by name. They go before those that this module sets.
    type: dict
    default: {}
  token:
    description: A token in K10 form instead of a new one. It is checked with the server before anything is changed.
    type: str
  token_ttl_s:
    description: How many seconds the token of an agent is valid, 60 to 86400.
    type: int
    default: 600
  wait_s:
    description: How many seconds the unit may take until it is ready.
    type: int
    default: 300
  adopt:
    description:
      - Let a server take the name O(cluster) over from another cluster that no longer exists. The former kubeconfig is
        kept beside the new one.
    type: bool
    default: false
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._attributes.full
  - muster.training._state_home
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Install K3s as server
  muster.training.k3s_node:
    role: server
  notify: Restart k3s
"""

RETURN = r"""
files:
  description: Paths that were or would be placed; a path that is removed starts with C(-).
  returned: O(state=present)
  type: list
  elements: str
joins:
  description: Whether the machine is an agent, or a further server, that has not joined yet.
  returned: O(state=present)
  type: bool
problem:
  description: What was not done, null when all of it was.
  returned: O(state=leaving), and O(state=absent) for a machine that does not answer
  type: str
"""
