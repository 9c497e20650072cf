# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What decides how a machine gets its GPU driver, its container runtime and RDMA: read in one pass, nothing changed.

Everything comes from files where a file says it; ``nvidia-smi``, ``modinfo``, ``mokutil`` and ``rpm`` are asked under a
timeout where none does. The rules on these facts are in ``_model/gpu_driver_plan.py``, ``container_runtime_plan.py``
and ``rdma_plan.py``.
"""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import glob
import gzip
import os
import re
import time
import typing as t

from . import facts_boot, facts_gpu, facts_host, facts_pci, facts_rdma, kernel_log
from .facts_source import FactsSource

# Packages that decide on drivers, container runtimes and RDMA.
_PACKAGES = re.compile(
    r"(nvidia-|libnvidia-|linux-modules-nvidia-|linux-image-|linux-headers-|kernel-|cuda-drivers|nvlsm|doca-|mlnx-|"
    r"mlnx_|ofed-|rdma-core|ibverbs|libibverbs|libibumad|librdmacm|rdmacm-utils|infiniband-diags|perftest|pciutils|dkms|epel-release|containerd|kmod-)"
)
_LOCKS = ("var/lib/dpkg/lock-frontend", "var/lib/dpkg/lock", "var/lib/apt/lists/lock", "var/lib/rpm/.rpm.lock")
_LIBRARY_FOLDERS = ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib/wsl/lib")
# The kernel cuts the names of processes at 15 characters.
_PERSISTENCED = "nvidia-persiste"
_MELLANOX = "15b3"
_CDI_FOLDERS = ("etc/cdi", "var/run/cdi", "run/cdi")
_K3S_CONTAINERD = "var/lib/rancher/k3s/agent/etc/containerd/config.toml"
_CONTAINERD = "etc/containerd/config.toml"
_K3S_UNITS = {"k3s-server": "k3s", "k3s-agent": "k3s-agent"}
_RUNTIMES = ("usr/bin/nvidia-container-runtime", "usr/local/nvidia/toolkit/nvidia-container-runtime")
# What dpkg calls packages that it began with; triggers that wait are run with the next package.
_UNFINISHED = ("half-installed", "unpacked", "half-configured")
_NO_PACKAGES: t.Mapping[str, t.Any] = {"versions": {}, "held": [], "broken": [], "manager": None}
# What each role of the collection leaves beside the records of its packages.
_OWN_FILES: t.Mapping[str, tuple[str, ...]] = {
    "gpu_driver": ("etc/modprobe.d/muster-gpu-driver.conf", "etc/apt/apt.conf.d/52muster-gpu-driver"),
    "container_runtime": ("etc/systemd/system/nvidia-cdi-refresh.service", "var/lib/muster/containerd-config.toml"),
    "rdma": (
        "etc/modules-load.d/muster-rdma.conf",
        "etc/udev/rules.d/71-muster-rdma.rules",
        *(f"etc/systemd/system/{unit}.service.d/50-muster-rdma.conf" for unit in ("k3s", "k3s-agent", "containerd")),
        "etc/systemd/system/muster-acs.service",
        "etc/systemd/system/multi-user.target.wants/muster-acs.service",
        "var/lib/muster/kernel-options-rdma",
    ),
}
# Gone with the next boot; the second one: what rdma removed of ACS and kernel options is in force until then.
_REBOOT_MARK = "run/muster-reboot"
_REMOVED_MARK = "run/muster-rdma-removed"
_DRAINED_MARK = "var/lib/muster/drained"
# Its driver was changed in a wave, and is not proven yet.
_UNPROVEN_MARK = "var/lib/muster/driver-unproven"
_MIN_MEMLOCK_UNITS = ("k3s", "k3s-agent", "containerd")


def answer(request: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the facts of this machine; ``request`` may move the roots as in ``facts.gather_facts``."""
    return read_devices(FactsSource(request))


