# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Driver, RDMA and toolkit on a machine of the RHEL family, by dnf, and the machine as it was without them.

Real: dnf with its modules and versionlock, rpm and its signatures, gpg, systemd, SSH. Stand-ins: the packages, GPUs and HCAs
(folders), the distribution: Debian's dnf on a machine that says it is Rocky Linux 9.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.muster.training.tests.lab import device_packages, device_rpms, image, nodes
from ansible_collections.muster.training.tests.lab.k3s.machines import BareLab
from ansible_collections.muster.training.tests.lab.k3s.operator import SERVER, Operator
from ansible_collections.muster.training.tests.lab.k3s.session import compare, open_machines
from ansible_collections.muster.training.tests.lab.test_molecule import ROOT
from ansible_collections.muster.training.tests.support.kube_lab import NOTES

# What dnf and rpm write for themselves; which packages there are is asked of rpm.
DNF = re.compile(r"/var/lib/(dnf|rpm)/")
_DISABLED = "[nvidia-driver]\\nname=nvidia-driver\\nprofiles=\\nstate=disabled\\nstream=\\n\\n"
PACKAGES = "nvidia-driver-cuda kmod-nvidia-open-dkms rdma-core perftest nvidia-container-toolkit"
WANTED: dict[str, t.Any] = {"muster_container_runtime": True, "gpu_driver_reboot": "when_needed"}


def state(lab: BareLab) -> list[str]:
    """What the machine is, with its packages, without what dnf and rpm write for themselves."""
    lines = [line for line in lab.state(SERVER) if not DNF.match(line)]
    return [*lines, *lab.ask(SERVER, "rpm", "-qa").splitlines()]


def ask(lab: BareLab, command: str) -> str:
    return lab.ask(SERVER, "sh", "-c", command)


def test_dnf_installs_locks_and_takes_away_what_came() -> None:
    with open_machines(image.RPMS, size=1) as lab:
        operator = Operator(lab)
        operator.hosts = {SERVER: {}}
        operator.values = device_rpms.build_repositories(lab, SERVER)
        (lab.shared / "hardware.sh").write_bytes((ROOT / "molecule/devices/hardware.sh").read_bytes())
        lab.ask(SERVER, "sh", f"{nodes.SHARED}/hardware.sh", "plug", "2")
        # Of a machine whose image says that no stream of the module is to be had.
        lab.ask(SERVER, "mkdir", "-p", "/etc/dnf/modules.d")
        ask(lab, f"printf '{_DISABLED}' > /etc/dnf/modules.d/nvidia-driver.module")
        before = state(lab)

        checked = operator.play("devices", "--check", **WANTED)
        assert checked.code == 0 and checked.changed > 0, checked.output
        assert compare({SERVER: before}, {SERVER: state(lab)}) == []

        made = operator.play("devices", **WANTED)
        assert made.code == 0, made.output
        versions = ask(lab, f"rpm -q --qf '%{{VERSION}}\\n' {PACKAGES}").split()
        assert versions == [device_packages.DRIVER] * 2 + ["99.0"] * 2 + [device_packages.TOOLKIT], versions
        assert ask(lab, "nvidia-smi -L").count("GPU ") == 2
        assert f"stream={device_rpms.STREAM}" in ask(lab, "cat /etc/dnf/modules.d/nvidia-driver.module").splitlines()
        locked = ask(lab, "grep -v ^# /etc/dnf/plugins/versionlock.list").split()
        assert len(locked) == 2 and all(device_packages.DRIVER in line for line in locked), locked

        # What an upgrade of the system would install, and what the lock keeps from it.
        device_rpms.publish_newer(lab, SERVER)
        newer = ask(lab, "dnf --quiet --disableplugin=versionlock list --upgrades || true")
        assert f"nvidia-driver-cuda.noarch {device_rpms.NEWER}" in " ".join(newer.split()), newer
        lab.ask(SERVER, "dnf", "--assumeyes", "--quiet", "upgrade", "nvidia-driver-cuda", "kmod-nvidia-open-dkms")
        assert ask(lab, f"rpm -q --qf '%{{VERSION}}\n' {PACKAGES}").split() == versions

        now, asked = state(lab), lab.requests(SERVER)
        again = operator.play("devices", **WANTED)
        assert again.code == 0 and again.changed == 0, again.output
        assert compare({SERVER: now}, {SERVER: state(lab)}) == []
        asked = lab.requests(SERVER) - asked
        assert asked <= 2, "what is there already is read at once"

        gone = operator.play("devices", devices_state="absent")
        assert gone.code == 0, gone.output
        left = compare({SERVER: before}, {SERVER: state(lab)})
        assert left == [], "\n".join(left)
        NOTES.append(f"dnf: {made.changed} changed, again 0 changed by {asked} request, removed: as before")
