# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tokens by which machines join: each has a line in the ledger before it is made or given away.

An agent's own is ended when the agent is in. Servers join with the token of the cluster, which has no end: its line is
open while the server has it.
"""

from __future__ import annotations

import dataclasses
import time
import typing as t

from ....module_utils._model.errors import RefusedError
from ....module_utils._model.ledger import Lease, LedgerEvent, make_event
from ....module_utils._model.timestamps import format_time
from ....module_utils._secrets.secret import Secret
from ..._provision.create import generate_token
from ..._provision.ledger.ledger_store import read_ledger
from ..shared.open_ledger import await_ledger
from ..shared.state_dir import StateHome

if t.TYPE_CHECKING:
    from ..._hosts.node_client import NodeClient

RESOURCE: t.Final = "k3s_token"
AGENTS, SERVERS = "agents", "servers"


def create_token(server: NodeClient, home: StateHome, node: str, ttl_s: int) -> Secret:
    """Return a new token for one agent; its line is in the ledger before it exists."""
    now = time.time()
    intent = _make_intent(server, home, node, AGENTS, format_time(now + ttl_s))
    _append(home, intent)
    made = server.call("k3s", step="token", ttl_s=ttl_s, description=f"muster {intent.token} for {node}")
    secret = Secret(made["token"], "the server's token")
    ident = made["token"].rpartition("::")[2].partition(".")[0]
    _append(home, dataclasses.replace(intent, at=format_time(time.time()), event="created", id=ident))
    return secret


def read_server_token(server: NodeClient, home: StateHome, node: str) -> Secret:
    """Return the token by which a further server joins; that its node gets it is in the ledger before."""
    is_known = any(_matches(item, node, SERVERS) for item in read_ledger(home.folder).leases.values())
    intent = _make_intent(server, home, node, SERVERS, None)
    if not is_known:
        _append(home, intent)
    secret = Secret(server.call("k3s", step="token", server=True)["token"], "the servers' token")
    if not is_known:
        _append(home, dataclasses.replace(intent, at=format_time(time.time()), event="created", id="server"))
    return secret


def is_of_server(lease: Lease) -> bool:
    """Return whether it stands for the servers' token: it ends with the server, not with what was rented."""
    return lease.resource == RESOURCE and lease.pool == SERVERS


def end_server_token(home: StateHome, node: str) -> None:
    """Note that a server that has left has the token no more."""
    for lease in [item for item in read_ledger(home.folder).leases.values() if _matches(item, node, SERVERS)]:
        _end(home, lease, {"server": "removed"})


def check_token(server: NodeClient, given: Secret) -> None:
    """Ask the server whether it would take a token that the user gave.

    :raises RefusedError: saying why not.
    """
    problem = server.ask("k3s", step="token", given=given.reveal()).get("problem")
    if problem:
        raise RefusedError(f"k3s_token: {problem}", "Leave it out, then each agent gets a token of its own")


def end_tokens(server: NodeClient | None, home: StateHome, node: str | None = None) -> list[str]:
    """End the tokens that the ledger has as open, of one node or of all; return their ids.

    :param server: None when it was removed, and its tokens with it: then only the ledger is written.
    """
    ended = []
    leases = read_ledger(home.folder).leases.values()
    # That of the servers goes with them.
    for lease in [item for item in leases if _matches(item, node, AGENTS if server is not None else "")]:
        evidence: dict[str, t.Any] = {"server": "removed"}
        if server is not None:
            # A token whose answer was lost has no id here, and ends by its own time.
            if lease.id is None and not _is_over(lease):
                continue
            answer = server.call("k3s", step="token", delete=lease.id) if lease.id else {"absent": True}
            if not answer["absent"]:
                continue
            evidence = {"listed": False}
        _end(home, lease, evidence)
        ended.append(lease.id or lease.token)
    return ended


def _make_intent(server: NodeClient, home: StateHome, node: str, pool: str, deadline: str | None) -> LedgerEvent:
    return LedgerEvent(
        at=format_time(time.time()),
        cluster=home.folder.name,
        token=generate_token(frozenset(event.token for event in read_ledger(home.folder).events)),
        event="intent",
        resource=RESOURCE,
        provider="k3s",
        account=server.name,
        pool=pool,
        name=node,
        deadline=deadline,
    )


def _end(home: StateHome, lease: Lease, evidence: dict[str, t.Any]) -> None:
    now = time.time()
    _append(home, make_event(lease, "deleted", now))
    _append(home, make_event(lease, "verified", now, evidence=evidence))


def _matches(lease: Lease, node: str | None, pool: str) -> bool:
    """Return whether it is an open token of a node, None for any, and of a pool, empty for any."""
    return lease.resource == RESOURCE and lease.open and node in (None, lease.name) and pool in ("", lease.pool)


def _is_over(lease: Lease) -> bool:
    return lease.deadline is not None and lease.deadline < format_time(time.time())


def _append(home: StateHome, event: LedgerEvent) -> None:
    """Add a line to the ledger; agents of one play come here at the same moment."""
    with await_ledger(home) as writer:
        writer.append(event)
