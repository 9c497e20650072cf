# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Lease of a run, as one controller reads and writes it; several at once are in tests/kube_api."""

from __future__ import annotations

import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError, RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes.leader_lease import (
    LeaderLease,
    find_other,
    is_expired,
    require_free,
)

Dict = dict[str, t.Any]


class Cluster:
    """Keeps one Lease."""

    def __init__(self, lease: Dict | None = None, status: int = 0) -> None:
        self.lease, self.status = lease, status
        self.deleted: list[str] = []
        self.transport = types.SimpleNamespace(stats=types.SimpleNamespace(server_time=lambda: 1_767_225_600.0))

    def get(self, _kind: str, _name: str, _namespace: str) -> Dict | None:
        if self.status:
            raise KubeError("lease", "refused", status=self.status)
        return self.lease

    def create(self, lease: Dict) -> None:
        self.lease = {**lease, "metadata": {**lease["metadata"], "uid": "u", "resourceVersion": "1"}}

    def patch(self, _kind: str, _name: str, body: Dict, _namespace: str) -> None:
        assert self.lease is not None
        self.lease = {"metadata": {**self.lease["metadata"], **body["metadata"]}, "spec": body["spec"]}

    def delete(self, _kind: str, name: str, _namespace: str, *, uid: str) -> None:
        self.deleted.append(f"{name} {uid}")


def lease(cluster: Cluster, lines: list[str]) -> LeaderLease:
    plan: t.Any = types.SimpleNamespace(name="r", namespace="team", labels={}, run_id="r")
    return LeaderLease(t.cast(t.Any, cluster), plan, "me", t.cast(t.Any, types.SimpleNamespace(say=lines.append)))


def test_a_free_run_is_held_and_released() -> None:
    cluster = Cluster()
    mine = lease(cluster, [])
    mine.take(False)
    assert cluster.lease is not None and cluster.lease["spec"]["holderIdentity"] == "me"
    mine.check()
    mine.release()
    assert cluster.deleted == ["r u"]


def test_without_permission_the_run_is_followed_with_a_warning() -> None:
    lines: list[str] = []
    mine = lease(Cluster(status=403), lines)
    mine.take(False)
    assert len(lines) == 1 and lines[0].startswith("warning: no permission to use Leases")
    mine.release()


def test_a_run_that_was_taken_over_is_not_followed_any_more() -> None:
    mine = lease(Cluster(), [])
    mine.lost_to = "other"
    with pytest.raises(MusterError, match="run r was taken over by other, which follows it now"):
        mine.check()


@pytest.mark.parametrize(
    ("renewed", "now", "expired"),
    [
        ("2025-12-31T23:00:00Z", 1_767_225_600.0, True),
        ("2025-12-31T23:59:50Z", 1_767_225_600.0, False),
        ("2025-12-31T23:00:00Z", None, False),
        ("soon", 1_767_225_600.0, False),
    ],
)
def test_only_a_lease_that_is_renewed_no_more_is_expired(renewed: str, now: float | None, expired: bool) -> None:
    lease: t.Any = {"metadata": {"uid": "u"}, "spec": {"renewTime": renewed, "leaseDurationSeconds": 60}}
    assert is_expired(lease, now) is expired


LIVE: Dict = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "r", "uid": "main"}}


def owners(cluster: Cluster) -> list[str]:
    assert cluster.lease is not None
    return [item["uid"] for item in cluster.lease["metadata"]["ownerReferences"] or []]


def test_a_lease_goes_with_the_object_of_its_run() -> None:
    """Its holder may be killed while it follows, and no controller comes after it."""
    cluster = Cluster()
    first = lease(cluster, [])
    first.take(False)
    assert owners(cluster) == []
    first.attach(t.cast(t.Any, LIVE))
    assert owners(cluster) == ["main"]
    # What ran it before would take the Lease of its next start along.
    second = lease(cluster, [])
    second.take(False)
    assert owners(cluster) == []
    first._over.set()
    second.release()


def test_a_lease_that_could_not_be_taken_is_not_attached() -> None:
    cluster = Cluster(status=403)
    mine = lease(cluster, [])
    mine.take(False)
    mine.attach(t.cast(t.Any, LIVE))
    assert cluster.lease is None


def home(who: str = "me") -> t.Any:
    return types.SimpleNamespace(owner=lambda create: {"controller": who, "owner": "0123456789abcdef"})


def held(by: str, renewed: str = "2025-12-31T23:59:50Z") -> Cluster:
    spec = {"holderIdentity": by, "renewTime": renewed, "leaseDurationSeconds": 60}
    return Cluster({"metadata": {"uid": "u"}, "spec": spec})


@pytest.mark.parametrize(
    ("cluster", "other"),
    [
        (held("me (0123456789ab)"), ("", False)),
        (held("her (ab)"), ("her (ab)", True)),
        (held("her (ab)", "2025-12-31T23:00:00Z"), ("her (ab)", False)),
        (Cluster(), ("", False)),
        (Cluster(status=403), ("", False)),
    ],
)
def test_the_other_controller_of_a_run_is_named(cluster: Cluster, other: tuple[str, bool]) -> None:
    assert find_other(t.cast(t.Any, cluster), "r", "team", home()) == other


@pytest.mark.parametrize(
    ("cluster", "take_over", "is_refused"),
    [
        (held("her (ab)"), False, True),
        (held("her (ab)"), True, False),
        (held("her (ab)", "2025-12-31T23:00:00Z"), False, False),
        (held("me (0123456789ab)"), False, False),
    ],
)
def test_a_check_refuses_what_a_start_would_refuse(cluster: Cluster, take_over: bool, is_refused: bool) -> None:
    plan: t.Any = types.SimpleNamespace(name="r", namespace="team", labels={}, run_id="r")
    try:
        require_free(t.cast(t.Any, cluster), plan, home(), take_over)
    except RefusedError as error:
        assert is_refused and "run r is followed by another controller: her (ab)" in error.message
    else:
        assert not is_refused
