# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a machine gets its NVIDIA driver: a pure decision on its facts; the role gpu_driver carries it out.

A working driver is kept, however it was installed. The unknown is not changed.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from . import device_tables as tables
from .device_host import (
    DeviceHost,
    Refusal,
    Repository,
    check_boot,
    check_packages,
    parse_version,
    require_choice,
    write_version,
)
from .errors import InputError

Action = t.Literal["none", "keep", "install", "upgrade", "reboot", "start", "refuse"]
SOURCES: t.Final = ("auto", "archive", "cuda", "none")
REBOOTS: t.Final = ("never", "when_needed")
MODULES: t.Final = ("auto", "open", "proprietary")
_GA_KERNELS: t.Final = {"22.04": "5.15", "24.04": "6.8", "26.04": "7.0"}
_PACKAGES = r"(nvidia-|libnvidia-|linux-modules-nvidia-|cuda-drivers|kmod-nvidia)"


@dataclasses.dataclass(frozen=True, slots=True)
class DriverOptions:
    """What is asked for; the options of the role ``gpu_driver``. ``version``: the least one."""

    source: str = "auto"
    branch: str = ""
    version: str = ""
    modules: str = "auto"
    upgrade: bool = False
    reboot: str = "never"

    def __post_init__(self) -> None:
        require_choice("gpu_driver_source", self.source, SOURCES)
        require_choice("gpu_driver_branch", self.branch, ("", *tables.BRANCHES))
        if self.version:
            self._check_version()
        require_choice("gpu_driver_modules", self.modules, MODULES)
        require_choice("gpu_driver_reboot", self.reboot, REBOOTS)

    def _check_version(self) -> None:
        if not re.fullmatch(r"[0-9]+(\.[0-9]+){1,2}", self.version):
            raise InputError("gpu_driver_version", f"is {self.version!r}", "Use a version such as 595.91.07")
        branch = self.version.partition(".")[0]
        require_choice("gpu_driver_version", branch, tables.BRANCHES)
        if self.branch not in ("", branch):
            problem = f"is {self.version}, and gpu_driver_branch is {self.branch}"
            raise InputError("gpu_driver_version", problem, "Leave one of them out")

    @property
    def wanted_branch(self) -> str:
        """The branch that is asked for, by itself or with a version; empty where none is."""
        return self.branch or self.version.partition(".")[0]


@dataclasses.dataclass(frozen=True, slots=True)
class DriverPlan:
    """What is done to one machine, and why.

    ``owner``: who installed the driver that is there; ``manager``: apt or dnf. ``packages`` are installed in one
    transaction, ``before`` in one of their own ahead of it. ``pinned_by``: the package whose dependency says which
    version of ``pinned`` fits the signed module. ``reboot``: why the machine has to boot again, empty where it has not.
    ``dnf_stream``: of the module that is enabled; ``versions``: which ones dnf may install, as a pattern; ``locked``:
    packages whose versions dnf keeps then.
    ``gpus``: how many ``nvidia-smi`` has to list at the end. ``latest``: packages that are there are brought to the
    newest version, too.
    """

    action: Action
    reason: str
    refusals: tuple[Refusal, ...] = ()
    warnings: tuple[str, ...] = ()
    owner: str | None = None
    manager: str | None = None
    source: str = ""
    branch: str = ""
    flavour: str = ""
    repositories: tuple[Repository, ...] = ()
    before: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    pinned_by: str = ""
    pinned: str = ""
    dnf_stream: str = ""
    versions: str = ""
    locked: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    blacklist: tuple[str, ...] = ()
    reboot: str = ""
    gpus: int = 0
    latest: bool = False


def plan_gpu_driver(host: DeviceHost, options: DriverOptions) -> DriverPlan:
    """Return the plan of one machine."""
    plan = _find_special(host) or _decide(host, options)
    if plan.action == "refuse" and options.source == "none":
        # The user takes care of the driver: refusals become warnings.
        return DriverPlan("none", plan.reason, warnings=(*plan.warnings, *(item.problem for item in plan.refusals)))
    return plan


