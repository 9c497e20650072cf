# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages with the names of NVIDIA's and of Debian's RDMA, for a machine whose GPUs and HCAs are folders.

They do what the roles look at: a driver that is there once its module was built, ``nvidia-smi`` that lists the GPUs on
the bus while it is (with nouveau from the next boot on), a toolkit that writes a CDI specification. /etc/fail-dkms makes the build of the module fail.
"""

from __future__ import annotations

import pathlib
import platform
import typing as t

from ansible_collections.muster.training.plugins.module_utils._model import device_tables
from ansible_collections.muster.training.tests.support.deb_repository import Package, build_repository

DRIVER = "595.91.07"
TOOLKIT = device_tables.TOOLKIT_VERSION
_SMI = """#!/bin/sh
if [ ! -e /proc/driver/nvidia/version ]; then
  echo "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."; exit 9
fi
number=0
for device in /sys/bus/pci/devices/*; do
  [ "$(cat $device/vendor)" = 0x10de ] || continue
  case "$1" in
    -L) echo "GPU $number: NVIDIA H100 80GB HBM3 (UUID: GPU-$number)" ;;
    --query-gpu=mig.mode.current) echo Disabled ;;
    -q) echo "    Virtualization Mode : None" ;;
  esac
  number=$((number + 1))
done
"""
_BUILD = f"""#!/bin/sh
if [ "$1" = configure ]; then
  if [ -e /etc/fail-dkms ]; then echo "Error! Bad return status for module build on kernel: see make.log"; exit 10; fi
  mkdir -p /run/hardware/built
  echo "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {DRIVER}  Release Build" > /run/hardware/built/version
  [ -e /sys/module/nouveau ] || cp -r /run/hardware/built /run/hardware/driver/nvidia
fi
"""
_REMOVED = "#!/bin/sh\nrm -rf /run/hardware/driver/nvidia /run/hardware/built\n"
_PERSISTENCED = """[Unit]
Description=NVIDIA persistence daemon
[Service]
ExecStart=/usr/bin/nvidia-persistenced infinity
[Install]
WantedBy=multi-user.target
"""
_REFRESH = """[Unit]
Description=Refresh the CDI specification
[Service]
Type=oneshot
RemainAfterExit=true
ExecStart=/usr/bin/nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml
[Install]
WantedBy=multi-user.target
"""
_CTK = """#!/bin/sh
case "$2" in
  generate) mkdir -p /var/run/cdi; echo "cdiVersion: 0.5.0" > /var/run/cdi/nvidia.yaml ;;
  list) [ -e /var/run/cdi/nvidia.yaml ] && nvidia-smi -L | sed 's/GPU \\([0-9]*\\):.*/nvidia.com\\/gpu=\\1/' ;;
esac
"""
_UNIT_STOP = "#!/bin/sh\nsystemctl disable --now {unit} 2>/dev/null || true\n"
_UNIT_GONE = "#!/bin/sh\nrm -rf /var/run/cdi\nsystemctl daemon-reload\n"


def nvidia_packages() -> list[Package]:
    """The driver of one branch and the toolkit in two versions."""
    script = 0o755
    driver = [
        Package(
            "nvidia-driver-pinning-595",
            "595-1",
            files={
                "etc/apt/preferences.d/nvidia-driver-pinning-595": (
                    "Package: none\nPin: version 1\nPin-Priority: 1\n",
                    0o644,
                )
            },
        ),
        Package(
            "nvidia-persistenced",
            f"{DRIVER}-1",
            # The kernel names a process by its program: a copy of sleep has the daemon's name.
            files={"usr/lib/systemd/system/nvidia-persistenced.service": (_PERSISTENCED, 0o644)},
            scripts={
                "postinst": "#!/bin/sh\ncp /usr/bin/sleep /usr/bin/nvidia-persistenced\n",
                "prerm": _UNIT_STOP.format(unit="nvidia-persistenced"),
                "postrm": "#!/bin/sh\nrm -f /usr/bin/nvidia-persistenced\nsystemctl daemon-reload\n",
            },
        ),
        Package(
            "nvidia-driver-cuda",
            f"{DRIVER}-1",
            "nvidia-persistenced, libnvidia-ml1",
            files={"usr/bin/nvidia-smi": (_SMI, script)},
        ),
        Package(
            "libnvidia-ml1", f"{DRIVER}-1", files={f"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{DRIVER}": ("", 0o644)}
        ),
        Package("nvidia-kernel-open-dkms", f"{DRIVER}-1", scripts={"postinst": _BUILD, "postrm": _REMOVED}),
    ]
    toolkit = [
        Package(name, f"{version}-1", files=files if name.endswith("-base") else {}, scripts=scripts if name.endswith("-base") else {})
        for version in ("1.17.3", TOOLKIT)
        for files in [{"usr/bin/nvidia-ctk": (_CTK, script), "usr/bin/nvidia-container-runtime": ("#!/bin/sh\n", script),
                       "usr/lib/systemd/system/nvidia-cdi-refresh.service": (_REFRESH, 0o644)}]
        for scripts in [{"prerm": _UNIT_STOP.format(unit="nvidia-cdi-refresh"), "postrm": _UNIT_GONE}]
        for name in device_tables.TOOLKIT_PACKAGES
    ]  # fmt: skip
    return [*driver, *toolkit]


def archive_packages() -> list[Package]:
    """What the distribution's own archive has: headers of the running kernel, and RDMA."""
    headers = f"linux-headers-{platform.release()}"
    return [
        Package(headers, "1.0-1", files={f"usr/src/{headers}/Makefile": ("", 0o644)}),
        *(Package(name, "99.0-1") for name in device_tables.RDMA_PACKAGES["apt"]),
    ]


def build_repositories(folder: pathlib.Path) -> dict[str, t.Any]:
    """Build NVIDIA's repository and the distribution's, and return the variables by which a machine has them."""
    fingerprint = build_repository(folder / "nvidia", nvidia_packages())
    build_repository(folder / "archive", archive_packages())
    mirror = {
        "url": "file:/srv/repositories/nvidia/",
        "suite": "./",
        "key_file": str(folder / "nvidia/key.asc"),
        "fingerprint": fingerprint,
    }
    mirrors = dict.fromkeys(("cuda", "nvidia-container-toolkit"), mirror)
    return {"device_repository": str(folder), "muster_package_mirrors": mirrors}
