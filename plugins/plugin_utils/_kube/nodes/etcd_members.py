# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Members of K3s' embedded etcd, as annotations of their Nodes: refused to go below a majority, and taken out
by K3s.
"""

from __future__ import annotations

import threading
import time

from ....module_utils._model import k3s_servers
from ....module_utils._model.errors import RefusedError
from ..api.client import Client
from ..api.kinds import KubeObject
from . import out_of_service

LABEL = "node-role.kubernetes.io/etcd"
_NOTE = "etcd.k3s.cattle.io/"
NAME, REMOVE, REMOVED = f"{_NOTE}node-name", f"{_NOTE}remove", f"{_NOTE}removed-node-name"
_WAIT_S, _AGAIN_S = 60.0, 0.5


# One after another: of several that go at once, each has to see what the one before has left.
_TURN = threading.Lock()


def refuse_loss(client: Client, node: KubeObject) -> None:
    """Refuse the removal of a Node that would leave etcd without a majority; other Nodes than servers may go.

    :raises RefusedError: naming the servers that do not answer.
    """
    if _is_server(node):
        found = client.list("v1/Node", None, labels=f"{LABEL}=true").items
        # K3s takes the name of a member away with the member.
        there = [item for item in found if _find_note(item, NAME)]
        members = {str(item["metadata"]["name"]): out_of_service.readiness(item, None)[0] for item in there}
        k3s_servers.check_removal(members, [str(node["metadata"]["name"])])


def remove_member(client: Client, node: KubeObject) -> bool:
    """Have K3s take a Node's member out of etcd, and wait for it; return whether it had one.

    :raises RefusedError: when K3s does not do it, or the rest would have no majority.
    """
    if not _is_server(node):
        return False
    with _TURN:
        refuse_loss(client, node)
        _remove(client, node)
    return True


def _is_server(node: KubeObject) -> bool:
    return (node["metadata"].get("labels") or {}).get(LABEL) == "true" and _find_note(node, NAME) != ""


def _find_note(node: KubeObject, name: str) -> str:
    return str((node["metadata"].get("annotations") or {}).get(name) or "")


def _remove(client: Client, node: KubeObject) -> None:
    name, member = node["metadata"]["name"], _find_note(node, NAME)
    client.patch("v1/Node", name, {"metadata": {"annotations": {REMOVE: "true"}}})
    end = time.monotonic() + _WAIT_S
    while time.monotonic() < end:
        now = client.get("v1/Node", name)
        if now is None or _find_note(now, REMOVED) == member:
            return
        time.sleep(_AGAIN_S)
    fix = "Look at journalctl -u k3s on the other servers, then run again"
    raise RefusedError(f"{name}: K3s has not taken it out of etcd within {_WAIT_S:.0f} s", fix)
