# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What happens to machines while ``devices`` installs: each ends in one line that says it, and the next run mends it.

Real: apt and its signatures, dpkg, locks, SSH, signals. Stand-ins: GPUs and HCAs (folders), the packages, a boot.
"""

from __future__ import annotations

import contextlib
import json
import signal
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab import device_packages, image
from ansible_collections.muster.training.tests.lab.k3s.operator import SERVER, Operator
from ansible_collections.muster.training.tests.lab.k3s.session import compare, open_machines
from ansible_collections.muster.training.tests.lab.test_molecule import APT, ROOT
from ansible_collections.muster.training.tests.support.node_lab import eventually

_SLOW = "/etc/slow-dkms"
# Each word with a bracket, so that the shell that looks is not found.
_BUILDS = "pgrep --full [n]vidia-kernel-open-dkms.postinst || true"
_CUT = "pkill -9 -x apt-get; pkill -9 -x dpkg; pkill -9 --full [n]vidia-kernel-open-dkms.postinst; rm /etc/slow-dkms"
_LOOK = r"""
dpkg-query --show --showformat='${Package} ${Version} ${db:Status-Status}\n'
ls /run/hardware/driver /run/hardware/built /usr/share/keyrings
systemctl show nvidia-persistenced --property=Id,ActiveState,UnitFileState
"""
_HOLD = "import fcntl,time;f=open('{path}','w');fcntl.lockf(f,fcntl.LOCK_EX);time.sleep(900)"
_PAGE = "<!DOCTYPE html>\n<html><body>Please accept the terms of this network.</body></html>\n"


class Machine:
    """A machine with GPUs and nothing installed, and what it is with all that it needs."""

    def __init__(self, operator: Operator) -> None:
        self.operator, self.lab = operator, operator.lab
        operator.values = {
            **device_packages.build_repositories(operator.folder / "repositories"),
            # One role shows it: the others install by the same tasks.
            "devices_roles": ["gpu_driver"],
            "device_hcas": 0,
            "gpu_driver_reboot": "when_needed",
        }
        operator.hosts = {SERVER: {}}
        prepared = operator.play(str(ROOT / "molecule/devices/prepare.yml"))
        assert prepared.code == 0, prepared.output
        self.ask("apt-get update")
        self.bare = self.state()
        self.end_well()
        self.whole = self.state()
        self.remove()

    def ask(self, command: str) -> str:
        """Run a shell command on the machine."""
        return self.lab.ask(SERVER, "sh", "-c", command)

    def state(self) -> list[str]:
        """What the machine is, without what apt writes for itself."""
        lines = [line for line in self.lab.state(SERVER) if not APT.match(line)]
        return [*lines, *self.ask(f"({_LOOK}) 2>/dev/null || true").splitlines()]

    def end_well(self) -> None:
        """Run the playbook to its end."""
        result = self.operator.play("devices")
        assert result.code == 0, result.output

    def remove(self) -> None:
        """Take away what came, and require that the machine is as it was."""
        result = self.operator.play("devices", devices_state="absent")
        assert result.code == 0, result.output
        assert compare({SERVER: self.bare}, {SERVER: self.state()}) == []

    def end_badly(self, **values: t.Any) -> str:
        """Run the playbook, which fails, and return the one line that says why."""
        result = self.operator.play("devices", **values)
        assert result.code == 2, result.output
        return self.read_error(result.output)

    def read_error(self, output: str) -> str:
        """Return the message by which the host ended."""
        failed = [line for line in output.splitlines() if line.startswith("fatal: ")]
        assert failed, output
        message: str = json.loads(failed[-1].partition(" => ")[2])["msg"]
        assert "\n" not in message, message
        print(message, flush=True)
        return message

    def require_mended(self) -> None:
        """Run the same command again: the machine has all that it needs, and nothing is left of the trouble."""
        self.end_well()
        left = compare({SERVER: self.whole}, {SERVER: self.state()})
        assert left == [], "\n".join(left)
        self.remove()

    @contextlib.contextmanager
    def hold(self, path: str) -> t.Iterator[None]:
        """Let a process of the machine have a lock for as long as the block lasts."""
        self.lab.ask(SERVER, "systemd-run", "--unit=holder", "python3", "-c", _HOLD.format(path=path))
        try:
            yield
        finally:
            self.lab.ask(SERVER, "systemctl", "stop", "holder")

    def start_slow(self) -> t.Any:
        """Start the playbook, and return while dpkg builds the module."""
        self.ask(f"touch {_SLOW}")
        play = self.operator.start("devices")
        eventually(lambda: bool(self.ask(_BUILDS)) or play.process.poll() is not None, "dpkg builds", 180)
        assert play.process.poll() is None, play.output
        return play


@pytest.fixture(scope="module")
def machine() -> t.Iterator[Machine]:
    with open_machines(image.DEVICES, size=1) as lab:
        yield Machine(Operator(lab))


def test_packages_that_were_cut_in_the_middle_are_finished_by_the_next_run(machine: Machine) -> None:
    play = machine.start_slow()
    # As a machine that loses its power: neither dpkg nor its scripts come to their ends.
    machine.ask(_CUT)
    result = play.wait(120)
    assert result.code == 2, result.output
    assert f"{SERVER}: packages of gpu-driver: " in machine.read_error(result.output)
    assert "half-configured" in machine.ask("dpkg-query --show --showformat='${db:Status-Status}\\n' 'nvidia-*'")
    machine.require_mended()

    play = machine.start_slow()
    machine.ask(_CUT)
    play.wait(120)
    machine.remove()


def test_two_operators_at_once_come_to_one_end(machine: Machine) -> None:
    machine.ask("mkdir -p /sys/module/nouveau")
    plays = [machine.operator.start("devices") for _number in range(2)]
    ends = [play.wait(480) for play in plays]
    assert [end.code for end in ends] == [0, 0], "\n".join(end.output for end in ends)
    again = machine.operator.play("devices")
    assert again.code == 0 and again.changed == 0, again.output
    machine.remove()


def test_a_lock_that_is_not_released_is_named(machine: Machine) -> None:
    with machine.hold("/var/lib/dpkg/lock-frontend"):
        said = machine.end_badly(device_packages_lock_timeout_s=5)
    assert said.startswith(f"{SERVER}: packages of gpu-driver: ") and "(python3)" in said, said
    assert "Another program installs packages on it. Wait for its end" in said, said
    machine.require_mended()


def test_an_operator_who_interrupts_it_runs_it_again(machine: Machine) -> None:
    play = machine.start_slow()
    play.signal(signal.SIGINT)
    result = play.wait(60)
    assert result.code not in (0, 2) and "Traceback" not in result.output, result.output
    machine.ask(f"rm {_SLOW}")
    machine.require_mended()


def test_no_boot_in_the_middle_of_packages(machine: Machine) -> None:
    play = [
        {
            "name": "Boot",
            "hosts": "muster_nodes",
            "gather_facts": False,
            "tasks": [
                {
                    "name": "Boot it",
                    "ansible.builtin.include_role": {"name": "muster.training.gpu_driver", "tasks_from": "boot"},
                    "vars": {"__gpu_driver_boot": "a test", "gpu_driver_reboot_timeout_s": 10},
                }
            ],
        }
    ]
    place = machine.operator.folder / "boot.yml"
    place.write_text(json.dumps(play))
    count = "cat /run/hardware/boots 2>/dev/null | wc -l"
    before = int(machine.ask(count))
    with machine.hold("/var/lib/dpkg/lock-frontend"):
        result = machine.operator.play(str(place))
    assert result.code == 2, result.output
    assert "reboot needed: a test, and its package manager is in use by python3" in result.output, result.output
    assert int(machine.ask(count)) == before
    assert machine.operator.play(str(place)).code == 0 and int(machine.ask(count)) == before + 1


def test_a_page_in_the_place_of_a_list_or_of_a_key_is_refused(machine: Machine) -> None:
    place = "/srv/repositories/nvidia/InRelease"
    machine.ask(f"cp {place} /run/kept; printf '{_PAGE}' > {place}")
    said = machine.end_badly()
    assert f"{SERVER}: packages of gpu-driver: " in said and "file:/srv/repositories/nvidia" in said, said
    assert "name a mirror in muster_package_mirrors, then run this again" in said, said
    machine.ask(f"cp /run/kept {place}")
    machine.require_mended()

    page = machine.operator.folder / "page.html"
    page.write_text(_PAGE)
    mirrors = machine.operator.values["muster_package_mirrors"]
    for fingerprint in (mirrors["cuda"]["fingerprint"], ""):
        wrong = {**mirrors["cuda"], "key_file": str(page), "fingerprint": fingerprint}
        said = machine.end_badly(muster_package_mirrors=dict.fromkeys(mirrors, wrong))
        assert f"{SERVER}: the key from {page} is no key" in said and "Nothing was installed" in said, said
    machine.require_mended()


def test_a_full_boot_is_seen_before_anything_is_changed(machine: Machine) -> None:
    machine.ask("mount -t tmpfs -o size=8m boot /boot; head -c 5M /dev/zero > /boot/initrd.img-$(uname -r)")
    try:
        said = machine.end_badly()
    finally:
        machine.ask("umount /boot")
    assert (
        f"{SERVER}: 3 MiB free below /boot, and the initial file system has 5" in said
        and "Nothing was changed on any host" in said
    ), said
    assert compare({SERVER: machine.bare}, {SERVER: machine.state()}) == []
