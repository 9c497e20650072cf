# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of container images as containerd keeps them."""

from __future__ import annotations

_HUB = "docker.io"


def full_name(image: str) -> str:
    """Return an image's name with its registry and its tag: ``python`` is ``docker.io/library/python:latest``."""
    first, separator, rest = image.partition("/")
    if not separator:
        image = f"{_HUB}/library/{image}"
    elif first == _HUB and "/" not in rest:
        image = f"{_HUB}/library/{rest}"
    elif "." not in first and ":" not in first and first != "localhost":
        image = f"{_HUB}/{image}"
    return image if "@" in image or ":" in image.rpartition("/")[2] else f"{image}:latest"