def read_devices(source: FactsSource) -> dict[str, t.Any]:
    """Return the facts of the machine; unknown is None, with the reason in ``problems``."""
    bus = source.guard("pci", lambda: facts_pci.list_devices(source), {})
    kernel = source.text(os.path.join(source.proc, "sys/kernel/osrelease"))
    packages = source.guard("packages", lambda: read_packages(source), _NO_PACKAGES)
    running = facts_host.list_processes(source)
    facts = {
        **_read_system(source),
        "kernel": kernel,
        "headers": source.guard("headers", lambda: _find_headers(source, kernel, packages), None),
        "gpus": source.guard("gpus", lambda: _read_gpu_functions(source, bus), []),
        "gpu_errors": kernel_log.read_messages(kernel_log.GPU_WORDS, path=os.path.join(source.dev, "kmsg")),
        "nvswitches": sum(vendor == facts_gpu.NVIDIA and klass.startswith("0680") for vendor, klass in bus.values()),
        "driver": source.guard("driver", lambda: _read_driver(source, packages["versions"]), {}),
        "fabric_manager": {
            "running": "nv-fabricmanage" in running,
            "version": _version_of(packages["versions"], "nvidia-fabricmanager"),
            "nvlsm": "nvlsm" in packages["versions"],
            "imex": _version_of(packages["versions"], "nvidia-imex"),
        },
        "k3s_unit": next((unit for name, unit in _K3S_UNITS.items() if name in running), ""),
        "persistence": _PERSISTENCED in running,
        "packages": packages,
        "records": source.guard("records", lambda: read_records(source), {}),
        "own_files": {
            role: [f"/{path}" for path in paths if os.path.exists(source.below(path))]
            for role, paths in _OWN_FILES.items()
        },
        "reboot": source.text(source.below(_REBOOT_MARK)),
        "drained": os.path.exists(source.below(_DRAINED_MARK)),
        "unproven": os.path.exists(source.below(_UNPROVEN_MARK)),
        "lock": _find_lock_holder(source),
        "free_bytes": facts_boot.free_bytes(source, "var/lib"),
        "boot": facts_boot.read_boot(source, kernel),
        "time": time.time(),
        "runtime": source.guard("runtime", lambda: _read_runtime(source, packages["versions"]), {}),
        "rdma": source.guard("rdma", lambda: _read_rdma(source, bus, packages["versions"], running), {}),
    }
    return {**facts, "problems": source.problems}


def _read_system(source: FactsSource) -> dict[str, t.Any]:
    release = source.below("etc/os-release")
    lines = source.lines(release if os.path.exists(release) else source.below("usr/lib/os-release"))
    like = next((line.partition("=")[2].strip("\"' ") for line in lines if line.startswith("ID_LIKE=")), "")
    version = source.text(os.path.join(source.proc, "version")) or ""
    firmware = os.path.isdir(os.path.join(source.sys, "firmware/efi"))
    return {
        "os": {**facts_host.parse_os_release(lines), "like": like.split()},
        "machine": source.text(os.path.join(source.proc, "sys/kernel/arch")) or os.uname().machine,
        "virtualisation": facts_host.read_virtualisation(source),
        "dgx_os": os.path.exists(source.below("etc/dgx-release")),
        "wsl": os.path.exists(os.path.join(source.dev, "dxg")) or "microsoft-standard-wsl" in version.lower(),
        "jetson": os.path.exists(source.below("etc/nv_tegra_release")),
        # Without EFI there is no Secure Boot; with EFI and without the variable it is not known.
        "secure_boot": facts_host.read_secure_boot(source) if firmware else False,
        "dkms_key": _read_dkms_key(source),
        "lockdown": _read_lockdown(source),
        "product": source.text(os.path.join(source.sys, "class/dmi/id/product_name")),
    }


def _read_lockdown(source: FactsSource) -> str | None:
    """Return how the kernel restricts root: none, integrity, confidentiality; None where that is not known."""
    found = re.search(r"\[([a-z]+)\]", source.text(os.path.join(source.sys, "kernel/security/lockdown")) or "")
    return found.group(1) if found else None


def _read_dkms_key(source: FactsSource) -> bool | None:
    """Return whether the key by which dkms signs modules is enrolled in the firmware; None where that is not known."""
    key = source.below("var/lib/dkms/mok.pub")
    if not os.path.exists(key):
        return None
    # mokutil exits 1 for a key that is enrolled (mokutil(1), --test-key), 0 for one that is not.
    said = source.run("mokutil", "--test-key", key, accept=(0, 1))
    return None if said is None else "already enrolled" in said


