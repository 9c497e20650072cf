# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tokens by which agents were to join a K3s cluster, ended by a teardown: a join that was cut off leaves one behind."""

from __future__ import annotations

import collections.abc
import typing as t

from ....module_utils._model.errors import MusterError
from ....module_utils._model.ledger import Lease, make_event
from ....module_utils._model.timestamps import format_time
from ..._provision.ledger.ledger_session import LedgerSession
from ..k3s_node.tokens import RESOURCE

if t.TYPE_CHECKING:
    from ..._kube.api.client import Client

_NAMESPACE = "kube-system"


def end_join_tokens(
    session: LedgerSession,
    scope: t.Callable[[Lease], bool],
    open_cluster: collections.abc.Callable[[], Client | None],
    now: float,
) -> list[str]:
    """End the open tokens that ``scope`` selects; return why the cluster could not be asked.

    One whose time is over needs no cluster; one that is neither over nor deleted stays open, and is reported as such.
    """
    tokens = [lease for lease in session.leases.values() if lease.resource == RESOURCE and lease.open and scope(lease)]
    if not tokens:
        return []
    problems = []
    try:
        client = open_cluster()
    except (MusterError, ImportError) as error:
        client = None
        problems.append(f"tokens of K3s cannot be deleted: {error}")
    for lease in tokens:
        evidence = _find_evidence(lease, client, now, problems)
        if evidence:
            session.record(make_event(lease, "deleted", now))
            session.record(make_event(lease, "verified", now, evidence=evidence))
    return problems


def _find_evidence(lease: Lease, client: Client | None, now: float, problems: list[str]) -> dict[str, t.Any] | None:
    """Return the proof that a token is not valid any more, None where there is none."""
    if client is not None and lease.id:
        name = f"bootstrap-token-{lease.id}"
        try:
            if client.get("v1/Secret", name, _NAMESPACE) is not None:
                client.delete("v1/Secret", name, _NAMESPACE)
            if client.get("v1/Secret", name, _NAMESPACE) is None:
                return {"listed": False}
        except MusterError as error:
            problems.append(f"the token {lease.id} of {lease.name} cannot be deleted: {error}")
    if lease.deadline is not None and lease.deadline < format_time(now):
        return {"expired": lease.deadline}
    return None
