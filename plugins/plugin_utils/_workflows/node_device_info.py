# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read what decides on drivers, container runtimes and RDMA of all hosts at once, and decide it for each."""

from __future__ import annotations

import dataclasses
import time
import typing as t

from ...module_utils._model.device_plans import plan_devices
from ...module_utils._model.driver_waves import WaveMachine, describe_waves, free_of_pods, parse_limit, plan_waves
from ...module_utils._model.errors import RefusedError
from .._hosts.node_client import NodeClient, most_telling_error, on_each_node
from .._kube.api.kinds import KubeObject
from .._kube.nodes.capacity import takes_jobs

Result = dict[str, t.Any]
Options = t.Mapping[str, t.Mapping[str, t.Any]]
_DRIVER: t.Final = "gpu_driver"
# The actions of a plan that change packages, or for which the machine boots; and the one that starts what is there.
_CHANGES: t.Final = ("install", "upgrade", "reboot")
_START: t.Final = "start"


@dataclasses.dataclass(frozen=True, slots=True)
class Waves:
    """The input of a plan of waves. ``names``: by host the name of its Node; ``nodes``: the cluster's, if any."""

    max_unavailable: str
    names: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    nodes: t.Sequence[KubeObject] = ()


def read_device_plans(
    remotes: t.Sequence[NodeClient],
    options: t.Mapping[str, Options],
    roles: t.Sequence[str],
    refuse: bool,
    waves: Waves | None = None,
) -> Result:
    """Return ``{changed, nodes, refusals, stale, waves, wave_table}``: by host its facts and plans, one line a refusal.

    :param options: by host and role what is asked for.
    :param roles: the roles whose plans count.
    :param refuse: whether a refusal of any host ends the task, before anything is changed on any of them.
    :param waves: given, the plans are those of machines whose pods were evicted, and the waves are those of the driver.
    :raises MusterError: naming the hosts that refuse, or one that does not answer.
    """
    if waves:
        parse_limit(waves.max_unavailable, len(remotes))
    answers, errors = on_each_node(remotes, _read_host)
    if errors:
        raise most_telling_error(errors)
    nodes, refusals = {}, []
    # In the order in which they were named, not in that in which they answered.
    for host, facts in ((remote.name, answers[remote.name]) for remote in remotes):
        made = plan_devices(host, free_of_pods(facts) if waves else facts, options[host])
        plans = {role: getattr(made, role) for role in roles}
        refusals += [f"{host}: {item.problem}. {item.fix}" for plan in plans.values() for item in plan.refusals]
        nodes[host] = {"facts": facts, **{role: dataclasses.asdict(plan) for role, plan in plans.items()}}
    if refusals and refuse:
        raise RefusedError("; ".join(refusals), "Nothing was changed on any host")
    stale = {role: [host for host, node in nodes.items() if _is_stale(node[role])] for role in roles}
    planned, table = _plan_waves(nodes, waves) if waves and _DRIVER in roles else ((), [])
    return {
        "changed": False,
        "nodes": nodes,
        "refusals": refusals,
        "stale": stale,
        "waves": [list(wave) for wave in planned],
        "wave_table": table,
    }


def _read_host(remote: NodeClient) -> Result:
    """Return the facts of one machine, with how far its clock is ahead of this one's, in seconds."""
    began = time.time()
    facts = remote.call("devices")
    return {**facts, "clock_skew_s": round(facts.pop("time") - (began + time.time()) / 2, 3)}


def _plan_waves(nodes: t.Mapping[str, Result], waves: Waves) -> tuple[tuple[tuple[str, ...], ...], list[str]]:
    """Return the waves in which the machines with GPUs get another driver, and what is said of them.

    A machine whose driver is new enough is in none, even if a daemon of it has to be started: pods stay for that.
    """
    live = {str(node["metadata"]["name"]): node for node in waves.nodes}
    machines, started = [], []
    for host, entry in nodes.items():
        facts, plan = entry["facts"], entry[_DRIVER]
        begun = bool(facts["drained"] or facts["unproven"])
        changes = plan["action"] in _CHANGES
        if plan["action"] == _START and not begun:
            started.append(f"{host}: {plan['reason']}. Run devices, which starts it and takes no pod off the machine")
        if plan["gpus"] or begun or changes:
            node = live.get(waves.names.get(host, host))
            closed = "" if node is None or takes_jobs(node) else "it is not ready, or cordoned"
            server = facts["k3s_unit"] == "k3s"
            machines.append(WaveMachine(host, changes, begun, server, closed))
    planned = plan_waves(machines, waves.max_unavailable)
    return planned, [*describe_waves(planned, waves.max_unavailable), *started]


def _is_stale(plan: t.Mapping[str, t.Any]) -> bool:
    """Whether the role would change something: packages, or only what containers need beside those that are there."""
    parts = ("cdi", "refresh_unit", "cdi_switch", "restart")
    return plan["action"] in (*_CHANGES, _START) or any(plan.get(part) for part in parts)
