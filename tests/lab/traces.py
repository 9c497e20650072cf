# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a lab is on this machine: podman's objects by label, and what their networks leave in the kernel."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import shlex
import socket
import subprocess
import time

from .podman import Podman

LABEL = "muster-lab"
# The owner of a lab that no process owns.
KEPT = "kube"
_BEFORE = "machine-before.json"
_SETTLE_S = 5
_INOTIFY = pathlib.Path("/proc/sys/fs/inotify/max_user_instances")
_INOTIFY_BEFORE, _INOTIFY_WANTED = "inotify-before", 2048
_CGROUPS = pathlib.Path("/sys/fs/cgroup")
_TABLES = ("filter", "nat")
# netavark makes these for the first network and leaves them behind with the last.
_CHAIN = re.compile(r"\bNETAVARK[-_]")
_SHARED_CHAINS = re.compile(r"\bNETAVARK(_FORWARD|-HOSTPORT-(DNAT|MASQ|SETMARK))\b")


def labels(lab_id: str) -> list[str]:
    """Return podman's options that mark an object as a part of a lab: of this process, or one that outlives it."""
    owner = KEPT if lab_id.startswith(f"{LABEL}-{KEPT}-") else _identity(os.getpid())
    return [f"--label={LABEL}={lab_id}", f"--label={LABEL}-owner={owner}"]


def kept_id(name: str) -> str:
    """Return the id of a lab that lives until somebody takes it down, whichever process made it."""
    return f"{LABEL}-{KEPT}-{name}"


def remove(podman: Podman, lab_id: str) -> None:
    """Remove the containers, their volumes and the networks of a lab."""
    for container in _named(podman, "ps", lab_id):
        podman.run("rm", "--force", "--volumes", "--time=0", container)
    for network in _named(podman, "network", lab_id):
        podman.run("network", "rm", "--force", network)


def sweep(podman: Podman) -> list[str]:
    """Remove the labs whose process is gone (it was killed), and volumes whose container went without them."""
    gone = [name for name, owner in _owners(podman).items() if not _lives(owner)]
    for name in gone:
        remove(podman, name)
    if not _owners(podman):
        # This storage is the labs' own, and none of them is there that could be about to use one.
        orphans = podman("volume", "ls", "--quiet", "--filter", "dangling=true").split()
        for volume in orphans:
            podman.run("volume", "rm", volume)
        gone += [f"volume {volume[:12]}" for volume in orphans]
    tidy(podman)
    return gone


def take() -> frozenset[str]:
    """Return what the kernel has now, one line each: interfaces, routes, rules, control groups, mounts, processes."""
    found = {f"interface {name}" for _, name in socket.if_nameindex()}
    found |= {f"route {line.strip()}" for family in ("-4", "-6") for line in _said("ip", family, "route")}
    found |= {f"rule {table} {line}" for table in _TABLES for line in _rules(table)}
    found |= {f"cgroup {path}" for parent in _parent_groups() for path in (parent, *parent.glob("*/"))}
    found |= {f"mount {line.split()[1]}" for line in pathlib.Path("/proc/mounts").read_text().splitlines()}
    return frozenset(found | {f"process {_identity(int(pid))}" for pid in os.listdir("/proc") if pid.isdigit()})


def own(podman: Podman, lab_id: str) -> frozenset[str]:
    """Return the lines of :func:`take` that belong to a lab, told by its bridge, its subnet and its containers."""
    found: set[str] = set()
    networks = _named(podman, "network", lab_id)
    containers = _named(podman, "ps", lab_id)
    words = [line.rpartition(" ")[2] for line in networks + containers]
    exact: set[str] = set()
    for network in podman.json("network", "inspect", *networks) if networks else []:
        bridge, subnet = network["network_interface"], network["subnets"][0]["subnet"]
        members = pathlib.Path("/sys/class/net", bridge, "brif")
        exact |= {f"interface {name.name}" for name in members.glob("*")} | {f"interface {bridge}"}
        words += [f" dev {bridge} ", subnet, *_chains(subnet)]
    ids: list[str] = []
    for container in podman.json("inspect", *containers) if containers else []:
        ids.append(container["Id"])
        words += [container["Id"], str(pathlib.PurePath(container["GraphDriver"]["Data"]["UpperDir"]).parent)]
        exact.add(f"mount {container['NetworkSettings']['SandboxKey']}")
        # One that could not be started again has no monitor.
        pids = [container["State"].get(key, 0) for key in ("Pid", "ConmonPid")]
        exact |= {f"process {_identity(pid)}" for pid in pids if pid}
        found |= {f"volume {mount['Name']}" for mount in container["Mounts"] if mount["Type"] == "volume"}
    for line in take():
        if line in exact or any(word in f"{line} " for word in words):
            found.add(line)
    return frozenset(found | _inside(ids))


