# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The spec of a short pod beside the jobs: it asks something of a node or reads files, and ends."""

from __future__ import annotations

from collections.abc import Sequence

from ..api.kinds import JsonObject

_GPU = "nvidia.com/gpu"
# Enough to pull an image.
_DEADLINE_S = 600


def build_short_pod_spec(
    container: JsonObject,
    volumes: Sequence[JsonObject],
    pull_secrets: Sequence[str],
    *,
    node: str | None,
    deadline_s: int = _DEADLINE_S,
) -> JsonObject:
    """Return the spec of a pod that takes none of a node's GPUs and has no access to the cluster.

    :param node: the Node it is on, None for any.
    :param deadline_s: when it is ended; by it the pod counts against a team's quota for pods beside the queue.
    """
    spec: JsonObject = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": deadline_s,
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "tolerations": [{"key": _GPU, "operator": "Exists", "effect": "NoSchedule"}],
        "containers": [container],
        "volumes": list(volumes),
    }
    if node is not None:
        match = {"key": "metadata.name", "operator": "In", "values": [node]}
        term = {"nodeSelectorTerms": [{"matchFields": [match]}]}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}
    if pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in pull_secrets]
    return spec
