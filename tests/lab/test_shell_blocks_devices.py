# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Molecule scenario ``devices`` on a machine of the lab, and a reader of ``guide_gpus`` who types its block there.

Real: apt and its signatures, dpkg, systemd, gpg, SSH. Stand-ins: GPUs and HCAs (folders), NVIDIA's packages.
"""

from __future__ import annotations

import json
import re

from ansible_collections.muster.training.tests.lab import device_packages, image
from ansible_collections.muster.training.tests.lab.k3s.operator import SERVER
from ansible_collections.muster.training.tests.lab.k3s.session import open_machines
from ansible_collections.muster.training.tests.lab.test_molecule import Scenarios, go_through
from ansible_collections.muster.training.tests.support.shell_blocks import Reader, own_environment

BLOCKS = ("guide_gpus-0", "guide_gpus-1")


def test_a_machine_gets_driver_toolkit_and_rdma_and_is_as_before_without_them() -> None:
    with open_machines(image.DEVICES, size=1) as lab:
        scenarios = Scenarios(lab)
        scenarios.list_machines({SERVER: {}}, device_packages.build_repositories(lab.folder / "repositories"))
        home = lab.folder / "home"
        home.mkdir()
        reader = Reader(lab.folder, own_environment(home))

        def type_block() -> None:
            reader.write("inventory.yml", json.loads((scenarios.inventory / "machines.json").read_text()))
            asked = lab.requests(SERVER)
            for said in [*reader.run(BLOCKS[0]), *reader.run(BLOCKS[1])]:
                assert re.search(rf"{SERVER} .*changed=0 .*failed=0", said), said
            # Two runs each where nothing is missing, and no driver is older than what is asked for: one request each.
            assert lab.requests(SERVER) - asked == 4

        packages = lab.ask(SERVER, "dpkg-query", "--show")
        go_through(scenarios, "devices", (SERVER,), type_block)
        assert lab.ask(SERVER, "dpkg-query", "--show") == packages
