# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts of the machine and its operating system: processes, limits, virtualisation, the mesh's daemon."""

from __future__ import annotations

import json
import os
import re
import typing as t

from .facts_source import FactsSource, clean_value

# Services whose limits containers inherit.
CONTAINER_SERVICES = {"k3s-server": "k3s", "k3s-agent": "k3s-agent", "containerd": "containerd", "dockerd": "docker"}
_MACHINES = {
    "qemu": "kvm",
    "kvm": "kvm",
    "bochs": "kvm",
    "amazon ec2": "kvm",
    "google compute engine": "kvm",
    "openstack": "kvm",
    "virtual machine": "hyperv",
    "vmware": "vmware",
    "virtualbox": "virtualbox",
    "xen": "xen",
}
_UNLIMITED = "unlimited"
# A direct path is found within a second where there is one.
_PINGS = 3


def parse_os_release(lines: t.Iterable[str]) -> dict[str, str | None]:
    """``{id, version, name}`` of os-release(5)."""
    values = {}
    for line in lines:
        key, found, value = line.strip().partition("=")
        if found:
            values[key] = value.strip("\"'")
    return {"id": values.get("ID"), "version": values.get("VERSION_ID"), "name": values.get("PRETTY_NAME")}


def parse_limits(lines: t.Iterable[str]) -> dict[str, int | str]:
    """Soft limits of /proc/PID/limits: bytes or counts, ``unlimited`` where there is none."""
    names = {"Max locked memory": "memlock", "Max open files": "nofile", "Max stack size": "stack"}
    found: dict[str, int | str] = {}
    for line in lines:
        name, value = line[:26].strip(), line[26:].split(" ")[0]
        if name in names and (value == _UNLIMITED or value.isdecimal()):
            found[names[name]] = value if value == _UNLIMITED else int(value)
    return found


def count_cpus(text: str | None) -> int | None:
    """CPUs in a list such as ``0-3,8``; None for anything else."""
    total = 0
    for part in (text or "").split(","):
        found = re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", part.strip())
        if not found:
            return None
        first, last = int(found.group(1)), int(found.group(2) or found.group(1))
        total += max(0, last - first + 1)
    return total or None


def list_processes(source: FactsSource) -> dict[str, str]:
    """Return the names of running processes, each with the id of one of them."""
    found: dict[str, str] = {}
    for pid in source.names(source.proc):
        if pid.isdecimal():
            name = source.text(os.path.join(source.proc, pid, "comm"))
            if name:
                found.setdefault(name, pid)
    return found


def declared_memlock(source: FactsSource, unit: str) -> int | str | None:
    """LimitMEMLOCK that a unit and its drop-ins set; the last one read wins, as with systemd."""
    value: int | str | None = None
    for folder in ("usr/lib/systemd/system", "etc/systemd/system"):
        base = source.below(folder)
        files = [f"{base}/{unit}.service"]
        files += [f"{base}/{unit}.service.d/{name}" for name in source.names(f"{base}/{unit}.service.d")]
        for line in (line for path in files for line in source.lines(path)):
            key, _unused, text = line.strip().partition("=")
            if key == "LimitMEMLOCK":
                text = text.split(":")[0].strip()
                value = _UNLIMITED if text == "infinity" else int(text) if text.isdecimal() else None
    return value


def read_unit_limits(source: FactsSource, running: t.Mapping[str, str]) -> dict[str, dict[str, t.Any]]:
    """Return ``{unit: {memlock, running}}`` of services that start containers; of running ones the limit in force."""
    found = {}
    for process, unit in CONTAINER_SERVICES.items():
        pid = running.get(process)
        declared = declared_memlock(source, unit)
        if pid:
            now = parse_limits(source.lines(os.path.join(source.proc, pid, "limits"))).get("memlock")
            found[unit] = {"memlock": now if now is not None else declared, "running": True}
        elif declared is not None or os.path.exists(source.below(f"etc/systemd/system/{unit}.service")):
            found[unit] = {"memlock": declared, "running": False}
    return found


def _shm_gib(source: FactsSource) -> float | None:
    try:
        state = os.statvfs(os.path.join(source.dev, "shm"))
    except OSError:
        return None
    return round(state.f_blocks * state.f_frsize / 2**30, 3)


