# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Molecule scenarios of the roles for machines, on the lab's machines, step by step as ``molecule test`` takes them.

Between the steps the machines are compared: a check changes nothing, a second run changes and restarts nothing, and the
removal leaves them as they were.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab import image
from ansible_collections.muster.training.tests.lab.k3s import machines
from ansible_collections.muster.training.tests.lab.k3s.operator import AGENT, SERVER
from ansible_collections.muster.training.tests.lab.k3s.session import compare, describe_installed, open_machines
from ansible_collections.muster.training.tests.support.kube_lab import NOTES

ROOT = pathlib.Path(__file__).resolve().parents[2]
BASE = ROOT / ".config" / "molecule" / "config.yml"
UFW = re.compile(r"/etc/ufw/|rule -A (INPUT|FORWARD|OUTPUT) -j ufw-")
IMAGES = {SERVER: ["pause.tar", "coredns.tar"], AGENT: ["pause.tar"]}


class Scenarios:
    """Machines, an inventory of them in a folder of its own, and molecule."""

    def __init__(self, lab: machines.BareLab) -> None:
        self.lab = lab
        self.inventory = lab.folder / "inventory"
        self.inventory.mkdir()
        content = json.loads(lab.inventory(image.USER, ansible_become=True).read_text())
        content["muster_nodes"]["vars"] |= {
            "k3s_version": machines.VERSION,
            "k3s_source": str(machines.release(lab.podman, lab.folder)),
            "k3s_lock_file": str(lab.folder / "lock.json"),
            "muster_state": {"path": str(lab.folder / "state")},
            "muster_cluster": "lab",
            "muster_gang_scheduling": False,
        }
        for name, own in content["muster_nodes"]["hosts"].items():
            own |= {"muster_k3s_role": "server" if name == SERVER else "agent", "k3s_images": IMAGES[name]}
        (self.inventory / "machines.json").write_text(json.dumps(content))

    def step(self, scenario: str, name: str) -> str:
        """Run one step of a scenario and return what it printed."""
        programs = pathlib.Path(sys.executable).parent
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("ANSIBLE_", "PYTHON", "MOLECULE_"))}
        environment = {
            **kept,
            "PATH": os.pathsep.join([os.fspath(programs), kept.get("PATH", os.defpath)]),
            "ANSIBLE_HOME": str(self.lab.folder / "ansible"),
            "MOLECULE_EPHEMERAL_DIRECTORY": str(self.lab.folder / "molecule" / scenario),
            "MUSTER_MOLECULE_INVENTORY": str(self.inventory),
            "NO_COLOR": "1",
            "ANSIBLE_NOCOLOR": "1",
            "LC_ALL": "C.UTF-8",
        }
        done = subprocess.run(
            # Named: molecule looks for it at the root of a repository alone.
            [os.fspath(programs / "molecule"), "--base-config", os.fspath(BASE), name, "--scenario-name", scenario],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"molecule {name} -s {scenario}\n{done.stdout[-6000:]}{done.stderr[-6000:]}"
        return done.stdout + done.stderr

    def state(self) -> dict[str, list[str]]:
        """What each machine is, without ufw's own: its files, and the jumps to its chains that stay until the next boot."""
        return {
            node.name: [line for line in self.lab.state(node.name) if not UFW.match(line)] for node in self.lab.nodes
        }


@pytest.fixture(scope="module")
def scenarios() -> t.Iterator[Scenarios]:
    """Two machines with everything that a scenario may switch on."""
    with open_machines(image.FIREWALLS) as lab:
        NOTES.append(f"molecule: {machines.binary(lab.folder)[1]} is what the role k3s installs")
        yield Scenarios(lab)


@pytest.mark.parametrize("name", ["firewall", "k3s"])
def test_a_scenario(scenarios: Scenarios, name: str) -> None:
    bare = scenarios.state()
    scenarios.step(name, "create")
    scenarios.step(name, "prepare")
    before = scenarios.state()
    scenarios.step(name, "check")
    assert compare(before, scenarios.state()) == []
    scenarios.step(name, "converge")
    converged, started = describe_installed(scenarios.lab), scenarios.lab.started()
    assert compare(before, scenarios.state()) != []
    scenarios.step(name, "idempotence")
    assert compare(converged, describe_installed(scenarios.lab)) == [] and scenarios.lab.started() == started
    scenarios.step(name, "side-effect")
    assert "failed" not in scenarios.step(name, "verify").partition("short test summary")[2]
    scenarios.step(name, "cleanup")
    assert compare(bare, scenarios.state()) == []
