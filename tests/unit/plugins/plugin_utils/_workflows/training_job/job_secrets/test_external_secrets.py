# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run's secrets of External Secrets: refused without the operator, nothing for a run without any."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, MusterError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.job import Job, parse_job
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs.spec import KubePlan, find_secret
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.job_secrets import (
    external_secrets,
)
from ansible_collections.muster.training.tests.support.run_world import Said


def job(*refs: dict[str, str]) -> Job:
    about = {
        "name": "x",
        "image": "i",
        "launcher": "command",
        "command": ["true"],
        "placement": {"backend": "kubernetes"},
    }
    return parse_job({**about, "secret_refs": list(refs)})


ASKED = {"name": "T", "from": "external_secrets", "path": "p", "store": "team"}


class Cluster:
    """A cluster without the operator's kinds, which counts what it is asked."""

    def __init__(self, problem: MusterError | None = None) -> None:
        self.problem, self.deleted, self.looked = problem, t.cast("list[t.Any]", []), 0

    def resource(self, _kind: str) -> t.Any:
        self.looked += 1
        raise InputError("kind", "is not served")

    def delete(self, *words: t.Any) -> bool:
        self.deleted.append(words)
        if self.problem:
            raise self.problem
        return True


def plan_of(asked: Job, name: str | None) -> KubePlan:
    return KubePlan(asked, "r", "c", "ns", {}, {}, external_secret=name)


def test_a_cluster_without_the_operator_is_refused_with_the_way_without_it() -> None:
    cluster: t.Any = Cluster()
    with pytest.raises(RefusedError, match=r"job\.secret_refs\.T: the cluster has no External Secrets") as caught:
        external_secrets.require(cluster, job(ASKED), "ns")
    assert "from: openbao" in str(caught.value.fix)
    external_secrets.require(cluster, job({"name": "E", "from": "env"}), "ns")
    assert cluster.looked == 1, "a job without such secrets asks nothing"


def test_nothing_is_asked_for_and_deleted_for_a_run_without_such_secrets() -> None:
    cluster: t.Any = Cluster()
    plan = plan_of(job({"name": "E", "from": "env"}), None)
    assert external_secrets.build(plan) == []
    external_secrets.wait_ready(cluster, plan)
    external_secrets.delete(cluster, plan, t.cast(t.Any, Said()))
    assert cluster.deleted == [] and cluster.looked == 0


def test_pods_find_the_secret_and_its_removal_that_fails_is_told() -> None:
    asked = job(ASKED, {"name": "K", "from": "kubernetes", "path": "theirs", "key": "k"}, {"name": "E", "from": "env"})
    plan = dataclasses.replace(plan_of(asked, "r-external-1"), secret="r-secrets")
    found = {ref.name: find_secret(plan, ref) for ref in asked.secret_refs}
    assert found == {"T": ("r-external-1", "T"), "K": ("theirs", "k"), "E": ("r-secrets", "E")}
    said: t.Any = Said()
    cluster: t.Any = Cluster(MusterError("no"))
    external_secrets.delete(cluster, plan, said)
    assert cluster.deleted == [("external-secrets.io/v1/ExternalSecret", "r-external-1", "ns")]
    assert "ExternalSecret r-external-1 was not deleted" in "".join(said.lines)