def _find_headers(source: FactsSource, kernel: str | None, packages: t.Mapping[str, t.Any]) -> str | None:
    """Return whether modules can be built for the running kernel: installed, available, missing; None: not known."""
    if not kernel:
        return None
    places = (f"lib/modules/{kernel}/build", f"usr/src/linux-headers-{kernel}", f"usr/src/kernels/{kernel}")
    if any(os.path.isdir(source.below(path)) for path in places):
        return "installed"
    if packages["manager"] == "dnf":
        return _ask_dnf(source, kernel)
    # A machine whose lists were never read knows of no package at all.
    lists = any("_Packages" in name for name in source.names(source.below("var/lib/apt/lists")))
    if packages["manager"] != "apt" or not lists:
        return None
    policy = source.run("apt-cache", "policy", f"linux-headers-{kernel}")
    found = re.search(r"Candidate: (\S+)", policy or "")
    return None if policy is None else "available" if found and found.group(1) != "(none)" else "missing"


def _ask_dnf(source: FactsSource, kernel: str) -> str | None:
    """Return whether dnf knows what modules of a kernel are built with; None where it has not read its repositories."""
    name, large, _unused = kernel.partition("+64k")
    package = f"kernel-{'64k-' if large else ''}devel"
    before = len(source.problems)
    said = source.run("dnf", "--quiet", "--cacheonly", "repoquery", package)
    del source.problems[before:]
    # One that knows of no version at all has not read its repositories.
    known = [re.sub(r"-[0-9]+:", "-", line.strip()) for line in (said or "").splitlines() if line.strip()]
    return None if not known else "available" if f"{package}-{name}" in known else "missing"


def _read_gpu_functions(source: FactsSource, bus: t.Mapping[str, tuple[str, str]]) -> list[dict[str, t.Any]]:
    """Return ``{pci, device, driver}`` of each NVIDIA GPU on the bus, whether or not a driver exists."""
    base = os.path.join(source.sys, "bus/pci/devices")
    return [
        {
            "pci": bdf,
            "device": (source.text(f"{base}/{bdf}/device") or "").removeprefix("0x").lower() or None,
            "driver": _link_name(f"{base}/{bdf}/driver"),
        }
        for bdf, (vendor, klass) in sorted(bus.items())
        if vendor == facts_gpu.NVIDIA and klass[:4] in ("0300", "0302")
    ]


def _link_name(path: str) -> str | None:
    return os.path.basename(os.path.realpath(path)) if os.path.exists(path) else None


def _read_driver(source: FactsSource, versions: t.Mapping[str, str]) -> dict[str, t.Any]:
    """Return what is there of NVIDIA's driver: module and libraries apart, and who installed it."""
    lines = "\n".join(source.lines(os.path.join(source.proc, "driver/nvidia/version")))
    module = facts_gpu.parse_driver(lines)
    listed, said = _list_gpus(source)
    modules = os.path.join(source.sys, "module")
    references = source.number(f"{modules}/nouveau/refcnt") or 0
    return {
        "module": module["version"],
        "flavour": module["flavour"],
        "libraries": _find_libraries(source),
        "listed": listed,
        "listing_error": said,
        "owner": _find_owner(source, versions, module["version"]),
        "runfile": os.path.exists(source.below("usr/bin/nvidia-uninstall")),
        "nouveau": os.path.isdir(f"{modules}/nouveau"),
        "nouveau_in_use": references > 0,
        "loaded": os.path.isdir(f"{modules}/nvidia"),
        "peermem_in_use": bool(source.number(f"{modules}/nvidia_peermem/refcnt")),
        "processes": _count_gpu_processes(source)
        if listed
        else _count_open_devices(source)
        if module["version"]
        else 0,
        **(_read_modes(source) if listed else {"mig": None, "vgpu": None}),
    }


def _list_gpus(source: FactsSource) -> tuple[int | None, str | None]:
    """Return how many GPUs ``nvidia-smi -L`` lists, and what it says where it fails; None without the program."""
    before = len(source.problems)
    said = source.run("nvidia-smi", "-L")
    if said is None:
        failed = source.problems[before:]
        del source.problems[before:]
        return (None, failed[0]) if failed else (None, None)
    return len(re.findall(r"^GPU [0-9]+:", said, re.M)), None


def _read_modes(source: FactsSource) -> dict[str, bool | None]:
    said = source.run("nvidia-smi", "--query-gpu=mig.mode.current", "--format=csv,noheader")
    virtual = source.run("nvidia-smi", "-q") or ""
    return {
        "mig": None if said is None else "Enabled" in said,
        "vgpu": bool(re.search(r"Virtualization Mode\s+: VGPU", virtual)) if virtual else None,
    }


