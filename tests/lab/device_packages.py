# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages with the names of NVIDIA's and of Debian's RDMA, for a machine whose GPUs and HCAs are folders.

They do what the roles look at: a driver that is there once its module was built, ``nvidia-smi`` that lists the GPUs on
the bus while it is (with nouveau from the next boot on), a toolkit that writes a CDI specification. /etc/fail-dkms makes the build of the module fail,
/etc/slow-dkms makes it last.
"""

from __future__ import annotations

import dataclasses
import pathlib
import platform
import typing as t

from ansible_collections.muster.training.plugins.module_utils._model import device_tables
from ansible_collections.muster.training.tests.support.deb_repository import Package, build_repository

DRIVER = "595.91.07"
TOOLKIT = device_tables.TOOLKIT_VERSION
_SMI = """#!/bin/sh
if [ ! -e /proc/driver/nvidia/version ]; then
  # A container has its own /proc and /sys: there the device files say which GPUs it has.
  grep -qs 0x10de /sys/bus/pci/devices/*/vendor || for device in /dev/nvidia[0-9]; do
    [ -e $device ] && echo "GPU ${device#/dev/nvidia}: NVIDIA H100 80GB HBM3 (UUID: x)" && found=1
  done
  [ -z "$found" ] || exit 0
  echo "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."; exit 9
fi
number=0
for device in /sys/bus/pci/devices/*; do
  [ "$(cat $device/vendor)" = 0x10de ] || continue
  case "$1" in
    -L) echo "GPU $number: NVIDIA H100 80GB HBM3 (UUID: GPU-$number)" ;;
    --query-gpu=mig.mode.current) echo Disabled ;;
    --query-gpu=index,*)
      version=$(grep -o "[0-9]*[.][0-9]*[.][0-9]*" /proc/driver/nvidia/version | head -n 1)
      echo "$number, NVIDIA H100 80GB HBM3, GPU-$number, 81559, 0000${device##*/}, $version, 9.0, 0" ;;
    -q) echo "    Virtualization Mode : None" ;;
  esac
  number=$((number + 1))
done
"""
_BUILD = """#!/bin/sh
if [ "$1" = configure ]; then
  while [ -e /etc/slow-dkms ]; do sleep 0.2; done
  if [ -e /etc/fail-dkms ]; then echo "Error! Bad return status for module build on kernel: see make.log"; exit 10; fi
  mkdir -p /run/hardware/built
  echo "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  VERSION  Release Build" > /run/hardware/built/version
  # A module that is loaded stays until the next boot.
  [ -e /sys/module/nouveau ] || [ -e /run/hardware/driver/nvidia ] || cp -r /run/hardware/built /run/hardware/driver/nvidia
fi
"""
_REMOVED = """#!/bin/sh
case "$1" in upgrade|failed-upgrade) ;; *) rm -rf /run/hardware/driver/nvidia /run/hardware/built ;; esac
"""
# Of a machine whose driver is more than a file: what its module makes, and what its libraries are.
_MAKE_DEVICES = """for n in nvidia0 nvidia1 nvidiactl nvidia-uvm nvidia-uvm-tools; do
  [ -e /dev/$n ] || mknod -m 666 /dev/$n c 1 3
done
"""
_REMOVE_DEVICES = 'case "$1" in remove|purge) rm -f /dev/nvidia[0-9] /dev/nvidiactl /dev/nvidia-uvm* ;; esac\n'
_LIBRARIES, _NAMES = "usr/lib/x86_64-linux-gnu", ("libnvidia-ml", "libcuda")
_LINK = "".join(f"ln -sf {name}.so.VERSION /{_LIBRARIES}/{name}.so.1\n" for name in _NAMES)
_UNLINK = '[ "$1" = upgrade ] || rm -f ' + " ".join(f"/{_LIBRARIES}/{name}.so.1" for name in _NAMES) + "\n"
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
# -s BRIDGE ECAP_ACS+0x6.w=0000: the word where hardware.sh has it.
_SETPCI = """#!/bin/sh
[ "$3" = ECAP_ACS+0x6.w=0000 ] || exit 1
printf '\\000\\000' | dd "of=/sys/bus/pci/devices/$2/config" bs=1 seek=262 conv=notrunc 2>/dev/null
"""
_UNIT_STOP = "#!/bin/sh\nsystemctl disable --now {unit} 2>/dev/null || true\n"
_UNIT_GONE = "#!/bin/sh\nrm -rf /var/run/cdi\nsystemctl daemon-reload\n"


# Debian's own has an epoch: without one this would be the older of the two.
PCIUTILS: t.Final = Package("pciutils", "1:99.0-1", files={"usr/bin/setpci": (_SETPCI, 0o755)})


@dataclasses.dataclass(frozen=True, slots=True)
class RealParts:
    """What programs of NVIDIA run with: by version of the driver a stand-in of its library, and the toolkit's programs."""

    libraries: t.Mapping[str, bytes]
    programs: t.Mapping[str, bytes]


