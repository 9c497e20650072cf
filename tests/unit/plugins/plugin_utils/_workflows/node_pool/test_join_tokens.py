# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tokens of K3s that a join left behind: ended by a teardown, with proof, or reported as open."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError
from ansible_collections.muster.training.plugins.module_utils._model.ledger import LedgerEvent
from ansible_collections.muster.training.plugins.module_utils._model.timestamps import format_time
from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger.ledger_session import LedgerSession
from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger.ledger_store import LedgerWriter
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool.join_tokens import end_join_tokens

NOW = 1_800_000_000.0


class Cluster:
    """A cluster with Secrets; ``stubborn`` ones stay."""

    def __init__(self, *names: str, stubborn: bool = False, refusal: str = "") -> None:
        self.secrets = set(names)
        self.stubborn, self.refusal = stubborn, refusal

    def get(self, kind: str, name: str, namespace: str) -> t.Any:
        assert (kind, namespace) == ("v1/Secret", "kube-system")
        if self.refusal:
            raise MusterError(self.refusal)
        return {"metadata": {"name": name}} if name in self.secrets else None

    def delete(self, _kind: str, name: str, _namespace: str) -> bool:
        if not self.stubborn:
            self.secrets.discard(name)
        return True


def end(
    folder: pathlib.Path,
    cluster: t.Any,
    deadline: float = NOW + 600,
    ident: str | None = "abc123",
    selected: bool = True,
) -> tuple[list[str], list[tuple[str, t.Any]]]:
    """Return the problems, and the lines that were written for one open token."""
    intent = LedgerEvent(
        at=format_time(NOW - 60),
        cluster="lab",
        token="0123abcd",
        event="intent",
        resource="k3s_token",
        provider="k3s",
        account="lab-1",
        pool="agents",
        name="lab-2",
        deadline=format_time(deadline),
    )
    written = [intent]
    if ident:
        written.append(LedgerEvent.from_dict({**intent.to_dict(), "event": "created", "id": ident}))

    def open_cluster() -> t.Any:
        if isinstance(cluster, MusterError):
            raise cluster
        return cluster

    with LedgerWriter(folder) as writer:
        for event in written:
            writer.append(event)
        session = LedgerSession(written, writer)
        problems = end_join_tokens(session, lambda _lease: selected, open_cluster, NOW)
    return problems, [(event.event, event.evidence) for event in session.events[len(written) :]]


def test_a_token_is_deleted_and_its_absence_is_the_proof(tmp_path: pathlib.Path) -> None:
    cluster = Cluster("bootstrap-token-abc123", "bootstrap-token-other")
    problems, lines = end(tmp_path, cluster)
    assert problems == [] and lines == [("deleted", None), ("verified", {"listed": False})]
    assert cluster.secrets == {"bootstrap-token-other"}


def test_one_whose_time_is_over_needs_no_cluster(tmp_path: pathlib.Path) -> None:
    problems, lines = end(tmp_path, None, deadline=NOW - 1)
    assert problems == [] and lines == [("deleted", None), ("verified", {"expired": format_time(NOW - 1)})]


@pytest.mark.parametrize(
    ("cluster", "ident"),
    [(None, "abc123"), (Cluster(), None), (Cluster("bootstrap-token-abc123", stubborn=True), "abc123")],
)
def test_one_that_may_still_let_somebody_in_stays_open(
    tmp_path: pathlib.Path, cluster: t.Any, ident: str | None
) -> None:
    assert end(tmp_path, cluster, ident=ident) == ([], [])


def test_a_cluster_that_does_not_answer_is_told(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a").mkdir()
    problems, lines = end(tmp_path / "a", Cluster(refusal="gone"))
    assert problems == ["the token abc123 of lab-2 cannot be deleted: gone"] and lines == []
    (tmp_path / "b").mkdir()
    problems, lines = end(tmp_path / "b", MusterError("no route"))
    assert problems == ["tokens of K3s cannot be deleted: no route"] and lines == []


def test_one_that_is_not_meant_is_left(tmp_path: pathlib.Path) -> None:
    assert end(tmp_path, MusterError("not asked"), selected=False) == ([], [])
