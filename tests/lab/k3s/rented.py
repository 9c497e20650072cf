# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An owned server, and a provider whose machines are the lab's: booted bare and reached over SSH.

The provider is a fake on loopback. What rents and what terminates runs in fast time, as a provider's listing has to be
watched for minutes.
"""

from __future__ import annotations

import contextlib
import decimal
import json
import pathlib
import typing as t

from ansible_collections.muster.training.plugins.module_utils._model.quantity import parse_quantity
from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger.ledger_store import read_ledger
from ansible_collections.muster.training.tests.e2e.rent_world import RentWorld
from ansible_collections.muster.training.tests.fakes.runpod import FakeRunpod
from ansible_collections.muster.training.tests.lab import image, nodes
from ansible_collections.muster.training.tests.lab.k3s.operator import CLUSTER, SERVER, Operator
from ansible_collections.muster.training.tests.lab.k3s.session import open_operator
from ansible_collections.muster.training.tests.lab.kube import images, manifests, plan
from ansible_collections.muster.training.tests.lab.kube.binaries import Binaries

RUN = "grows"
# Rank 0 saves each step and says where it began; all end with the last step, or when the file "finish" is there.
COUNT = """
import json, os, pathlib, time
here = pathlib.Path(os.environ["MUSTER_CHECKPOINT_DIR"])
here.mkdir(parents=True, exist_ok=True)
saved, first = here / "step", os.environ["RANK"] == "0"
step = int(saved.read_text()) if saved.exists() else 0
def say(**values):
    if first:
        with open(os.environ["MUSTER_METRICS_FILE"], "a") as metrics:
            metrics.write(json.dumps({"at": time.time(), **values}) + "\\n")
say(resumed_from_step=step, world_size=int(os.environ["WORLD_SIZE"]))
while not (here / "finish").exists():
    step += 1
    if first:
        saved.with_suffix(".new").write_text(str(step))
        saved.with_suffix(".new").replace(saved)
    say(step=step)
    say(checkpoint_step=step, path=str(saved))
    time.sleep(0.2)
"""
JOINED = """
- import_playbook: muster.training.rent
- import_playbook: muster.training.join
  vars: {muster_join_hosts: muster_rented}
