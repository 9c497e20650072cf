# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of GPUs, drivers and their repositories, as tables: nothing here decides.

Sources: pci.ids and the list of supported GPUs of NVIDIA/open-gpu-kernel-modules 595.45.04 (device ids); NVIDIA's
driver installation guide and data-center driver release notes (branches, packages); the toolkit's releases and the
notices CVE-2025-23266 and CVE-2026-24260.
"""

from __future__ import annotations

import dataclasses
import typing as t

Architecture = t.Literal["older", "maxwell", "pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell"]
# The first PCI device id of each block that NVIDIA gave to one architecture; a block ends where the next one begins.
_BLOCKS: t.Final[tuple[tuple[int, Architecture], ...]] = (
    (0x0000, "older"),
    (0x1340, "maxwell"),
    (0x15F0, "pascal"),
    (0x1617, "maxwell"),
    (0x1725, "pascal"),
    (0x174D, "maxwell"),
    (0x1AEF, "ampere"),
    (0x1B00, "pascal"),
    (0x1D81, "volta"),
    (0x1E00, "turing"),
    (0x2080, "ampere"),
    (0x2180, "turing"),
    (0x2200, "ampere"),
    (0x2300, "hopper"),
    (0x2400, "ampere"),
    (0x2600, "ada"),
    (0x2900, "blackwell"),
)
# Architectures that the open kernel modules do not know, and whose last branch is 580; and one that knows no other.
PROPRIETARY_ONLY: t.Final = frozenset({"maxwell", "pascal", "volta"})
OPEN_ONLY: t.Final = frozenset({"blackwell"})
# GPUs whose NVLink switches need a program of their own beside the fabric manager, or another one in its place.
NVLINK5_HGX: t.Final = frozenset({"2901", "3182"})
GRACE_BLACKWELL: t.Final = frozenset({"2941", "31c2"})
SPARK: t.Final = frozenset({"2e12"})

BRANCHES: t.Final = ("580", "595", "610")
LAST_PROPRIETARY_BRANCH: t.Final = "580"
DEFAULT_BRANCH: t.Final = "595"
# The least driver of CUDA 12 (CUDA compatibility guide, minor version compatibility), and of Blackwell.
LEAST_DRIVER: t.Final = (525, 60, 13)
LEAST_BLACKWELL_DRIVER: t.Final = (570, 0, 0)
# What a driver, its module's build tree and the packages on their way need.
DRIVER_BYTES: t.Final = 3 << 30
# The least time for which lists of packages are signed (Valid-Until of Debian's security archive is a week).
CLOCK_S: t.Final = 86400.0

CUDA_URL: t.Final = "https://developer.download.nvidia.com/compute/cuda/repos"
TOOLKIT_URL: t.Final = "https://nvidia.github.io/libnvidia-container"
DOCA_URL: t.Final = "https://linux.mellanox.com/public/repo/doca"
# uname -m to the names that the repositories use.
CUDA_MACHINES: t.Final = {"x86_64": "x86_64", "aarch64": "sbsa"}
DEB_MACHINES: t.Final = {"x86_64": "amd64", "aarch64": "arm64"}
DOCA_MACHINES: t.Final = {"x86_64": "x86_64", "aarch64": "arm64-sbsa"}


@dataclasses.dataclass(frozen=True, slots=True)
class SigningKey:
    """A key by which a repository is signed; ``fingerprint`` is empty where no source for it was found."""

    url: str
    fingerprint: str = ""


_CUDA_DEB = "EB693B3035CD5710E231E123A4B469963BF863CC"
_CUDA_DEB13 = "02182E60104FCDC26EAE1B8597A5D4CB8793F200"
_CUDA_RPM = "610C7B14E068A878070DA4E99CD0A493D42D0685"
# Repository of CUDA by (os-release ID, major version or VERSION_ID): its folder, its key's file, the key.
CUDA_REPOSITORIES: t.Final[dict[tuple[str, str], tuple[str, str, str]]] = {
    ("ubuntu", "22.04"): ("ubuntu2204", "3bf863cc.pub", _CUDA_DEB),
    ("ubuntu", "24.04"): ("ubuntu2404", "3bf863cc.pub", _CUDA_DEB),
    ("ubuntu", "26.04"): ("ubuntu2604", "3bf863cc.pub", _CUDA_DEB),
    ("debian", "12"): ("debian12", "3bf863cc.pub", _CUDA_DEB),
    ("debian", "13"): ("debian13", "8793F200.pub", _CUDA_DEB13),
    ("rhel", "8"): ("rhel8", "D42D0685.pub", _CUDA_RPM),
    ("rhel", "9"): ("rhel9", "D42D0685.pub", _CUDA_RPM),
    ("rhel", "10"): ("rhel10", "CDF6BA43.pub", ""),
}
# EPEL has dkms for the RHEL family; by major version the fingerprint of its key (fedoraproject.org/security).
EPEL_URL: t.Final = "https://dl.fedoraproject.org/pub/epel"
EPEL_KEYS: t.Final = {
    "8": "94E279EB8D8F25B21810ADF121EA45AB2F86D6A1",
    "9": "FF8AD1344597106ECE813B918A3872BF3228467C",
    "10": "7D8D15CBFC4E62688591FB2633D98517E37ED158",
}
# Ubuntu releases whose archive has signed -server modules of the branches above.
UBUNTU_ARCHIVES: t.Final = ("22.04", "24.04", "26.04")
TOOLKIT_KEY: t.Final = SigningKey(f"{TOOLKIT_URL}/gpgkey", "C95B321B61E88C1809C4F759DDCAE044F796ECB0")
DOCA_KEY: t.Final = SigningKey(f"{DOCA_URL}/GPG-KEY-Mellanox.pub")
DOCA_VERSIONS: t.Final = ("3.1.0", "3.4.0", "3.5.0")

TOOLKIT_PACKAGES: t.Final = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
TOOLKIT_VERSION: t.Final = "1.20.2"
# Below the first, a container can take over its host (CVE-2025-23266, CVE-2025-23267); from the second on the hook's
# own process is hardened.
TOOLKIT_REFUSED_BELOW: t.Final = (1, 17, 8)
TOOLKIT_ADVISED: t.Final = (1, 20, 1)

# Without libraries: these bring them, and their names differ (librdmacm1, librdmacm1t64 from Ubuntu 24.04 on).
RDMA_PACKAGES: t.Final = {
    "apt": (
        "rdma-core",
        "ibverbs-providers",
        "rdmacm-utils",
        "ibverbs-utils",
        "infiniband-diags",
        "perftest",
    ),
    "dnf": ("rdma-core", "libibverbs-utils", "librdmacm-utils", "perftest", "infiniband-diags"),
}
# Without these a device has no uverbs, umad or rdma_cm file, and no device plugin offers it.
RDMA_MODULES: t.Final = ("ib_uverbs", "rdma_cm", "rdma_ucm", "ib_umad")
MELLANOX: t.Final = "15b3"
EFA_VENDOR: t.Final = "1d0f"
# ConnectX-8: newer than the mlx5 provider of rdma-core 50 (Ubuntu 24.04).
NEW_HCAS: t.Final = frozenset({"1023"})
LEAST_RDMA_CORE_OF_NEW: t.Final = 55
RDMA_MTU: t.Final = 9000


def architecture_of(device: str | None) -> Architecture | None:
    """Return the architecture of a GPU by its PCI device id such as ``2330``; ids after the last block are newer."""
    if not device:
        return None
    number = int(device, 16)
    return next(name for first, name in reversed(_BLOCKS) if number >= first)
