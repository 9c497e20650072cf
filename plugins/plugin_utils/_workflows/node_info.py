# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gather a node's facts with one request, make its record, and check whether it can take part in a job."""

from __future__ import annotations

import dataclasses
import time
import typing as t

from ...module_utils._model import checks
from ...module_utils._model.k3s_ability import k3s_reasons
from ...module_utils._model.node import Node, Ssh
from ...module_utils._model.node_facts import merge_facts, prefer_interface, read_record
from ...module_utils._model.node_report import NodeReport
from .._hosts.node_client import NodeClient


def gather_node_info(
    remote: NodeClient,
    variables: t.Mapping[str, t.Any],
    python: str,
    packages: t.Sequence[str],
    facts: bool,
    peers: t.Sequence[str] = (),
) -> dict[str, object]:
    """Return ``{changed, node, record, checks}``: the node's facts, its record, and whether it can run a job.

    :param variables: the host's variables.
    :param peers: mesh addresses of the other nodes, to which the path is wanted.
    """
    began = time.time()
    info = remote.call(
        "info",
        python=python,
        packages=list(packages),
        facts={"peers": list(peers)} if facts and peers else facts,
        address=str(variables.get("ansible_host") or remote.name),
    )
    skew = round(info["time"] - (began + time.time()) / 2, 3)
    node_checks = checks.check_node(remote.name, NodeReport.from_dict(info), skew)
    return {
        "changed": False,
        "node": {**info, "clock_skew_s": skew},
        "record": build_record(remote.name, variables, {**info, "clock_skew_s": skew}).to_dict(),
        "checks": checks.build_result(node_checks),
    }


def build_record(name: str, variables: t.Mapping[str, t.Any], info: t.Mapping[str, t.Any]) -> Node:
    """Return the inventory's record with what the node answered; a host that no inventory describes is owned."""
    facts = info.get("facts") or {}
    measured = {
        "addresses": info.get("addresses"),
        "clock_skew_s": info.get("clock_skew_s"),
        **facts,
        "name": name,
        "k3s": _judge_k3s(facts.get("k3s_ability")),
    }
    merged = merge_facts(read_record(name, variables), Node.from_dict(measured, f"{name}.facts"))
    virtual, interface = facts.get("virtualisation") or {}, info.get("interface")
    user = variables.get("ansible_user")
    return dataclasses.replace(
        merged,
        addresses=prefer_interface(merged.addresses, None if interface == "lo" else interface),
        state="running" if merged.state == "unknown" else merged.state,
        ownership=merged.ownership or "owned",
        kind=merged.kind or virtual.get("kind"),
        ssh=Ssh(
            merged.ssh.host or variables.get("ansible_host"),
            merged.ssh.port or variables.get("ansible_port"),
            merged.ssh.user or (str(user) if user else None),
        ),
    )


def _judge_k3s(ability: t.Mapping[str, str] | None) -> dict[str, t.Any] | None:
    """Return whether K3s can run and why not, None where nothing is known of it."""
    if not ability:
        return None
    reasons = k3s_reasons(ability)
    return {"capable": not reasons, "reasons": list(reasons)}
