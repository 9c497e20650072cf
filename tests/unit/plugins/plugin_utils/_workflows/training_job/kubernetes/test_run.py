# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whom a drill of the playbook hits on a cluster: told pods, no cluster."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import threading
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.drill import Drill
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._node.pod_log import MARK
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import follower
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import (
    run as kubernetes_run,
)
from ansible_collections.muster.training.tests.support.told_cluster import Told, follow, stamped
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._kube.jobs.plans import plan


@pytest.mark.parametrize(
    ("drill", "killed"),
    [
        (Drill("agent", rank=0), ["r-a"]),
        (Drill("agent", node="gpu-2"), ["r-c"]),
        (Drill("host", rank=0), ["r-a", "r-b"]),
        (Drill("host", node="gpu-1"), ["r-a", "r-b"]),
        (Drill("host", node="gpu-9"), []),
    ],
)
def test_a_drill_hits_a_pod_or_all_of_the_run_on_a_node(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, drill: Drill, killed: list[str]
) -> None:
    monkeypatch.setattr(follower, "_IDLE_S", 0.01)
    told = Told()
    for uid, node in (("a", "gpu-1"), ("b", "gpu-1"), ("c", "gpu-2")):
        told.tell_pod(uid, node=node)
    told.tell_rank("a", 1, 0, world_size=2, node="gpu-1")
    told.tell_rank("c", 1, 1, world_size=2, node="gpu-2")
    step = {"at": time.time(), "step": 5, "rank": 0, "attempt": 1}
    line = MARK + json.dumps({"stream": "metrics", "data": step})
    told.heard.put(("line", ("a", stamped(2), line.encode())))
    threading.Timer(0.3, lambda: told.tell_main("Completed")).start()
    follow(tmp_path, told, drill=dataclasses.replace(drill, at_step=1))
    assert told.deleted == killed


def test_a_node_of_a_drill_is_one_of_the_clusters() -> None:
    job = plan(nodes=2).job
    known: t.Any = type("Facts", (), {"nodes": [{"metadata": {"name": "gpu-1"}}]})()
    unread: t.Any = type("Facts", (), {"nodes": None})()

    def asked(**drill: t.Any) -> t.Any:
        return type("Request", (), {"options": {"drill": {"target": "host", "at_step": 1, **drill}}})()

    found = kubernetes_run._parse_drill(asked(node="gpu-1"), job, known)
    assert found is not None and (found.node, found.rank) == ("gpu-1", None)
    assert kubernetes_run._parse_drill(asked(node="gpu-7"), job, unread) is not None
    whole = kubernetes_run._parse_drill(asked(), job, known)
    assert whole is not None and whole.rank == job.world_size - 1
    with pytest.raises(InputError, match=r"drill\.node: 'gpu-7' is not a node of the job"):
        kubernetes_run._parse_drill(asked(node="gpu-7"), job, known)
