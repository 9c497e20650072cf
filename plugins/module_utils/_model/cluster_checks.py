# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which machine can be part of a K3s cluster: pure rules on what was read on it, and on what was asked for."""

from __future__ import annotations

import re
import typing as t

from .checks import MAX_SKEW_S, Check
from .k3s_ability import k3s_reasons
from .node_facts import find_mesh_range

if t.TYPE_CHECKING:
    from .k3s import K3sMember

# Of uname -m, and of K3s' releases.
ARCHITECTURES: t.Final = {"x86_64": "amd64", "aarch64": "arm64"}
# K3s' requirements (docs.k3s.io, Requirements) less what firmware and kernel keep of 2 GB and 512 MB.
_MEMORY_GIB: t.Final = {"server": 1.6, "agent": 0.4}
# The binary, what it unpacks and the images that it starts with.
_FREE_BYTES = 2 << 30
# Kubernetes 1.35 and newer refuse version 1 of the cgroup tree.
_CGROUP2_SINCE = (1, 35)
# The first patch of each minor version that keeps flannel.1 when tailscaled is restarted (k3s issue 12436).
_MESH_PATCH: t.Final = {33: 13, 34: 9, 35: 6, 36: 2}
_TESTED_ON = ("debian", "ubuntu")
_HOSTS = "Train on it over SSH (placement.backend: hosts), and leave it out of the machines of this cluster"


def check_machine(member: K3sMember) -> list[Check]:
    """Return the checks of one machine, in the order in which they are to be told."""
    return [*check_install(member), *_check_state(member)]


def check_install(member: K3sMember) -> list[Check]:
    """Return the checks without which K3s is not put on a machine."""
    reasons = ", ".join(k3s_reasons(member.ability))
    foreign = ", ".join(member.foreign)
    return [
        _check(
            member,
            "kubernetes",
            not foreign,
            f"has {foreign} that this collection did not install",
            "Use that cluster by its kubeconfig (muster_kubeconfig), or remove it first",
        ),
        _check(
            member,
            "architecture",
            member.architecture in ARCHITECTURES,
            f"is a {member.architecture} machine, for which K3s is not installed",
            "Use amd64 or arm64",
        ),
        _check(member, "ability", not reasons, f"cannot run K3s: {reasons}", _HOSTS),
        _check(member, "root", member.root, "is not managed as root", "Set ansible_become: true"),
        _check_interface(member),
        _check_address(member),
        _check_mesh_version(member),
    ]


def describe(member: K3sMember) -> list[str]:
    """Return what is worth knowing of a machine and keeps it out of nothing, one line each."""
    facts = member.machine
    system, docker, driver = facts.get("os") or {}, facts.get("docker"), facts.get("driver") or {}
    lines = []
    if system.get("id") and system["id"] not in _TESTED_ON:
        lines.append(f"{system.get('name') or system['id']} is not among the systems that this was tested on")
    if facts.get("selinux"):
        lines.append("SELinux is enforcing: install k3s-selinux, and set selinux: true in k3s_config")
    if facts.get("swap_gib"):
        lines.append(f"swap is on ({facts['swap_gib']:g} GiB): memory of pods can be swapped out")
    if docker:
        state = "runs" if docker["running"] else "is installed"
        lines.append(f"Docker {state} (managed by {docker['managed_by']}); K3s has a containerd of its own")
    if driver.get("gpus") and not driver.get("module"):
        lines.append(f"{driver['gpus']} NVIDIA GPUs without a driver: pods cannot use them")
    elif driver.get("module"):
        lines.append(f"NVIDIA driver {driver['module']}, managed by {driver['managed_by']}")
        if not driver.get("runtime"):
            lines.append("the NVIDIA container runtime is not installed: pods cannot use the GPUs")
    return [f"{member.host}: {line}" for line in lines]


def parse_version(text: str) -> tuple[int, int, int]:
    """Return the numbers of a version such as ``v1.36.4+k3s1``."""
    match = re.match(r"v?([0-9]+)\.([0-9]+)\.([0-9]+)", text)
    return (int(match[1]), int(match[2]), int(match[3])) if match else (0, 0, 0)


def _check_state(member: K3sMember) -> list[Check]:
    """Return the checks of what else is on a machine; what an installed K3s itself uses is not counted."""
    facts = member.machine
    if not facts:
        return []
    return [
        *_check_cgroups(member, facts["cgroup"]),
        _check(
            member,
            "read_only",
            not facts["read_only"],
            f"{', '.join(facts['read_only'])} {'is' if len(facts['read_only']) == 1 else 'are'} read-only",
            "Mount it with write access, or install a system whose root is not read-only",
        ),
        _check_memory(member, facts),
        _check_disk(member, facts),
        _check_clock(member),
        *_check_packages(member, facts),
        _check_ports(member, facts),
    ]


