# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Live Nodes with eight H100."""

from __future__ import annotations

import typing as t

from ansible_collections.muster.training.plugins.plugin_utils._kube.api.kinds import KubeObject

H100 = {
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/gpu.memory": "81559",
    "nvidia.com/gpu.family": "hopper",
    "muster.training/island": "a",
    "muster.training/network-lan": "true",
}


def node(name: str, gpus: int = 8, ready: str = "True", **changes: t.Any) -> KubeObject:
    return {
        "metadata": {"name": name, "labels": {**H100, **changes.pop("labels", {})}},
        "spec": changes,
        "status": {"conditions": [{"type": "Ready", "status": ready}], "allocatable": {"nvidia.com/gpu": str(gpus)}},
    }
