# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a machine boots with: the room below /boot, options of its kernel, and what writes them."""

from __future__ import annotations

import os
import re
import typing as t

from .facts_source import FactsSource

# By what writes the options of kernels to come, the programs by which it is known. Debian has both names for GRUB's.
_LOADERS: t.Mapping[str, tuple[str, ...]] = {
    "update-grub": ("usr/sbin/update-grub", "sbin/update-grub"),
    "grubby": ("usr/sbin/grubby", "sbin/grubby"),
}
_GRUB_FILES = ("boot/grub/grub.cfg", "boot/grub2/grub.cfg", "boot/grub2/grubenv")
_ENTRIES = "boot/loader/entries"
# The lines of these files that have options: of GRUB's menu, of the Boot Loader Specification, of grubenv.
_WITH_OPTIONS = re.compile(r"\s*(?:linux(?:efi|16)?\s|options\s|(?:set\s+default_)?kernelopts=)")


def read_boot(source: FactsSource, kernel: str | None) -> dict[str, t.Any]:
    """Return how much is free below /boot, how large the initial file system is there, and what writes options."""
    sizes = []
    for name in (f"initrd.img-{kernel}", f"initramfs-{kernel}.img"):
        try:
            sizes.append(os.stat(source.below(f"boot/{name}")).st_size)
        except OSError:
            continue
    return {
        "free_bytes": free_bytes(source, "boot"),
        "image_bytes": max(sizes, default=None),
        "loader": next((name for name, paths in _LOADERS.items() if _exists(source, paths)), None),
    }


def free_bytes(source: FactsSource, folder: str) -> int | None:
    """Return how much is free in a folder of the machine; None where there is none."""
    try:
        state = os.statvfs(source.below(folder))
    except OSError:
        return None
    return state.f_bavail * state.f_frsize


def read_kernel_option(source: FactsSource, option: str) -> dict[str, bool]:
    """Return whether the kernel was booted with an option, and whether a coming one will be."""
    entries = [f"{_ENTRIES}/{name}" for name in source.names(source.below(_ENTRIES)) if name.endswith(".conf")]
    lines = [line for path in (*_GRUB_FILES, *entries) for line in source.lines(source.below(path))]
    word = re.compile(rf"(?<![^\s\"'=]){re.escape(option)}(?![^\s\"'])")
    coming = any(word.search(line) for line in lines if _WITH_OPTIONS.match(line))
    booted = option in (source.text(os.path.join(source.proc, "cmdline")) or "").split()
    return {"booted": booted, "configured": coming}


def _exists(source: FactsSource, paths: t.Iterable[str]) -> bool:
    return any(os.path.exists(source.below(path)) for path in paths)
