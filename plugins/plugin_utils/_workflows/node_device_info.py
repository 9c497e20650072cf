# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read what decides on drivers, container runtimes and RDMA of all hosts at once, and decide it for each."""

from __future__ import annotations

import dataclasses
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
    answers, errors = on_each_node(remotes, lambda remote: remote.call("devices"))
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
    planned = _plan_waves(nodes, stale, waves) if waves and _DRIVER in roles else ()
    table = describe_waves(planned, waves.max_unavailable) if waves else []
    return {
        "changed": False,
        "nodes": nodes,
        "refusals": refusals,
        "stale": stale,
        "waves": [list(wave) for wave in planned],
        "wave_table": table,
    }


def _plan_waves(
    nodes: t.Mapping[str, Result], stale: t.Mapping[str, t.Sequence[str]], waves: Waves
) -> tuple[tuple[str, ...], ...]:
    """Return the waves in which the machines with GPUs get another driver."""
    live = {str(node["metadata"]["name"]): node for node in waves.nodes}
    machines = []
    for host, entry in nodes.items():
        facts = entry["facts"]
        begun = bool(facts["drained"] or facts["unproven"])
        if entry[_DRIVER]["gpus"] or begun or host in stale[_DRIVER]:
            node = live.get(waves.names.get(host, host))
            closed = "" if node is None or takes_jobs(node) else "it is not ready, or cordoned"
            server = facts["k3s_unit"] == "k3s"
            machines.append(WaveMachine(host, host in stale[_DRIVER], begun, server, closed))
    return plan_waves(machines, waves.max_unavailable)


def _is_stale(plan: t.Mapping[str, t.Any]) -> bool:
    """Whether the role would change something: packages, or only what containers need beside those that are there."""
    parts = ("cdi", "refresh_unit", "cdi_switch", "restart")
    return plan["action"] in ("install", "upgrade", "reboot", "start") or any(plan.get(part) for part in parts)
