# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes' root file system: made once by mmdebstrap from a recipe, kept as an image named by the recipe's digest."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import pathlib
import platform
import subprocess
import time
import typing as t

from .host import LabError
from .podman import Podman

NAME = "localhost/muster-lab"
USER = "muster"
_BUILD_S = 900

# A node as a rented machine comes: systemd, sshd with a mounted key, a user who may use sudo. No torch, no collection.
_SSHD = """HostKey /etc/ssh/lab/host_key
AuthorizedKeysFile /etc/ssh/lab/authorized_keys
PasswordAuthentication no
PermitRootLogin prohibit-password
UseDNS no
"""
_SUDO = f"{USER} ALL=(ALL:ALL) NOPASSWD: ALL\n"


@dataclasses.dataclass(frozen=True, slots=True)
class Recipe:
    """What a root file system is made of. ``files``: path -> (mode, text); ``commands`` run inside it at the end.

    ``kind`` names the image, so that a new version of one kind replaces only its own older ones. ``without``: paths
    (shell patterns) that no package may put there.
    """

    kind: str
    suite: str
    packages: tuple[str, ...]
    files: t.Mapping[str, tuple[str, str]]
    commands: tuple[str, ...]
    without: tuple[str, ...] = ()

    @property
    def repository(self) -> str:
        """The image's name without its tag."""
        return f"{NAME}-{self.kind}"

    @property
    def tag(self) -> str:
        """The first 12 digits of the recipe's SHA-256, with the machine's architecture."""
        content = json.dumps([dataclasses.asdict(self), platform.machine()], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:12]


HOSTS: t.Final = Recipe(
    kind="hosts",
    suite="trixie",
    packages=(
        "systemd",
        "systemd-sysv",
        "libpam-systemd",
        "dbus",
        "iproute2",
        "openssh-server",
        "python3",
        "ca-certificates",
        "procps",
        "sudo",
        "openmpi-bin",
    ),
    files={
        "/etc/ssh/sshd_config.d/lab.conf": ("0644", _SSHD),
        "/etc/sudoers.d/lab": ("0440", _SUDO),
    },
    commands=(
        # Keys of an image would be the same on all machines made from it.
        "rm -f /etc/ssh/ssh_host_*",
        f"useradd --create-home --shell /bin/bash {USER}",
        # An interpreter may be mounted below root's home; other users must get through.
        "chmod 0711 /root",
        # No terminals, and no kernel modules: the kernel is the host's.
        "systemctl mask getty.target console-getty.service systemd-modules-load.service",
        ": > /etc/machine-id",
    ),
)

_NO_DOCUMENTATION = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")

# A machine that Kubernetes can be started on. etcd is for the one that has the control plane.
KUBE: t.Final = Recipe(
    kind="kube",
    suite="trixie",
    packages=(
        *HOSTS.packages[:-1],
        "conntrack",
        "containerd",
        "containernetworking-plugins",
        "etcd-server",
        "ethtool",
        "iptables",
        "iputils-ping",
        "kmod",
        "mount",
        "nftables",
        "runc",
        "socat",
    ),
    files=HOSTS.files,
    commands=(*HOSTS.commands, "systemctl mask containerd.service etcd.service"),
    without=_NO_DOCUMENTATION,
)

# A bare machine on which any of the firewalls may be switched on; none is, until a test does it.
FIREWALLS: t.Final = Recipe(
    kind="firewalls",
    suite="trixie",
    packages=(*KUBE.packages, "firewalld", "ufw"),
    files=HOSTS.files,
    commands=(*KUBE.commands, "systemctl disable firewalld.service ufw.service nftables.service"),
    without=_NO_DOCUMENTATION,
)

# A bare machine that gets drivers: with what reads apt's lists and keys, as a cloud's image has it.
DEVICES: t.Final = Recipe(
    kind="devices",
    suite="trixie",
    packages=(*KUBE.packages, "python3-apt", "gpg"),
    files=HOSTS.files,
    commands=KUBE.commands,
    without=_NO_DOCUMENTATION,
)

