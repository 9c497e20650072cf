# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the diagnose_logs action; the work is done in plugins/action/diagnose_logs.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: diagnose_logs
version_added: 0.1.0
short_description: Diagnose from logs which network training jobs used and why they failed
description:
  - Reads the files of a folder on the controller and diagnoses each one. It works without hosts, clusters and GPUs.
  - Understands NCCL's INFO and WARN lines (2.4 to 2.30, also of RCCL) behind the prefixes of mpirun, Slurm, Ray,
    torchrun, kubectl and docker compose, the output of nccl-tests (all generations, text and JSON), show_gids,
    perftest, iperf3 and ibstat; and in any log errors of PyTorch, CUDA, gloo, the kernel (dmesg, journal), container
    runtimes, Slurm and Kubernetes that name a cause.
  - Files of gzip, bzip2 and xz are read, and of zstd where the controller has Python 3.14 or the program C(zstd); of
    others it is said that they were not read.
  - Where no message names the cause, the first error that is a rank's own is it (C(program_error)), or the signal that
    ended a rank (C(rank_ended)), after torchrun's table, Open MPI and tracebacks. Neither the reports of
    other ranks afterwards are taken for the cause, nor an error after which training continued.
  - Only channel lines between nodes prove a transport. A value that the file does not show is null, C(unknown)
    or C(unproven). A file alone never passes, because it does not hold the bandwidth that the hardware should reach.
  - The arguments and the environment in the JSON of nccl-tests are neither shown nor stored.
options:
  path:
    description: Folder that holds the files, read with its subfolders, or one file.
    type: path
    required: true
  dest:
    description: JSON file to write the list to. Without it, only the result holds the list.
    type: path
extends_documentation_fragment:
  - muster.training._attributes
  - muster.training._attributes.full
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
- name: Diagnose the logs of a job
  muster.training.diagnose_logs:
    path: ./logs
    dest: ./diagnosis.json
  register: diagnosis

- name: Show what failed
  ansible.builtin.debug:
    msg: "{{ diagnosis.diagnoses | selectattr('outcome', 'eq', 'fail') | map(attribute='causes') }}"
"""

RETURN = r"""
diagnoses:
  description: One entry a file, by name.
  returned: success
  type: list
  elements: dict
  contains:
    file:
      description: Name of the file, relative to O(path).
      type: str
    kind:
      description: The kind of the file, one of C(nccl_log), C(nccl_tests), C(show_gids) and C(unknown).
      type: str
    tool:
      description: The program that wrote it, such as C(nccl), C(nccl-tests), C(perftest) or C(ibstat).
      type: str
    transport:
      description: Name of the network that the file proves between nodes, such as C(IB) or C(Socket), else null.
      type: str
    transport_verdict:
      description:
        - One of C(rdma_gdr), C(rdma_no_gdr), C(tcp), C(mixed), C(mnnvl) and C(unproven).
        - C(rdma_gdr) means that every channel between nodes used GPUDirect.
      type: str
    gdr:
      description: Whether any channel between nodes used GPUDirect RDMA, C(yes), C(no) or C(unknown).
      type: str
    outcome:
      description: C(fail) for a failed job or wrong values, C(warn) for a cause that costs speed, else C(unproven).
      type: str
    busbw_gb_s:
      description: Bus bandwidth in GB/s of the largest size in the file, present when there is one.
      type: float
    size_bytes:
      description: The size that RV(diagnoses[].busbw_gb_s) belongs to.
      type: int
    wrong_values:
      description: Number of wrong values that nccl-tests counted, null when it did not check.
      type: int
    ranks:
      description: Ranks of the largest communicator, C(expected), C(seen) in this file and C(missing) from it.
      type: dict
    nodes:
      description: Nodes that the file names.
      type: list
      elements: str
    causes:
      description: The causes, the deciding one first, each with C(code), C(evidence) (file, line and text) and C(fix).
      type: list
      elements: dict
    also:
      description: Other observations, in the same form.
      type: list
      elements: dict
    notes:
      description: Notes on the figures.
      type: list
      elements: str
    lines:
      description: Number of lines read.
      type: int
    first_rank:
      description: The rank that failed first, null where the file does not say it.
      type: int
    first_node:
      description: The node of RV(diagnoses[].first_rank), or the one that the cause names, else null.
      type: str
    problem:
      description: Why the file could not be read or understood, else null.
      type: str
summary:
  description: One line a file.
  returned: success
  type: list
  elements: str
"""
