# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a queue's flavors tell of the nodes that a job will get; the queue of a real cluster is in tests/lab."""

from __future__ import annotations

import types
import typing as t

from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import (
    plan as kubernetes_plan,
)
from ansible_collections.muster.training.tests.support.kube_lab import queue_objects

LOCAL = {"metadata": {"name": "main"}, "spec": {"clusterQueue": "team"}}
TAINT = {"key": "kwok.x-k8s.io/node", "operator": "Exists"}


def queue(*objects: dict[str, t.Any]) -> t.Any:
    kept = {(item["apiVersion"].split("/")[0], item["kind"], item["metadata"]["name"]): item for item in objects}

    def get(kind: str, name: str) -> t.Any:
        return kept.get((kind.split("/")[0], kind.rpartition("/")[2], name))

    return kubernetes_plan._queue(t.cast(t.Any, types.SimpleNamespace(get=get)), LOCAL)


def test_the_only_flavor_says_which_nodes() -> None:
    found = queue(*queue_objects("team", {"cpu": "1"}, topology=False, simulated=True))
    assert (found.tolerations, found.node_labels, found.topology) == ((TAINT,), {"type": "kwok"}, False)
    found = queue(*queue_objects("team", {"cpu": "1"}, topology=True, simulated=True))
    assert (found.tolerations, found.node_labels, found.topology) == ((TAINT,), {"type": "kwok"}, True)
    assert found.island_level is None


def test_several_flavors_name_no_node_and_all_tolerations() -> None:
    objects = queue_objects("team", {"cpu": "1"}, topology=False, simulated=True)
    (outer,) = (item for item in objects if item["kind"] == "ClusterQueue")
    outer["spec"]["resourceGroups"][0]["flavors"].append({"name": "other", "resources": []})
    bear = {"key": "spot", "operator": "Exists"}
    other = {**objects[-3], "metadata": {"name": "other"}, "spec": {"nodeLabels": {"x": "y"}, "tolerations": [bear]}}
    assert other["kind"] == "ResourceFlavor"
    found = queue(*objects, other)
    assert (found.tolerations, found.node_labels) == ((TAINT, bear), {})
