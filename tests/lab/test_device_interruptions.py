# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Driver, RDMA and toolkit are set up or taken away, and ansible-playbook is gone in the middle of it, again and again.

The same command is started until it comes to its end: each run is killed after another task that acts. The end is that
of a run that nothing interrupts, and once more nothing changes. A task that only reads leaves the machine as it is: after
it and before it is the same. With MUSTER_TEST_ALL=1 each task of both ways is one after which it is killed, else a few
are, drawn by MUSTER_LAB_SEED; MUSTER_LAB_KILLS says how many, MUSTER_LAB_PART, such as 2/3, takes the second third.
"""

from __future__ import annotations

import json
import os
import pathlib
import random
import signal
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab import device_packages, image
from ansible_collections.muster.training.tests.lab.k3s.callback import boundaries
from ansible_collections.muster.training.tests.lab.k3s.operator import SERVER, Operator
from ansible_collections.muster.training.tests.lab.k3s.session import compare, open_machines
from ansible_collections.muster.training.tests.lab.test_k3s_interruptions import ALL, PART, PARTS, SEED
from ansible_collections.muster.training.tests.lab.test_molecule import APT, ROOT
from ansible_collections.muster.training.tests.support.kube_lab import NOTES

KILLS = int(os.environ.get("MUSTER_LAB_KILLS") or (0 if ALL else 2))
_CALLBACKS = pathlib.Path(boundaries.__file__).parent
_LIMIT_S = 480
# What the roles change and a machine's files below /etc and /var/lib do not tell.
_LOOK = r"""
dpkg-query --show --showformat='${Package} ${Version} ${db:Status-Status}\n'
nvidia-smi -L; ls -d /sys/module/nouveau /sys/module/rdma_* /sys/module/ib_* /usr/share/keyrings/muster-* /run/muster-*
ls /run/hardware/driver /run/hardware/built /var/run/cdi; cat /sys/class/net/roce0/mtu
systemctl show nvidia-persistenced nvidia-cdi-refresh containerd --property=Id,ActiveState,UnitFileState,NeedDaemonReload
"""
_CONTAINERD = """[Unit]
Description=Stand-in
[Service]
ExecStart=/usr/local/bin/containerd infinity
LimitMEMLOCK=8388608
"""
# A storage HCA whose interface has a low MTU, and a containerd that may not lock memory.
_MORE_HARDWARE = f"""set -eu
mkdir -p /etc/udev/rules.d; ip link add roce0 type veth peer name roce1
hca=/sys/class/infiniband/mlx5_2; mkdir -p $hca/ports/1/gids $hca/ports/1/gid_attrs/types $hca/device/net/roce0
echo 0x15b3 > $hca/device/vendor; echo 0x101d > $hca/device/device; echo MT_1 > $hca/board_id
echo Ethernet > $hca/ports/1/link_layer; echo '4: ACTIVE' > $hca/ports/1/state; echo '100 Gb/sec (2X HDR)' > $hca/ports/1/rate
rm -f /etc/systemd/system/containerd.service; cp /usr/bin/sleep /usr/local/bin/containerd
cat > /etc/systemd/system/containerd.service <<'END'
{_CONTAINERD}END
systemctl daemon-reload; systemctl start containerd
"""
_PASSES = 6
_ROLES = ("gpu_driver", "rdma", "container_runtime")
_REBOOT = {"gpu_driver_reboot": "when_needed"}


class Way(t.NamedTuple):
    """How the machine comes to have what it needs, and how that goes: a playbook and its variables each."""

    name: str
    up: tuple[str, dict[str, t.Any]]
    down: tuple[str, dict[str, t.Any]]


DEVICES = Way(
    "devices",
    ("devices", {"muster_container_runtime": True, **_REBOOT}),
    ("devices", {"devices_state": "absent"}),
)


def write_roles(folder: pathlib.Path) -> Way:
    """Write playbooks of the three roles alone, as the guide has one, and return the way by them."""
    for direction, order in (("up", _ROLES), ("down", _ROLES[::-1])):
        state = {f"{name}_state": "absent" for name in _ROLES} if direction == "down" else {}
        roles = [{"role": f"muster.training.{name}", "vars": state} for name in order]
        play = {"name": direction, "hosts": "muster_nodes", "gather_facts": False, "roles": roles}
        (folder / f"{direction}.yml").write_text(json.dumps([play]))
    return Way("roles", (str(folder / "up.yml"), {**_REBOOT, "rdma_mtu": 9000}), (str(folder / "down.yml"), {}))


class World:
    """A machine with GPUs and HCAs of folders, what it is without and with what they need, and the tasks on both ways."""

    def __init__(self, operator: Operator, name: str) -> None:
        self.operator, self.lab = operator, operator.lab
        # The toolkit of one way has no unit of its own that writes the CDI specification.
        folder, alone = operator.folder / "repositories", name == "roles"
        operator.values = device_packages.build_repositories(folder, refresh_unit=not alone)
        operator.hosts = {SERVER: {}}
        self.way = write_roles(operator.folder) if alone else DEVICES
        prepared = operator.play(str(ROOT / "molecule/devices/prepare.yml"))
        assert prepared.code == 0, prepared.output
        if alone:
            self.lab.ask(SERVER, "sh", "-c", _MORE_HARDWARE)
        # apt reads the archive's lists once.
        self.lab.ask(SERVER, "apt-get", "update")
        self.tasks: dict[str, list[boundaries.Task]] = {}
        self.states: dict[str, list[str]] = {"down": self.state()}
        self._measure("up")
        self._measure("down")

    def load_nouveau(self) -> None:
        """Load the module that a machine with a GPU and no driver of NVIDIA's has."""
        self.lab.ask(SERVER, "mkdir", "-p", "/sys/module/nouveau")

    def state(self) -> list[str]:
        """What the machine is, without what apt and dpkg write for themselves, and what only a boot brings back."""
        lines = [line for line in self.lab.state(SERVER) if not APT.match(line)]
        said = self.lab.ask(SERVER, "sh", "-c", f"({_LOOK}) 2>/dev/null || true").splitlines()
        return [*lines, *said]

    def _measure(self, direction: str) -> None:
        """Run one way to its end, by which those are judged that are killed on it."""
        if direction == "up":
            self.load_nouveau()
        log = self.operator.folder / f"{direction}.tasks"
        result = self.start(direction, log).wait(_LIMIT_S)
        assert result.code == 0, result.output
        self.tasks[direction] = boundaries.read_tasks(log)
        self.states.setdefault(direction, self.state())

    def start(self, direction: str, log: pathlib.Path, keys: t.Collection[str] = ()) -> t.Any:
        """Start a playbook that notes its tasks, and that is killed after the first one of ``keys``."""
        wanted = self.operator.folder / "keys.json"
        wanted.write_text(json.dumps(sorted(keys)))
        environment = {
            "ANSIBLE_CALLBACK_PLUGINS": str(_CALLBACKS),
            "ANSIBLE_PIPELINING": "1",
            boundaries.LOG: str(log),
            boundaries.KILL_AFTER: str(wanted),
        }
        playbook, values = getattr(self.way, direction)
        return self.operator.start(playbook, environment=environment, **values)

    def find_problems(self, direction: str) -> list[str]:
        """Run the command once more; return what it changed, and what is other than after a run that nothing interrupts."""
        again = self.start(direction, pathlib.Path(os.devnull)).wait(_LIMIT_S)
        changed = [] if again.code == 0 and again.changed == 0 else [f"changed {again.changed} more: {again.output}"]
        known = self.states.get(direction)
        found = compare({SERVER: known}, {SERVER: self.state()}) if known else []
        # A module that was loaded stays until the next boot.
        return [*changed, *(line for line in found if direction == "up" or " has /sys/module/" not in line)]

    def list_keys(self, direction: str) -> list[str]:
        """Return the tasks after which it is killed, in their order."""
        acting = [task.key for task in self.tasks[direction][:-1] if task.acts and not task.reads]
        chosen = set(acting) if not KILLS else set(random.Random(SEED).sample(acting, min(KILLS, len(acting))))
        return [key for key in acting if key in chosen][int(PART) - 1 :: int(PARTS)]

    def interrupt(self, direction: str, keys: set[str]) -> list[str]:
        """Start one way until it comes to its end, killed after another one of ``keys`` each time; they are taken away."""
        while True:
            log = self.operator.folder / "killed.tasks"
            log.write_text("")
            result = self.start(direction, log, keys).wait(_LIMIT_S)
            if result.code != -signal.SIGKILL:
                break
            killed = next(line["killed"] for line in map(json.loads, log.read_text().splitlines()) if "killed" in line)
            print(f"{direction}: killed after {killed} ({result.seconds:.0f} s)", flush=True)
            keys.remove(killed)
        if result.code != 0:
            return [f"{direction} ended with {result.code}: {result.errors}\n{result.output[-1500:]}"]
        return [f"{direction}: {problem}" for problem in self.find_problems(direction)]


@pytest.mark.parametrize("name", ["devices", "roles"])
def test_killed_after_any_task_the_same_command_comes_to_the_same_end(name: str) -> None:
    with open_machines(image.DEVICES, size=1) as lab:
        world = World(Operator(lab), name)
        left = {direction: set(world.list_keys(direction)) for direction in ("up", "down")}
        total = {direction: len(keys) for direction, keys in left.items()}
        problems: list[str] = []
        passes = 0
        # A task whose work is done is not run again: what is left is for a pass from the beginning.
        while any(left.values()) and passes < _PASSES:
            passes += 1
            world.load_nouveau()
            for direction, keys in left.items():
                found = world.interrupt(direction, keys)
                print(direction, found, flush=True)
                problems += found
        writing = {way: sum(task.acts and not task.reads for task in tasks) for way, tasks in world.tasks.items()}
        of = f"{total} of {writing} tasks that may write, part {PART} of {PARTS}, in {passes} passes"
        NOTES.append(f"{name}: killed after {of}: {len(problems)} problems")
        assert problems == [] and not any(left.values()), (problems, left)