def _decide(host: DeviceHost, options: DriverOptions) -> DriverPlan:
    warnings = tuple(_list_warnings(host))
    state = _judge_driver(host, options)
    plan = state or _plan_install(host, options)
    if plan.reboot:
        warnings = (*warnings, f"reboot needed: {plan.reboot}")
    return dataclasses.replace(
        plan,
        owner=host.driver.get("owner"),
        manager=host.manager,
        warnings=(*warnings, *plan.warnings),
        gpus=len(host.gpus),
    )


def _refuse(*refusals: Refusal) -> DriverPlan:
    return DriverPlan("refuse", refusals[0].problem, refusals)


def _find_special(host: DeviceHost) -> DriverPlan | None:
    """Return the plan of a machine on which no driver is ever installed."""
    if host.facts.get("wsl"):
        return _refuse(
            Refusal("is Windows' Linux (WSL), whose driver is Windows' own", "Use a machine that runs Linux")
        )
    if host.facts.get("jetson"):
        return _refuse(Refusal("is a Jetson, whose driver is part of its kernel (L4T)", "Leave it out of muster_nodes"))
    if host.is_container:
        if host.driver.get("listed"):
            return DriverPlan(
                "keep", "a container uses the driver of its host", owner="host", gpus=host.driver["listed"]
            )
        if host.gpus and host.driver.get("module"):
            problem = "is a container with a GPU driver on its host and no GPU in nvidia-smi"
            return _refuse(Refusal(problem, "Rent it with its GPUs, or start it with --gpus all"))
        return DriverPlan("none", "a container without GPUs")
    if not host.gpus:
        return DriverPlan("none", "no NVIDIA GPU is on the PCI bus")
    passed = [gpu["pci"] for gpu in host.gpus if gpu.get("driver") == "vfio-pci"]
    if passed:
        problem = f"the GPUs {', '.join(passed)} are bound to vfio-pci, passed through to a virtual machine"
        return _refuse(Refusal(problem, "Use the virtual machine as the node, or unbind them"))
    if host.architectures == {"older"}:
        return _refuse(Refusal("its GPUs are older than Maxwell, for which no current driver exists", "Leave it out"))
    return None


def _list_warnings(host: DeviceHost) -> t.Iterator[str]:
    driver = host.driver
    if driver.get("mig"):
        yield "MIG is enabled: one rank uses one slice at most, and NCCL over several slices is refused"
    if driver.get("vgpu"):
        yield "is a vGPU guest: its driver has to match the host's"
    if driver.get("runfile"):
        yield "the driver was installed by NVIDIA's .run file: a kernel update leaves it without a module"
    if host.facts.get("lock"):
        yield f"the package manager is in use by {host.facts['lock']}: the installation waits for it"
    if driver.get("listed") and not host.facts.get("persistence"):
        yield "nvidia-persistenced does not run: the first use of a GPU takes seconds"


def _judge_driver(host: DeviceHost, options: DriverOptions) -> DriverPlan | None:
    """Return the plan for a driver that is there; None where there is none."""
    driver = host.driver
    module, libraries = driver.get("module"), driver.get("libraries")
    asked = options.source in ("archive", "cuda")
    if host.facts.get("dgx_os") and asked:
        problem = f"is DGX OS, whose driver is part of it (source: {options.source})"
        return _refuse(Refusal(problem, "Set gpu_driver_source: auto, and update it by NVIDIA's own way"))
    if driver.get("runfile") and driver.get("owner") in ("archive", "cuda"):
        problem = "has a driver of NVIDIA's .run file and one of packages"
        return _refuse(Refusal(problem, "Run nvidia-uninstall on it, then this again"))
    if not host.has_working_driver and any(re.match(_PACKAGES, name) for name in host.broken_packages):
        # Whatever else is seen of the driver is what half of it looks like.
        return _refuse(*check_packages(host, _PACKAGES))
    if module and libraries and module != libraries:
        return _plan_reboot(host, options, f"the kernel module is {module} and the libraries are {libraries}")
    if host.has_working_driver:
        return _judge_working(host, options, str(module or libraries))
    if module and driver.get("listed"):
        return _refuse(_describe_missing(host))
    if module:
        said = driver.get("listing_error") or "nvidia-smi is not installed"
        return _refuse(Refusal(f"the driver {module} is loaded and lists no GPU: {said}", "See dmesg for NVRM and Xid"))
    if libraries:
        return _judge_unloaded(host, options, libraries)
    if options.source == "none":
        return DriverPlan("none", "has no driver, and gpu_driver_source is none")
    return None


