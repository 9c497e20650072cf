# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read what decides on drivers, container runtimes and RDMA of all hosts at once, and decide it for each.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ...module_utils._model.device_plans import plan_devices
from ...module_utils._model.errors import RefusedError
from .._hosts.node_client import NodeClient, most_telling_error, on_each_node

Result = dict[str, t.Any]
Options = t.Mapping[str, t.Mapping[str, t.Any]]


def read_device_plans(
    remotes: t.Sequence[NodeClient], options: t.Mapping[str, Options], roles: t.Sequence[str], refuse: bool
) -> Result:
    """Return ``{changed, nodes, refusals, stale}``: by host its facts and plans, one line a refusal.

    :param options: by host and role what is asked for.
    :param roles: the roles whose plans count.
    :param refuse: whether a refusal of any host ends the task, before anything is changed on any of them.
    :raises MusterError: naming the hosts that refuse, or one that does not answer.
    """
    answers, errors = on_each_node(remotes, lambda remote: remote.call("devices"))
    if errors:
        raise most_telling_error(errors)
    nodes, refusals = {}, []
    for host, facts in answers.items():
        plans = {role: getattr(plan_devices(host, facts, options[host]), role) for role in roles}
        refusals += [f"{host}: {item.problem}. {item.fix}" for plan in plans.values() for item in plan.refusals]
        nodes[host] = {"facts": facts, **{role: dataclasses.asdict(plan) for role, plan in plans.items()}}
    if refusals and refuse:
        raise RefusedError("; ".join(refusals), "Nothing was changed on any host")
    stale = {role: [host for host, node in nodes.items() if _is_stale(node[role])] for role in roles}
    return {"changed": False, "nodes": nodes, "refusals": refusals, "stale": stale}


def _is_stale(plan: t.Mapping[str, t.Any]) -> bool:
    """Whether the role would change something: packages, or only what containers need beside those that are there."""
    parts = ("cdi", "refresh_unit", "cdi_switch", "restart")
    return plan["action"] in ("install", "upgrade", "reboot") or any(plan.get(part) for part in parts)
