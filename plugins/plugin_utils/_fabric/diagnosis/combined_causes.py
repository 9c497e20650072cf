# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Causes that no single line names: findings together with the transport, the devices and the environment.

Findings are also withdrawn: ``No device found`` is not a fault on one machine, nor beside a plugin that uses RDMA.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ..parse.nccl_channels import network_class
from ..parse.nccl_log import NcclFacts
from ..parse.nccl_tests import NcclTests
from ..parse.rdma_tools import GidTable, find_moving_gid_index
from ..verdict.cause_table import SYMPTOMS
from ..verdict.spark_pair import HALF, WIFI, find_rate_cause, is_wireless
from ..verdict.transport import NcclTransport
from .causes import Finding
from .log_patterns import is_virtual_interface
from .program_end import ProgramEnd

# GPUs of servers whose vendors ship GPUDirect RDMA; GB10 (DGX Spark) does not support it.
_GPUDIRECT_GPU = re.compile(r"\b(?:V100|A100|A800|H100|H800|H200|H20|B200|B300|GB200|GB300)\b")
# A mesh may be the only path between the nodes, so that selecting it by name is correct.
_MESH = ("tailscale", "wg", "zt")
# The second half of a DGX Spark's port, which shows each port twice; it does not support GPUDirect.
_SPARK_HCA = "roceP2p1s0f"

_RANK_FILE = re.compile(r"(?:^|[/_.-])rank[_-]?(\d{1,6})(?=[/_.-])")

Table = dict[str, Finding]


def combine_findings(
    findings: t.Mapping[str, Finding], facts: NcclFacts, transport: NcclTransport, tests: NcclTests
) -> Table:
    """Return the findings of a log in the light of everything else in it."""
    result = dict(findings)
    _withdraw_meaningless(result, facts, transport)
    for finding in (
        _find_pinned_network(result, facts),
        _find_hca_mismatch(result, facts),
        _find_gid_index(result, facts),
        _find_wrong_interface(facts, transport),
        _find_silent_tcp(facts, transport),
        _find_gpudirect_off(result, transport, tests),
        _find_wifi(facts, transport),
        _find_spark_link(facts, transport, tests),
    ):
        if finding:
            result[finding.code] = finding
    if "plugin_broken" in result and "ib_no_device" in result and result["ib_no_device"].stopped:
        del result["plugin_broken"]
    if "roce_gid_index" in result:
        result.pop("roce_gid_per_pod", None)
    return result


def add_end(findings: Table, end: ProgramEnd) -> Table:
    """Return the findings with how the program ended, where none of them says why it did."""
    why = any(finding.weight == "fatal" and finding.code not in SYMPTOMS for finding in findings.values())
    if end.finding is None or why:
        return findings
    return {**findings, f"end {end.finding.code}": end.finding}


def first_rank(leading: t.Sequence[Finding], end: ProgramEnd, file: str) -> int | None:
    """Return the rank that failed first: of the end, else of the line with the cause, else of a file named after it."""
    if end.rank is not None or not leading or leading[0].weight != "fatal" or leading[0].code == "collective_timeout":
        return end.rank
    named = _RANK_FILE.search(file)
    return leading[0].rank if leading[0].rank is not None or not named else int(named[1])


def find_gid_causes(tables: t.Sequence[GidTable]) -> Table:
    """Return the findings about fixed GID indexes in tables of show_gids."""
    moving = find_moving_gid_index(tables)
    if moving:
        first, second = moving
        text = f"{first.device} port {first.port} RoCE {first.version}: index {first.index} and index {second.index}"
        return {"roce_gid_per_pod": Finding("roce_gid_per_pod", second.line, text, last_line=second.line)}
    empty = next((table for table in tables if not table.entries), None)
    if empty:
        return {
            "roce_gid_per_pod": Finding("roce_gid_per_pod", empty.line, "the GID table is empty", last_line=empty.line)
        }
    return {}


def _withdraw_meaningless(result: Table, facts: NcclFacts, transport: NcclTransport) -> None:
    classes = {network_class(name) for name in facts.chosen}
    rdma_used = transport.verdict in ("rdma_gdr", "rdma_no_gdr", "mnnvl") or classes == {"rdma"}
    if transport.single_node or rdma_used:
        for code in ("ib_no_device", "libibverbs_missing", "wrong_interface"):
            _withdraw(result, code)
    if rdma_used:
        _withdraw(result, "plugin_broken")
    if transport.verdict != "rdma_no_gdr" or any(name.startswith(_SPARK_HCA) for name in facts.hcas):
        result.pop("gpudirect_off", None)
    mnnvl = any(comm.mnnvl for comm in facts.jobs.comms.values())
    if "imex" in result and result["imex"].text.startswith("Cuda failure") and not mnnvl:
        del result["imex"]


def _withdraw(result: Table, code: str) -> None:
    if code in result and not result[code].stopped:
        del result[code]


def _find_pinned_network(result: Table, facts: NcclFacts) -> Finding | None:
    """NCCL_NET=IB makes the fallback an error: then the missing device is the cause, not a plugin."""
    broken = result.get("plugin_broken")
    if not broken or not broken.stopped:
        return None
    pinned = facts.environment.get("NCCL_NET", ("", 0))[0].strip().lower()
    if pinned == "ib" or "ib_no_device" in result or "network IB not found" in broken.text:
        origin = result.get("ib_no_device", broken)
        return dataclasses.replace(origin, code="ib_no_device", stopped=True)
    return None


