# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Molecule scenarios of the roles for machines, on the lab's machines, step by step as ``molecule test`` takes them.

Between the steps the machines are compared: a check changes nothing, a second run changes and restarts nothing, and the
removal leaves them as they were.
"""

from __future__ import annotations

import json
import re
import typing as t

import pytest

from ansible_collections.muster.training.tests.fakes.wire import TOKEN
from ansible_collections.muster.training.tests.lab import headscale, image, prometheus_programs
from ansible_collections.muster.training.tests.lab.k3s import machines
from ansible_collections.muster.training.tests.lab.k3s.operator import AGENT, SERVER, Hosts
from ansible_collections.muster.training.tests.lab.k3s.session import (
    State,
    compare,
    describe_installed,
    open_machines,
    open_operator,
)
from ansible_collections.muster.training.tests.lab.k3s.site import open_site
from ansible_collections.muster.training.tests.lab.tailnet import Minting
from ansible_collections.muster.training.tests.support import molecule, prometheus_program
from ansible_collections.muster.training.tests.support.kube_lab import NOTES
from ansible_collections.muster.training.tests.support.node_lab import eventually

ROOT = molecule.ROOT
UFW = re.compile(r"/etc/ufw/|rule -A (INPUT|FORWARD|OUTPUT) -j ufw-")
# What apt and dpkg write for themselves, with what apt reads of the machine's own repositories (a folder stands in for the
# distribution's archive), which a distribution's timer does too. Which packages there are is asked of dpkg.
APT = re.compile(
    r"/var/lib/(apt/(extended_states|periodic|lists( |/(lock|partial|auxfiles|(deb|security)[.]debian[.]org_"
    r"|_srv_repositories_archive_)))|dpkg/)"
)
# The folder that Ansible's own modules for files make in the home of their user, a check included.
ANSIBLE = re.compile(r"/home/[^/]+/[.]ansible(/tmp)? ")
IMAGES = {SERVER: ["pause.tar", "coredns.tar"], AGENT: ["pause.tar"]}


class Scenarios:
    """Machines, an inventory of them in a folder of its own, and molecule."""

    def __init__(self, lab: machines.BareLab) -> None:
        self.lab = lab
        self.inventory = lab.folder / "inventory"
        self.inventory.mkdir()

    def list_machines(self, hosts: Hosts, values: t.Mapping[str, t.Any]) -> None:
        """Write the inventory; the agent is the machine that joins where one does."""
        content = json.loads(self.lab.inventory(image.USER, ansible_become=True).read_text())
        content["muster_nodes"]["vars"] |= values
        for name, own in content["muster_nodes"]["hosts"].items():
            own |= hosts[name]
        content["muster_joining"] = {"hosts": {AGENT: {}}}
        (self.inventory / "machines.json").write_text(json.dumps(content))

    def step(self, scenario: str, name: str) -> str:
        """Run one step of a scenario and return what it printed."""
        return molecule.run_step(scenario, name, self.lab.folder, MUSTER_MOLECULE_INVENTORY=str(self.inventory))

    def started(self) -> list[str]:
        """The invocations of the units that scenarios install: another one after each start."""
        show = ("systemctl", "show", "tailscaled.service", "--property=InvocationID", "--value")
        return [*self.lab.started(), *(self.lab.ask(node.name, *show) for node in self.lab.nodes)]

    def installed(self) -> State:
        """What machines are, without what the programs on them write as they run."""
        found = describe_installed(self.lab)
        return {
            name: [line for line in lines if not line.startswith(("/var/lib/tailscale/", "/var/lib/private/muster-"))]
            for name, lines in found.items()
        }

    def state(self) -> dict[str, list[str]]:
        """What each machine is, without what is ufw's own (files, and jumps to its chains that stay until the next boot), apt's,
        and Ansible's.
        """
        return {
            node.name: [
                line for line in self.lab.state(node.name) if not any(own.match(line) for own in (UFW, APT, ANSIBLE))
            ]
            for node in self.lab.nodes
        }


@pytest.fixture(scope="module")
def scenarios() -> t.Iterator[Scenarios]:
    """Two machines with everything that a scenario may switch on."""
    with open_machines(image.FIREWALLS) as lab:
        NOTES.append(f"molecule: {machines.binary(lab.folder)[1]} is what the role k3s installs")
        made = Scenarios(lab)
        hosts = {
            name: {"muster_k3s_role": "server" if name == SERVER else "agent", "k3s_images": wanted}
            for name, wanted in IMAGES.items()
        }
        values = {
            "k3s_version": machines.VERSION,
            "k3s_source": str(machines.release(lab.podman, lab.folder)),
            "k3s_lock_file": str(lab.folder / "lock.json"),
            "muster_state": {"path": str(lab.folder / "state")},
            "muster_cluster": "lab",
            "muster_gang_scheduling": False,
            "monitor_host": SERVER,
            "exporters_gpu": "true",
        }
        if not prometheus_programs.missing():
            releases = prometheus_programs.release(lab.folder)
            values |= {"exporters_source": str(releases), "monitoring_source": str(releases)}
        made.list_machines(hosts, values)
        yield made


def go_through(
    scenarios: Scenarios,
    name: str,
    of: t.Collection[str] = (SERVER, AGENT),
    then: t.Callable[[], object] = lambda: None,
) -> None:
    """Take the steps of a scenario; ``of``: the machines that it changes after its preparation.

    :param then: what is done when it has been verified; it changes nothing.
    """

    def differences(before: State, now: State) -> list[str]:
        return compare(before, {node: now[node] for node in of})

    bare = scenarios.state()
    scenarios.step(name, "create")
    scenarios.step(name, "prepare")
    before = scenarios.state()
    scenarios.step(name, "check")
    assert differences(before, scenarios.state()) == []
    scenarios.step(name, "converge")
    converged, started = scenarios.installed(), scenarios.started()
    assert differences(before, scenarios.state()) != []
    scenarios.step(name, "idempotence")
    assert differences(converged, scenarios.installed()) == [] and scenarios.started() == started
    scenarios.step(name, "side-effect")
    assert "failed" not in scenarios.step(name, "verify").partition("short test summary")[2]
    then()
    scenarios.step(name, "cleanup")
    left = compare(bare, scenarios.state())
    assert left == [], "\n".join(left)


def test_the_scenario_of_monitoring(scenarios: Scenarios) -> None:
    for program in prometheus_programs.NAMES.values():
        prometheus_program.find(program)
    go_through(scenarios, "monitoring")


@pytest.mark.parametrize(("name", "of"), [("firewall", (SERVER, AGENT)), ("k3s", (SERVER, AGENT)), ("join", (AGENT,))])
def test_a_scenario(scenarios: Scenarios, name: str, of: t.Collection[str]) -> None:
    go_through(scenarios, name, of)


def test_the_scenario_of_the_mesh() -> None:
    with open_operator() as operator:
        made = Scenarios(operator.lab)
        release = headscale.release(operator.lab, operator.folder)
        server = headscale.Headscale(operator.lab, SERVER)
        keys = Minting(server.create_key)
        with keys.loopback() as url:
            token = operator.folder / "token"
            token.write_text(TOKEN)
            token.chmod(0o600)
            values = {
                **operator.values,
                "mesh_source": str(release),
                "mesh_version": headscale.VERSION,
                "mesh_login_server": server.url,
                "mesh_tags": ["tag:muster"],
                "mesh_api": {"api_url": url, "api_token_file": str(token)},
            }
            made.list_machines(operator.hosts, values)
            go_through(made, "mesh")
            assert len(keys.given) == 2 and keys.alive() == []
            # The control server keeps the names of machines that have left.
            eventually(lambda: server.online() == [], "the control server to see nobody")
        server.down()


@pytest.mark.torch
def test_the_scenario_of_site() -> None:
    with open_site() as operator:
        made = Scenarios(operator.lab)
        made.list_machines(operator.hosts, operator.values)
        go_through(made, "site")