def read_limits(source: FactsSource, running: t.Mapping[str, str]) -> dict[str, t.Any]:
    """Return ``{memlock, nofile, stack, shm_gib, units}``; the first three in bytes or counts, or ``unlimited``."""
    own = parse_limits(source.lines(os.path.join(source.proc, "self/limits")))
    facts: dict[str, t.Any] = {name: own.get(name) for name in ("memlock", "nofile", "stack")}
    return {**facts, "shm_gib": _shm_gib(source), "units": read_unit_limits(source, running)}


def _read_meminfo(source: FactsSource) -> dict[str, int]:
    found = {}
    for line in source.lines(os.path.join(source.proc, "meminfo")):
        name, _unused, value = line.partition(":")
        number = value.strip().split(" ")[0]
        if number.isdecimal():
            found[name] = int(number)
    return found


def read_memory(source: FactsSource) -> dict[str, float | None]:
    """Return ``{memory_gib, memory_available_gib, memory_limit_gib}``; the limit is that of the control group."""
    info = _read_meminfo(source)
    total, available = info.get("MemTotal"), info.get("MemAvailable")
    limit = source.number(os.path.join(source.sys, "fs/cgroup/memory.max"))
    return {
        "memory_gib": round(total / 2**20, 2) if total else None,
        "memory_available_gib": round(available / 2**20, 2) if available is not None else None,
        "memory_limit_gib": round(limit / 2**30, 2) if limit else None,
    }


def read_cpu(source: FactsSource) -> dict[str, t.Any]:
    """Return ``{count, usable, arch, model}``; usable is what the control group's quota and affinity leave."""
    count = count_cpus(source.text(os.path.join(source.sys, "devices/system/cpu/online")))
    quota = (source.text(os.path.join(source.sys, "fs/cgroup/cpu.max")) or "").split()
    usable = float(count) if count else None
    if source.live:
        usable = float(len(os.sched_getaffinity(0)))
    if len(quota) == 2 and all(item.isdecimal() for item in quota) and int(quota[1]):
        usable = min(usable or float("inf"), round(int(quota[0]) / int(quota[1]), 2))
    lines = source.lines(os.path.join(source.proc, "cpuinfo"))
    model = next((line.partition(":")[2] for line in lines if line.startswith("model name")), None)
    arch = source.text(os.path.join(source.proc, "sys/kernel/arch")) or os.uname().machine
    return {"count": count, "usable": usable, "arch": arch, "model": clean_value(model)}


def _container_kind(source: FactsSource) -> str | None:
    """The kind of container this is, or None."""
    named = source.text(source.below("run/systemd/container"))
    environment = (source.data(os.path.join(source.proc, "1/environ")) or b"").split(b"\0")
    from_environment = next(
        (item[10:].decode(errors="replace") for item in environment if item.startswith(b"container=")), None
    )
    if named or from_environment:
        return named or from_environment
    if os.path.exists(source.below("run/.containerenv")):
        return "podman"
    if os.path.exists(source.below(".dockerenv")):
        return "docker"
    if os.path.isdir(source.below("var/run/secrets/kubernetes.io/serviceaccount")):
        return "kubernetes"
    return None


def read_virtualisation(source: FactsSource) -> dict[str, str | None]:
    """Return ``{kind, technology}``: kind is container, vm, baremetal, or None when unknown."""
    container = _container_kind(source)
    if container:
        return {"kind": "container", "technology": container}
    base = os.path.join(source.sys, "class/dmi/id")
    words = " ".join(source.text(f"{base}/{name}") or "" for name in ("sys_vendor", "product_name")).lower()
    technology = next((value for key, value in _MACHINES.items() if key in words), None)
    flags = any(
        " hypervisor" in line for line in source.lines(os.path.join(source.proc, "cpuinfo")) if line[:5] == "flags"
    )
    # EC2's bare-metal instances carry the same vendor as its virtual machines.
    if flags or (technology and ".metal" not in words):
        return {"kind": "vm", "technology": technology or source.text(os.path.join(source.sys, "hypervisor/type"))}
    return {"kind": "baremetal" if words.strip() else None, "technology": None}


