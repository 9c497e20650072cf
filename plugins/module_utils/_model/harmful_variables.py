# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables of NCCL that are copied from recipes and make healthy networks slow or broken, each with its reason."""

from __future__ import annotations

import typing as t

_ON = ("1", "true", "yes")
# Without any condition: whatever the value is, NCCL's own choice is better.
_ALWAYS = {
    "NCCL_IB_GID_INDEX": "NCCL 2.21 and later choose the index, and it differs between nodes and pods",
    "NCCL_ALGO": "NCCL chooses the algorithm for each size, and one for all sizes is slower",
    "NCCL_PROTO": "NCCL chooses the protocol for each size, and one for all sizes is slower or corrupts data",
    "NCCL_IB_TIMEOUT": "a longer timeout hides a broken link until the job hangs",
    "NCCL_BUFFSIZE": "the default is tuned, and larger buffers take GPU memory for each channel and peer",
    "NCCL_LL_BUFFSIZE": "the default is tuned, and larger buffers take GPU memory for each channel and peer",
    "NCCL_LL128_BUFFSIZE": "the default is tuned, and larger buffers take GPU memory for each channel and peer",
}
# Only where they are switched on; the second part only where the nodes have, or may have, RDMA.
_SWITCHES = {
    "NCCL_P2P_DISABLE": "GPUs of one node then copy through host memory instead of NVLink or PCIe",
    "NCCL_SHM_DISABLE": "ranks of one node then talk to each other over the network",
}
_RDMA_SWITCHES = {"NCCL_IB_DISABLE": "NCCL then uses TCP instead of RDMA, often 5 to 50 times slower"}
_RDMA_VALUES = {
    ("NCCL_NET", "socket"): "NCCL then uses TCP instead of RDMA, often 5 to 50 times slower",
    ("NCCL_NET_GDR_LEVEL", "loc"): "GPUDirect RDMA is then never used, and data is copied through host memory",
    ("NCCL_NET_GDR_LEVEL", "0"): "GPUDirect RDMA is then never used, and data is copied through host memory",
}
_HANG = "a rank whose peer has failed then waits for ever instead of ending"
_ZERO = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": _HANG, "NCCL_ASYNC_ERROR_HANDLING": _HANG}
_SUBSYSTEMS = ("all", "coll", "call")
# A user may set these for one job; the collection sets none of them for all jobs.
FORBIDDEN = frozenset({*_ALWAYS, *_SWITCHES, *_RDMA_SWITCHES})


def warn_of_variables(env: t.Mapping[str, str], *, rdma: bool | None) -> tuple[str, ...]:
    """Return a warning with the reason for each variable of a job that is known to harm.

    :param rdma: whether the nodes' network is RDMA, None where it was not verified.
    """
    warnings = []
    for name, value in sorted(env.items()):
        reason = _find_reason(name, str(value).strip().lower(), rdma is not False)
        if reason:
            warnings.append(f"job.env sets {name}={value}: {reason}. Remove it, unless a test of your own needs it")
    if str(env.get("NCCL_DEBUG", "")).upper() in ("INFO", "TRACE"):
        asked = str(env.get("NCCL_DEBUG_SUBSYS", "")).lower().split(",")
        named = [item for item in asked if item.strip() in _SUBSYSTEMS]
        if named:
            warnings.append(
                f"job.env sets NCCL_DEBUG_SUBSYS={env['NCCL_DEBUG_SUBSYS']}: NCCL then prints a line for every "
                "collective. Use INIT,NET, which costs nothing after the start"
            )
    return tuple(warnings)


def _find_reason(name: str, value: str, rdma: bool) -> str:
    """Return why a variable harms, empty when it does not."""
    if value in _ON and name in _SWITCHES:
        return _SWITCHES[name]
    if rdma and value in _ON and name in _RDMA_SWITCHES:
        return _RDMA_SWITCHES[name]
    if value == "0" and name in _ZERO:
        return _ZERO[name]
    return (_RDMA_VALUES.get((name, value), "") if rdma else "") or _ALWAYS.get(name, "")
