# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a kubeconfig leads to the cluster of a run; with a real API server in tests/kube_api."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import cluster_identity


class Cluster(Client):
    """A client that reads the namespace kube-system with this uid; a number is the status of its refusal."""

    def __init__(self, answer: str | int, authority: str = "") -> None:  # pylint: disable=super-init-not-called
        self.answer, self.authority, self.server = answer, authority, "https://here"

    def get(self, *_names: t.Any, **_options: t.Any) -> t.Any:
        if isinstance(self.answer, int):
            raise KubeError("namespace", "refused", status=self.answer)
        return {"metadata": {"uid": self.answer}}


def client(answer: str | int, authority: str = "") -> Client:
    return Cluster(answer, authority)


def record(state: str = "running") -> dict[str, t.Any]:
    return {"run_id": "r", "state": state, "backend_ref": {"cluster_id": "there", "context": "lab"}}


def test_a_cluster_is_another_one_only_where_both_ids_are_known() -> None:
    assert cluster_identity.other_cluster_id(client("here"), {"cluster_id": "there"}) == "here"
    assert cluster_identity.other_cluster_id(client("there"), {"cluster_id": "there"}) == ""
    assert cluster_identity.other_cluster_id(client("here"), {}) == ""
    assert client(403).cluster_id() == ""
    with pytest.raises(KubeError):
        client(500).cluster_id()


@pytest.mark.parametrize("recorded_by", ["member", "administrator"])
@pytest.mark.parametrize("asked_by", ["member", "administrator"])
@pytest.mark.parametrize("is_same", [True, False])
def test_what_a_member_recorded_is_compared_with_what_an_administrator_sees(
    recorded_by: str, asked_by: str, is_same: bool
) -> None:
    there = client("u1" if recorded_by == "administrator" else 403, "ab")
    uid, authority = ("u1", "ab") if is_same else ("u2", "cd")
    here = client(uid if asked_by == "administrator" else 403, authority)
    known = there.cluster_id()
    if is_same:
        # What a refusal names is an id that is taken.
        here.expect_cluster(known)
    else:
        with pytest.raises(RefusedError, match="is another cluster"):
            here.expect_cluster(known)
    assert bool(cluster_identity.other_cluster_id(here, {"cluster_id": known})) is not is_same


def test_a_run_is_refused_on_another_cluster_until_it_has_ended() -> None:
    words = r"run r was started on another cluster \(there\) than https://here \(here\).*its context was lab"
    with pytest.raises(RefusedError, match=words):
        cluster_identity.require_same_cluster(client("here"), record())
    with pytest.raises(RefusedError, match=words):
        cluster_identity.require_same_cluster(client("here"), record("ended"), ended=True)
    cluster_identity.require_same_cluster(client("here"), record("ended"))
    cluster_identity.require_same_cluster(client("there"), record())
    cluster_identity.require_same_cluster(client("here"), None)