def systemd_state(source: FactsSource, running: t.Mapping[str, str]) -> str:
    """Return ``running`` (the system's manager), ``user`` (only a manager of this user) or ``absent``."""
    if os.path.isdir(source.below("run/systemd/system")):
        return "running"
    user = source.below(f"run/user/{os.getuid()}/systemd")
    return "user" if os.path.isdir(user) and "systemd" in running else "absent"


def read_secure_boot(source: FactsSource) -> bool | None:
    """Return the firmware's SecureBoot variable: four bytes of attributes, then the value (UEFI 2.10, 3.3)."""
    name = "firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    raw = source.data(os.path.join(source.sys, name))
    return raw[4] == 1 if raw and len(raw) > 4 else None


def parse_tailscale(text: str, peers: t.Collection[str] = ()) -> dict[str, t.Any]:
    """``{state, peers}`` of ``tailscale status --json``: direct, relayed or idle for each address of ``peers``.

    A peer shows its path while traffic flows: CurAddr for a direct one, else it goes through a relay. ``peers`` are
    addresses in the mesh, or names of machines there.
    """
    status = json.loads(text)
    found: dict[str, str] = {}
    for peer in (status.get("Peer") or {}).values():
        path = "direct" if peer.get("CurAddr") else "relayed" if peer.get("Active") else "idle"
        # A name that was taken before has a suffix in the DNS.
        names = {str(peer.get(key) or "").partition(".")[0].lower() for key in ("DNSName", "HostName")}
        addresses = peer.get("TailscaleIPs") or []
        if not peers or names & set(peers) or any(address in peers for address in addresses):
            found.update({str(address): path for address in addresses})
    return {"state": clean_value(status.get("BackendState")), "peers": found}


def mesh_path(paths: t.Collection[str]) -> str | None:
    """Return what a machine has, by its paths to others: one that only reaches a relay has no direct one.

    A relayed path beside direct ones is the other machine's. None while nothing has answered.
    """
    return "direct" if "direct" in paths else "relayed" if "relayed" in paths else None


def parse_pings(text: str) -> str | None:
    """Return the path of what ``tailscale ping`` prints, which ends with a direct one; None without an answer."""
    pongs = [line.rpartition(" via ")[2] for line in text.splitlines() if line.startswith("pong ")]
    relays = ("DERP(", "peer-relay(")
    return None if not pongs else "relayed" if all(pong.startswith(relays) for pong in pongs) else "direct"


def probe_paths(source: FactsSource, paths: t.Mapping[str, str]) -> dict[str, str]:
    """Return ``paths``; those that are not direct are tried by ``tailscale ping``, all at once."""
    import concurrent.futures

    asked = [address for address, path in paths.items() if path != "direct"]
    words = ("ping", f"--c={_PINGS}", "--timeout=1s")

    def ping(address: str) -> str:
        return parse_pings(source.run("tailscale", *words, address, accept=(0, 1)) or "") or paths[address]

    if not asked:
        return dict(paths)
    with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
        return {**paths, **dict(zip(asked, pool.map(ping, asked), strict=True))}


def read_tailscale(
    source: FactsSource, running: t.Mapping[str, str], has_interface: bool, peers: t.Collection[str]
) -> dict[str, t.Any]:
    """Return ``{state, userspace, peers, mesh_path}``. Without an interface of its own the mesh carries no NCCL.

    Paths to ``peers`` that nothing has used yet are tried; without any, those of the tailnet are only read.
    """
    if "tailscaled" not in running:
        return {"state": None, "userspace": None, "peers": {}, "mesh_path": None if has_interface else "none"}
    answer = source.run("tailscale", "status", "--json")
    unknown: dict[str, t.Any] = {"state": None, "peers": {}}
    facts = source.guard("tailscale", lambda: parse_tailscale(answer or "{}", peers), unknown)
    if not has_interface:
        source.problem("tailscale runs without an interface (userspace networking): nothing can bind to the mesh")
        return {**facts, "userspace": True, "mesh_path": "none"}
    paths = probe_paths(source, facts["peers"]) if peers else facts["peers"]
    return {**facts, "peers": paths, "userspace": False, "mesh_path": mesh_path(set(paths.values()))}
