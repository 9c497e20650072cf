# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Someone with the playbooks, an inventory of bare machines, a folder with a release of K3s, and no other help."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import typing as t

from ansible_collections.muster.training.tests.e2e.playbook_world import Play, Result

from .. import image
from ..kube.binaries import Binaries
from . import machines

SERVER, AGENT = "lab-1", "lab-2"
CLUSTER = "lab"
Hosts = t.Mapping[str, t.Mapping[str, t.Any]]
_LIMIT_S = 480


class Operator:
    """Runs playbooks as the user that machines come with, who may use sudo."""

    def __init__(self, lab: machines.BareLab) -> None:
        self.lab = lab
        self.folder = lab.folder / "operator"
        self.folder.mkdir()
        self.inventory = lab.inventory(image.USER, ansible_become=True)
        self.plain = json.loads(self.inventory.read_text())
        self.release = machines.release(lab.podman, lab.folder)
        manifests = machines.controllers(lab.podman, lab.folder, SERVER)
        self.values: dict[str, t.Any] = {
            "muster_state": {"path": str(self.folder / "state")},
            "muster_cluster": CLUSTER,
            "k3s_version": machines.VERSION,
            "k3s_source": str(self.release),
            **{f"gang_scheduling_{name}_source": str(place) for name, place in manifests.items()},
        }
        agent = {"muster_k3s_role": "agent", "k3s_images": ["pause.tar"]}
        self.hosts: Hosts = {
            **{node.name: agent for node in lab.nodes},
            SERVER: {"muster_k3s_role": "server", "k3s_images": [f"{name}.tar" for name in machines.IMAGES]},
        }
        (self.folder / "ansible.cfg").write_text("[defaults]\n")
        self.plays = 0
        # Another environment, for playbooks that need more than Ansible.
        self.programs = pathlib.Path(sys.executable).parent

    @property
    def state(self) -> pathlib.Path:
        """The folder of the cluster in the state home."""
        return self.folder / "state" / CLUSTER

    @property
    def lock(self) -> pathlib.Path:
        """The lock file beside the inventory."""
        return self.inventory.parent / "muster-downloads.lock.json"

    def play(self, playbook: str, *words: str, hosts: Hosts | None = None, **values: t.Any) -> Result:
        """Run a playbook; ``words`` go to the command line, ``hosts`` and ``values`` change variables for this time."""
        return self.start(playbook, *words, hosts=hosts, **values).wait(_LIMIT_S)

    def start(
        self,
        playbook: str,
        *words: str,
        hosts: Hosts | None = None,
        environment: t.Mapping[str, str] | None = None,
        **values: t.Any,
    ) -> Play:
        """Start a playbook of the collection, or a file, as :meth:`play` runs it; ``environment`` is added to its own."""
        inventory = json.loads(json.dumps(self.plain))
        for name, own in inventory["muster_nodes"]["hosts"].items():
            own |= {**self.hosts.get(name, {}), **(hosts or {}).get(name, {})}
        self.inventory.write_text(json.dumps(inventory))
        program = os.fspath(self.programs / "ansible-playbook")
        extra = json.dumps({**self.values, **values})
        name = playbook if "/" in playbook else f"muster.training.{playbook}"
        argv = [program, "-i", os.fspath(self.inventory), name, "-e", extra, *words]
        kept = {
            k: v for k, v in os.environ.items() if not k.startswith(("ANSIBLE_", "PYTHON", "MUSTER_", "XDG_", "KUBE"))
        }
        ours = {
            "ANSIBLE_CONFIG": str(self.folder / "ansible.cfg"),
            "ANSIBLE_HOME": str(self.lab.folder / "ansible"),
            "ANSIBLE_NOCOLOR": "1",
            "LC_ALL": "C.UTF-8",
        }
        self.plays += 1
        log = self.folder / f"play-{self.plays}.log"
        return Play(argv, {**kept, **ours, **(environment or {})}, log, self.folder, 0o022)

    def kubectl(self, *words: str) -> str:
        """Ask the cluster with the kubeconfig of the state home."""
        program = os.fspath(Binaries(self.lab.podman.home).get("labk8s"))
        argv = [program, "kubectl", f"--kubeconfig={self.state}/kubeconfig", *words]
        environment = {"HOME": str(self.folder)}
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def items(self, *words: str) -> list[dict[str, t.Any]]:
        """Return the objects that ``kubectl get`` finds."""
        return t.cast("list[dict[str, t.Any]]", json.loads(self.kubectl("get", *words, "-o", "json"))["items"])

    def ledger(self) -> list[tuple[str, str, str]]:
        """Return event, resource and name of each line of the ledger."""
        lines = map(json.loads, (self.state / "ledger.jsonl").read_text().splitlines())
        return [(line["event"], line["resource"], line["name"]) for line in lines]
