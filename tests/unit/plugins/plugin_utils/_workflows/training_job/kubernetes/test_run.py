# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whom a drill of the playbook hits on a cluster, and what it says when it hits nothing: told pods, no cluster."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import threading
import time
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.drill import Drill
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, MusterError
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job, to_yaml_names
from ansible_collections.muster.training.plugins.module_utils._model.run_record import RunRecord
from ansible_collections.muster.training.plugins.module_utils._node.pod_log import MARK
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import follower
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import (
    run as kubernetes_run,
)
from ansible_collections.muster.training.tests.support.told_cluster import Told, follow, stamped
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._kube.jobs.plans import plan

Dict = dict[str, t.Any]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """Three running pods on two nodes, with two ranks."""
    monkeypatch.setattr(follower, "_IDLE_S", 0.01)
    told = Told()
    for uid, node in (("a", "gpu-1"), ("b", "gpu-1"), ("c", "gpu-2")):
        told.tell_pod(uid, node=node)
    told.tell_rank("a", 1, 0, world_size=2, node="gpu-1")
    told.tell_rank("c", 1, 1, world_size=2, node="gpu-2")
    return told


def tell(told: Told, number: int, **data: t.Any) -> None:
    """Let a rank record something."""
    line = MARK + json.dumps({"stream": "metrics", "data": {"at": time.time(), "rank": 0, "attempt": 1, **data}})
    told.heard.put(("line", ("a", stamped(number), line.encode())))


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
    tmp_path: pathlib.Path, told: Told, drill: Drill, killed: list[str]
) -> None:
    tell(told, 2, checkpoint_step=4, path="/c/4")
    tell(told, 3, step=5)
    threading.Timer(0.3, lambda: told.tell_main("Completed")).start()
    _, found, progress = follow(tmp_path, told, drill=dataclasses.replace(drill, at_step=1))
    assert told.deleted == killed
    assert (found.drilled_at is not None) == bool(killed)
    if killed:
        node = drill.node or "gpu-1"
        assert f"drill: killed {', '.join(killed)} on {node} at step 5" in progress.lines
    else:
        assert found.drill_problem == ("no pod of the run was on gpu-9", "Name a node that runs a pod of it")


@pytest.mark.parametrize(("rank", "pod"), [(0, "r-a"), (1, "r-b")])
def test_a_drill_hits_the_pod_of_the_rank_where_pods_share_a_node(
    tmp_path: pathlib.Path, told: Told, rank: int, pod: str
) -> None:
    """Also one that was begun by a controller before this one, which read that the ranks began."""
    told.tell_rank("b", 1, 1, world_size=2, node="gpu-1")
    tell(told, 2, checkpoint_step=4, path="/c/4")
    threading.Timer(0.2, lambda: told.tell_main("Completed")).start()
    follow(tmp_path, told)
    again = Told()
    for uid in "ab":
        again.tell_pod(uid, node="gpu-1")
    tell(again, 3, step=5)
    threading.Timer(0.3, lambda: again.tell_main("Completed")).start()
    _, found, _ = follow(tmp_path, again, drill=Drill("agent", rank=rank, at_step=1))
    assert again.deleted == [pod] and found.drill_problem is None


def test_a_drill_of_a_rank_whose_pod_is_not_known_hits_no_other_one(tmp_path: pathlib.Path, told: Told) -> None:
    told.tell_rank("c", 1, 0, world_size=2, node="gpu-1")
    tell(told, 2, checkpoint_step=4, path="/c/4")
    tell(told, 3, step=5)
    threading.Timer(0.3, lambda: told.tell_main("Completed")).start()
    _, found, _ = follow(tmp_path, told, drill=Drill("agent", rank=0, at_step=1))
    assert told.deleted == [] and found.drill_problem is not None
    assert found.drill_problem[0] == "2 pods of the run are on gpu-1"


def test_a_drill_kills_no_pod_before_it_could_prove_a_resume(tmp_path: pathlib.Path, told: Told) -> None:
    """Without a checkpoint nothing is killed; the first one that is reported lets it strike."""
    tell(told, 2, step=5)
    threading.Timer(0.2, lambda: tell(told, 3, checkpoint_step=5, path="/c/5")).start()
    threading.Timer(0.5, lambda: told.tell_main("Completed")).start()
    _, found, progress = follow(tmp_path, told, drill=Drill("agent", rank=0, at_step=1))
    said = "drill: waiting for the first checkpoint; a kill now would prove nothing"
    assert progress.lines.count(said) == 1 and progress.lines.index(said) < progress.lines.index(
        "drill: killed r-a on gpu-1 at step 5"
    )
    assert told.deleted == ["r-a"] and found.drill_problem is None


def test_a_drill_without_any_checkpoint_kills_nothing(tmp_path: pathlib.Path, told: Told) -> None:
    tell(told, 2, step=5)
    threading.Timer(0.3, lambda: told.tell_main("Completed")).start()
    _, found, _ = follow(tmp_path, told, drill=Drill("agent", rank=0, at_step=1))
    assert told.deleted == [] and found.drilled_at is None
    assert found.drill_problem and "no checkpoint was saved" in found.drill_problem[0]