def _describe_missing(host: DeviceHost) -> Refusal:
    listed, on_bus = host.driver["listed"], len(host.gpus)
    problem = f"{on_bus} GPUs are on the PCI bus, nvidia-smi lists {listed}"
    return Refusal(problem, "One fell off the bus (Xid 79): drain it and switch it off and on, see dmesg for its slot")


def _judge_working(host: DeviceHost, options: DriverOptions, version: str) -> DriverPlan:
    """Return the plan for a driver that lists all GPUs: kept, unless it is older than it should be."""
    manager = (host.facts.get("fabric_manager") or {}).get("version")
    old = _find_outdated(host, options, version)
    if host.facts.get("nvswitches") and manager and manager != version and not (old and options.upgrade):
        problem = f"the fabric manager is {manager} and the driver is {version}"
        return _refuse(Refusal(problem, "Install the fabric manager of the driver's version, and start it again"))
    if old:
        return _plan_upgrade(host, options, old)
    if host.was_cut_short("gpu-driver"):
        return dataclasses.replace(_plan_install(host, options), reason="its installation was cut short")
    if "gpu-driver" in (host.facts.get("records") or {}) and not host.facts.get("persistence"):
        return DriverPlan("start", "nvidia-persistenced does not run", units=_list_units(host))
    newer = options.wanted_branch and int(version.partition(".")[0]) > int(options.wanted_branch)
    warnings = (
        (f"driver {version} is newer than branch {options.wanted_branch}, and is kept",)
        if newer and options.upgrade
        else ()
    )
    return DriverPlan("keep", f"driver {version} lists all {host.driver['listed']} GPUs", warnings=warnings)


def _find_outdated(host: DeviceHost, options: DriverOptions, version: str) -> str:
    """Return why a driver that works is too old, empty where it is not. A newer one is never replaced."""
    numbers = parse_version(version)
    least = tables.LEAST_BLACKWELL_DRIVER if host.architectures & tables.OPEN_ONLY else tables.LEAST_DRIVER
    if numbers < least:
        return f"driver {version} is older than {write_version(least)}"
    if not options.upgrade:
        return ""
    if options.version and numbers < parse_version(options.version):
        return f"driver {version} is older than gpu_driver_version, {options.version}"
    if options.branch and numbers < (int(options.branch),):
        return f"driver {version} is older than gpu_driver_branch, {options.branch}"
    return ""


def _plan_upgrade(host: DeviceHost, options: DriverOptions, old: str) -> DriverPlan:
    """Return the plan that replaces a driver that works by a newer one."""
    if not options.upgrade:
        return _refuse(Refusal(old, "Set gpu_driver_upgrade: true to install a newer one, or update it yourself"))
    if host.facts.get("dgx_os") or host.driver.get("runfile"):
        return _refuse(Refusal(f"{old}, and no package owns it", "Update it in the way in which it was installed"))
    if host.driver.get("processes"):
        problem = f"{old}, and {host.driver['processes']} processes use its GPUs"
        return _refuse(Refusal(problem, "Drain the machine first (upgrade_drivers does), or cancel the run"))
    if options.reboot == "never":
        return _refuse(Refusal(f"{old}, and a newer one needs a reboot", "Set gpu_driver_reboot: when_needed"))
    plan = _plan_install(host, options)
    if plan.action == "refuse":
        return plan
    return dataclasses.replace(plan, action="upgrade", reason=old, reboot="the driver was changed", latest=True)


def _judge_unloaded(host: DeviceHost, options: DriverOptions, libraries: str) -> DriverPlan:
    """Return the plan for a driver that is installed and whose module is not loaded."""
    what = f"driver {libraries} is installed and its module is not loaded"
    if options.reboot == "never" and host.was_cut_short("gpu-driver"):
        # Its module may not be built: the installation is finished, which loads it without a boot.
        plan = _plan_install(host, options)
        return plan if plan.refusals else dataclasses.replace(plan, reason=f"{what}: its installation was cut short")
    if host.driver.get("nouveau"):
        plan = _plan_reboot(host, options, f"{what}: nouveau has the GPUs")
        return dataclasses.replace(plan, blacklist=("nouveau",))
    if host.facts.get("secure_boot") and host.driver.get("owner") == "cuda" and not host.facts.get("dkms_key"):
        problem = f"{what}: Secure Boot is on and refuses a module that dkms built"
        return _refuse(Refusal(problem, "Enrol dkms' key at the console (mokutil --import /var/lib/dkms/mok.pub)"))
    return _plan_reboot(host, options, what)