def _count_gpu_processes(source: FactsSource) -> int | None:
    said = source.run("nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader")
    return None if said is None else len([line for line in said.splitlines() if line.strip().isdecimal()])


def _count_open_devices(source: FactsSource) -> int:
    """Return how many processes have a GPU open, of a driver whose ``nvidia-smi`` does not answer."""
    found = 0
    for pid in filter(str.isdecimal, source.names(source.proc)):
        base = os.path.join(source.proc, pid)
        if (source.text(f"{base}/comm") or "") == _PERSISTENCED:
            continue
        links = (f"{base}/fd/{name}" for name in source.names(f"{base}/fd"))
        found += any(re.fullmatch(r"/dev/nvidia[0-9]+", _read_link(link)) for link in links)
    return found


def _read_link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _find_libraries(source: FactsSource) -> str | None:
    for folder in _LIBRARY_FOLDERS:
        for name in source.names(source.below(folder)):
            match = re.fullmatch(r"libnvidia-ml\.so\.([0-9]+\.[0-9.]+)", name)
            if match:
                return match[1]
    return None


def _find_owner(source: FactsSource, versions: t.Mapping[str, str], module: str | None) -> str | None:
    """Return who installed the driver: dgx_os, archive, cuda, runfile, host (of a container), unknown, None."""
    if os.path.exists(source.below("etc/dgx-release")):
        return "dgx_os"
    if any(re.match(r"linux-modules-nvidia-[0-9]+|nvidia-headless-|nvidia-dkms-[0-9]+", name) for name in versions):
        return "archive"
    if any(
        re.match(r"nvidia-(driver-cuda|kernel-(open-)?dkms|open$)|cuda-drivers|kmod-nvidia", name) for name in versions
    ):
        return "cuda"
    if os.path.exists(source.below("usr/bin/nvidia-uninstall")):
        return "runfile"
    if facts_host.read_virtualisation(source)["kind"] == "container" and module:
        return "host"
    return "unknown" if module else None


def read_packages(source: FactsSource) -> dict[str, t.Any]:
    """Return ``{versions, held, broken, manager}`` of the packages that matter here.

    ``held`` are those that their package manager will not change, ``broken`` those that it began and did not finish: of
    all packages, since it installs no other one before these.
    """
    status = source.below("var/lib/dpkg/status")
    if os.path.exists(status):
        found = _read_dpkg(status)
        # Each step of dpkg that was cut before it was written into its list.
        if any(name.isdecimal() for name in source.names(source.below("var/lib/dpkg/updates"))):
            found["broken"].append("dpkg itself (it was interrupted)")
        return {**found, "manager": "apt"}
    said = source.run("rpm", "-qa", "--qf", "%{NAME} %{VERSION}-%{RELEASE}\\n")
    if said is None:
        return dict(_NO_PACKAGES)
    rows = [line.split(" ", 1) for line in said.splitlines() if " " in line]
    versions = {name: version for name, version in rows if _PACKAGES.match(name)}
    locked = source.lines(source.below("etc/dnf/plugins/versionlock.list"))
    held = sorted(
        name for name in versions if any(re.match(rf"(?:[0-9]+:)?{re.escape(name)}-", line) for line in locked)
    )
    return {"versions": versions, "held": held, "broken": [], "manager": "dnf"}