def driver_packages(version: str, real: RealParts | None = None) -> list[Package]:
    """The driver of one version, and what holds a machine to its branch."""
    shell = "#!/bin/sh\n"
    library = real.libraries[version] if real else b""
    branch = version.partition(".")[0]
    pin = f"Package: nvidia-* libnvidia-*\nPin: version {branch}.*\nPin-Priority: 1001\n"
    return [
        Package(
            f"nvidia-driver-pinning-{branch}",
            f"{branch}-1",
            files={f"etc/apt/preferences.d/nvidia-driver-pinning-{branch}": (pin, 0o644)},
            fields="Provides: nvidia-driver-pinning\nConflicts: nvidia-driver-pinning\n",
        ),
        Package(
            "nvidia-persistenced",
            f"{version}-1",
            # The kernel names a process by its program: a copy of sleep has the daemon's name.
            files={"usr/lib/systemd/system/nvidia-persistenced.service": (_PERSISTENCED, 0o644)},
            scripts={
                "postinst": "#!/bin/sh\ncp --remove-destination /usr/bin/sleep /usr/bin/nvidia-persistenced\n",
                "prerm": _UNIT_STOP.format(unit="nvidia-persistenced"),
                "postrm": '#!/bin/sh\n[ "$1" = upgrade ] || rm -f /usr/bin/nvidia-persistenced\nsystemctl daemon-reload\n',
            },
        ),
        Package(
            "nvidia-driver-cuda",
            f"{version}-1",
            f"nvidia-persistenced (= {version}-1), libnvidia-ml1 (= {version}-1)",
            files={"usr/bin/nvidia-smi": (_SMI, 0o755)},
        ),
        Package(
            "libnvidia-ml1",
            f"{version}-1",
            files={f"{_LIBRARIES}/{name}.so.{version}": (library, 0o644) for name in _NAMES[: 2 if real else 1]},
            scripts={"postinst": shell + _LINK.replace("VERSION", version), "prerm": shell + _UNLINK} if real else {},
        ),
        Package(
            "nvidia-kernel-open-dkms",
            f"{version}-1",
            scripts={
                "postinst": _BUILD.replace("VERSION", version) + (_MAKE_DEVICES if real else ""),
                "postrm": _REMOVED + (_REMOVE_DEVICES if real else ""),
            },
        ),
    ]


def nvidia_packages(
    drivers: t.Sequence[str] = (DRIVER,), real: RealParts | None = None, refresh_unit: bool = True
) -> list[Package]:
    """Drivers, one of each branch, and the toolkit in two versions; one before 1.18 has no ``refresh_unit``."""
    script = 0o755
    unit = {"usr/lib/systemd/system/nvidia-cdi-refresh.service": (_REFRESH, 0o644)} if refresh_unit else {}
    driver = [package for version in drivers for package in driver_packages(version, real)]
    programs = {f"usr/bin/{name}": (data, script) for name, data in real.programs.items()} if real else {}
    toolkit = [
        Package(name, f"{version}-1", files=files if name.endswith("-base") else {}, scripts=scripts if name.endswith("-base") else {})
        for version in ("1.17.3", TOOLKIT)
        for files in [{"usr/bin/nvidia-ctk": (_CTK, script), "usr/bin/nvidia-container-runtime": ("#!/bin/sh\n", script),
                       **unit, **programs}]
        for scripts in [{"prerm": _UNIT_STOP.format(unit="nvidia-cdi-refresh"), "postrm": _UNIT_GONE}]
        for name in device_tables.TOOLKIT_PACKAGES
    ]  # fmt: skip
    return [*driver, *toolkit]


def archive_packages() -> list[Package]:
    """What the distribution's own archive has: headers of the running kernel, RDMA, and what writes to PCI bridges."""
    headers = f"linux-headers-{platform.release()}"
    return [
        Package(headers, "1.0-1", files={f"usr/src/{headers}/Makefile": ("", 0o644)}),
        *(Package(name, "99.0-1") for name in device_tables.RDMA_PACKAGES["apt"]),
        PCIUTILS,
    ]


def build_repositories(
    folder: pathlib.Path,
    drivers: t.Sequence[str] = (DRIVER,),
    real: RealParts | None = None,
    refresh_unit: bool = True,
) -> dict[str, t.Any]:
    """Build NVIDIA's repository and the distribution's, and return the variables by which a machine has them."""
    fingerprint = build_repository(folder / "nvidia", nvidia_packages(drivers, real, refresh_unit))
    build_repository(folder / "archive", archive_packages())
    mirror = {
        "url": "file:/srv/repositories/nvidia/",
        "suite": "./",
        "key_file": str(folder / "nvidia/key.asc"),
        "fingerprint": fingerprint,
    }
    mirrors = dict.fromkeys(("cuda", "nvidia-container-toolkit"), mirror)
    return {"device_repository": str(folder), "muster_package_mirrors": mirrors}
