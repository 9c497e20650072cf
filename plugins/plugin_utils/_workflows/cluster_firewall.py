# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The firewalls of the machines of a cluster, all at once: opened for each other, or left as they were found.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ...module_utils._model import firewall
from ...module_utils._model.errors import InputError
from .._hosts.node_client import NodeClient, most_telling_error, on_each_node

Result = dict[str, t.Any]


def ensure_firewall(
    connect: t.Callable[[t.Sequence[str]], t.Sequence[NodeClient]], options: t.Mapping[str, t.Any], check: bool
) -> Result:
    """Return ``{changed, firewalls}``: by host the active firewall and its rules.

    :raises MusterError: naming the option, or the machine whose firewall refuses.
    """
    hosts = list(dict.fromkeys(options["hosts"]))
    requests = {host: {"state": options["state"], "check": check, **_plan(host, options)} for host in hosts}
    remotes = connect(hosts) if hosts else []
    answers, errors = on_each_node(remotes, lambda remote: remote.call("firewall", **requests[remote.name]))
    if errors:
        raise most_telling_error(errors)
    return {
        "changed": any(answer["changed"] for answer in answers.values()),
        "firewalls": {
            host: {"tool": answers[host]["tool"], "changed": answers[host]["changed"], "rules": answers[host]["rules"]}
            for host in hosts
        },
    }


def _plan(host: str, options: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    if options["state"] == "absent":
        return {}
    nodes = [firewall.FirewallNode.from_dict(item, f"nodes[{index}]") for index, item in enumerate(options["nodes"])]
    if host not in [node.host for node in nodes]:
        raise InputError("nodes", f"has no {host}", "List all machines of the cluster, with role and addresses")
    rules = firewall.plan_rules(host, nodes, options["cluster_cidr"], options["api_from"], options["job_ports"])
    return {"rules": [dataclasses.asdict(rule) for rule in rules]}
