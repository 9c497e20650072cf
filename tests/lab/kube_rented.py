# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes of the cluster that pass for rented machines: the provider is a fake on loopback, what joins is a real node."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import sys
import typing as t

from ansible_collections.muster.training.plugins.module_utils._model.ledger import Lease, LedgerEvent
from ansible_collections.muster.training.plugins.module_utils._model.timestamps import format_time, parse_time
from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger.ledger_store import read_ledger
from ansible_collections.muster.training.tests.e2e.rent_world import RentWorld
from ansible_collections.muster.training.tests.fakes.runpod import FakeRunpod
from ansible_collections.muster.training.tests.lab.host import LabError
from ansible_collections.muster.training.tests.lab.kube_plays import ROOT, Controller, Dict
from ansible_collections.muster.training.tests.support.kube_lab import KubeLab

_PAST_S = 7200
# How a machine of this lab joins its cluster.
_JOIN = """
- name: Add a node of this name
  ansible.builtin.command:
    argv: [{python}, -m, tools.lab, --name, "{cluster}", node, add, "{{{{ inventory_hostname }}}}"]
    chdir: {root}
"""


@dataclasses.dataclass
class Rented:
    """A cluster whose nodes are rented. ``values``: what its playbooks are told; ``inventory``: which node is which."""

    lab: KubeLab
    world: RentWorld
    ledger: pathlib.Path
    values: Dict
    inventory: pathlib.Path
    leases: dict[str, Lease]

    def lose(self, node: str) -> None:
        """The provider takes the machine of a node away."""
        thing = self.world.api.find(str(self.leases[node].id))
        if thing is None:
            raise LabError(f"the provider knows no machine of {node}")
        self.world.api.end(thing)
        self.lab.fault("kill", node)

    def joined(self) -> set[str]:
        """Return the names of the machines that are in use now."""
        return {lease.name for lease in read_ledger(self.ledger).leases.values() if lease.state == "joined"}


@contextlib.contextmanager
def rented(controller: Controller) -> t.Iterator[Rented]:
    """Have the cluster's nodes rented by a controller; nodes that join meanwhile go again at the end."""
    lab, folder = controller.lab, controller.folder / "rent"
    nodes = lab.nodes
    folder.mkdir()
    world = RentWorld(folder, lambda clock: FakeRunpod(clock, boot_s=30.0), "runpod")
    with world.running():
        home = {"muster_cluster": "default", "muster_state": {"path": str(controller.folder / "state")}}
        done = world.play("rent", rented_nodes_count=len(nodes), **home)
        if done.code:
            raise LabError(f"nothing was rented: {done.output.strip()[-300:]}")
        ledger = controller.folder / "state" / "default"
        let_age(ledger / "ledger.jsonl")
        leases = sorted(read_ledger(ledger).leases.values(), key=lambda lease: lease.name)
        named = dict(zip(nodes, leases, strict=True))
        values = {
            **world.values(rented_nodes_count=len(nodes), **home),
            "muster_join_role": str(_role(controller)),
        }
        try:
            yield Rented(lab, world, ledger, values, _inventory(controller.folder, named), named)
        finally:
            for name in set(lab.nodes) - set(nodes):
                lab.cluster.remove(name)
                lab.api.ask("DELETE", f"/api/v1/nodes/{name}")


def let_age(place: pathlib.Path) -> None:
    """Have it that the machines were rented some time ago: a listing may lag behind what was ordered a moment ago.

    The clock of renting also runs fast here; what follows lives in ordinary time.
    """
    events = [LedgerEvent.from_dict(json.loads(line)) for line in place.read_text().splitlines()]
    place.write_text(
        "".join(dataclasses.replace(item, at=format_time(parse_time(item.at) - _PAST_S)).line() for item in events)
    )


def _role(controller: Controller) -> pathlib.Path:
    tasks = controller.folder / "roles" / "lab_join" / "tasks"
    tasks.mkdir(parents=True)
    (tasks / "main.yml").write_text(_JOIN.format(python=sys.executable, root=ROOT, cluster=controller.lab.cluster.name))
    return tasks.parent


def _inventory(folder: pathlib.Path, leases: t.Mapping[str, Lease]) -> pathlib.Path:
    hosts = {
        node: {"muster_node": {"id": lease.id, "ownership": "rented", "owner": {"token": lease.token}}}
        for node, lease in leases.items()
    }
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    place = folder / "nodes.json"
    groups = {"lab_nodes": {"hosts": hosts}, "muster_rented": {"vars": local}}
    place.write_text(json.dumps({"all": {"children": groups}}))
    return place
