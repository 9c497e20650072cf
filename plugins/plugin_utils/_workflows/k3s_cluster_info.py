# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machines of a K3s cluster looked at all at once, and refused by name before anything is changed on any of them.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import typing as t

from ...module_utils._model import k3s
from ...module_utils._model.errors import InputError
from .._hosts.node_client import NodeClient, most_telling_error, on_each_node

Result = dict[str, t.Any]


def check_cluster(
    connect: t.Callable[[], t.Sequence[NodeClient]],
    roles: t.Mapping[str, str],
    nodes: t.Mapping[str, str],
    labels: t.Mapping[str, t.Mapping[str, str]],
    chosen: t.Collection[str],
    pods: str,
    services: str,
) -> Result:
    """Return who is what; by host: ``roles``, ``nodes`` (names of Nodes), ``labels``. ``chosen``: this play's hosts.

    :raises InputError: naming what makes no cluster.
    """
    k3s.check_roles(roles)
    server = next(host for host, role in roles.items() if role == "server")
    if server not in chosen:
        raise InputError("--limit", f"leaves out {server}, which is the server", f"Add it: --limit '…,{server}'")
    answers, errors = on_each_node(connect(), lambda remote: remote.call("k3s", step="look", unit="k3s.service"))
    if errors:
        raise most_telling_error(errors)
    members = [k3s.K3sMember.from_answer(host, role, nodes[host], answers[host]) for host, role in roles.items()]
    k3s.check_members(members, pods, services)
    return {
        "changed": False,
        "server": server,
        "agents": [host for host, role in roles.items() if role == "agent"],
        "up": answers[server]["unit"]["active"] == "active",
        "objects": [{"apiVersion": "v1", "kind": "Node", "name": nodes[host]} for host in roles],
        "labels": [
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": nodes[host], "labels": dict(labels[host])}}
            for host in roles
            if host in labels
        ],
        "nodes": [
            {"host": item.host, "role": item.role, "node": item.node, "architecture": item.architecture}
            for item in members
        ],
    }
