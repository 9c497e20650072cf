# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine as the rules on drivers, container runtimes and RDMA see it, and the parts that their plans share."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from . import device_tables as tables
from .errors import InputError

Facts = t.Mapping[str, t.Any]
_RHEL_LIKE = frozenset({"rhel", "rocky", "almalinux", "centos", "ol"})


@dataclasses.dataclass(frozen=True, slots=True)
class Refusal:
    """Why a machine is left as it is: ``problem`` states the fact, ``fix`` what to do."""

    problem: str
    fix: str


@dataclasses.dataclass(frozen=True, slots=True)
class Repository:
    """A package repository. ``fingerprint``: of its key, empty where none is published; ``suite`` is apt's."""

    name: str
    url: str
    key_url: str
    fingerprint: str = ""
    suite: str = "/"
    components: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceHost:
    """What was read on one machine (``_node/facts_devices.py``), with the questions that several rules ask of it."""

    name: str
    facts: Facts

    @property
    def system(self) -> str:
        """The family of its packages: ubuntu, debian, rhel, or what os-release calls it."""
        known = str(self.facts["os"].get("id") or "unknown")
        like = set(self.facts["os"].get("like") or ())
        if known in ("ubuntu", "debian"):
            return known
        return "rhel" if known in _RHEL_LIKE or "rhel" in like else known

    @property
    def release(self) -> str:
        """The version that repositories are named by: 24.04, 12, 9."""
        version = str(self.facts["os"].get("version") or "")
        return version if self.system == "ubuntu" else version.partition(".")[0]

    @property
    def title(self) -> str:
        """Its operating system in words."""
        return str(self.facts["os"].get("name") or self.facts["os"].get("id") or "an unknown system")

    @property
    def kernel(self) -> str:
        """The release of its running kernel."""
        return str(self.facts.get("kernel") or "")

    @property
    def is_container(self) -> bool:
        """Whether it is a container, whose kernel and drivers are its host's."""
        return bool((self.facts.get("virtualisation") or {}).get("kind") == "container")

    @property
    def is_vm(self) -> bool:
        """Whether it is a virtual machine."""
        return bool((self.facts.get("virtualisation") or {}).get("kind") == "vm")

    @property
    def driver(self) -> Facts:
        """What is there of NVIDIA's driver."""
        return self.facts.get("driver") or {}

    @property
    def gpus(self) -> t.Sequence[Facts]:
        """The NVIDIA GPUs on its bus."""
        return self.facts.get("gpus") or ()

    @property
    def architectures(self) -> frozenset[str]:
        """The architectures of its GPUs, by their PCI device ids."""
        return frozenset(name for gpu in self.gpus if (name := tables.architecture_of(gpu.get("device"))))

    @property
    def versions(self) -> t.Mapping[str, str]:
        """Installed packages that matter here, with their versions."""
        return (self.facts.get("packages") or {}).get("versions") or {}

    @property
    def manager(self) -> str | None:
        """Its package manager: apt, dnf, None where neither is known."""
        return (self.facts.get("packages") or {}).get("manager")

    def was_cut_short(self, record: str) -> bool:
        """Whether a role of this collection began to install packages here and did not come to its end."""
        return (self.facts.get("records") or {}).get(record) is False

    @property
    def broken_packages(self) -> t.Sequence[str]:
        """The packages that the package manager began and did not finish, where no role of this collection began them.

        Such a role finishes them with its next run (``roles/device_packages``).
        """
        begun = False in (self.facts.get("records") or {}).values()
        return () if begun else (self.facts.get("packages") or {}).get("broken") or ()

    def has_device(self, devices: t.Collection[str]) -> bool:
        """Whether one of its GPUs has a PCI device id of ``devices``."""
        return any(gpu.get("device") in devices for gpu in self.gpus)

    @property
    def has_working_driver(self) -> bool:
        """Whether ``nvidia-smi`` lists every GPU that is on the bus; in a container, any."""
        listed = self.driver.get("listed") or 0
        return listed > 0 and (self.is_container or listed >= len(self.gpus))


def parse_version(text: str | None) -> tuple[int, ...]:
    """Return the numbers of a version such as ``595.71.05``, none for anything else."""
    match = re.match(r"[0-9]+(?:\.[0-9]+)*", text or "")
    return tuple(int(part) for part in match.group(0).split(".")) if match else ()


def write_version(numbers: t.Sequence[int]) -> str:
    """Return numbers as a version."""
    return ".".join(str(number) for number in numbers)


def require_choice(option: str, value: str, allowed: t.Collection[str]) -> None:
    """Refuse an option's value that is not among ``allowed``.

    :raises InputError: naming the option and what it may be.
    """
    if value not in allowed:
        raise InputError(option, f"is {value!r}", f"Use one of {', '.join(allowed)}")


def check_packages(host: DeviceHost, pattern: str) -> list[Refusal]:
    """Return what forbids to install packages whose names match ``pattern``: broken, held, no space, a wrong clock."""
    packages = host.facts.get("packages") or {}
    # On the RHEL family the role gpu_driver locks versions itself, of a driver that it installed.
    own = host.manager == "dnf" and "gpu-driver" in (host.facts.get("records") or {})
    held = "" if own else ", ".join(name for name in packages.get("held") or () if re.match(pattern, name))
    free = host.facts.get("free_bytes")
    found = []
    if host.broken_packages:
        fix = "Run dpkg --configure -a on it, and apt-get --fix-broken install for those that are half-installed"
        found.append(Refusal(f"half-installed packages: {', '.join(host.broken_packages)}", fix))
    if held:
        release = "apt-mark unhold" if host.manager == "apt" else "dnf versionlock delete"
        found.append(
            Refusal(f"held packages: {held}", f"Release them ({release}), or keep what is installed (source: none)")
        )
    if free is not None and free < tables.DRIVER_BYTES:
        need = tables.DRIVER_BYTES >> 30
        found.append(
            Refusal(f"{free / 2**30:.1f} GiB free below /var/lib, {need} are needed", "Remove what is not needed")
        )
    return [*found, *_check_clock(host)]


def _check_clock(host: DeviceHost) -> t.Iterator[Refusal]:
    """Refuse a clock by which certificates and signatures of repositories are not valid yet, or not any more."""
    skew = host.facts.get("clock_skew_s")
    if skew is not None and abs(skew) > tables.CLOCK_S:
        days = f"{abs(skew) / 86400:.0f} days {'ahead of' if skew > 0 else 'behind'}"
        fix = "Set the one that is wrong (timedatectl set-ntp true): repositories are refused by it"
        yield Refusal(f"its clock is {days} the controller's", fix)


def check_boot(host: DeviceHost) -> list[Refusal]:
    """Return what forbids to write the initial file system again, which is done beside the one that is there."""
    boot = host.facts.get("boot") or {}
    free, need = boot.get("free_bytes"), boot.get("image_bytes")
    if free is None or need is None or free >= need:
        return []
    problem = f"{free >> 20} MiB free below /boot, and the initial file system has {need >> 20}"
    return [Refusal(problem, "Remove kernels that are not used (apt-get autoremove, dnf remove --oldinstallonly)")]
