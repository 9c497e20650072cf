# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Molecule scenarios of the roles for GPUs and RDMA, each alone and together, on a machine of the lab."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.tests.lab import image
from ansible_collections.muster.training.tests.lab.k3s import gpu_site
from ansible_collections.muster.training.tests.lab.k3s.operator import SERVER
from ansible_collections.muster.training.tests.lab.k3s.session import open_machines
from ansible_collections.muster.training.tests.lab.test_molecule import Scenarios, go_through


class WithContainerd(Scenarios):
    """A machine whose containerd runs, and writes of its own as it starts again."""

    def state(self) -> dict[str, list[str]]:
        """What the machine is, without containerd's data, and whether systemd has read containerd's unit as it is."""
        found = super().state()
        return {
            name: [
                *(line for line in lines if not line.startswith("/var/lib/containerd/")),
                self.lab.ask(name, "systemctl", "show", "containerd", "--property=NeedDaemonReload"),
            ]
            for name, lines in found.items()
        }


@pytest.fixture(scope="module")
def scenarios() -> t.Iterator[Scenarios]:
    """A machine with GPUs and HCAs of folders, once they are plugged in."""
    with open_machines(image.DEVICES, size=1) as lab:
        made: Scenarios = WithContainerd(lab)
        # The toolkit is the real one, and containerd: what one writes the other reads.
        lab.ask(SERVER, "sh", "-c", "systemctl unmask containerd.service; systemctl start containerd.service")
        packages = gpu_site.build_packages(lab.folder, gpu_site.find_programs(lab.podman.home))
        made.list_machines({SERVER: {}}, {**packages, "device_hcas": 2})
        yield made


def take(scenarios: Scenarios, name: str) -> None:
    """Take the steps of a scenario, at whose end the packages are those that there were."""
    packages = scenarios.lab.ask(SERVER, "dpkg-query", "--show")
    go_through(scenarios, name, (SERVER,))
    assert scenarios.lab.ask(SERVER, "dpkg-query", "--show") == packages


@pytest.mark.parametrize("name", ["gpu_driver", "rdma", "container_runtime"])
def test_a_role_alone(scenarios: Scenarios, name: str) -> None:
    take(scenarios, name)


def test_all_of_them_by_the_playbook(scenarios: Scenarios) -> None:
    take(scenarios, "devices")
