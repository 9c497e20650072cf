# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the lab asks of this machine: Linux, root, and a handful of programs, which are installed where apt can."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

# Program -> Debian package. netavark and aardvark-dns live where only podman looks.
PROGRAMS = {
    "podman": "podman",
    "runc": "runc",
    "netavark": "netavark",
    "aardvark-dns": "aardvark-dns",
    "mmdebstrap": "mmdebstrap",
    "iptables": "iptables",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
}
_PLACES = ("/usr/local/lib/podman", "/usr/lib/podman", "/usr/libexec/podman", "/usr/local/sbin", "/usr/sbin", "/sbin")
_APT_S = 600


class LabError(Exception):
    """The lab cannot be had; the message is one line that says why."""


def unmet() -> str:
    """Return why the lab cannot run on this machine, empty when it can (programs that apt can install are no reason)."""
    if sys.platform != "linux":
        return f"the lab needs Linux, this is {sys.platform}"
    if os.geteuid() != 0:
        return "the lab needs root (systemd in privileged containers)"
    if not pathlib.Path("/sys/fs/cgroup").is_dir():
        return "no control groups are mounted at /sys/fs/cgroup"
    if os.access("/proc/sys/net/ipv4/ip_forward", os.W_OK) is False:
        return "network settings of the kernel are read-only here (an unprivileged container)"
    lacking = missing()
    if lacking and not shutil.which("apt-get"):
        return f"these programs are missing and there is no apt-get: {', '.join(lacking)}"
    return ""


def missing() -> list[str]:
    """Return the programs that are not on this machine."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *_PLACES])
    return [name for name in PROGRAMS if not shutil.which(name, path=path)]


def ensure_programs() -> list[str]:
    """Install the missing programs; return the Debian packages that were installed.

    :raises LabError: when this machine cannot run the lab, or apt cannot install them.
    """
    reason = unmet()
    if reason:
        raise LabError(reason)
    packages = sorted({PROGRAMS[name] for name in missing()})
    if not packages:
        return []
    _apt("update")
    _apt("install", "--yes", "--no-install-recommends", *packages)
    lacking = missing()
    if lacking:
        raise LabError(f"these programs are still missing: {', '.join(lacking)}")
    return packages


def _apt(*words: str) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    argv = ["apt-get", "--quiet", *words]
    try:
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=_APT_S, check=False)
    except subprocess.TimeoutExpired as exc:
        raise LabError(f"apt-get {words[0]} did not end within {_APT_S} s") from exc
    if done.returncode != 0:
        last = ([line for line in done.stderr.splitlines() if line.startswith("E:")] or ["no reason given"])[-1]
        raise LabError(f"apt-get {words[0]} failed: {last}")