# A bare machine whose package manager is dnf, as one of the RHEL family: packages are rpms, built on it.
RPMS: t.Final = Recipe(
    kind="rpms",
    suite="trixie",
    packages=(
        *HOSTS.packages[:-1],
        "createrepo-c",
        "dnf",
        "dnf-plugins-core",
        "gpg",
        "gpg-agent",
        "iptables",
        "mount",
        "rpm",
    ),
    files=HOSTS.files,
    commands=(
        *HOSTS.commands,
        "rm /etc/os-release",
        'printf "ID=rocky\\nID_LIKE=\\"rhel centos fedora\\"\\nVERSION_ID=9.5\\nPRETTY_NAME=\\"Rocky Linux 9.5\\"\\n" > /etc/os-release',
        'echo "Rocky Linux release 9.5 (Blue Onyx)" > /etc/redhat-release',
    ),
    without=_NO_DOCUMENTATION,
)

# What pods run: the Python that torch is mounted for, and what MPI needs of an image (an sshd that root may log in to).
TRAINING: t.Final = Recipe(
    kind="training",
    suite="trixie",
    packages=("python3", "libstdc++6", "ca-certificates", "iproute2", "procps", "openssh-server", "openmpi-bin"),
    files={
        "/etc/ssh/sshd_config.d/lab.conf": ("0644", "StrictModes no\nPermitRootLogin prohibit-password\nUseDNS no\n"),
        "/etc/ssh/ssh_config.d/lab-client.conf": (
            "0644",
            "Host *\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n",
        ),
    },
    commands=("mkdir -p /run/sshd", f"useradd --create-home --shell /bin/bash {USER}"),
    without=_NO_DOCUMENTATION,
)


def ensure(podman: Podman, recipe: Recipe = HOSTS, say: t.Callable[[str], None] = print) -> str:
    """Return the name of the recipe's image, building it when it is not there; older images of the lab are removed.

    :raises LabError: when it cannot be built.
    """
    image = f"{recipe.repository}:{recipe.tag}"
    with _lock(podman.home / "image.lock"):
        if podman.run("image", "exists", image).returncode == 0:
            return image
        began = time.monotonic()
        say(f"building the image {image} (once)")
        archive = podman.home / f"{recipe.tag}.tar"
        try:
            bootstrap(recipe, archive)
            podman("import", "--quiet", str(archive), image, limit_s=_BUILD_S)
        finally:
            archive.unlink(missing_ok=True)
        _remove_older(podman, recipe.repository, image)
        say(f"built it in {time.monotonic() - began:.0f} s")
    return image


def bootstrap(recipe: Recipe, archive: pathlib.Path) -> None:
    """Write a recipe's root file system as a tar file.

    :raises LabError: when mmdebstrap fails.
    """
    argv = ["mmdebstrap", "--variant=minbase", "--quiet", f"--include={','.join(recipe.packages)}"]
    argv += [f"--dpkgopt=path-exclude={pattern}" for pattern in recipe.without]
    for place, (mode, text) in recipe.files.items():
        source = archive.with_name(f"{recipe.tag}-{pathlib.PurePath(place).name}")
        source.write_text(text)
        argv += [f"--customize-hook=upload {source} {place}", f'--customize-hook=chmod {mode} "$1{place}"']
    argv += [f"--customize-hook=chroot \"$1\" sh -c '{command}'" for command in recipe.commands]
    try:
        done = subprocess.run(
            [*argv, recipe.suite, str(archive)], capture_output=True, text=True, timeout=_BUILD_S, check=False
        )
    except subprocess.TimeoutExpired as exc:
        raise LabError(f"mmdebstrap did not end within {_BUILD_S} s") from exc
    finally:
        for place in recipe.files:
            archive.with_name(f"{recipe.tag}-{pathlib.PurePath(place).name}").unlink(missing_ok=True)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.startswith("E:")] or done.stderr.splitlines()
        raise LabError(f"mmdebstrap failed: {(lines or ['no output'])[-1]}")


def _remove_older(podman: Podman, repository: str, image: str) -> None:
    for entry in podman.json("image", "list", "--filter", f"reference={repository}") or []:
        for name in entry.get("Names") or []:
            if name != image:
                # One that another lab still runs stays; the next build tries again.
                podman.run("image", "rm", name)


@contextlib.contextmanager
def _lock(path: pathlib.Path) -> t.Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
