# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Taking K3s away from this node: unit, pods, mounts, links, rules and files, and nothing that was there before it.

K3s' own uninstall script is not called: it also resets what tailscale advertises.
"""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import os
import pathlib
import shutil
import signal
import subprocess
import time
import typing as t

from . import files, host_k3s, placed_files, processes
from .commands import run

_LINKS = ("cni0", "flannel.1", "flannel-v6.1", "flannel-wg", "flannel-wg-v6", "kube-ipvs0")
_RULES = ("KUBE-", "CNI-", "cni0", "flannel", "FLANNEL")
_MOUNTS = ("/run/k3s", f"/{host_k3s.DATA}/", "/var/lib/kubelet/", "/run/netns/cni-")
_GONE_S = 20


def remove(request: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Remove what the record of this node names, and all that K3s made; without a record nothing is touched."""
    root = request.get("root", "/")
    record = files.read_json(placed_files.place_of(host_k3s.RECORD, root))
    if record is None:
        return {"removed": False}
    if root == "/":
        _stop(record["unit"])
        host_k3s.stay(root)
        _kill_pods()
        _unmount()
        _remove_network()
    before = set(record.get("before", []))
    for path in record["files"]:
        place = placed_files.place_of(path, root)
        place.unlink(missing_ok=True)
        place.with_name(f".{place.name}.part").unlink(missing_ok=True)
    for path in reversed(host_k3s.TREES):
        _remove_tree(placed_files.place_of(path, root), keep=path in before)
    placed_files.place_of(host_k3s.RECORD, root).unlink(missing_ok=True)
    placed_files.remove_empty(record.get("folders", []))
    if root == "/":
        run("systemctl", "daemon-reload")
        run("systemctl", "reset-failed", record["unit"], check=False)
    return {"removed": True}


def _stop(unit: str) -> None:
    run("systemctl", "disable", "--quiet", unit, check=False)
    run("systemctl", "stop", unit, check=False)


def _kill_pods() -> None:
    """End the shims of K3s' containerd with all that they started: pods outlive the unit."""
    parents: dict[int, int] = {}
    shims: set[int] = set()
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            line = (entry / "cmdline").read_bytes()
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        if b"containerd-shim" in line and b"/run/k3s/" in line:
            shims.add(int(entry.name))
    ending = set(shims)
    while more := {pid for pid, parent in parents.items() if parent in ending} - ending:
        ending |= more
    for pid in ending:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    end = time.monotonic() + _GONE_S
    while any(processes.start_time(pid) for pid in ending) and time.monotonic() < end:
        time.sleep(0.05)


def _unmount() -> None:
    lines = pathlib.Path("/proc/self/mounts").read_text().splitlines()
    places = [line.split()[1].encode().decode("unicode_escape") for line in lines]
    for place in sorted((item for item in places if item.startswith(_MOUNTS)), key=len, reverse=True):
        run("umount", "--lazy", place, check=False)


def _remove_network() -> None:
    ports = pathlib.Path("/sys/class/net/cni0/brif")
    # A pod's link would go with its network namespace, which the kernel removes when it has time.
    pods = [place.name for place in ports.iterdir()] if ports.is_dir() else []
    for link in [*pods, *_LINKS]:
        if pathlib.Path(f"/sys/class/net/{link}").exists():
            run("ip", "link", "delete", link, check=False)
    for tool in ("iptables", "ip6tables"):
        if not shutil.which(f"{tool}-save", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"):
            continue
        rules = run(f"{tool}-save", check=False)
        kept = [line for line in rules.splitlines() if not any(mark in line for mark in _RULES)]
        if kept != rules.splitlines():
            text = "\n".join([*kept, ""]).encode()
            path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
            subprocess.run([f"{tool}-restore"], input=text, env={"PATH": path}, check=False, capture_output=True)


def _remove_tree(place: pathlib.Path, keep: bool) -> None:
    """Remove a folder; one that was there before is emptied of what K3s has put there."""
    if place.is_symlink() or not place.is_dir():
        return
    if not keep and not os.path.ismount(place):
        shutil.rmtree(place, ignore_errors=True)
        return
    if place.name in ("rancher", "cni"):
        # Others' folders may lie here; ours were removed by their own names.
        return
    for item in place.iterdir():
        if item.is_dir() and not item.is_symlink():
            shutil.rmtree(item, ignore_errors=True)
        else:
            item.unlink(missing_ok=True)
