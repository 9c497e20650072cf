# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts as every source of the sample inventories makes them: for tests of what the next stage does with them."""

from __future__ import annotations

import json
import pathlib
import typing as t

import yaml

from ansible_collections.muster.training.plugins.inventory import local
from ansible_collections.muster.training.plugins.plugin_utils._inventory.connection_vars import choose_endpoint
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._providers.records import MAPPINGS

from .constructed import Plugin, construct_theirs, trusted

ROOT = pathlib.Path(__file__).parents[2]
MIXED = ROOT / "inventories" / "mixed"
COMPOSED = ("aws_ec2", "gcp", "droplets", "hcloud")
Variables = dict[str, t.Any]


def composed(name: str) -> list[Variables]:
    """Return the variables of the recorded hosts after the example's ``compose``, as Ansible makes them."""
    source = yaml.safe_load((MIXED / f"{name}.yml").read_text())
    plugin = Plugin(trusted({"compose": source["compose"], "strict": True}))
    for number, variables in enumerate(recorded(name)):
        plugin.inventory.add_host(f"h{number}")
        host = plugin.inventory.hosts[f"h{number}"]
        host.vars.update(variables)
        construct_theirs(plugin, host.name)
    return [json.loads(json.dumps(host.vars)) for host in plugin.inventory.hosts.values()]


def recorded(name: str) -> list[Variables]:
    """Return hosts as another collection's inventory plugin lists them."""
    return t.cast("list[Variables]", json.loads((ROOT / "tests" / "fixtures" / "compose" / f"{name}.json").read_text()))


def machines() -> dict[str, Variables]:
    """Return one host with an address of every source: our providers' mappings, the local nodes, compose samples."""
    found: dict[str, Variables] = {"local": local.build_variables("node-1", 0)}
    for provider, (to_host, listing, _prefix) in MAPPINGS.items():
        for host in (to_host(raw, "acc") for raw in listing):
            endpoint = choose_endpoint(host, ("ssh_direct", "mesh", "public"))
            if host.record["kind"] != "cluster" and endpoint and any(host.record["addresses"].values()):
                found.setdefault(provider, {"ansible_host": endpoint.host, "muster_node": host.record, **host.data})
    for name in COMPOSED:
        found[name] = next(item for item in composed(name) if item["muster_node"]["network_types"])
    return found