def left(podman: Podman, lab_id: str, made: frozenset[str]) -> list[str]:
    """Return what is left of a lab: podman's objects that carry its name, and what of ``made`` the kernel still has."""
    found = [f"container {name}" for name in _named(podman, "ps", lab_id)]
    found += [f"network {name}" for name in _named(podman, "network", lab_id)]
    volumes = podman("volume", "ls", "--quiet").split()
    # A volume that is gone from its container cannot be told from another lab's, except while there is none.
    found += [f"volume {name}" for name in volumes if f"volume {name}" in made or not _owners(podman)]
    end = time.monotonic() + _SETTLE_S
    # The monitor of a container ends a moment after the container was removed.
    while made & take() and time.monotonic() < end:
        time.sleep(0.1)
    return found + sorted(made & take())


def remember(podman: Podman) -> None:
    """Note what the machine has before its first lab, for the last one to put it back."""
    if not _owners(podman):
        (podman.home / _BEFORE).write_text(json.dumps(sorted(take())))
    _raise_limit(podman)


def tidy(podman: Podman) -> list[str]:
    """Remove what podman and netavark leave behind with the last lab, unless it was there before the first.

    :returns: what is still there although it should not be.
    """
    if _owners(podman):
        return []
    _restore_limit(podman)
    place = podman.home / _BEFORE
    if not place.exists():
        return []
    before = frozenset(json.loads(place.read_text()))
    place.unlink()
    for path in (path for parent in _parent_groups() for path in (*parent.glob("*/"), parent)):
        if f"cgroup {path}" not in before:
            # One that holds another's containers cannot be removed.
            with contextlib.suppress(OSError):
                path.rmdir()
    return [] if any(_SHARED_CHAINS.search(line) for line in before) else _remove_chains()


def _raise_limit(podman: Podman) -> None:
    """Allow root's processes more inotify instances: all machines share them, and each kubelet takes a dozen."""
    value = int(_INOTIFY.read_text())
    if value < _INOTIFY_WANTED:
        (podman.home / _INOTIFY_BEFORE).write_text(str(value))
        _INOTIFY.write_text(str(_INOTIFY_WANTED))


def _restore_limit(podman: Podman) -> None:
    place = podman.home / _INOTIFY_BEFORE
    if place.exists():
        _INOTIFY.write_text(place.read_text())
        place.unlink()


def _remove_chains() -> list[str]:
    """Remove netavark's own firewall chains unless networks use them; return those that are still there."""
    rules = [(table, line) for table in _TABLES for line in _rules(table) if _CHAIN.search(line)]
    if any(not _SHARED_CHAINS.search(line) for _, line in rules):
        return []
    for table, line in rules:
        if line.startswith("-A "):
            _said("iptables", "-t", table, "-D", *shlex.split(line)[1:])
    for table, line in rules:
        if line.startswith(":"):
            _said("iptables", "-t", table, "-X", line[1:].split()[0])
    return [f"rule {line}" for table in _TABLES for line in _rules(table) if _SHARED_CHAINS.search(line)]


def _parent_groups() -> list[pathlib.Path]:
    """Return the control groups below which podman with cgroupfs puts containers, of either version's hierarchies."""
    return [*_CGROUPS.glob("libpod_parent"), *_CGROUPS.glob("*/libpod_parent")]


def _chains(subnet: str) -> list[str]:
    """Return the chains that firewall rules about a subnet lead to."""
    lines = [line for table in _TABLES for line in _rules(table) if subnet in line]
    return [name for line in lines for name in re.findall(r"\bNETAVARK-[0-9A-F]{6,}\b", line)]


def _owners(podman: Podman) -> dict[str, str]:
    """Return lab -> the identity of the process that made it, for every lab there is."""
    entries = podman.json("network", "ls", "--filter", f"label={LABEL}") or []
    return {entry["labels"][LABEL]: entry["labels"][f"{LABEL}-owner"] for entry in entries}


def _inside(ids: list[str]) -> set[str]:
    """Return the processes that run in the control groups of containers: also what their systemd started."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        # It may end between the two looks.
        with contextlib.suppress(OSError):
            text = pathlib.Path("/proc", pid, "cgroup").read_text()
            if any(name in text for name in ids):
                found.add(f"process {_identity(int(pid))}")
    return found


def _named(podman: Podman, kind: str, lab_id: str) -> list[str]:
    words = ["ps", "--all", "--format={{.Names}}"] if kind == "ps" else ["network", "ls", "--format={{.Name}}"]
    return podman(*words, "--filter", f"label={LABEL}={lab_id}").split()


def _identity(pid: int) -> str:
    """Return a name for a process that a reused number does not share: pid and start time (proc(5), field 22)."""
    try:
        text = pathlib.Path("/proc", str(pid), "stat").read_text()
    except OSError:
        return ""
    return f"{pid}-{text[text.rindex(')') + 2 :].split()[19]}"


def _lives(owner: str) -> bool:
    return owner == KEPT or _identity(int(owner.partition("-")[0])) == owner


def _rules(table: str) -> list[str]:
    """Return the rules and the chains of a table that somebody made, without counters (built-in chains have a policy)."""
    lines = [re.sub(r" \[\d+:\d+\]$", "", line) for line in _said("iptables-save", "-t", table)]
    return [line for line in lines if line.startswith("-A ") or (line.startswith(":") and line.endswith(" -"))]


def _said(*argv: str) -> list[str]:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    return done.stdout.splitlines()