def _plan_reboot(host: DeviceHost, options: DriverOptions, why: str) -> DriverPlan:
    if options.reboot == "never":
        return _refuse(Refusal(why, "Boot it again, or set gpu_driver_reboot: when_needed"))
    if host.was_cut_short("gpu-driver"):
        plan = _plan_install(host, options)
        if plan.action != "refuse":
            reason = f"{why}, and its installation was cut short"
            plan = dataclasses.replace(plan, reason=reason, reboot=why, latest=options.upgrade)
        return plan
    # Of a driver that this collection installed the units are started, too: a run may have ended before them.
    units = _list_units(host) if "gpu-driver" in (host.facts.get("records") or {}) else ()
    return DriverPlan("reboot", why, reboot=why, units=units)


def _plan_install(host: DeviceHost, options: DriverOptions) -> DriverPlan:
    """Return the plan for a machine that gets a driver."""
    refusals = [*check_packages(host, _PACKAGES), *check_boot(host)]
    if host.driver.get("nouveau_in_use"):
        fix = "Boot it without a display (systemctl set-default multi-user.target), then run this again"
        refusals.append(Refusal("nouveau drives a display with its GPU", fix))
    if host.facts.get("machine") not in tables.CUDA_MACHINES:
        refusals.append(
            Refusal(f"is a {host.facts.get('machine')} machine, for which no driver exists", "Leave it out")
        )
    flavour, problem = _choose_flavour(host, options)
    refusals += [problem] if problem else []
    branch, problem = _choose_branch(host, options)
    refusals += [problem] if problem else []
    if refusals:
        return _refuse(*refusals)
    build = _plan_archive if _choose_source(host, options) == "archive" else _plan_cuda
    plan = build(host, branch, flavour)
    if plan.dnf_stream and options.wanted_branch:
        plan = dataclasses.replace(plan, dnf_stream=_name_stream(flavour, branch))
    if plan.action == "refuse" or not host.driver.get("nouveau"):
        return plan
    return dataclasses.replace(plan, blacklist=("nouveau",), reboot="nouveau has the GPUs until the next boot")


def _choose_flavour(host: DeviceHost, options: DriverOptions) -> tuple[str, Refusal | None]:
    """Return ``open`` or ``proprietary``: the module that all GPUs of the machine can have."""
    old = sorted(host.architectures & (tables.PROPRIETARY_ONLY | {"older"}))
    new = sorted(host.architectures & tables.OPEN_ONLY)
    if old and new:
        problem = f"has {old[0]} GPUs beside {new[0]} ones, and no kernel module drives both"
        return "", Refusal(problem, "Put them into two machines")
    if old and options.modules == "open":
        problem = f"gpu_driver_modules is open, and its {old[0]} GPUs have no GSP, which the open modules need"
        return "", Refusal(problem, "Set gpu_driver_modules: auto")
    if new and options.modules == "proprietary":
        problem = f"gpu_driver_modules is proprietary, and its {new[0]} GPUs run by the open modules only"
        return "", Refusal(problem, "Set gpu_driver_modules: auto")
    if options.modules != "auto":
        return options.modules, None
    return "proprietary" if old else "open", None


def _choose_branch(host: DeviceHost, options: DriverOptions) -> tuple[str, Refusal | None]:
    old = sorted(host.architectures & tables.PROPRIETARY_ONLY)
    last, branch = tables.LAST_PROPRIETARY_BRANCH, options.wanted_branch
    if old and branch not in ("", last):
        problem = f"gpu_driver_branch is {branch}, and {last} is the last one for {old[0]} GPUs"
        return "", Refusal(problem, f"Set gpu_driver_branch: '{last}', or leave it out")
    return branch or (last if old else tables.DEFAULT_BRANCH), None


