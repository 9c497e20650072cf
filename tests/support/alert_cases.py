# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""For each alert the series that raise it, and those of a day on which nothing is wrong, as promtool writes series.

One minute a value: ``50x200`` is 50 for 201 minutes.
"""

from __future__ import annotations

import typing as t

HEALTHY: t.Final[dict[str, str]] = {
    'muster_run_active{run="r", name="llm"}': "1x{m}",
    'muster_run_stalled{run="r", name="llm"}': "0x{m}",
    'muster_run_step_age_seconds{run="r", name="llm"}': "2x{m}",
    'muster_run_step_seconds_slowest{run="r", name="llm"}': "1.1x{m}",
    'muster_run_step_seconds_median{run="r", name="llm"}': "1x{m}",
    'muster_run_info{run="r", name="llm", lane="A", transport="rdma_gdr"}': "1x{m}",
    'muster_run_checkpoint_age_seconds{run="r", name="llm"}': "600x{m}",
    'muster_run_loss_is_nan{run="r", name="llm"}': "0x{m}",
    'muster_run_gpus_asked{run="r", name="llm"}': "2x{m}",
    'muster_run_node{run="r", name="llm", node="a"}': "1x{m}",
    'muster_run_node{run="r", name="llm", node="b"}': "1x{m}",
    'muster_lease_usd_per_hour{node="b", provider="p"}': "2.5x{m}",
    'muster_lease_deadline_seconds{node="b", provider="p"}': "1000000x{m}",
    # a: a data-centre GPU by dcgm-exporter; b: one by gpu_textfile.py.
    'DCGM_FI_DEV_GPU_UTIL{Hostname="a", UUID="G-1", gpu="0", pod="r-0"}': "97x{m}",
    'DCGM_FI_DEV_POWER_USAGE{Hostname="a", UUID="G-1", gpu="0", pod="r-0"}': "600x{m}",
    'DCGM_FI_DEV_GPU_TEMP{Hostname="a", UUID="G-1", gpu="0", pod="r-0"}': "75x{m}",
    'DCGM_FI_DEV_SM_CLOCK{Hostname="a", UUID="G-1", gpu="0", pod="r-0"}': "1900x{m}",
    'DCGM_FI_DEV_FB_USED{Hostname="a", UUID="G-1", gpu="0", pod="r-0"}': "60000x{m}",
    'DCGM_FI_DEV_XID_ERRORS{Hostname="a", UUID="G-1", gpu="0", pod="r-0"}': "0x{m}",
    'DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{Hostname="a", UUID="G-1", gpu="0"}': "0x{m}",
    'DCGM_FI_DEV_ROW_REMAP_FAILURE{Hostname="a", UUID="G-1", gpu="0"}': "0x{m}",
    'DCGM_FI_DEV_THERMAL_VIOLATION{Hostname="a", UUID="G-1", gpu="0"}': "0+600000x{m}",
    'DCGM_FI_DEV_POWER_VIOLATION{Hostname="a", UUID="G-1", gpu="0"}': "0+600000x{m}",
    'muster_gpu_utilisation_percent{node="b", uuid="G-2"}': "98x{m}",
    'muster_gpu_power_watts{node="b", uuid="G-2"}': "400x{m}",
    'muster_gpu_temperature_celsius{node="b", uuid="G-2"}': "78x{m}",
    'muster_gpu_clock_mhz{node="b", uuid="G-2"}': "1850x{m}",
    'DCGM_FI_DEV_MEMORY_TEMP{hostname="a", UUID="G-1", gpu="0"}': "80x{m}",
    'muster_gpu_memory_temperature_celsius{node="b", uuid="G-2"}': "80x{m}",
    'muster_gpu_pcie_width{node="b", uuid="G-2"}': "16x{m}",
    'muster_gpu_pcie_width_max{node="b", uuid="G-2"}': "16x{m}",
    'muster_pcie_errors_total{node="b", pci="0000:1b:00.0", kind="correctable"}': "0+1x{m}",
    'muster_pcie_errors_total{node="b", pci="0000:1b:00.0", kind="fatal"}': "0x{m}",
    'muster_gpu_memory_used_bytes{node="b", uuid="G-2"}': "2e10x{m}",
    'muster_gpu_processes{node="b", uuid="G-2"}': "1x{m}",
    'muster_gpu_throttled{node="b", uuid="G-2"}': "0x{m}",
    'muster_gpu_ecc_uncorrected_errors{node="b", uuid="G-2"}': "0x{m}",
    'muster_gpu_remap_pending{node="b", uuid="G-2"}': "0x{m}",
    'muster_gpu_remap_failure{node="b", uuid="G-2"}': "0x{m}",
    'muster_gpu_devices{node="b"}': "1x{m}",
    'muster_gpu_pci_devices{node="b"}': "1x{m}",
    'node_infiniband_state_id{node="a", device="mlx5_0", port="1"}': "4x{m}",
    'node_infiniband_link_downed_total{node="a", device="mlx5_0", port="1"}': "3x{m}",
    'node_infiniband_rate_bytes_per_second{node="a", device="mlx5_0", port="1"}': "5e10x{m}",
    'node_infiniband_port_data_transmitted_bytes_total{node="a", device="mlx5_0", port="1"}': "0+6e11x{m}",
    'node_network_transmit_bytes_total{node="a", device="eth0"}': "0+6e7x{m}",
    'node_filesystem_avail_bytes{node="a", fstype="ext4", mountpoint="/"}': "9e11x{m}",
    'node_filesystem_size_bytes{node="a", fstype="ext4", mountpoint="/"}': "1e12x{m}",
    'node_timex_offset_seconds{node="a"}': "0.001x{m}",
    'node_timex_sync_status{node="a"}': "1x{m}",
    'up{job="muster-nodes", node="a", instance="a:9100"}': "1x{m}",
    'up{job="muster-nodes", node="b", instance="b:9100"}': "1x{m}",
}
# Alert -> the series that are otherwise than on such a day (None: not there), and labels that the alert has.
FAULTS: t.Final[dict[str, tuple[dict[str, str | None], dict[str, str]]]] = {
    "RunStalled": ({'muster_run_stalled{run="r", name="llm"}': "1x{m}"}, {"run": "r", "name": "llm"}),
    "RunHangs": ({
        'muster_run_step_age_seconds{run="r", name="llm"}': "0x9 0+60x{m}",
        'DCGM_FI_DEV_POWER_USAGE{Hostname="a", UUID="G-1", gpu="0", pod="r-0"}': "600x9 110x{m}",
        'muster_gpu_power_watts{node="b", uuid="G-2"}': "400x9 80x{m}",
    }, {"run": "r"}),
    "RunStraggler": ({'muster_run_step_seconds_slowest{run="r", name="llm"}': "1.6x{m}"}, {"run": "r", "name": "llm"}),
    "GpuSlowerThanOthers": (
        {'muster_gpu_clock_mhz{node="b", uuid="G-2"}': "900x{m}"}, {"run": "r", "node": "b", "uuid": "G-2"}),
    "RunOnTcp": ({
        'muster_run_info{run="r", name="llm", lane="A", transport="rdma_gdr"}': None,
        'muster_run_info{run="r", name="llm", lane="A", transport="tcp"}': "1x{m}",
    }, {"run": "r", "name": "llm", "lane": "A", "transport": "tcp"}),
    "SilentTcp": ({
        'node_infiniband_port_data_transmitted_bytes_total{node="a", device="mlx5_0", port="1"}': "0+6e3x{m}",
        'node_network_transmit_bytes_total{node="a", device="eth0"}': "0+6e10x{m}",
    }, {"run": "r", "node": "a"}),
    "CheckpointOld": (
        {'muster_run_checkpoint_age_seconds{run="r", name="llm"}': "11000x{m}"}, {"run": "r", "name": "llm"}),
    "LossIsNan": ({'muster_run_loss_is_nan{run="r", name="llm"}': "1x{m}"}, {"run": "r", "name": "llm"}),
    "GpuIdleInUse": ({
        'muster_gpu_utilisation_percent{node="b", uuid="G-2"}': "1x{m}",
        'muster_gpu_temperature_celsius{node="b", uuid="G-2"}': "40x{m}",
    }, {"node": "b", "uuid": "G-2"}),
    "RentedNodeIdle": (
        {'muster_run_node{run="r", name="llm", node="b"}': None}, {"node": "b", "provider": "p"}),
    "LeaseEndsSoon": ({'muster_lease_deadline_seconds{node="b", provider="p"}': "4500x{m}"}, {"node": "b", "provider": "p"}),
    "LeaseOverdue": ({'muster_lease_deadline_seconds{node="b", provider="p"}': "60x{m}"}, {"node": "b", "provider": "p"}),
    "GpuXidHardware": (
        {'DCGM_FI_DEV_XID_ERRORS{Hostname="a", UUID="G-1", gpu="0", pod="r-0"}': "79x{m}"}, {"node": "a", "xid": "79"}),
    "GpuXidWatch": (
        {'muster_gpu_xid_time_seconds{node="b", pci="0000:1b:00.0", xid="63"}': "3000x{m}"}, {"node": "b", "xid": "63"}),
    "GpuXidProgram": (
        {'muster_gpu_xid_time_seconds{node="b", pci="0000:1b:00.0", xid="31"}': "3000x{m}"}, {"node": "b", "xid": "31"}),
    "GpuEccUncorrected": (
        {'muster_gpu_ecc_uncorrected_errors{node="b", uuid="G-2"}': "2x{m}"}, {"node": "b", "uuid": "G-2"}),
    "GpuRowRemap": ({'muster_gpu_remap_pending{node="b", uuid="G-2"}': "1x{m}"}, {"node": "b", "uuid": "G-2"}),
    "GpuFellOffTheBus": ({'muster_gpu_devices{node="b"}': "0x{m}"}, {"node": "b"}),
    "GpuThrottled": ({'muster_gpu_throttled{node="b", uuid="G-2"}': "1x{m}"}, {"node": "b", "uuid": "G-2"}),
    "GpuHotWhileIdle": ({'muster_gpu_utilisation_percent{node="b", uuid="G-2"}': "6x{m}"}, {"node": "b", "uuid": "G-2"}),
    "GpuMemoryHot": (
        {'DCGM_FI_DEV_MEMORY_TEMP{hostname="a", UUID="G-1", gpu="0"}': "97x{m}"},
        {"node": "a", "host": "a", "hostname": "a", "UUID": "G-1", "gpu": "0"}),
    "PcieErrors": (
        {'muster_pcie_errors_total{node="b", pci="0000:1b:00.0", kind="fatal"}': "0x50 1x{m}"},
        {"node": "b", "pci": "0000:1b:00.0", "kind": "fatal"}),
    "GpuPcieNarrow": ({'muster_gpu_pcie_width{node="b", uuid="G-2"}': "8x{m}"}, {"node": "b", "uuid": "G-2"}),
    "RdmaLinkDown": (
        {'node_infiniband_state_id{node="a", device="mlx5_0", port="1"}': "1x{m}"},
        {"node": "a", "device": "mlx5_0", "port": "1"}),
    "RdmaLinkSlow": (
        {'node_infiniband_rate_bytes_per_second{node="a", device="mlx5_0", port="1"}': "5e10x9 2.5e10x{m}"},
        {"node": "a", "device": "mlx5_0", "port": "1"}),
    "DiskFull": (
        {'node_filesystem_avail_bytes{node="a", fstype="ext4", mountpoint="/"}': "4e10x{m}"},
        {"node": "a", "fstype": "ext4", "mountpoint": "/"}),
    "ClockOff": ({'node_timex_offset_seconds{node="a"}': "0.2x{m}"}, {"node": "a"}),
    "ServiceDown": (
        {'up{job="muster-nodes", node="b", instance="b:9100"}': "0x{m}"},
        {"job": "muster-nodes", "node": "b", "instance": "b:9100"}),
    "NodeWithoutMetrics": (
        {'up{job="muster-nodes", node="b", instance="b:9100"}': None}, {"run": "r", "name": "llm", "node": "b"}),
    "GpuWithoutMetrics": (
        {'muster_gpu_utilisation_percent{node="b", uuid="G-2"}': None}, {"run": "r", "name": "llm", "node": "b"}),
    "NoNodeMetrics": ({
        'up{job="muster-nodes", node="a", instance="a:9100"}': None,
        'up{job="muster-nodes", node="b", instance="b:9100"}': None,
    }, {"job": "muster-nodes"}),
}  # fmt: skip
# Raised by series that are missing: their own fault.
ABSENT: t.Final = ("RentedNodeIdle", "NodeWithoutMetrics", "GpuWithoutMetrics", "NoNodeMetrics", "GpuFellOffTheBus")
# Alert -> others that the same fault raises.
BESIDE: t.Final[dict[str, tuple[str, ...]]] = {"NoNodeMetrics": ("NodeWithoutMetrics", "NodeWithoutMetrics")}


def list_series(faults: t.Mapping[str, str | None], minutes: int) -> list[dict[str, str]]:
    """Return the series of a day with these faults, as promtool reads them."""
    values = {**HEALTHY, **faults}
    return [
        {"series": name, "values": text.replace("{m}", str(minutes))}
        for name, text in values.items()
        if text is not None
    ]
