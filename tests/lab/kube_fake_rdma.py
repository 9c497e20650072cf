# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HCAs that do not exist, on the nodes of the lab's cluster.

Real: the kubelet and its gRPC, what the role installs and configures. A stand-in: the device plugin, since the real one
ends on a kernel without RDMA (``kube/rdmaplugin``). Pods see a null device, and GIDs in a folder over /sys/class.
"""

from __future__ import annotations

import contextlib
import pathlib
import typing as t

from ansible_collections.muster.training.tests.lab.kube import binaries, manifests, oci
from ansible_collections.muster.training.tests.lab.kube_fake_gpus import put
from ansible_collections.muster.training.tests.support.kube_lab import KubeLab

PLUGIN = "rdmaplugin"
IMAGE = manifests.image_name(PLUGIN)
ROOT = "/opt/lab-rdma"
_GID = f"{ROOT}/class/infiniband/mlx5_0/ports/1/gids/0"
_DROP_IN = "/etc/systemd/system/lab-containerd.service.d/memlock.conf"
_MAKE_ROOT = f"""
mkdir -p {_GID.rpartition("/")[0]} {_DROP_IN.rpartition("/")[0]}
echo fe80:0000:0000:0000:0202:c9ff:fe00:0001 > {_GID}
printf '[Service]\\nLimitMEMLOCK=infinity\\n' > {_DROP_IN}
systemctl daemon-reload && systemctl restart lab-containerd
"""
_REMOVE_ROOT = f"rm -rf {ROOT} {_DROP_IN}; systemctl daemon-reload && systemctl restart lab-containerd"


def require_program(lab: KubeLab) -> pathlib.Path:
    """Return the stand-in.

    :raises LabError: where it cannot be built.
    """
    return binaries.Binaries(lab.cluster.folder.parents[1]).get(PLUGIN)


@contextlib.contextmanager
def fake_hcas(lab: KubeLab, nodes: t.Sequence[str], folder: pathlib.Path) -> t.Iterator[None]:
    """Give nodes the image of the stand-in and a GID, for as long as the block lasts."""
    archive = folder / f"{PLUGIN}.tar"
    oci.layer_of({f"usr/bin/{PLUGIN}": require_program(lab)}, folder / "rdma-layer")
    oci.write(archive, IMAGE, folder / "rdma-layer", oci.Settings((f"/usr/bin/{PLUGIN}",)))
    try:
        for node in nodes:
            words = f"cat > /tmp/{PLUGIN}.tar; ctr -n k8s.io images import /tmp/{PLUGIN}.tar; rm /tmp/{PLUGIN}.tar"
            put(lab, node, words, archive.read_bytes())
            lab.on_node(node, "sh", "-ec", _MAKE_ROOT)
        yield
    finally:
        for node in nodes:
            lab.on_node(node, "sh", "-c", _REMOVE_ROOT)


def set_gid(lab: KubeLab, node: str, *, given: bool) -> None:
    """Give the HCA of a node its GID, or take it."""
    value = "fe80:0000:0000:0000:0202:c9ff:fe00:0001" if given else "0000:0000:0000:0000:0000:0000:0000:0000"
    lab.on_node(node, "sh", "-ec", f"echo {value} > {_GID}")


def read_memlock(lab: KubeLab, node: str) -> str:
    """Return how many KiB the containers of a node may lock, or unlimited, as their shell says it."""
    main = "systemctl show --value --property=MainPID lab-containerd"
    said = lab.on_node(node, "sh", "-ec", f"grep 'Max locked memory' /proc/$({main})/limits")
    limit = str(said).split()[3]
    return limit if limit == "unlimited" else str(int(limit) // 1024)


def offered(lab: KubeLab, node: str, resource: str) -> str:
    """Return how many of a resource a node offers to pods."""
    status = (lab.api.get(f"/api/v1/nodes/{node}") or {}).get("status", {})
    return str(status.get("allocatable", {}).get(resource, "0"))