def _choose_source(host: DeviceHost, options: DriverOptions) -> str:
    if options.source in ("archive", "cuda"):
        return options.source
    return "archive" if host.system == "ubuntu" else "cuda"


def _plan_archive(host: DeviceHost, branch: str, flavour: str) -> DriverPlan:
    """Return the plan by Ubuntu's own archive, whose modules are signed: it works under Secure Boot."""
    if host.system != "ubuntu":
        problem = f"runs {host.title}, whose archive has no current driver (source: archive)"
        return _refuse(Refusal(problem, "Set gpu_driver_source: cuda"))
    if host.release not in tables.UBUNTU_ARCHIVES:
        return _refuse(_describe_unknown_system(host))
    opened = "-open" if flavour == "open" else ""
    modules = f"linux-modules-nvidia-{branch}-server{opened}"
    manager = (f"nvidia-fabricmanager-{branch}",) if host.facts.get("nvswitches") else ()
    return DriverPlan(
        "install",
        "has no driver",
        source="archive",
        branch=branch,
        flavour=flavour,
        packages=(
            # The running kernel's module for now, the flavour's package for every kernel to come.
            f"{modules}-{host.kernel}",
            f"{modules}-{_kernel_flavour(host)}",
            f"nvidia-headless-no-dkms-{branch}-server{opened}",
            f"nvidia-utils-{branch}-server",
            f"libnvidia-compute-{branch}-server",
            *manager,
            *_nvlink5_packages(host),
        ),
        pinned_by=f"{modules}-{host.kernel}",
        pinned=f"nvidia-kernel-common-{branch}-server",
        units=_list_units(host),
    )


def _kernel_flavour(host: DeviceHost) -> str:
    """Return the name by which Ubuntu's meta packages follow a kernel: its suffix, or hwe where it is a later one."""
    numbers, _unused, suffix = host.kernel.split("-", 2) if host.kernel.count("-") > 1 else (host.kernel, "", "generic")
    later = f"generic-hwe-{host.release}"
    if suffix != "generic" or f"linux-image-{later}" in host.versions:
        return later if suffix == "generic" else suffix
    return suffix if ".".join(numbers.split(".")[:2]) == _GA_KERNELS.get(host.release) else later


def _plan_cuda(host: DeviceHost, branch: str, flavour: str) -> DriverPlan:
    """Return the plan by NVIDIA's repository, whose modules dkms builds on the machine."""
    entry = tables.CUDA_REPOSITORIES.get((host.system, host.release))
    if entry is None:
        return _refuse(_describe_unknown_system(host))
    problem = _check_signing(host) or _check_headers(host)
    if problem:
        return _refuse(problem)
    folder, key, fingerprint = entry
    url = f"{tables.CUDA_URL}/{folder}/{tables.CUDA_MACHINES[host.facts['machine']]}"
    plan = DriverPlan(
        "install",
        "has no driver",
        source="cuda",
        branch=branch,
        flavour=flavour,
        repositories=(Repository("cuda", f"{url}/", f"{url}/{key}", fingerprint),),
        units=_list_units(host),
    )
    return _add_dnf(host, plan) if host.system == "rhel" else _add_apt(host, plan)


def _add_apt(host: DeviceHost, plan: DriverPlan) -> DriverPlan:
    kernel_package = "nvidia-kernel-open-dkms" if plan.flavour == "open" else "nvidia-kernel-dkms"
    # 590 and later have one fabric manager, which the pinning package holds to the driver's branch.
    manager = f"nvidia-fabricmanager-{plan.branch}" if plan.branch == "580" else "nvidia-fabricmanager"
    return dataclasses.replace(
        plan,
        before=(f"linux-headers-{host.kernel}", f"nvidia-driver-pinning-{plan.branch}"),
        packages=(
            "nvidia-driver-cuda",
            kernel_package,
            *((manager,) if host.facts.get("nvswitches") or host.has_device(tables.NVLINK5_HGX) else ()),
            *_nvlink5_packages(host),
        ),
    )


