# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a check says of a run whose quotas it may read, and of one where it may not; the rest is in tests/kube_api."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.plugins.plugin_utils._kube.jobs.spec import Queue
from ansible_collections.muster.training.plugins.plugin_utils._kube.placement import admission
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._kube.jobs.plans import plan
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._kube.placement.test_quota import (
    PLAIN,
    Dict,
    cluster_queue,
    resource_quota,
)


class Answers:
    """An API server with these objects; a KubeError as one of them is its refusal."""

    def __init__(self, quotas: t.Any, queue: t.Any) -> None:
        self.quotas, self.queue = quotas, queue
        self.items: list[Dict] = []

    def list(self, _kind: str, _namespace: str) -> Answers:
        if isinstance(self.quotas, KubeError):
            raise self.quotas
        self.items = self.quotas
        return self

    def get(self, kind: str, _name: str, _namespace: str | None = None) -> Dict:
        if kind.endswith("LocalQueue"):
            return {"spec": {"clusterQueue": "vision"}}
        if isinstance(self.queue, KubeError):
            raise self.queue
        return t.cast(Dict, self.queue)


FORBIDDEN = KubeError("listing", "forbidden", status=403)


def predict(quotas: t.Any, queue: t.Any, **job: t.Any) -> list[str]:
    queued = {} if queue is None else {"queue": Queue("main")}
    asked = plan(queued, resources={"cpu": 4}, **job)
    return admission.predict(t.cast(Client, Answers(quotas, queue)), asked)


def test_a_run_with_room_is_not_spoken_of() -> None:
    assert predict([resource_quota({"requests.cpu": "8"}, {"requests.cpu": "0"})], cluster_queue(PLAIN)) == []
    assert predict([], None) == []


def test_a_run_that_would_wait_says_for_what() -> None:
    queue = cluster_queue(PLAIN, [{"name": "muster", "has": {"cpu": "4"}}], cohortName="all")
    queue["status"]["pendingWorkloads"] = 2
    said = predict([], queue, placement={"priority": "high"})
    expected = "run char-lm-0a1b2c3d would wait: 8 CPU asked, ClusterQueue vision has 8 (4 in use, 4 left)"
    more = "what cohort all can lend is not known here; 2 jobs wait there already; with priority high"
    assert said == [f"{expected}; {more} it may end runs of a lower one"]


def test_a_run_that_would_never_be_admitted_is_refused() -> None:
    small = cluster_queue([{"name": "muster", "has": {"cpu": "4"}}])
    with pytest.raises(RefusedError, match=r"never be admitted: 8 CPU asked, ClusterQueue vision has 4") as refused:
        predict([], small)
    assert "team_quota" in str(refused.value)


def test_what_may_not_be_read_is_said_as_not_known() -> None:
    said = predict(FORBIDDEN, FORBIDDEN)
    unknown = "cannot be read with this kubeconfig: whether it has room for this run is not known (8 cpu asked)"
    assert said == [f"ResourceQuotas of namespace team-a {unknown}", f"the quota of queue main {unknown}"]
    with pytest.raises(KubeError):
        predict(KubeError("listing", "away", status=503), None)
    (wrong,) = predict([resource_quota({"pods": "many"})], None)
    assert "'many' is not a quantity" in wrong