def _check_memory(member: K3sMember, facts: t.Mapping[str, t.Any]) -> Check:
    sizes = [size for size in (facts.get("memory_gib"), facts.get("memory_limit_gib")) if size]
    size, least = min(sizes, default=None), _MEMORY_GIB[member.role]
    problem = (
        f"has {size or 0:.1f} GiB of memory, {'an agent' if member.role == 'agent' else 'a server'} needs {least:g}"
    )
    return _check(member, "memory", size is None or size >= least, problem, "Use a larger machine")


def _check_disk(member: K3sMember, facts: t.Mapping[str, t.Any]) -> Check:
    free = facts["free_bytes"]
    problem = f"has {free / 2**30:.1f} GiB free for /var/lib/rancher/k3s, {_FREE_BYTES >> 30} are needed"
    fix = "Remove what is not needed, or mount a larger disk there"
    return _check(member, "disk", member.installed or free >= _FREE_BYTES, problem, fix)


def _check_clock(member: K3sMember) -> Check:
    skew = member.clock_skew_s
    problem = f"the clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} the controller's"
    fix = "Start time synchronisation on the node (timedatectl set-ntp true)"
    return _check(member, "clock", abs(skew) <= MAX_SKEW_S, problem, fix)


def _check_cgroups(member: K3sMember, cgroup: t.Mapping[str, t.Any]) -> list[Check]:
    version, missing = cgroup["version"], ", ".join(cgroup["missing"])
    new = parse_version(member.version)[:2] >= _CGROUP2_SINCE
    problem = f"has version 1 of the cgroup tree, which K3s {member.version} refuses"
    fix = "Boot it with systemd.unified_cgroup_hierarchy=1, or set k3s_version to one of 1.34"
    kernel = f"has no cgroup controller {missing}"
    boot = "Add cgroup_enable=memory cgroup_memory=1 to the kernel's command line, and boot again"
    return [
        _check(member, "cgroup_controllers", not missing, kernel, boot),
        _check(member, "cgroup_version", version == 2 or not new, problem, fix),
    ]


def _check_packages(member: K3sMember, facts: t.Mapping[str, t.Any]) -> list[Check]:
    # What a role of this collection began, its next run finishes; its own driver it boots for, or refuses.
    records = facts.get("device_records") or {}
    broken, driver = ", ".join(() if False in records.values() else facts["broken_packages"]), facts["driver"]
    module, libraries = driver["module"], driver["libraries"]
    differ = bool(module and libraries and module != libraries)
    unloaded = bool(driver["gpus"] and libraries and not module)
    what = f"the kernel module is {module} and the libraries are {libraries}" if differ else "the module is not loaded"
    return [
        _check(member, "packages", not broken, f"half-installed packages: {broken}", "Run dpkg --configure -a on it"),
        _check(
            member,
            "driver",
            not (differ or unloaded) or "gpu-driver" in records,
            f"NVIDIA's driver is half-installed: {what}",
            "Boot it again; if that does not help, install the driver again",
        ),
    ]


def _check_ports(member: K3sMember, facts: t.Mapping[str, t.Any]) -> Check:
    taken = ", ".join(facts["ports"])
    problem = f"another program has port {taken}"
    return _check(member, "ports", member.installed or not taken, problem, "Stop it, K3s needs the port")


def _check_interface(member: K3sMember) -> Check:
    name, known = member.flannel_iface, sorted({item["interface"] for item in member.addresses})
    problem = f"has no interface {name} (k3s_flannel_iface)"
    return _check(member, "interface", not name or name in known, problem, f"It has {', '.join(known)}")


def _check_address(member: K3sMember) -> Check:
    wanted, known = member.node_ip, [item["address"] for item in member.addresses]
    problem = f"has no interface with the address {wanted} (k3s_node_ip)"
    return _check(member, "address", not wanted or wanted in known, problem, f"It has {', '.join(known)}")


def _check_mesh_version(member: K3sMember) -> Check:
    major, minor, patch = parse_version(member.version)
    least = _MESH_PATCH.get(minor, 0 if minor > max(_MESH_PATCH) else None)
    old = major == 1 and (least is None or patch < least)
    known = ", ".join(f"v1.{key}.{value}" for key, value in _MESH_PATCH.items())
    problem = f"K3s {member.version} loses the network between pods whenever the mesh's daemon starts again"
    return _check(member, "mesh_version", not (is_on_mesh(member) and old), problem, f"Use {known} or newer")


def is_on_mesh(member: K3sMember) -> bool:
    """Return whether a machine's network between pods is to go over the mesh."""
    addresses = [item for item in member.addresses if item["interface"] == member.flannel_iface]
    chosen = [member.node_ip] if member.node_ip else [item["address"] for item in addresses]
    return member.flannel_iface.startswith("tailscale") or any(find_mesh_range(text) for text in chosen)


def _check(member: K3sMember, name: str, ok: bool, problem: str, fix: str) -> Check:
    return Check(name, ok, member.host, None, None, "" if ok else problem, "" if ok else fix)