def _find_hca_mismatch(result: Table, facts: NcclFacts) -> Finding | None:
    names = facts.environment.get("NCCL_IB_HCA")
    missing = result.get("ib_no_device")
    if not names or not missing:
        return None
    text = f"NCCL_IB_HCA set to {names[0]} (line {names[1]}), and {missing.text}"
    return dataclasses.replace(missing, code="nic_name_mismatch", text=text)


def _find_gid_index(result: Table, facts: NcclFacts) -> Finding | None:
    """An empty or absent GID is caused by the fixed index when there is one."""
    fixed = facts.environment.get("NCCL_IB_GID_INDEX")
    empty_gid = result.get("roce_gid_per_pod")
    if not fixed or not empty_gid or "No data available" not in empty_gid.text:
        return None
    text = f"NCCL_IB_GID_INDEX is {fixed[0]}, and {empty_gid.text}"
    return dataclasses.replace(empty_gid, code="roce_gid_index", text=text)


def _find_wrong_interface(facts: NcclFacts, transport: NcclTransport) -> Finding | None:
    """An interface of a container engine, CNI or mesh carries the bootstrap or the data of several nodes."""
    if transport.single_node:
        return None
    configured = facts.environment.get("NCCL_SOCKET_IFNAME", ("", 0))[0]
    tables = [facts.interfaces]
    if transport.verdict in ("tcp", "mixed"):
        tables.append(facts.socket_interfaces)
    several = len(transport.nodes) > 1
    for table in tables:
        for name, line in table.items():
            is_configured = name.startswith(_MESH) and name in configured
            if (is_virtual_interface(name) and not is_configured) or (name == "lo" and several):
                return Finding("wrong_interface", line, f"NCCL uses interface {name}", last_line=line)
    return None


def _find_wifi(facts: NcclFacts, transport: NcclTransport) -> Finding | None:
    """Several nodes meet, or send, over a wireless interface."""
    if transport.single_node:
        return None
    for name, line in (*facts.interfaces.items(), *facts.socket_interfaces.items()):
        if is_wireless(name):
            return Finding(WIFI, line, f"NCCL uses interface {name}", last_line=line)
    return None


def is_all_gb10(tests: NcclTests) -> bool:
    """Return whether all GPUs are GB10 (DGX Spark): they do not support GPUDirect RDMA."""
    return bool(tests.ranks) and all("GB10" in rank.device.split() for rank in tests.ranks.values())


def _find_spark_link(facts: NcclFacts, transport: NcclTransport, tests: NcclTests) -> Finding | None:
    """The link between two Sparks: NCCL uses one half of the port, or the rate is that of a half or of a bad state."""
    if len(tests.hosts) != 2 or not is_all_gb10(tests) or transport.verdict != "rdma_no_gdr":
        return None
    used = sorted(facts.hcas)
    seconds = [name for name in used if name.startswith(_SPARK_HCA)]
    if used and len(seconds) in (0, len(used)):
        line = min(facts.hcas.values())
        return Finding(HALF, line, f"NCCL uses {', '.join(used)} and not the other half of the port", last_line=line)
    row, line = tests.largest, tests.largest_line
    cause = find_rate_cause(row.busbw_gb_s, row.size_bytes) if row else None
    return Finding(cause.code, line, cause.evidence, last_line=line) if cause else None


def _find_silent_tcp(facts: NcclFacts, transport: NcclTransport) -> Finding | None:
    if transport.verdict not in ("tcp", "mixed") or not facts.hcas:
        return None
    pair = next((one for one in transport.crossing if network_class(one.channel.via.name) == "tcp"), None)
    if not pair:
        return None
    devices = ", ".join(sorted(facts.hcas)[:4])
    text = f"ranks {pair.channel.a} -> {pair.channel.b} via NET/{pair.channel.via.name}, and NCCL found {devices}"
    return Finding("silent_tcp", pair.line, text, count=pair.count, last_line=pair.line)


def _find_gpudirect_off(result: Table, transport: NcclTransport, tests: NcclTests) -> Finding | None:
    """GPUDirect is missing where something shows that it should be there: other channels, or the GPU's model."""
    if transport.verdict != "rdma_no_gdr" or "gpudirect_off" in result:
        return None
    lacking = next(
        (one for one in transport.crossing if one.channel.via.kind == "net" and not one.channel.via.gdr), None
    )
    if not lacking:
        return None
    # Sending without it is normal on PCIe GPUs (NCCL_NET_GDR_READ), so only the same direction is compared.
    way = lacking.channel.direction
    others = any(one.channel.via.gdr and one.channel.direction == way for one in transport.crossing)
    models = {rank.device for rank in tests.ranks.values()}
    capable = bool(models) and all(_GPUDIRECT_GPU.search(model) for model in models)
    if not others and not (capable and transport.gdr == "no" and "Libfabric" not in lacking.channel.via.name):
        return None
    text = f"ranks {lacking.channel.a} -> {lacking.channel.b} via NET/{lacking.channel.via.name} without GDRDMA"
    return Finding("gpudirect_off", lacking.line, text, count=lacking.count, last_line=lacking.line)
