# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the fleet_heal action; the work is done in plugins/action/fleet_heal.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_heal
version_added: 0.1.0
short_description: Decide what to do about lost nodes, and make it safe to go on without them
description:
  - Looks at the nodes of a run (hosts, or the Nodes of a cluster), at what their provider lists, at the ledger, and at
    the run's record, and says what is to be done. The playbook C(heal) does the rest.
  - Carries out itself what makes it safe to go on. Losses are written into the ledger (C(lost)). Rented machines that
    may still run are deleted, with proof. On a cluster the Nodes of lost machines are deleted, or tainted as out of
    service, and the pods of runs are forced off them; a rented one that still answers is drained first, so that
    programs may save. On hosts, what is left of the gang is stopped and may save.
  - A node is lost when its provider does not list it as usable any more, when O(lost_nodes) or O(preempted_nodes) name
    it, or when it is rented, or a plain host, and has been silent for O(patience_s). A silent node of a cluster that is
    not rented is only waited for, since its pods may still run.
  - Renting, joining and resuming are left to the caller, which finds in the result what is to be done.
options:
  run_id:
    description:
      - The run to heal. The default is the newest one, unless that succeeded, failed by itself or was cancelled.
    type: str
  hosts:
    description: Inventory hosts that may take part. The default is the play's hosts.
    type: list
    elements: str
  on_lost_node:
    description: What to do about the run, instead of its job's C(restart.on_lost_node).
    type: str
    choices: [wait, replace, shrink, fail]
  lost_nodes:
    description: Nodes of which you know that they are off.
    type: list
    elements: str
    default: []
  preempted_nodes:
    description: Nodes for which the provider gave notice of preemption.
    type: list
    elements: str
    default: []
  notices:
    description:
      - Nodes that will be taken away, and what says so, as M(muster.training.preemption_info) returns them. They count
        as O(preempted_nodes) do.
      - The notice and its time are written into the events of the run. A run on hosts that is being followed is then
        stopped by its follower.
    type: dict
    default: {}
  noticed_at:
    description: When the notices were read, by which the run's history dates them. The default is now.
    type: str
  patience_s:
    description: Seconds for which a machine may be silent before it counts as lost; a rented one is then deleted.
    type: float
    default: 120
  rentable:
    description: Whether the caller knows how to rent a replacement.
    type: bool
    default: false
  gpu_faults:
    description:
      - Whether a node that has lost a GPU is taken out. A rented machine is terminated and replaced. A node of your
        own in a cluster is closed and its pods are evicted; a plain host gets no gang.
      - A GPU is lost where C(nvidia-smi) lists fewer than the PCI bus has, where the kernel reports an Xid after which
        the machine has to boot, such as 79 (fallen off the bus), or where the device plugin of a cluster has it as
        unhealthy.
    type: bool
    default: true
  joinable:
    description: Whether the caller knows how a new machine joins the cluster.
    type: bool
    default: false
  kubeconfig:
    description: The kubeconfig, for a cluster, a path or its content as a mapping. By default as C(kubectl) finds it.
    type: raw
  context:
    description: Its context. By default that of the run.
    type: str
  cluster_id:
    description:
      - The uid of the namespace C(kube-system). Any other cluster is refused, whatever the kubeconfig points at.
      - Without it, nothing is changed on a cluster that has a node of the name of a rented machine whose last run was,
        by the ledger, on another one, or of a node in O(lost_nodes) or O(preempted_nodes) whose last run was there.
        Give it when these nodes belong to this cluster now, such as after its control plane was built anew.
    type: str
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._attributes.full
  - muster.training._providers
  - muster.training._state_home
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: See what is lost
  muster.training.fleet_heal:
    run_id: char-lm-1a2b3c4d
    lost_nodes: [gpu-3]
  check_mode: true
  run_once: true
"""

RETURN = r"""
actions:
  description:
    - What is to be done, in order, each with C(kind), C(nodes), C(count) and C(reason).
    - The kinds are V(mark_lost), V(stop), V(drain), V(close), V(give_back), V(release), V(admit), V(rent), V(join),
      V(resume), V(wait), V(fail) and V(refuse).
  returned: success
  type: list
  elements: dict
done:
  description: What this module did, one line each.
  returned: success
  type: list
  elements: str
lost:
  description: The lost nodes.
  returned: success
  type: list
  elements: str
deleted:
  description: The rented machines among them, which are terminated; in check mode, those that would be.
  returned: success
  type: list
  elements: str
backend:
  description: V(hosts) or V(kubernetes).
  returned: success
  type: str
rent:
  description: How many machines are to be rented.
  returned: success
  type: int
join:
  description: Whether they are to join a cluster.
  returned: success
  type: bool
known_tokens:
  description: The tokens of the leases that were there before.
  returned: success
  type: list
  elements: str
resume:
  description:
    - The values to continue the run with, C(run_id), C(nodes), C(hosts) and, where it has shrunk, C(job).
    - Null when it does not continue.
  returned: success
  type: dict
gang:
  description:
    - On a cluster, where what is left of a gang that has not ended is found. C(name) is that of its object, C(labels)
      are those of its pods, C(namespace) may be null, and C(stop_s) is how long its pods may take to end.
    - Null where nothing is left.
  returned: success
  type: dict
"""
