# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables that harm are warned of with their reason, and only where they do harm."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.harmful_variables import warn_of_variables

HARMFUL = [
    ("NCCL_P2P_DISABLE", "1", "host memory"),
    ("NCCL_SHM_DISABLE", "1", "over the network"),
    ("NCCL_IB_GID_INDEX", "3", "differs between nodes and pods"),
    ("NCCL_ALGO", "Tree", "for each size"),
    ("NCCL_PROTO", "LL128", "for each size"),
    ("NCCL_IB_TIMEOUT", "22", "hides a broken link"),
    ("NCCL_BUFFSIZE", "8388608", "GPU memory"),
    ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", "waits for ever"),
]
RDMA_ONLY = [("NCCL_IB_DISABLE", "1"), ("NCCL_NET", "Socket"), ("NCCL_NET_GDR_LEVEL", "LOC")]
HARMLESS = [
    {"NCCL_DEBUG": "INFO"},
    {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"},
    {"NCCL_P2P_DISABLE": "0", "NCCL_IB_DISABLE": "0"},
    {"NCCL_SOCKET_IFNAME": "=eth0", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"},
]


@pytest.mark.parametrize(("name", "value", "reason"), HARMFUL)
@pytest.mark.parametrize("rdma", [True, False, None])
def test_a_harmful_variable_is_named_with_its_reason(name: str, value: str, reason: str, rdma: bool | None) -> None:
    (line,) = warn_of_variables({name: value}, rdma=rdma)
    assert line.startswith(f"job.env sets {name}={value}: ") and reason in line


@pytest.mark.parametrize(("name", "value"), RDMA_ONLY)
def test_what_switches_rdma_off_harms_only_where_there_may_be_rdma(name: str, value: str) -> None:
    assert len(warn_of_variables({name: value}, rdma=True)) == len(warn_of_variables({name: value}, rdma=None)) == 1
    assert warn_of_variables({name: value}, rdma=False) == ()


@pytest.mark.parametrize("env", HARMLESS)
def test_what_costs_nothing_is_not_warned_of(env: dict[str, str]) -> None:
    assert warn_of_variables(env, rdma=True) == ()


def test_a_line_for_every_collective_is_warned_of() -> None:
    (line,) = warn_of_variables({"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,COLL"}, rdma=None)
    assert "a line for every collective" in line