- import_playbook: muster.training.verify_fabric
"""


class RentedWorld:
    """An owner with one machine, and a provider that has two more."""

    def __init__(self, operator: Operator, rent: RentWorld) -> None:
        self.operator, self.rent, self.lab = operator, rent, operator.lab
        self.before = {node.name: self.lab.state(node.name) for node in self.lab.nodes}
        all_hosts = operator.plain["muster_nodes"]["hosts"]
        operator.plain["muster_nodes"]["hosts"] = {SERVER: all_hosts[SERVER]}
        own_images = {"k3s_images": ["pause.tar", "training.tar"]}
        reached = operator.plain["muster_nodes"]["vars"]
        operator.plain["muster_rented"] = {"hosts": {}, "vars": {**reached, "ansible_become": True, **own_images}}
        t.cast(FakeRunpod, rent.api).endpoints = [
            (self.lab.node(name).address, 22, image.USER) for name in ("lab-2", "lab-3")
        ]
        operator.values |= {
            **rent.values(rented_nodes_count=1),
            "muster_cluster": CLUSTER,
            "muster_state": operator.values["muster_state"],
            "rented_nodes_ssh_private_key_file": str(self.lab.folder / "key"),
            # They have no GPU to show, so that renting does not look at them; their host keys are known from the lab.
            "ansible_ssh_common_args": operator.plain["muster_nodes"]["vars"]["ansible_ssh_common_args"],
            "team_pod_security": "privileged",
            # The links of one machine have no figure to expect.
            "muster_fabric_allow_unproven": True,
            "muster_node_hosts": "muster_nodes:muster_rented",
        }

    @property
    def run(self) -> dict[str, t.Any]:
        """The record of the run."""
        return t.cast("dict[str, t.Any]", json.loads((self.operator.state / "runs" / RUN / "run.json").read_text()))

    def job(self, count: int, program: str = COUNT, grace_s: int = 2) -> dict[str, t.Any]:
        """Return a job of ``count`` pods, each wider than half a machine, with its checkpoints on the shared disk."""
        return {
            "name": "gang",
            "image": manifests.image_name(images.TRAINING),
            "nodes": count,
            "launcher": "command",
            "command": ["python3", "-c", program],
            # The test of the fabric has the same image, mounts and resources, and needs torch.
            "resources": {"cpu": 1.1, "memory": "2Gi"},
            "env": {"PYTHONPATH": plan.TORCH, "OMP_NUM_THREADS": "1"},
            "mounts": [
                {"name": "torch", "path": plan.TORCH, "host_path": plan.TORCH, "read_only": True},
                {"name": "checkpoints", "path": "/checkpoints", "host_path": nodes.SHARED},
            ],
            "checkpoints": {"path": "/checkpoints/run", "grace_s": grace_s},
            "placement": {"backend": "kubernetes", "namespace": "training", "allow_slow_network": True},
            "restart": {"on_lost_node": "replace"},
        }

    def list_rented(self) -> None:
        """Have the inventory list the machines that are in use, as the provider's inventory plugin does."""
        found = read_ledger(self.operator.state).leases.values()
        self.operator.plain["muster_rented"]["hosts"] = {
            lease.name: {
                "ansible_host": self.find_address(str(lease.id)),
                "muster_node": {
                    "id": lease.id,
                    "name": lease.name,
                    "provider": "runpod",
                    "ownership": "rented",
                    "owner": {"cluster": CLUSTER, "pool": lease.pool, "token": lease.token},
                },
            }
            for lease in found
            if lease.state == "joined" and lease.resource == "instance"
        }

    @property
    def home(self) -> dict[str, t.Any]:
        """What names the cluster and its state home."""
        return {"muster_cluster": CLUSTER, "muster_state": self.operator.values["muster_state"]}

    def find_address(self, ident: str) -> str:
        """Return where the provider says that a machine is."""
        thing = self.rent.api.find(ident)
        assert thing is not None
        return str(thing.fields["endpoint"][0])

    def ready(self) -> set[str]:
        """Return the Nodes that are ready."""
        return {
            node["metadata"]["name"]
            for node in self.operator.items("nodes")
            for condition in node["status"]["conditions"]
            if (condition["type"], condition["status"]) == ("Ready", "True")
        }

    def read_processors(self, name: str) -> decimal.Decimal | None:
        """Return the processors that pods can request of a Node."""
        (node,) = [node for node in self.operator.items("nodes") if node["metadata"]["name"] == name]
        return parse_quantity(node["status"]["allocatable"]["cpu"])

    def read_quota(self) -> decimal.Decimal | None:
        """Return the processors in the quota of the team's queue."""
        (queue,) = self.operator.items("clusterqueues.kueue.x-k8s.io")
        (flavor,) = queue["spec"]["resourceGroups"][0]["flavors"]
        (row,) = [row for row in flavor["resources"] if row["name"] == "cpu"]
        return parse_quantity(str(row["nominalQuota"]))

    def read_steps(self) -> list[dict[str, t.Any]]:
        """Return what rank 0 has said so far."""
        place = self.operator.state / "runs" / RUN / "metrics.jsonl"
        return [json.loads(line) for line in place.read_text().splitlines()] if place.exists() else []

    def saved(self) -> int:
        """Return the step of the checkpoint on the shared disk."""
        place = self.lab.shared / "run" / RUN / "step"
        return int(place.read_text()) if place.exists() else 0

    def join_one(self, job: dict[str, t.Any]) -> str:
        """Rent one machine, which joins by the role of this collection, and return its name."""
        place = self.operator.folder / "rented.yml"
        place.write_text(JOINED)
        joined = self.operator.play(str(place), muster_job=job)
        assert joined.code == 0, joined.output
        self.list_rented()
        (rented,) = self.operator.plain["muster_rented"]["hosts"]
        assert self.ready() == {SERVER, rented}
        return str(rented)


@contextlib.contextmanager
def open_rented(folder: pathlib.Path) -> t.Iterator[RentedWorld]:
    """Three bare machines, of which one is owned, and a provider with the other two."""
    with open_operator(size=3) as operator:
        archives = images.Archives(operator.lab.podman.home, Binaries(operator.lab.podman.home))
        (operator.release / "training.tar").hardlink_to(archives.get(images.TRAINING))
        server = operator.hosts[SERVER]
        operator.hosts = {SERVER: {**server, "k3s_images": [*server["k3s_images"], "training.tar"]}}
        rent = RentWorld(folder, lambda clock: FakeRunpod(clock, boot_s=30.0), "runpod")
        with rent.running():
            yield RentedWorld(operator, rent)
