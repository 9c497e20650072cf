# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook ``upgrade_drivers`` on machines of the lab: waves, a machine that fails, and the run that continues.

Real: apt and its signatures, dpkg, systemd, SSH. Stand-ins: GPUs (folders), NVIDIA's packages of three branches, a boot.
"""

from __future__ import annotations

import json
import typing as t

from ansible_collections.muster.training.tests.lab import device_packages, image
from ansible_collections.muster.training.tests.lab.k3s.operator import AGENT, SERVER, Operator
from ansible_collections.muster.training.tests.lab.k3s.session import compare, open_machines
from ansible_collections.muster.training.tests.lab.test_molecule import APT, ROOT
from ansible_collections.muster.training.tests.support.kube_lab import NOTES

BRANCHES = ("580.178.04", "595.91.07", "610.57.04")
MARK = "/var/lib/muster/driver-unproven"


class Machines:
    """Two machines with GPUs and the driver of branch 580."""

    def __init__(self, operator: Operator) -> None:
        self.operator, self.lab = operator, operator.lab
        operator.values = {
            **device_packages.build_repositories(operator.folder / "repositories", BRANCHES),
            "devices_roles": ["gpu_driver"],
        }
        operator.hosts = {SERVER: {}, AGENT: {}}
        self.play(str(ROOT / "molecule/devices/prepare.yml"))
        self.play("devices", gpu_driver_branch=580)
        assert self.modules() == {SERVER: BRANCHES[0], AGENT: BRANCHES[0]}

    def play(self, playbook: str, *words: str, code: int = 0, **values: t.Any) -> str:
        """Run a playbook and return what it printed, on one line."""
        result = self.operator.play(playbook, *words, **values)
        assert result.code == code, result.output
        return " ".join(result.output.split())

    def upgrade(self, *words: str, branch: int = 595, code: int = 0, reboot: str = "when_needed") -> str:
        """Run the playbook."""
        return self.play("upgrade_drivers", *words, code=code, gpu_driver_branch=branch, gpu_driver_reboot=reboot)

    def modules(self) -> dict[str, str]:
        """The version of the module that each machine has loaded."""
        show = "cat /proc/driver/nvidia/version 2>/dev/null || echo none"
        words = {name: self.lab.ask(name, "sh", "-c", show).split() for name in (SERVER, AGENT)}
        return {name: next((word for word in said if word[0].isdigit()), "none") for name, said in words.items()}

    def boots(self) -> dict[str, int]:
        """How often each machine has booted."""
        count = "cat /run/hardware/boots 2>/dev/null | wc -l"
        return {name: int(self.lab.ask(name, "sh", "-c", count)) for name in (SERVER, AGENT)}

    def marked(self) -> list[str]:
        """The machines whose driver is noted as not proven."""
        look = f"test -e {MARK} && echo yes || true"
        return [name for name in (SERVER, AGENT) if self.lab.ask(name, "sh", "-c", look)]

    def state(self) -> dict[str, list[str]]:
        """What the machines are, without apt's own files."""
        return {name: [line for line in self.lab.state(name) if not APT.match(line)] for name in (SERVER, AGENT)}


def test_a_wave_that_fails_ends_it_and_the_same_command_continues_there() -> None:
    with open_machines(image.DEVICES) as lab:
        machines = Machines(Operator(lab))
        before = machines.state()
        said = machines.upgrade("--check")
        assert (
            f"wave 1 of 2 (at most 1 unavailable): {SERVER}" in said
            and f"wave 2 of 2 (at most 1 unavailable): {AGENT}" in said
        )
        refused = machines.upgrade(code=2, reboot="never")
        assert (
            f"{SERVER}: driver {BRANCHES[0]} is older than gpu_driver_branch, 595, and a newer one needs a reboot"
            in refused
        )
        assert "no driver is named" in machines.play("upgrade_drivers", code=2)
        assert "max_unavailable: is '0'" in machines.play(
            "upgrade_drivers", code=2, gpu_driver_branch=595, muster_drivers_max_unavailable=0
        )
        assert compare(before, machines.state()) == []

        lab.ask(SERVER, "touch", "/etc/fail-module")
        failed = machines.upgrade(code=2)
        line = (
            f"{SERVER}: its driver was changed and is not proven: {SERVER}: the driver is installed and does not work"
        )
        assert line in failed and f"Not begun: {AGENT}. Mend it, then run this again" in failed, failed
        assert machines.marked() == [SERVER] and machines.boots() == {SERVER: 1, AGENT: 0}
        assert machines.modules() == {SERVER: "none", AGENT: BRANCHES[0]}

        lab.ask(SERVER, "rm", "/etc/fail-module")
        continued = machines.upgrade()
        assert f"wave 1 of 2 (at most 1 unavailable): {SERVER}" in continued
        assert machines.modules() == {SERVER: BRANCHES[1], AGENT: BRANCHES[1]}
        assert machines.marked() == [] and machines.boots() == {SERVER: 2, AGENT: 1}
        assert json.loads(lab.ask(AGENT, "cat", "/var/lib/muster/packages-gpu-driver.json"))["complete"]

        asked, is_now = lab.requests(AGENT), machines.state()
        again = machines.upgrade()
        assert "the drivers of all machines are as they should be" in again
        assert again.partition("PLAY RECAP")[2].count("changed=0") == again.partition("PLAY RECAP")[2].count("changed=")
        assert lab.requests(AGENT) - asked == 1 and compare(is_now, machines.state()) == []
        assert "the drivers of all machines" in machines.upgrade(branch=580), "a newer driver is kept"

        both = machines.play(
            "upgrade_drivers", gpu_driver_version="610.57", gpu_driver_reboot="when_needed",
            muster_drivers_max_unavailable="100%",
        )  # fmt: skip
        assert f"wave 1 of 1 (at most 100% unavailable): {SERVER}, {AGENT}" in both
        assert machines.modules() == {SERVER: BRANCHES[2], AGENT: BRANCHES[2]} and machines.marked() == []
        NOTES.append(
            "upgrade_drivers: a wave that failed ended it, the same command continued, again: 1 request, 0 changed"
        )
