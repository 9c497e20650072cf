# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measured figures for known hardware: data, each row with who measured it."""

from __future__ import annotations

from ....module_utils._model.expectation import ExpectationRow

# Most specific first: the first row that matches wins. Figures are GB/s of bus bandwidth at large sizes.
ROWS: tuple[ExpectationRow, ...] = (
    # One node, GPUs joined by NVLink.
    ExpectationRow(480, "Azure NHC gate, one HGX H200, all_reduce", model="H200", gpus=8, nvswitch=True, nodes_max=1),
    ExpectationRow(
        470, "Azure NHC gate 460 and 476-480 seen, one HGX H100", model="H100", gpus=8, nvswitch=True, nodes_max=1
    ),
    ExpectationRow(230, "Azure NHC gate 228; nccl#527, one HGX A100", model="A100", gpus=8, nvswitch=True, nodes_max=1),
    ExpectationRow(110, "Azure NHC gate, one V100 node with NVLink", model="V100", gpus=8, nodes_max=1),
    # NVLink between nodes.
    ExpectationRow(882, "NVIDIA NVCRE, GB200, 4 nodes", model="GB200", link="mnnvl", nodes_min=2),
    ExpectationRow(923, "NVIDIA NVCRE, GB300, 8 nodes", model="GB300", link="mnnvl", nodes_min=2),
    # DGX Spark: NVIDIA's playbook passes at 21.875 of 25 GB/s, 23.74 was measured with both halves in use.
    ExpectationRow(
        23.74,
        "dgx-spark-playbooks PR 103: two functions of one 200G port; the playbook passes at 21.875",
        platform="dgx_spark",
        link="roce",
        nic_count=2,
        nodes_min=2,
        gate_pass=0.92,
    ),
    # Several nodes over RDMA, where the computed figure is known to be off.
    ExpectationRow(
        68,
        "nccl#812 and nccl-tests#169: 60-75 seen",
        model="A100",
        link="roce",
        nic_count=8,
        nic_rate_gbps=100,
        nodes_min=2,
    ),
    ExpectationRow(192, "nccl#812, DGX A100", model="A100", link="ib", nic_count=8, nic_rate_gbps=200, nodes_min=2),
    ExpectationRow(
        370,
        "Together AI acceptance; 386 at 8 GiB in coreweave/nccl-tests",
        model="H100",
        link="ib",
        nic_count=8,
        nic_rate_gbps=400,
        nodes_min=2,
    ),
    ExpectationRow(
        370,
        "as H100: 350 at 248 nodes in nccl-tests#283",
        model="H200",
        link="ib",
        nic_count=8,
        nic_rate_gbps=400,
        nodes_min=2,
    ),
)
