# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the node_pool action; the work is done in plugins/action/node_pool.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_pool
version_added: 0.1.0
short_description: Rent a pool of GPU machines, all or nothing, and delete it with proof
description:
  - With O(state=present) the pool has O(count) usable machines when the module ends, or none that this call took.
    Machines of an earlier call are adopted, missing ones are ordered at the same time, each is looked at over SSH
    before it counts, and unusable ones are deleted and replaced.
  - With O(state=absent) machines are ended, and proved gone by the listings of their account, which have to lack
    them for a minute or more (as long as a listing of that provider may miss a machine that exists). It fails while
    anything of this cluster bills beyond its lease, and, without O(pool) and O(nodes), while the account of a
    machine within its lease cannot be seen.
  - What is listed bills, whatever the ledger says of it. A machine that is listed again after it was proved gone is
    ended, and nothing is ordered beside machines of this cluster that the ledger does not have.
  - Everything that is rented has a line in the cluster's ledger (C(ledger.jsonl) in the state home) before the order
    leaves, and the same token at the end of its name. When an answer is lost, the account's listing decides, never a
    second order. After a crash, the same task or O(state=absent) puts things in order.
  - A machine without a line in the ledger is never deleted, except orphans with O(orphans=delete). Nothing is deleted
    that is listed without a token of ours in its name or its tags.
  - Runs on the controller. The providers' own limits on calls are kept.
