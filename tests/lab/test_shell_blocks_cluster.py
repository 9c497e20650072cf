# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A reader of ``guide_cluster`` types its shell blocks, in one session on three bare machines.

The inventory and the job are the guide's, with the addresses, the user and the image of the lab. All files come from a
folder, since the machines have no network. The machine that is gpu-3 later was gpu-2.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab import image, nodes
from ansible_collections.muster.training.tests.lab.k3s import machines, site
from ansible_collections.muster.training.tests.lab.k3s.session import compare, open_machines
from ansible_collections.muster.training.tests.lab.kube import images
from ansible_collections.muster.training.tests.lab.kube.binaries import Binaries
from ansible_collections.muster.training.tests.support.shell_blocks import (
    Reader,
    own_environment,
    read_example,
    require_said,
)

pytestmark = pytest.mark.torch
BLOCKS = ("guide_cluster-0", "guide_cluster-1", "guide_cluster-2", "guide_cluster-3")
SAID = {
    ("guide_cluster-0", 1): "changed=0",
    ("guide_cluster-1", 0): "succeeded",
    ("guide_cluster-1", 1): "failed=0",
    ("guide_cluster-1", 3): "gpu-2",
    ("guide_cluster-2", 0): "gpu-3",
    ("guide_cluster-3", 0): "images/localhost_muster-lab_train",
    ("guide_cluster-3", 1): "has already succeeded",
}
ARCHIVE = "train-1.0.tar"


class Office:
    """The reader's folder, and the machines."""

    def __init__(self, lab: machines.BareLab, root: pathlib.Path) -> None:
        self.lab = lab
        home, folder = root / "home", root / "work"
        home.mkdir()
        folder.mkdir()
        self.state = home / ".local" / "state" / "muster" / "lab"
        self.reader = Reader(folder, own_environment(home))
        self.release = machines.release(lab.podman, lab.folder)
        self.job_archive = images.Archives(lab.podman.home, Binaries(lab.podman.home)).get(images.TRAINING)
        os.link(self.job_archive, self.release / ARCHIVE)
        os.link(self.job_archive, folder / ARCHIVE)
        self.controllers = machines.controllers(lab.podman, lab.folder, "head")
        shutil.copytree(site.ROOT / "examples" / "char_lm", folder / "char_lm")
        self.before = {node.name: lab.state(node.name) for node in lab.nodes}
        # The lab's CoreDNS runs on its server, whose Node has the guide's name here.
        packaged = lab.folder / "packaged" / "coredns.json"
        packaged.write_text(packaged.read_text().replace(f'"{lab.nodes[0].name}"', '"head"'))
        self.write_inventory("gpu-1", "gpu-2")
        self.write_values()

    def write_inventory(self, *agents: str, bundled: bool = False) -> None:
        """Write the guide's inventory with the server and these agents."""
        inventory = read_example("guide_cluster", 0)
        group = inventory["muster_nodes"]
        plain = json.loads(self.lab.inventory(image.USER).read_text())["muster_nodes"]["vars"]
        group["vars"] |= plain
        known = {"gpu-3": {"muster_k3s_role": "agent"}, **group["hosts"]}
        group["hosts"] = {
            name: {
                **known[name],
                "ansible_host": node.address,
                **({} if bundled else {"k3s_images": self.archives(name)}),
            }
            for name, node in zip(("head", *agents), self.lab.nodes, strict=True)
        }
        self.reader.write("inventory.yml", inventory)

    def archives(self, name: str) -> list[str]:
        """Return the archives of images that a machine gets before its first pod."""
        return [f"{item}.tar" for item in (machines.IMAGES if name == "head" else ("pause",))] + [ARCHIVE]

    def write_values(self) -> None:
        """Write the guide's ``group_vars/all.yml``: the storage is a folder that all machines mount."""
        values = read_example("guide_cluster", 1)
        own = site.job()
        changes = {key: own[key] for key in ("image", "args", "datasets", "env", "mounts", "checkpoints", "resources")}
        values["muster_job"] |= changes
        del values["storage_claim_nfs"]
        values |= {"storage_claim_host_path": nodes.SHARED, "storage_claim_host_path_shared": True}
        values |= {"team_pod_security": "privileged", "muster_fabric_allow_unproven": True}
        # All machines share the processors of this one: six pods import torch at once.
        values |= {"fabric_verify_timeout_s": 240}
        values |= {"k3s_version": machines.VERSION, "k3s_source": str(self.release)}
        values |= {f"gang_scheduling_{name}_source": str(place) for name, place in self.controllers.items()}
        self.reader.write("group_vars/all.yml", values)

    def prepare(self, name: str) -> dict[int, t.Callable[[], t.Any]]:
        """Return what comes before single commands of a block, by the number of the command."""
        return {
            "guide_cluster-2": {0: lambda: self.write_inventory("gpu-1", "gpu-3")},
            "guide_cluster-3": {0: self.fetch_on_another_machine},
        }.get(name, {})

    def fetch_on_another_machine(self) -> None:
        """Have the folder as a machine with a network has made it: here the playbook finds all of it there."""
        job = site.IMAGE, self.job_archive
        made = machines.make_bundle(self.lab.folder, self.release, self.controllers, job, whole=True)
        shutil.move(made, self.reader.folder / "bundle")
        # Its archives need not be named.
        self.write_inventory("gpu-1", "gpu-3", bundled=True)

    def differences(self) -> list[str]:
        """Return what is other than at first on the machines."""
        return compare(self.before, {node.name: self.lab.state(node.name) for node in self.lab.nodes})


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Office]:
    with open_machines(size=3) as lab:
        yield Office(lab, tmp_path_factory.mktemp("reader"))


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_does_what_the_page_says(office: Office, name: str) -> None:
    printed = office.reader.run(name, office.prepare(name))
    require_said(SAID, name, printed)
    if name == "guide_cluster-0":
        assert office.differences() == [], "the machines are as they were"


def test_what_the_session_leaves(office: Office) -> None:
    """One run that succeeded in pods, and the machines are as they were once the cluster is removed."""
    (place,) = office.state.glob("runs/*/run.json")
    record = json.loads(place.read_text())
    assert (record["outcome"], record["backend"], record["world_size"]["seen"]) == ("succeeded", "kubernetes", 2)
    office.reader.type("ansible-playbook -i inventory.yml muster.training.cluster_absent")
    assert office.differences() == []
