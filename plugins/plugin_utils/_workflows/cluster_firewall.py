# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The firewalls of the machines of a cluster, all at once: opened for each other, or left as they were found."""

from __future__ import annotations

import dataclasses
import json
import typing as t

from ...module_utils._model import firewall
from ...module_utils._model.errors import InputError
from .._hosts.node_client import NodeClient, most_telling_error, on_each_node

Result = dict[str, t.Any]


def ensure_firewall(
    connect: t.Callable[[t.Sequence[str]], t.Sequence[NodeClient]], options: t.Mapping[str, t.Any], check: bool
) -> Result:
    """Return ``{changed, firewalls}``: by host the active firewall and its rules.

    A host whose rules hold, by what ``k3s_cluster_info`` has just seen, is not asked again.

    :raises MusterError: naming the option, or the machine whose firewall refuses.
    """
    hosts = list(dict.fromkeys(options["hosts"]))
    requests = {host: {"state": options["state"], "check": check, **_plan(host, options)} for host in hosts}
    known = {} if options["state"] == "absent" else {node["host"]: node.get("firewall") for node in options["nodes"]}
    kept = {
        host: {"tool": known[host]["tool"], "changed": False, "rules": known[host]["in_force"]["rules"]}
        for host in hosts
        if _holds(known.get(host), requests[host])
    }
    asked = [host for host in hosts if host not in kept]
    remotes = connect(asked) if asked else []
    answers, errors = on_each_node(remotes, lambda remote: remote.call("firewall", **requests[remote.name]))
    if errors:
        raise most_telling_error(errors)
    told = {host: {name: answers[host][name] for name in ("tool", "changed", "rules")} for host in asked}
    return {
        "changed": any(answer["changed"] for answer in answers.values()),
        "firewalls": {host: kept.get(host) or told[host] for host in hosts},
    }


def _holds(known: t.Mapping[str, t.Any] | None, request: t.Mapping[str, t.Any]) -> bool:
    """Whether the rules that are asked for are in force: ``known`` went through JSON, where tuples are lists."""
    in_force = (known or {}).get("in_force")
    return in_force is not None and in_force["asked"] == json.loads(json.dumps(request["rules"]))


def _plan(host: str, options: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    if options["state"] == "absent":
        return {}
    nodes = [firewall.FirewallNode.from_dict(item, f"nodes[{index}]") for index, item in enumerate(options["nodes"])]
    if host not in [node.host for node in nodes]:
        raise InputError("nodes", f"has no {host}", "List all machines of the cluster, with role and addresses")
    rules = firewall.plan_rules(host, nodes, options["cluster_cidr"], options["api_from"], options["job_ports"])
    return {"rules": [dataclasses.asdict(rule) for rule in rules]}