def test_the_pod_of_a_rank_that_its_gang_waits_for_is_deleted_where_the_job_asks_for_it(
    tmp_path: pathlib.Path, told: Told
) -> None:
    since = time.time() - 90
    for uid, rank, node, operation in (("a", 0, "gpu-1", "all_reduce"), ("c", 1, "gpu-2", None)):
        data = {"kind": "rank_stands", "at": time.time(), "node": node, "rank": rank, "attempt": 1, "since": since}
        line = MARK + json.dumps({"stream": "events", "data": {**data, "operation": operation}})
        told.heard.put(("line", (uid, stamped(5), line.encode())))
    threading.Timer(0.5, lambda: told.tell_main("Completed")).start()
    _, found, progress = follow(tmp_path, told, restart={"on_hang": "restart"})
    assert told.deleted == ["r-c"] and found.story.attempts[0].cause == "hang"
    assert "killed rank 1 on gpu-2, so that the gang starts again" in progress.lines


def test_a_pod_that_is_gone_as_a_drill_strikes_is_no_kill(tmp_path: pathlib.Path, told: Told) -> None:
    tries: list[str] = []
    told.client.delete = lambda _kind, name, *_a, **_k: bool(tries.append(name)) or len(tries) > 1
    tell(told, 2, checkpoint_step=4, path="/c/4")
    tell(told, 3, step=5)
    threading.Timer(0.4, lambda: told.tell_main("Completed")).start()
    _, found, _ = follow(tmp_path, told, drill=Drill("agent", rank=0, at_step=1))
    assert tries == ["r-a", "r-a"] and found.drilled_at is not None and found.drill_problem is None


def test_a_node_of_a_drill_is_one_of_the_clusters() -> None:
    job = plan(nodes=2).job
    known: t.Any = type("Facts", (), {"nodes": [{"metadata": {"name": "gpu-1"}}]})()
    unread: t.Any = type("Facts", (), {"nodes": None})()

    def asked(**drill: t.Any) -> Dict:
        return {"target": "host", "at_step": 1, **drill}

    found = kubernetes_run._parse_drill(asked(node="gpu-1"), job, known)
    assert found is not None and (found.node, found.rank) == ("gpu-1", None)
    assert kubernetes_run._parse_drill(asked(node="gpu-7"), job, unread) is not None
    assert kubernetes_run._parse_drill(None, job, known) is None
    whole = kubernetes_run._parse_drill(asked(), job, known)
    assert whole is not None and whole.rank == job.world_size - 1
    with pytest.raises(InputError, match=r"drill\.node: 'gpu-7' is not a node of the job"):
        kubernetes_run._parse_drill(asked(node="gpu-7"), job, known)
    with pytest.raises(InputError, match="a single rank cannot be killed on Kubernetes"):
        kubernetes_run._parse_drill(asked(target="worker"), job, known)


def test_a_drill_in_pods_that_could_prove_nothing_is_refused() -> None:
    job = plan(nodes=2).job
    unread: t.Any = type("Facts", (), {"nodes": None})()
    prints = dataclasses.replace(job, metrics=dataclasses.replace(job.metrics, step_pattern=r"(?P<step>\d+)"))
    with pytest.raises(InputError, match="nothing could be proven"):
        kubernetes_run._parse_drill({"target": "agent", "at_step": 1}, prints, unread)


@pytest.mark.parametrize(
    ("args", "code", "options", "said"),
    [
        (["--its", "30"], "a", {"run_id": "km-1"}, ""),
        (["--its", "30"], "a", {"run_id": "km-1", "extend": True}, ""),
        # Without a name it is derived from the job: another job is another run.
        (["--its", "90"], "a", {}, ""),
        (["--its", "90"], "a", {"run_id": "km-1"}, "run km-1 has already succeeded with another job: args "),
        (["--its", "30"], "b", {"run_id": "km-1"}, "has already succeeded with another job: the content of job.code"),
        (["--its", "90"], "a", {"run_id": "km-1", "extend": True}, "extend: is for plain hosts"),
    ],
)
def test_another_job_under_the_name_of_a_run_that_succeeded_is_refused(
    args: list[str], code: str, options: Dict, said: str
) -> None:
    place = {"backend": "kubernetes"}
    job: Dict = {"name": "km", "image": "x", "code": {"from": "path", "ref": "."}, "script": "t.py", "placement": place}
    recorded = to_yaml_names(parse_job({**job, "args": ["--its", "30"]}))
    known: Dict = {"schema": 1, "run_id": "km-1", "job": recorded, "state": "ended", "submitted_at": "x"}
    before = RunRecord.from_dict({**known, "outcome": "succeeded", "code_sha256": "a", "backend": "kubernetes"})
    request = types.SimpleNamespace(options=options)
    source = types.SimpleNamespace(code_sha256=code)
    asked: t.Any = types.SimpleNamespace(
        request=request, job=parse_job({**job, "args": args}), source=source, run_id="km-1"
    )
    if not said:
        return kubernetes_run._require_same_job(asked, before)
    with pytest.raises(MusterError) as caught:
        kubernetes_run._require_same_job(asked, before)
    assert said in caught.value.message and "muster_run_id" in caught.value.fix