def _read_dpkg(path: str) -> dict[str, t.Any]:
    versions: dict[str, str] = {}
    held: list[str] = []
    broken: list[str] = []
    name, state = "", ""
    with open(path, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            key, _unused, value = line.rstrip("\n").partition(": ")
            if key == "Package":
                name, state = value, ""
            elif key == "Status":
                want, _error, state = value.split()
                if state in _UNFINISHED:
                    broken.append(f"{name} ({state})")
                elif want == "hold" and state == "installed" and _PACKAGES.match(name):
                    held.append(name)
            elif key == "Version" and state == "installed" and _PACKAGES.match(name):
                versions[name] = value
    return {"versions": versions, "held": held, "broken": broken}


def read_records(source: FactsSource) -> dict[str, bool]:
    """Return which of the collection's roles installed packages here, and whether each came to its end."""
    base = source.below("var/lib/muster")
    names = [name for name in source.names(base) if re.fullmatch(r"packages-[a-z-]+\.json", name)]
    return {
        name[len("packages-") : -len(".json")]: '"complete": true' in "".join(source.lines(f"{base}/{name}"))
        for name in names
    }


def _version_of(versions: t.Mapping[str, str], prefix: str) -> str | None:
    """Return the upstream version of the first package of this name, or of this name with a branch."""
    pattern = re.compile(rf"{re.escape(prefix)}(-[0-9]+)?\Z")
    text = next((version for name, version in versions.items() if pattern.match(name)), None)
    return re.sub(r"^[0-9]+:", "", text).partition("-")[0] if text else None


def _find_lock_holder(source: FactsSource) -> str | None:
    """Return the name of the process that holds a lock of the package manager, None where none does."""
    inodes = {}
    for path in _LOCKS:
        try:
            inodes[os.stat(source.below(path)).st_ino] = path
        except OSError:
            continue
    for line in source.lines(os.path.join(source.proc, "locks")):
        fields = line.split()
        place = fields[5].split(":") if len(fields) > 5 else []
        if len(place) == 3 and place[2].isdecimal() and int(place[2]) in inodes:
            return source.text(os.path.join(source.proc, fields[4], "comm")) or f"process {fields[4]}"
    return None


def _read_runtime(source: FactsSource, versions: t.Mapping[str, str]) -> dict[str, t.Any]:
    """Return what containers get GPUs by: the toolkit's packages, CDI, and what each containerd knows of them."""
    names = (
        "nvidia-container-toolkit",
        "nvidia-container-toolkit-base",
        "libnvidia-container-tools",
        "libnvidia-container1",
    )
    k3s = "\n".join(source.lines(source.below(_K3S_CONTAINERD)))
    other = _read_with_imports(source, _CONTAINERD)
    specs = [name for folder in _CDI_FOLDERS for name in source.names(source.below(folder)) if "nvidia" in name]
    return {
        "packages": {name: versions[name].partition("-")[0] for name in names if name in versions},
        "program": next((f"/{path}" for path in _RUNTIMES if os.path.exists(source.below(path))), None),
        "cdi_specs": sorted(set(specs)),
        "refresh_unit": os.path.exists(source.below("usr/lib/systemd/system/nvidia-cdi-refresh.service"))
        or os.path.exists(source.below("etc/systemd/system/nvidia-cdi-refresh.service")),
        "k3s": _read_containerd(k3s) if k3s else None,
        "containerd": _read_containerd(other) if other else None,
        "containerd_version": (_version_of(versions, "containerd.io") or _version_of(versions, "containerd")),
    }


def _read_with_imports(source: FactsSource, path: str) -> str:
    """Return the text of containerd's file and of the files that it imports, such as nvidia-ctk's, in their order."""
    text = "\n".join(source.lines(source.below(path)))
    imports = re.search(r"^\s*imports\s*=\s*\[(.*?)\]", text, re.M | re.S)
    patterns = re.findall(r"[\"'](.+?)[\"']", imports.group(1)) if imports else []
    folder = os.path.dirname(path)
    found = [name for one in patterns for name in sorted(glob.glob(source.below(os.path.join(folder, one))))]
    return "\n".join([text, *(line for name in found for line in source.lines(name))])


def _read_containerd(text: str) -> dict[str, bool | None]:
    """Return ``{cdi, nvidia, default}``: None for CDI where the file leaves it to containerd's own default."""
    cdi = re.findall(r"^\s*enable_cdi\s*=\s*(true|false)", text, re.M)
    return {
        # What is imported later replaces what was before.
        "cdi": cdi[-1] == "true" if cdi else None,
        "nvidia": "runtimes.nvidia" in text or "runtimes.'nvidia'" in text or 'runtimes."nvidia"' in text,
        "default": bool(re.search(r"default_runtime_name\s*=\s*[\"']nvidia[\"']", text)),
    }


def _read_rdma(
    source: FactsSource,
    bus: t.Mapping[str, tuple[str, str]],
    versions: t.Mapping[str, str],
    running: t.Mapping[str, str],
) -> dict[str, t.Any]:
    """Return the ports of HCAs, what the kernel offers of RDMA, and what slows or forbids GPUDirect."""
    modules = os.path.join(source.sys, "module")
    wanted = ("ib_uverbs", "rdma_cm", "rdma_ucm", "ib_umad", "ib_ipoib", "mlx5_ib", "irdma", "bnxt_re", "efa")
    ports = [{**port, **_read_hca(source, port)} for port in facts_rdma.read_nics(source)]
    gpus = [bdf for bdf, (vendor, klass) in bus.items() if vendor == facts_gpu.NVIDIA and klass[:4] in ("0300", "0302")]
    endpoints = sorted({*gpus, *(port["pci"] for port in ports if port["pci"] in bus)})
    units = facts_host.read_unit_limits(source, running)
    return {
        "ports": ports,
        "silent": _list_silent_hcas(source, bus),
        "modules": [name for name in wanted if os.path.isdir(f"{modules}/{name}")],
        "netns_exclusive": _read_netns_mode(source),
        "doca": _version_of(versions, "doca-ofed"),
        # What stands in the way of DOCA-OFED: its predecessor, and a distribution's metapackage of its name.
        "other_ofed": sorted(name for name in versions if re.match(r"mlnx-ofed|ofed-scripts|doca-ofed-(?!user)", name)),
        "rdma_core": _version_of(versions, "rdma-core"),
        "peermem": os.path.isdir(f"{modules}/nvidia_peermem"),
        "p2pdma": _read_kernel_option(source, "CONFIG_PCI_P2PDMA"),
        "acs": {**facts_pci.read_acs(source, endpoints), "bridges": sorted(facts_pci.list_acs(source, endpoints))},
        "removed": os.path.exists(source.below(_REMOVED_MARK)),
        "iommu": {
            **facts_pci.read_iommu(source, endpoints),
            **facts_boot.read_kernel_option(source, "iommu=pt"),
        },
        "memlock": {name: units[name]["memlock"] for name in _MIN_MEMLOCK_UNITS if name in units},
        # In force when the unit starts the next time, once systemd has read it.
        "memlock_declared": {
            name: facts_host.declared_memlock(source, name)
            for name in _MIN_MEMLOCK_UNITS
            if name in units and not _is_unread(source, name)
        },
        "bonds": source.names(os.path.join(source.proc, "net/bonding")),
    }


def _list_silent_hcas(source: FactsSource, bus: t.Mapping[str, tuple[str, str]]) -> list[str]:
    """Return the addresses of HCAs on the bus, or of their virtual functions, that no driver made an RDMA device of."""
    base = os.path.join(source.sys, "bus/pci/devices")
    hcas = (bdf for bdf, (vendor, klass) in sorted(bus.items()) if vendor == _MELLANOX and klass.startswith("02"))
    return [bdf for bdf in hcas if not os.path.isdir(f"{base}/{bdf}/infiniband")]


def _is_unread(source: FactsSource, unit: str) -> bool:
    """Return whether systemd has not read the drop-in that the role rdma wrote for a unit."""
    if not os.path.exists(source.below(f"etc/systemd/system/{unit}.service.d/50-muster-rdma.conf")):
        return False
    return "=yes" in (source.run("systemctl", "show", unit, "--property=NeedDaemonReload") or "")


def _read_hca(source: FactsSource, port: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return what selects an HCA: vendor, device, driver, board; whether it has virtual functions or IPoIB."""
    base = os.path.join(source.sys, "class/infiniband", port["name"])
    device = f"{base}/device"
    return {
        "vendor": (source.text(f"{device}/vendor") or "").removeprefix("0x").lower() or None,
        "device": (source.text(f"{device}/device") or "").removeprefix("0x").lower() or None,
        "driver": _link_name(f"{device}/driver"),
        "board": source.text(f"{base}/board_id"),
        "virtual_functions": source.number(f"{device}/sriov_numvfs") or 0,
    }


def _read_netns_mode(source: FactsSource) -> bool | None:
    """Return whether RDMA devices belong to one network namespace each (``rdma system``); None without RDMA."""
    said = source.run("rdma", "system", "show")
    found = re.search(r"netns (shared|exclusive)", said or "")
    return None if not found else found.group(1) == "exclusive"


def _read_kernel_option(source: FactsSource, name: str) -> bool | None:
    """Return an option of the running kernel's configuration; None where the configuration cannot be read."""
    release = source.text(os.path.join(source.proc, "sys/kernel/osrelease")) or ""
    packed = source.data(os.path.join(source.proc, "config.gz"))
    text = gzip.decompress(packed).decode(errors="replace") if packed else None
    if text is None:
        plain = source.data(source.below(f"boot/config-{release}"))
        text = plain.decode(errors="replace") if plain else None
    return None if text is None else f"\n{name}=y" in f"\n{text}"
