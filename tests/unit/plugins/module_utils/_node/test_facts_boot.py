# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a machine boots with: its loader, and options of kernels to come."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import facts_boot
from ansible_collections.muster.training.plugins.module_utils._node.facts_source import FactsSource

OPTION = "iommu=pt"


def write(root: pathlib.Path, path: str, text: str) -> FactsSource:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)
    return FactsSource({"root": str(root), "path": []})


@pytest.mark.parametrize(
    ("path", "line", "configured"),
    [
        ("boot/grub/grub.cfg", "\tlinux\t/vmlinuz root=/dev/sda1 ro iommu=pt quiet", True),
        ("boot/grub/grub.cfg", "\tlinuxefi /vmlinuz iommu=pt", True),
        ("boot/grub/grub.cfg", "\tlinux /vmlinuz intel_iommu=pt iommu=ptx", False),
        ("boot/grub/grub.cfg", "# linux /vmlinuz iommu=pt", False),
        ("boot/grub2/grub.cfg", 'set default_kernelopts="root=/dev/sda1 iommu=pt"', True),
        ("boot/grub2/grubenv", "kernelopts=iommu=pt ro", True),
        ("boot/loader/entries/a.conf", "options root=/dev/sda1 ro iommu=pt", True),
        ("boot/loader/entries/a.conf.old", "options root=/dev/sda1 ro iommu=pt", False),
    ],
)
def test_an_option_of_coming_boots_is_found(tmp_path: pathlib.Path, path: str, line: str, configured: bool) -> None:
    source = write(tmp_path, path, f"first line\n{line}\n")
    assert facts_boot.read_kernel_option(source, OPTION) == {"booted": False, "configured": configured}


def test_an_option_of_the_running_kernel_is_found(tmp_path: pathlib.Path) -> None:
    source = write(tmp_path, "proc/cmdline", "ro intel_iommu=on iommu=pt\n")
    assert facts_boot.read_kernel_option(source, OPTION) == {"booted": True, "configured": False}


@pytest.mark.parametrize("name", ["update-grub", "grubby"])
def test_what_writes_the_options_is_known_by_its_program(tmp_path: pathlib.Path, name: str) -> None:
    source = write(tmp_path, f"usr/sbin/{name}", "")
    assert facts_boot.read_boot(source, "6.1.0")["loader"] == name
    assert facts_boot.read_boot(FactsSource({"root": str(tmp_path / "none"), "path": []}), None)["loader"] is None


def test_the_initial_file_system_of_the_running_kernel_is_measured(tmp_path: pathlib.Path) -> None:
    (tmp_path / "boot").mkdir()
    (tmp_path / "boot/initrd.img-6.0.0").write_bytes(b"old kernel")
    source = FactsSource({"root": str(tmp_path), "path": []})
    assert facts_boot.read_boot(source, "6.1.0")["image_bytes"] is None
    (tmp_path / "boot/initramfs-6.1.0.img").write_bytes(b"12345")
    boot = facts_boot.read_boot(source, "6.1.0")
    assert boot["image_bytes"] == 5 and boot["free_bytes"] > 0