options:
  state:
    description: Whether the pool shall be there.
    type: str
    choices: [present, absent]
    default: present
  pool:
    description:
      - The name of the pool, lower-case letters and digits, at most 16.
      - With O(state=absent) it may be left out for all pools of the cluster.
    type: str
  count:
    description: How many machines. A smaller number than the pool has is refused without O(shrink).
    type: int
    default: 1
  shrink:
    description:
      - Whether the last machines are ended, whatever runs on them, where O(count) is smaller than the number that the
        pool has.
    type: bool
    default: false
  candidates:
    description:
      - What to rent, in order of preference. Each is a mapping with C(provider) and any of the filters of
        M(muster.training.node_offer_info) (C(product), C(regions), C(kind), C(unit), C(gpu_model), C(gpu_count),
        C(gpu_memory_gib_min), C(memory_gib_min), C(max_price_usd_per_hour), C(k3s_capable), C(network_types)).
      - C(image) is the provider's name for what to start (a family or id at Lambda, an operating system at Shadeform,
        a container image at RunPod and Vast.ai, where it is required). C(disk_gib) and C(ports) apply where they are
        sold apart.
      - Among the offers of one candidate the cheapest GPU-hour comes first.
    type: list
    elements: dict
    default: []
  mixed:
    description:
      - Whether machines of different candidates may make up one pool. A synchronous job wants equal ones, so by
        default the next candidate is taken for all when one cannot complete the pool.
    type: bool
    default: false
  max_price_usd_per_hour:
    description:
      - The highest price of one machine in US dollars per hour. It holds for offers, and for what is billed. When a new
        machine bills more, those of this call are deleted and the module fails.
    type: float
  max_total_usd_per_hour:
    description:
      - The highest price of the whole pool in US dollars per hour, with machines that were replaced until they are
        gone.
    type: float
  lease_s:
    description:
      - After so many seconds from now the machines are due, whatever became of the job. A reaper ends them, and a
        provider that knows deadlines (Shadeform) ends them itself.
      - A later call sets the deadline anew for the machines that there are, except at a provider that keeps the first
        one.
    type: int
  run_id:
    description: The run that the pool is for. It goes into the ledger.
    type: str
  release:
    description:
      - When O(run_id) has ended, whether the pool is due. V(success) means only after success.
    type: str
    choices: [success, always, never]
  max_cost_usd:
    description:
      - When the machines of O(run_id) have cost this much, they are due. The cost counts from the run's start. Without
        O(run_id) it is that of the pool, from its orders on.
      - Each machine counts at the highest price that it was offered or listed at.
    type: float
  ssh_public_key:
    description:
      - The public key that gets access, one line. Required for O(state=present), or O(ssh_public_key_file).
    type: str
  ssh_public_key_file:
    description: A file with the public key.
    type: path
  ssh_private_key_file:
    description: The private key for looking at machines. Without it SSH and its agent choose.
    type: path
  user_data:
    description:
      - What a machine runs at its first boot, cloud-init at Lambda, a shell script at Shadeform and Vast.ai. RunPod
        cannot.
      - It goes to the provider, so it should not hold a secret that remains valid without the machine.
    type: str
  readiness:
    description:
      - What a machine must show before it counts, a mapping. C(ssh) (default true) looks at all, and wants the GPU
        model and the memory that were ordered. C(cuda) (true) wants all GPUs that were ordered, and CUDA to
        initialise. C(k3s) (false) wants that K3s can run. C(disk_free_gib_min) (5), C(memory_gib_min) (0).
        C(patience_s) (240) is how long a machine that answers may take to be right.
      - cloud-init and the package manager must be done.
      - Host keys are pinned one by one, in C(known_hosts) of the cluster's state folder.
    type: dict
    default: {}
  wait_timeout_s:
    description: How long a pool may take to be complete. Then its machines are deleted.
    type: int
    default: 1800
  capacity_wait_s:
    description: How long to try again when every offer is refused for want of machines.
    type: int
    default: 0
  max_replacements:
    description:
      - How many bad machines may be replaced for each machine of the pool. An order that never took effect counts like
        one.
    type: int
    default: 3
  release_timeout_s:
    description:
      - How long deleting may take, with every listing and call. The proof alone takes a minute (75 seconds at Vast.ai);
        with less time the machines are deleted all the same, after a warning, and the module fails because nothing is
        proved.
    type: int
    default: 900
  nodes:
    description:
      - With O(state=absent), only these nodes, by name, provider's id or token. A machine of a cluster means the
        whole cluster. An empty list means none, not all.
    type: list
    elements: str
  due_only:
    description:
      - With O(state=absent), only what is due. That is a deadline that has passed, a run that has ended or cost too
        much, and what was given up before.
    type: bool
    default: false
  orphans:
    description:
      - What to do about machines with a name of this cluster that the ledger does not know. They are reported, and
        make the module fail, unless V(delete) says to end them.
    type: str
    choices: [report, delete]
    default: report
  kubeconfig:
    description:
      - With O(due_only), a kubeconfig (a path, or its content as a mapping) of the cluster that is asked about runs in
        pods that no controller follows any more.
    type: raw
  context:
    description: The context of O(kubeconfig). The default is its current one.
    type: str
  hygiene:
    description: What was cleaned on the nodes before, for the proof (C(node), C(step), C(ok), C(problem)).
    type: list
    elements: dict
    default: []
  reaper_host:
    description:
      - An inventory host that has the reaper (entry point C(reaper) of the role C(teardown)). The
        ledger is copied there before every order, so that what was rented ends there too when this controller is gone.
      - Needed where the controller's own state goes with its job, as in AWX, unless C(state_home.path) is a folder that
        remains after the job.
    type: str
  reaper_state:
    description: The reaper's folder on O(reaper_host).
    type: path
    default: /var/lib/muster/reaper
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._providers
  - muster.training._state_home
attributes:
  check_mode:
    support: full
    details: Accounts are listed and offers read. Nothing is ordered, ended or written, and machines are not looked at.
  diff_mode:
    support: full
  idempotent:
    support: full
author:
  - muster.training contributors (@muster-training)
seealso:
  - module: muster.training.node_offer_info
  - module: muster.training.tailscale_key
"""

EXAMPLES = r"""
- name: Four machines with eight H100 each, from the first that can give them all, for at most a day
  muster.training.node_pool:
    cluster: lab
    pool: h100
    count: 4
    candidates:
      - {provider: lambda, gpu_model: H100, gpu_count: 8, regions: [us-east-1, us-south-2]}
      - {provider: shadeform, gpu_model: H100, gpu_count: 8, kind: vm}
    max_total_usd_per_hour: 120
    lease_s: 86400
    ssh_public_key_file: ~/.ssh/id_ed25519.pub
    readiness: {k3s: true}
  register: pool

- name: Delete every machine that this cluster rents
  muster.training.node_pool:
    cluster: lab
    state: absent

- name: What a reaper does every few minutes
  muster.training.node_pool:
    cluster: lab
    state: absent
    due_only: true
