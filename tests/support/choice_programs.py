# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs of services that no package has: MinIO and Vault, built from their Go modules where somebody has done so.

They are looked for in the lab's programs and its cache, and never built for a test: MinIO takes ten minutes, Vault half an hour.
"""

from __future__ import annotations

import pathlib

from ansible_collections.muster.training.tests.lab import podman
from ansible_collections.muster.training.tests.lab.kube import binaries


def find(name: str) -> pathlib.Path | None:
    """Return a program, None where there is none."""
    lab = binaries.Binaries(podman.cache_home())
    if lab.given is not None and (lab.given / f"{name}.xz").exists():
        return lab.get(name)
    built = lab.folder / name
    return built if built.exists() else None