def _add_dnf(host: DeviceHost, plan: DriverPlan) -> DriverPlan:
    """Return the plan for the RHEL family (NVIDIA's driver installation guide, kernel modules and version locking)."""
    names = {"580": "nvidia-fabric-manager"}
    switched = host.facts.get("nvswitches") or host.has_device(tables.NVLINK5_HGX)
    manager = (names.get(plan.branch, "nvidia-fabricmanager"),) if switched else ()
    opened, release = plan.flavour == "open", host.release
    epel = f"{tables.EPEL_URL}/{release}/Everything/{host.facts['machine']}/"
    key = f"{tables.EPEL_URL}/RPM-GPG-KEY-EPEL-{release}"
    added = () if "epel-release" in host.versions else (Repository("epel", epel, key, tables.EPEL_KEYS[release]),)
    plan = dataclasses.replace(plan, before=_list_rhel_headers(host), repositories=(*plan.repositories, *added))
    if release == "10":
        # It has no modules.
        packages = ("nvidia-open" if opened else "cuda-drivers", *manager)
        return dataclasses.replace(plan, packages=packages, locked=packages, versions=f"{plan.branch}.*")
    packages = ("nvidia-driver-cuda", f"kmod-nvidia-{'open' if opened else 'latest'}-dkms", *manager)
    return dataclasses.replace(
        plan,
        packages=packages,
        locked=packages,
        dnf_stream=_name_stream(plan.flavour, "" if opened else plan.branch),
    )


def _name_stream(flavour: str, branch: str) -> str:
    """Return the stream of NVIDIA's module: that of a branch, or with ``branch`` empty the newest open one."""
    return (
        f"nvidia-driver:{f'{branch}-open' if branch else 'open-dkms'}"
        if flavour == "open"
        else f"nvidia-driver:{branch}-dkms"
    )


def _list_rhel_headers(host: DeviceHost) -> tuple[str, ...]:
    """Return what modules are built with: for the running kernel, and from 9 on for every kernel to come."""
    kernel, large, _unused = host.kernel.partition("+64k")
    name = "kernel-64k-devel" if large else "kernel-devel"
    return (f"{name}-{kernel}", "kernel-headers", *(() if host.release == "8" else (f"{name}-matched",)))


def _check_signing(host: DeviceHost) -> Refusal | None:
    """Return why a module that dkms builds would not be loaded."""
    if host.facts.get("dkms_key"):
        return None
    other = (
        "gpu_driver_source: archive has signed ones" if host.system == "ubuntu" else "or take an image with a driver"
    )
    if host.facts.get("secure_boot"):
        problem = "Secure Boot is on, and refuses modules that dkms builds"
        enrol = "Enrol dkms' key at the console (mokutil --import /var/lib/dkms/mok.pub)"
        if host.is_vm:
            enrol = "Switch Secure Boot off where the machine is made: few virtual machines have a console for a key"
        return Refusal(problem, f"{enrol}; {other}")
    if host.facts.get("secure_boot") is None:
        problem = "whether Secure Boot is on cannot be read, and modules that dkms builds need it off"
        return Refusal(problem, "Mount efivarfs at /sys/firmware/efi/efivars, and manage the machine as root")
    return None


def _check_headers(host: DeviceHost) -> Refusal | None:
    if host.facts.get("headers") != "missing":
        return None
    name = _list_rhel_headers(host)[0] if host.system == "rhel" else f"linux-headers-{host.kernel}"
    problem = f"the archive has no {name} for its running kernel"
    return Refusal(problem, "Update it and boot the newest kernel, then run this again")


def _describe_unknown_system(host: DeviceHost) -> Refusal:
    known = "Ubuntu 22.04, 24.04, 26.04, Debian 12, 13, and RHEL, Rocky or AlmaLinux 8, 9, 10"
    return Refusal(
        f"runs {host.title}, for which no driver repository is known", f"Install the driver yourself; known are {known}"
    )


def _nvlink5_packages(host: DeviceHost) -> tuple[str, ...]:
    return ("nvlsm", "libibumad3") if host.has_device(tables.NVLINK5_HGX) else ()


def _list_units(host: DeviceHost) -> tuple[str, ...]:
    """Return the units that run with the driver."""
    switched = bool(host.facts.get("nvswitches")) or host.has_device(tables.NVLINK5_HGX)
    return ("nvidia-persistenced", *(("nvidia-fabricmanager",) if switched else ()))
