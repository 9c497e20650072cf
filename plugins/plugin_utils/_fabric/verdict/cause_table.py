# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The causes that a verdict or a log's diagnosis can name, as data; :mod:`program_causes` are a part of them."""

from __future__ import annotations

import typing as t

from .cause_info import CauseInfo
from .program_causes import PROGRAM_CAUSES
from .spark_pair import DEGRADED, FIXES, HALF, WIFI

_TABLE = (
    CauseInfo(
        "ranks_missing",
        "fatal",
        "Not all ranks started",
        "Check pending pods or hosts, use gang scheduling so that all ranks start or none, and pull the image first",
        on_hosts="Check the hosts without ranks: their logs, their processes, and the ports between the nodes",
        in_pods="Check pending pods, use gang scheduling so that all ranks start or none, and pull the image first",
    ),
    CauseInfo(
        "rendezvous_dns",
        "fatal",
        "The rendezvous name or port of rank 0 was not reached",
        "Use a name that every rank resolves (headless Service with publishNotReadyAddresses, full MASTER_ADDR) and "
        "open its port in the firewall",
        on_hosts="Open the run's port on the first node in the firewall for all nodes, and check that each node "
        "resolves and reaches that node's address (muster_address)",
        in_pods="Use a name that the cluster's DNS resolves for every rank (headless Service with "
        "publishNotReadyAddresses, full MASTER_ADDR), and allow its port in NetworkPolicies",
    ),
    CauseInfo(
        "wrong_interface",
        "advice",
        "A rank uses or offers the address of an interface that does not reach the other nodes",
        "Set NCCL_SOCKET_IFNAME (exact form '=eth0') and GLOO_SOCKET_IFNAME to the interface of the nodes' network; a "
        "host's own name must not resolve to 127.0.x.x on it (/etc/hosts)",
        explains=("socket_connect_timeout", "socket_reset", "rendezvous_dns", "bootstrap_bad_address"),
    ),
    CauseInfo(
        "no_iface_in_subnet",
        "fatal",
        "No interface is in the subnet of the bootstrap address",
        "Give NCCL_COMM_ID or MASTER_ADDR an address that this node reaches, or add an interface in that subnet",
    ),
    CauseInfo(
        "bootstrap_bad_address",
        "fatal",
        "The bootstrap address is corrupted, empty or of another kind",
        "Check that NCCL_SOCKET_IFNAME names an existing interface on every node and that all ranks use one NCCL build",
    ),
    CauseInfo(
        "socket_connect_timeout",
        "fatal",
        "A rank could not connect to another rank's port",
        "Allow all TCP ports between the nodes or pods (firewall, security group, NetworkPolicy) and check the routes",
        on_hosts="Open all TCP ports between the nodes (firewall, security group), check the routes, and that the rank "
        "at that address is running",
        in_pods="Allow all TCP ports between the pods of the run (NetworkPolicy), and check that the pod at that "
        "address is running",
    ),
    CauseInfo(
        "socket_reset",
        "secondary",
        "Another rank or something on the path closed the connection",
        "Read the first error in the other ranks' logs; without one, check the overlay or NAT between them",
    ),
    CauseInfo(
        "ib_no_device",
        "advice",
        "NCCL found no RDMA device",
        "Give the pod or container the RDMA device (resource rdma/…, /dev/infiniband), load ib_uverbs, check ibstat",
    ),
    CauseInfo(
        "libibverbs_missing",
        "advice",
        "libibverbs is not in the image, so NCCL cannot use RDMA",
        "Install libibverbs1 and ibverbs-providers (rdma-core) of the NIC's provider in the image",
    ),
    CauseInfo(
        "nic_name_mismatch",
        "advice",
        "NCCL_IB_HCA matches no device of this node",
        "Set NCCL_IB_HCA per node from its own device names in the exact form '=mlx5_0,mlx5_3', or unset it",
        explains=("ib_no_device",),
    ),
    CauseInfo(
        "roce_gid_per_pod",
        "fatal",
        "RoCE in a pod or on a node without a stable GID",
        "Use the host's network, or a macvlan or SR-IOV interface with an address, and leave NCCL_IB_GID_INDEX unset",
    ),
    CauseInfo(
        "roce_gid_index",
        "fatal",
        "The GID index does not fit this port",
        "Unset NCCL_IB_GID_INDEX (NCCL 2.21 and later choose it); with older ones take the RoCE v2 index of show_gids",
    ),
    CauseInfo(
        "modify_qp_timeout",
        "fatal",
        "RDMA ports of different rails or subnets do not reach each other",
        "Set NCCL_CROSS_NIC=0 for rails that are not connected, or route between the rails' subnets",
    ),
    CauseInfo(
        "modify_qp_unreachable",
        "fatal",
        "The RDMA ports have no route to each other",
        "Give the RoCE interfaces addresses in connected subnets, or exclude the port with NCCL_IB_HCA",
    ),
    CauseInfo(
        "wc_retry_exceeded",
        "fatal",
        "RDMA packets were lost until the retries ran out, or the other side went away",
        "Check that the other rank is running, then cabling, PFC and ECN, one MTU on all hops, and NCCL_IB_GID_INDEX",
    ),
    CauseInfo(
        "reg_mr_failed",
        "fatal",
        "Memory could not be registered for RDMA",
        "Raise memlock to unlimited (systemd LimitMEMLOCK, IPC_LOCK for root containers); for GPU memory load "
        "nvidia-peermem or use DMA-BUF",
    ),
    CauseInfo(
        "create_cq_failed",
        "fatal",
        "An RDMA queue could not be created",
        "Raise memlock to unlimited (systemd LimitMEMLOCK=infinity for k3s or the container runtime, IPC_LOCK)",
    ),
    CauseInfo(
        "dev_shm_full",
        "fatal",
        "/dev/shm is too small",
        "Mount an emptyDir with medium Memory of at least 1 GiB on /dev/shm, or start the container with --shm-size",
        on_hosts="Enlarge /dev/shm (mount -o remount,size=SIZE /dev/shm; a container: --shm-size), or use fewer "
        "data-loader workers",
        in_pods="Raise job.resources.shm, the size of /dev/shm (it counts against job.resources.memory), or use fewer "
        "data-loader workers",
    ),
    CauseInfo(
        "version_mismatch",
        "fatal",
        "Ranks use different versions of NCCL",
        "Run one image digest on all ranks and remove other libnccl from LD_LIBRARY_PATH",
    ),
    CauseInfo(
        "duplicate_gpu",
        "fatal",
        "Two ranks use one GPU",
        "Select the GPU by LOCAL_RANK, ask for one GPU per rank, and switch time slicing or MIG off for this job",
        on_hosts="Select the GPU by LOCAL_RANK and ask for one GPU per rank; two hosts of the inventory may be one "
        "machine",
    ),
    CauseInfo(
        "nic_count_mismatch",
        "fatal",
        "Nodes have different numbers of RDMA NICs",
        "Put only nodes of one kind into an island, or select equal numbers of NICs with NCCL_IB_HCA",
    ),
    CauseInfo(
        "mtu_black_hole",
        "advice",
        "Packets of the interface's MTU do not pass",
        "Lower the MTU of the overlay and the pods to the MTU of the path, or clamp the MSS",
    ),
    CauseInfo(
        "acs_iommu",
        "fatal",
        "The NIC was refused access to memory",
        "On bare metal switch ACS off and set iommu=pt; in a VM use ATS; try NCCL_NET_GDR_LEVEL=LOC to confirm",
    ),
    CauseInfo(
        "fabric_manager",
        "fatal",
        "The NVSwitch fabric is not ready",
        "Start nvidia-fabricmanager of exactly the driver's version, then reset the GPUs or reboot the node",
    ),
    CauseInfo(
        "imex",
        "fatal",
        "The IMEX domain of multi-node NVLink does not work",
        "Run nvidia-imex with the same node list on all nodes and give the container /dev/nvidia-caps-imex-channels",
    ),
    CauseInfo(
        "address_family",
        "fatal",
        "IPv4 and IPv6 are mixed",
        "Set NCCL_SOCKET_FAMILY=AF_INET (or AF_INET6) on all ranks and use addresses of that family",
    ),
    CauseInfo(
        "plugin_broken",
        "advice",
        "The external network plugin does not load",
        "Repair the plugin's installation (libfabric, EFA installer, matching NCCL), or set NCCL_NET_PLUGIN=none",
    ),
    CauseInfo(
        "ofi_tcp_provider",
        "advice",
        "libfabric uses TCP instead of the RDMA provider",
        "Give the pod the EFA or other RDMA device, install its provider, and set FI_PROVIDER to it",
    ),
    CauseInfo(
        "relayed_path",
        "advice",
        "The path between nodes goes through a relay",
        "Open UDP 41641 for a direct path; do not run synchronous jobs over a relay",
    ),
    CauseInfo(
        "ras_port_shared",
        "advice",
        "Two jobs share the port of NCCL's RAS on this node",
        "Give each job its own NCCL_RAS_ADDR",
    ),
    CauseInfo(
        "silent_tcp",
        "advice",
        "Traffic between nodes uses TCP although RDMA devices exist",
        "Set NCCL_NET=IB (or the plugin's name) so that the fallback becomes an error, then fix that error",
    ),
    CauseInfo(
        "collective_mismatch",
        "fatal",
        "Ranks run different collectives",
        "Make every rank call the same collectives in the same order; compare the stacks of the named ranks",
    ),
    CauseInfo(
        "gpudirect_off",
        "advice",
        "RDMA without GPUDirect where others have it",
        "Load nvidia-peermem or use the open driver with DMA-BUF; check nvidia-smi topo -m for GPU and NIC placement",
    ),
    CauseInfo(
        "oom_gpu",
        "fatal",
        "A GPU ran out of memory",
        "Use a smaller batch per GPU, activation checkpointing, sharding, or GPUs with more memory",
    ),
    CauseInfo(
        "oom_host",
        "fatal",
        "A host or container ran out of memory",
        "Raise the memory limit (it includes /dev/shm), use fewer data-loader workers, or larger nodes",
        on_hosts="Use less memory on the node (fewer data-loader workers, other programs ended), raise "
        "job.resources.memory if it is set, or use nodes with more memory; dmesg shows what the kernel killed",
        in_pods="Raise job.resources.memory (it includes /dev/shm), use fewer data-loader workers, or larger nodes",
    ),
    CauseInfo(
        "negative_scaling",
        "fatal",
        "More nodes do less work together than fewer",
        "Compare the bandwidth of each step up in nodes; verify the fabric, then enlarge the batch per GPU",
    ),
    CauseInfo(HALF, "advice", "One of the two halves of a DGX Spark's port carries everything", FIXES[HALF]),
    CauseInfo(DEGRADED, "advice", "The link between DGX Sparks carries a tenth of what it shows", FIXES[DEGRADED]),
    CauseInfo(WIFI, "advice", "Ranks of several nodes meet over Wi-Fi", FIXES[WIFI]),
    *PROGRAM_CAUSES,
)
# What other ranks see, or the end alone: they decide only where nothing says why.
SYMPTOMS = ("collective_timeout", "rank_ended")
CAUSES: t.Mapping[str, CauseInfo] = {info.code: info for info in _TABLE}