"""

RETURN = r"""
nodes:
  description:
    - The machines of the complete pool. Each is a node record (C(muster_node)), with C(ssh) filled in and
      C(ssh_arguments), which pin its host key.
  returned: when O(state=present)
  type: list
  elements: dict
history:
  description: What happened, in order, one line each.
  returned: when O(state=present)
  type: list
  elements: str
planned:
  description: The orders that would be placed first.
  returned: in check mode, when O(state=present)
  type: list
  elements: dict
placed:
  description: How many orders were placed, refused ones too.
  returned: when O(state=present), not in check mode
  type: int
price_usd_per_hour:
  description:
    - What bills after the call, in US dollars per hour, with what is not proved gone (RV(not_proved_gone)); null when a
      price is not known.
  returned: when O(state=present), not in check mode
  type: float
deadline:
  description: When the first of the leases is due, null when none has a deadline.
  returned: when O(state=present), not in check mode
  type: str
not_proved_gone:
  description: What was given up and may still be there; it makes the module fail. O(state=absent) deals with it.
  returned: when O(state=present), not in check mode
  type: list
  elements: dict
leases:
  description:
    - What is proved gone, with C(token), C(name), C(id), C(account) and the two times in C(absent_at).
    - C(how) is C(ended) when the provider accepted a delete of it, C(never_seen_to_end) when it is not in its account
      and no delete of it was ever accepted, C(never_made) for an order that never took effect.
  returned: when O(state=absent)
  type: list
  elements: dict
billing:
  description:
    - Machines of this cluster that are not proved gone, with C(ids), C(usd_per_hour) and the C(problem). In check mode
      those that would not be.
  returned: when O(state=absent)
  type: list
  elements: dict
within_lease:
  description:
    - Machines of this cluster that may run on, with C(id), C(usd_per_hour) and C(deadline). One that is in the ledger
      and is not listed has a C(problem) in place of a price, because it is gone, or hidden and bills.
  returned: when O(state=absent)
  type: list
  elements: dict
within_lease_usd_per_hour:
  description: What they cost, null when a price is not known.
  returned: when O(state=absent)
  type: float
would_end:
  description:
    - What would be terminated, with C(name), C(id), C(usd_per_hour), C(deadline) and with O(due_only) the C(reason).
      One that is not listed has a C(problem).
  returned: in check mode, when O(state=absent)
  type: list
  elements: dict
would_end_usd_per_hour:
  description: What it costs, null when a price is not known.
  returned: in check mode, when O(state=absent)
  type: float
notes:
  description:
    - More about the bill, one line each. A machine that is listed far below its offer, a clock that is off, an order of
      the future, machines of another cluster of this state home in the same account.
  returned: when O(state=absent)
  type: list
  elements: str
summary:
  description: What ended, or would, what may run on and what bills beyond a lease, in one line with prices.
  returned: when O(state=absent)
  type: str
unwritten:
  description: Lines that the disk of the ledger did not take. Add them to C(ledger.jsonl) when there is room.
  returned: not in check mode
  type: list
  elements: dict
orphans:
  description: Machines with a name of this cluster and no line in its ledger.
  returned: when O(state=absent)
  type: list
  elements: dict
leftovers:
  description: Volumes and file systems with a name of this cluster.
  returned: when O(state=absent)
  type: list
  elements: dict
unknown:
  description: Everything else in the accounts, never touched.
  returned: when O(state=absent)
  type: list
  elements: dict
hygiene:
  description: What O(hygiene) said.
  returned: when O(state=absent), not in check mode
  type: list
  elements: dict
residual_usd_per_hour:
  description: What bills beyond a lease, null when a price is not known. In check mode what would.
  returned: when O(state=absent)
  type: float
clean:
  description: Whether nothing of this cluster bills beyond its lease. In check mode whether nothing would.
  returned: when O(state=absent)
  type: bool
reasons:
  description: With O(due_only), why each lease is due.
  returned: when O(state=absent)
  type: list
  elements: dict
problem:
  description: What stands in the way, empty when nothing does.
  returned: in check mode, when O(state=present)
  type: str
ledger_warnings:
  description: Lines of the ledger that could not be read.
  returned: always
  type: list
  elements: str
"""
