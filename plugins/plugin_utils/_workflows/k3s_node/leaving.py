# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A server that leaves a cluster that stays: refused where the rest would have no majority, and kept from
coming back.
"""

from __future__ import annotations

import typing as t

from ....module_utils._model import k3s_servers
from ....module_utils._model.errors import UnreachableError
from ..._hosts.node_client import NodeClient, on_each_node
from . import access

if t.TYPE_CHECKING:
    from .node import NodeOrder

Result = dict[str, t.Any]


def ensure_leaving(
    remotes: t.Sequence[NodeClient], order: NodeOrder, leaving: t.Collection[str], check: bool
) -> Result:
    """Prepare the first of ``remotes`` for the removal of its member of etcd; the others are the other servers.

    :param leaving: hosts among all of them that leave by the same command.
    :raises RefusedError: naming the servers that do not answer, when the rest would have no majority.
    """
    own = remotes[0]
    unit = order.settings.unit
    answers, errors = on_each_node(remotes, lambda remote: remote.call("k3s", step="look", unit=unit))
    active = {remote.name: _is_active(answers.get(remote.name)) for remote in remotes}
    k3s_servers.check_removal(active, leaving)
    if own.name in answers and answers[own.name]["record"] is None:
        return {"changed": False, "problem": None}
    others = [at for at in order.api_addresses if at != order.api_address]
    if check:
        return {"changed": True, "problem": None}
    changed = access.leave_server(order.home, order.api_address, others)
    if isinstance(errors.get(own.name), UnreachableError):
        return {"changed": changed, "problem": f"{own.name} does not answer: {_LATER}"}
    return {"changed": bool(own.call("k3s", step="leave")["changed"]) or changed, "problem": None}


_LATER = "it joins again when it is started, unless this is run once more then"


def _is_active(answer: t.Mapping[str, t.Any] | None) -> bool:
    return answer is not None and answer["unit"]["active"] == "active"
