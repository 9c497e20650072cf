# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machines of a cluster: their configuration on disk, booting, and the faults that drills put on them."""

from __future__ import annotations

import pathlib
import shutil
import subprocess

from .. import nodes
from ..host import LabError
from ..podman import Podman
from . import config, pki, plan, units
from .record import Record

_STOP_S = 30
_UNITS = "/usr/local/lib/systemd/system"
_WANTS = "multi-user.target.wants"


class Machines:
    """The machines of the cluster of a record, with their files below ``folder``; ``home`` is the lab's cache."""

    def __init__(self, podman: Podman, folder: pathlib.Path, record: Record) -> None:
        self.podman = podman
        self.folder = folder
        self.record = record
        self.authority = pki.Authority(folder / "pki", "ca")

    def prepare(self) -> None:
        """Make the keys of the cluster and of those who log in on its machines."""
        nodes.login_key(self.folder)
        place = self.folder / "pki"
        address = self.record.control.address
        self.authority.issue("apiserver", "/CN=kube-apiserver", pki.api_names(address))
        pki.Authority(place, "front").issue("front-proxy", "/CN=front-proxy")
        pki.service_account_keys(place)
        admin = self.authority.issue("admin", "/O=system:masters/CN=admin")
        text = config.kubeconfig(address, "admin", self.authority.pair, admin)
        _private(self.folder / "kubeconfig", text)

    def create(self, machine: plan.Machine) -> None:
        """Write a machine's configuration and boot it; systemd starts the rest.

        :raises LabError: when podman refuses.
        """
        nodes.host_key(self.folder, machine)
        place = self.folder / "machines" / machine.name
        shutil.rmtree(place, ignore_errors=True)
        self._write_config(machine, place / "lab")
        services = units.worker(machine)
        if machine.is_control:
            services |= units.control(machine)
        _write_units(place / "units", services, units.simulated_nodes() if machine.is_control else {})
        home = self.podman.home
        mounts = {
            place / "lab": plan.LAB,
            place / "units": _UNITS,
            home / "bin": plan.BIN,
            home / "images": plan.IMAGES,
        }
        packages = {
            self.record.torch: plan.TORCH,
            self.record.launchers: plan.LAUNCHERS,
            self.record.programs: plan.PROGRAMS,
        }
        mounts |= {pathlib.Path(place): target for place, target in packages.items() if place}
        options = [nodes.ssh_volume(self.folder, machine)]
        options += [f"--volume={source}:{target}:ro" for source, target in mounts.items()]
        # Real file systems of the machine's own: overlayfs does not lie on overlayfs.
        shared = self.folder / "shared"
        shared.mkdir(mode=0o777, exist_ok=True)
        options.append(f"--volume={shared}:{plan.SHARED}")
        options += ["--volume=/var/lib/containerd", "--volume=/var/lib/kubelet"]
        nodes.start(self.podman, self.record.id, machine, self.record.image, options)

    def remove(self, machine: plan.Machine) -> None:
        """Take a machine away for good, with its disks."""
        self.podman("rm", "--force", "--volumes", "--time=0", machine.container)
        shutil.rmtree(self.folder / "machines" / machine.name, ignore_errors=True)

    def run(
        self, machine: plan.Machine, *argv: str, limit_s: float = 60, data: bytes | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command as root on a machine, past the network, and return how it ended."""
        interactive = ["--interactive"] if data is not None else []
        return self.podman.run("exec", *interactive, machine.container, *argv, limit_s=limit_s, data=data)

    def ask(self, machine: plan.Machine, *argv: str, limit_s: float = 60) -> str:
        """Run a command as root on a machine and return its output.

        :raises LabError: when it fails.
        """
        done = self.run(machine, *argv, limit_s=limit_s)
        if done.returncode != 0:
            lines = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines() or ["no output"]
            raise LabError(f"{argv[0]} on {machine.name} answered {done.returncode}: {lines[-1][:300]}")
        return done.stdout.decode(errors="replace").strip()

    def state(self, machine: plan.Machine) -> str:
        """Return "running", "exited", "cut" (running without network) or "gone"."""
        done = self.podman.run("inspect", "--format={{.State.Status}}", machine.container)
        if done.returncode != 0:
            return "gone"
        said = done.stdout.decode().strip()
        return "cut" if said == "running" and not self._link_is_up(machine) else said

    def kill(self, machine: plan.Machine) -> None:
        """Take a machine away at once, as one that loses its power: no process gets a signal that it could act on."""
        self.podman("kill", "--signal=KILL", machine.container)
        self.podman("wait", machine.container, limit_s=_STOP_S)

    def stop(self, machine: plan.Machine) -> None:
        """Shut a machine down in an orderly way."""
        self.podman("stop", f"--time={_STOP_S}", machine.container, limit_s=2 * _STOP_S)

    def start(self, machine: plan.Machine) -> None:
        """Boot a machine that was killed or stopped, with the disks and the address that it had."""
        self.podman("start", machine.container)

    def cut(self, machine: plan.Machine) -> None:
        """Pull a machine's network cable: it lives on and reaches nobody."""
        _run("ip", "link", "set", self._link(machine), "down")

    def heal(self, machine: plan.Machine) -> None:
        """Put a machine's network cable back; nothing on it has to be told."""
        _run("ip", "link", "set", self._link(machine), "up")

    def shape(self, machine: plan.Machine, mbit: float) -> None:
        """Give a machine's link a rate, in both directions."""
        rate = ("tbf", "rate", f"{mbit}mbit", "burst", "128kb", "latency", "50ms")
        self.ask(machine, "tc", "qdisc", "replace", "dev", "eth0", "root", *rate)
        _run("tc", "qdisc", "replace", "dev", self._link(machine), "root", *rate)

    def unshape(self, machine: plan.Machine) -> None:
        """Take the rate away again."""
        if b"tbf" in self.run(machine, "tc", "qdisc", "show", "dev", "eth0").stdout:
            self.ask(machine, "tc", "qdisc", "del", "dev", "eth0", "root")
            _run("tc", "qdisc", "del", "dev", self._link(machine), "root")

    def import_image(self, machine: plan.Machine, archive: pathlib.Path) -> None:
        """Give a machine's containerd an image of the cache.

        :raises LabError: when it does not take it.
        """
        words = ("ctr", "--namespace=k8s.io", "images", "import", f"{plan.IMAGES}/{archive.name}")
        self.ask(machine, *words, limit_s=300)

    def _write_config(self, machine: plan.Machine, place: pathlib.Path) -> None:
        (place / "cni").mkdir(parents=True)
        (place / "pki").mkdir(mode=0o700)
        (place / "cni" / "10-lab.conflist").write_text(config.cni(machine))
        (place / "containerd.toml").write_text(config.containerd())
        for name in plan.PLAIN_REGISTRIES:
            (place / "certs.d" / name).mkdir(parents=True, exist_ok=True)
            (place / "certs.d" / name / "hosts.toml").write_text(config.plain_registry(name))
        (place / "network.sh").write_text(config.network(machine, self.record.subnet))
        (place / "kubelet.json").write_text(config.kubelet(machine))
        users = {"proxy": "/CN=system:kube-proxy", "kubelet": f"/O=system:nodes/CN=system:node:{machine.name}"}
        source = self.folder / "pki"
        if machine.is_control:
            users |= {
                "controllers": "/CN=system:kube-controller-manager",
                "scheduler": "/CN=system:kube-scheduler",
                "admin": "/O=system:masters/CN=admin",
            }
            shutil.copytree(source, place / "pki", dirs_exist_ok=True)
        else:
            shutil.copy(source / "ca.crt", place / "pki")
        for name, subject in users.items():
            client = self.authority.issue(f"{machine.name}-{name}", subject)
            text = config.kubeconfig(self.record.control.address, name, self.authority.pair, client)
            _private(place / f"{name}.conf", text)

    def _link(self, machine: plan.Machine) -> str:
        """Return the name of this machine's end of a node's cable."""
        index = self.ask(machine, "cat", "/sys/class/net/eth0/iflink")
        for place in pathlib.Path("/sys/class/net").iterdir():
            if (place / "ifindex").read_text().strip() == index:
                return place.name
        raise LabError(f"{machine.name} has no link to this machine")

    def _link_is_up(self, machine: plan.Machine) -> bool:
        done = self.run(machine, "cat", "/sys/class/net/eth0/carrier")
        return done.returncode == 0 and done.stdout.strip() == b"1"


def _write_units(place: pathlib.Path, started: dict[str, str], others: dict[str, str]) -> None:
    wants = place / _WANTS
    wants.mkdir(parents=True)
    for name, text in {**started, **others}.items():
        (place / name).write_text(text)
    for name in started:
        (wants / name).symlink_to(f"../{name}")


def _private(place: pathlib.Path, text: str) -> None:
    place.touch(mode=0o600)
    place.write_text(text)


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        raise LabError(f"{' '.join(argv[:3])} failed: {lines[-1]}")
