# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a machine's RDMA is set up and which of its HCAs jobs get: a pure decision; the role rdma carries it out."""

from __future__ import annotations

import dataclasses
import typing as t

from . import device_tables as tables
from .device_host import DeviceHost, Facts, Refusal, Repository, check_packages, parse_version, require_choice
from .rdma_plugin_config import build_entry

Action = t.Literal["none", "keep", "install", "reboot", "refuse"]
Kind = t.Literal["none", "infiniband", "roce", "efa"]
SOURCES: t.Final = ("inbox", "doca", "none")
_PACKAGES = r"(doca-|mlnx|ofed-|rdma-core|libibverbs|librdmacm|ibverbs)"
_SLOWER = "it is slower than others"
_UNLIMITED = "unlimited"
_DOCA_REBOOT = "DOCA-OFED's modules take the place of those that are loaded"
# Below it NCCL cannot register its buffers (NCCL's troubleshooting guide asks for unlimited).
_LEAST_MEMLOCK = 1 << 30
# What the role writes, so that the modules are loaded at each boot.
_MODULES_FILE = "/etc/modules-load.d/muster-rdma.conf"
# The last of what it writes to have ACS off at each boot.
_ACS_LINK = "/etc/systemd/system/multi-user.target.wants/muster-acs.service"
ACS: t.Final = ("keep", "disabled")
IOMMU: t.Final = ("keep", "passthrough")
_PASSTHROUGH = "iommu=pt"
# Has setpci.
_PCI_PACKAGE = "pciutils"
# Restrictions of the kernel under which not even root writes to PCI devices (kernel_lockdown(7)).
_LOCKED_DOWN = ("integrity", "confidentiality")


@dataclasses.dataclass(frozen=True, slots=True)
class RdmaOptions:
    """What is asked for; the options of the role ``rdma``. ``mtu`` 0: a low one is a warning, as with ``acs`` and
    ``iommu`` what is on.
    """

    source: str = "inbox"
    doca_version: str = tables.DOCA_VERSIONS[-1]
    mtu: int = 0
    exclude: tuple[str, ...] = ()
    sharing: bool = True
    acs: str = "keep"
    iommu: str = "keep"

    def __post_init__(self) -> None:
        require_choice("rdma_source", self.source, SOURCES)
        require_choice("rdma_doca_version", self.doca_version, tables.DOCA_VERSIONS)
        require_choice("rdma_acs", self.acs, ACS)
        require_choice("rdma_iommu", self.iommu, IOMMU)


@dataclasses.dataclass(frozen=True, slots=True)
class HcaUse:
    """One port of an HCA: whether jobs get it, and if not, why not."""

    name: str
    port: int
    netdev: str | None
    used: bool
    reason: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class RdmaPlan:
    """What is done to one machine, and why.

    ``modules`` are loaded now and at each boot, all of them where one is missing. ``mtu``: interfaces that get the
    asked MTU. ``memlock``: units whose limit is raised; ``reload``: whether systemd may read them again now, which
    takes GPUs from running containers that got them without CDI. ``acs``: bridges whose ACS is switched off, now and
    at each boot. ``kernel_options`` of all boots to come, written by ``loader``. ``hcas``: each port and its use.
    ``nccl_ib_hca``: the value of that variable where jobs get a part of the HCAs only. ``gpudirect``: by what NICs
    reach GPU memory: ``dmabuf``, ``peermem``, empty for not at all, None for not known. ``reboot``: why the machine has
    to boot again, empty where it has not. ``plugin_entry``: of the configuration of k8s-rdma-shared-dev-plugin, None
    where jobs get no HCA by it.
    """

    action: Action
    reason: str
    kind: Kind = "none"
    refusals: tuple[Refusal, ...] = ()
    manager: str | None = None
    warnings: tuple[str, ...] = ()
    repositories: tuple[Repository, ...] = ()
    packages: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    mtu: tuple[str, ...] = ()
    memlock: tuple[str, ...] = ()
    reload: bool = True
    acs: tuple[str, ...] = ()
    kernel_options: tuple[str, ...] = ()
    loader: str | None = None
    hcas: tuple[HcaUse, ...] = ()
    nccl_ib_hca: str = ""
    gpudirect: str | None = None
    reboot: str = ""
    plugin_entry: t.Mapping[str, t.Any] | None = None


def plan_rdma(host: DeviceHost, options: RdmaOptions) -> RdmaPlan:
    """Return the plan of one machine."""
    rdma = host.facts.get("rdma") or {}
    ports: t.Sequence[Facts] = rdma.get("ports") or ()
    if not ports:
        return RdmaPlan("none", "no RDMA device", warnings=tuple(_warn_of_silent(rdma)))
    if host.is_container:
        return _describe_ports(host, options, ports, RdmaPlan("none", "a container uses the RDMA of its host"))
    acs, kernel_options = _choose_bridges(host, options, rdma), _choose_kernel_options(options, rdma)
    refusals = [*_check_conflicts(host, options, rdma), *_check_platform(host, options, rdma, acs, kernel_options)]
    if refusals:
        return RdmaPlan("refuse", refusals[0].problem, _find_kind(ports), tuple(refusals))
    packages, repositories, refusals = _choose_packages(host, options, rdma)
    if refusals:
        return RdmaPlan("refuse", refusals[0].problem, _find_kind(ports), tuple(refusals))
    modules = _list_modules(ports)
    # Those that are loaded without the packages, such as after a removal, are gone with the next boot, and so are those
    # of a set-up that was cut before its file was written.
    is_cut = "rdma" in (host.facts.get("records") or {}) and _MODULES_FILE not in _list_own_files(host)
    modules = () if set(modules) <= set(rdma.get("modules") or ()) and not packages and not is_cut else modules
    packages += (_PCI_PACKAGE,) if acs and _PCI_PACKAGE not in host.versions else ()
    mtu = _list_low_mtu(ports, options.mtu) if options.mtu else ()
    memlock = tuple(sorted(_find_low_memlock(rdma)))
    off = ([f"ACS off on {', '.join(acs)}"] if acs else []) + [f"{option} of the kernel" for option in kernel_options]
    missing = [*packages, *modules, *mtu, *memlock, *off]
    # The role notes it on the machine before it changes modules that are loaded, or what is booted.
    reasons = [_DOCA_REBOOT] * ("doca-ofed" in packages)
    booted = (rdma.get("iommu") or {}).get("booted")
    reasons += [f"{option} is an option of its next boot" for option in kernel_options if not booted]
    reboot = "; ".join(reasons) or str(host.facts.get("reboot") or "")
    plan = RdmaPlan(
        "install" if missing else "reboot" if reboot else "keep",
        f"missing: {', '.join(missing)}" if missing else reboot or "all is there",
        reboot=reboot,
        manager=host.manager,
        packages=packages,
        repositories=repositories,
        modules=modules,
        mtu=mtu,
        memlock=memlock,
        reload=not host.driver.get("processes"),
        acs=acs,
        kernel_options=kernel_options,
        loader=(host.facts.get("boot") or {}).get("loader"),
    )
    return _describe_ports(host, options, ports, plan)


def _describe_ports(host: DeviceHost, options: RdmaOptions, ports: t.Sequence[Facts], plan: RdmaPlan) -> RdmaPlan:
    """Return the plan with the use of each port, and what is worth knowing of them."""
    hcas = choose_hcas(host, ports, options.exclude)
    used = sorted({item.name for item in hcas if item.used})
    entry = build_entry(_find_kind(ports), ports, {(item.name, item.port) for item in hcas if item.used})
    some = 0 < len(used) < len({item.name for item in hcas})
    return dataclasses.replace(
        plan,
        kind=_find_kind(ports),
        hcas=hcas,
        # Without "=" mlx5_1 would match mlx5_10, too (NCCL's documentation of NCCL_IB_HCA).
        nccl_ib_hca=f"={','.join(used)}" if some else "",
        gpudirect=_judge_gpudirect(host),
        plugin_entry=entry.entry,
        warnings=(*plan.warnings, *_list_warnings(host, options, ports, hcas), *filter(None, (entry.warning,))),
    )


def _find_kind(ports: t.Sequence[Facts]) -> Kind:
    if any(port.get("vendor") == tables.EFA_VENDOR for port in ports):
        return "efa"
    layers = [port.get("link_layer") for port in ports if port.get("state") == "active"] or [
        port.get("link_layer") for port in ports
    ]
    return "infiniband" if "infiniband" in layers else "roce"


def choose_hcas(host: DeviceHost, ports: t.Sequence[Facts], exclude: t.Collection[str] = ()) -> tuple[HcaUse, ...]:
    """Return the use of each port by jobs: the fastest that are up, less switch management, bonds and exclusions."""
    kind = _find_kind(ports)
    layer = "infiniband" if kind == "infiniband" else "ethernet"
    rates = [
        port["rate_gbps"] or 0 for port in ports if port.get("state") == "active" and port.get("link_layer") == layer
    ]
    best = max(rates, default=0)
    return tuple(
        HcaUse(port["name"], int(port["port"]), port.get("netdev"), not reason, reason)
        for port in ports
        for reason in [_judge_port(host, port, kind, best, exclude)]
    )


def _judge_port(host: DeviceHost, port: Facts, kind: Kind, best: float, exclude: t.Collection[str]) -> str:
    """Return why jobs do not get a port, empty where they do."""
    rate = port.get("rate_gbps") or 0
    switch = host.has_device(tables.NVLINK5_HGX) and (
        "SW_MNG" in (port.get("board") or "")
        or (port.get("netdev") is None and port.get("link_layer") == "infiniband" and rate < best)
    )
    reasons = {
        "left out by rdma_exclude": bool({port["name"], port.get("netdev")} & set(exclude)),
        "it manages the NVLink switches": switch,
        f"its state is {port.get('state') or 'not known'}": port.get("state") != "active",
        "it is Ethernet beside InfiniBand, as for storage": kind == "infiniband"
        and port.get("link_layer") == "ethernet",
        f"{_SLOWER} ({rate:g} Gb/s, {best:g})": kind != "efa" and rate < best,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _list_own_files(host: DeviceHost) -> t.Collection[str]:
    """Return the files of the role that are on the machine."""
    return (host.facts.get("own_files") or {}).get("rdma") or ()


def _list_modules(ports: t.Sequence[Facts]) -> tuple[str, ...]:
    """Return the modules that the ports' kind needs."""
    return ("ib_uverbs",) if _find_kind(ports) == "efa" else tables.RDMA_MODULES


def _check_conflicts(host: DeviceHost, options: RdmaOptions, rdma: Facts) -> list[Refusal]:
    """Return what must not be changed as asked."""
    found = []
    if rdma.get("netns_exclusive") and options.sharing:
        problem = (
            "RDMA devices belong to one network namespace each (exclusive), and the shared device plugin needs shared"
        )
        found.append(
            Refusal(problem, "Run rdma system set netns shared before pods run, or set rdma_stack_provider: sriov")
        )
    if options.source != "doca" or rdma.get("doca"):
        return found
    if host.facts.get("dgx_os"):
        problem = "is DGX OS, whose RDMA packages are part of it (rdma_source: doca)"
        found.append(Refusal(problem, "Set rdma_source: inbox, which leaves them as they are"))
    if host.driver.get("peermem_in_use"):
        problem = "nvidia_peermem is in use, and DOCA-OFED would replace the modules below it"
        found.append(Refusal(problem, "Drain the machine first, and unload it (modprobe -r nvidia_peermem)"))
    if rdma.get("other_ofed"):
        problem = f"{', '.join(rdma['other_ofed'])} is installed, which DOCA-OFED conflicts with"
        found.append(Refusal(problem, "Remove it first, or set rdma_source: none"))
    return found


def _choose_bridges(host: DeviceHost, options: RdmaOptions, rdma: Facts) -> tuple[str, ...]:
    """Return the bridges whose ACS is switched off: all that have it, none where all stay so or GPUs are in use."""
    acs = rdma.get("acs") or {}
    comes = rdma.get("removed") and _ACS_LINK not in _list_own_files(host)
    asked = options.acs == "disabled" and (acs.get("enabled_on") or comes) and not host.driver.get("processes")
    return tuple(acs.get("bridges") or ()) if asked else ()


def _choose_kernel_options(options: RdmaOptions, rdma: Facts) -> tuple[str, ...]:
    """Return the options with which the kernel is to boot and that nothing has set yet."""
    iommu = rdma.get("iommu") or {}
    ends = rdma.get("removed") or (iommu.get("mode") != "passthrough" and not iommu.get("booted"))
    asked = options.iommu == "passthrough" and iommu.get("enabled") and ends
    return (_PASSTHROUGH,) if asked and not iommu.get("configured") else ()


def _check_platform(
    host: DeviceHost, options: RdmaOptions, rdma: Facts, acs: t.Sequence[str], kernel_options: t.Sequence[str]
) -> t.Iterator[Refusal]:
    """Yield why ACS and the IOMMU of this machine are not changed as asked."""
    vfio = [gpu["pci"] for gpu in host.gpus if gpu.get("driver") == "vfio-pci"]
    keep = "Set rdma_acs: keep"
    if acs and host.is_vm:
        yield Refusal("is a virtual machine, whose ACS is its host's (rdma_acs)", f"{keep}; its host gives it ATS")
    elif acs and vfio:
        problem = f"{', '.join(vfio)} is given to a virtual machine, which ACS keeps apart from others (rdma_acs)"
        yield Refusal(problem, keep)
    elif acs and host.facts.get("lockdown") in _LOCKED_DOWN:
        problem = "its kernel is locked down, as under Secure Boot, and lets no program write to PCI bridges (rdma_acs)"
        yield Refusal(problem, f"Switch ACS off in its firmware's setup. {keep}")
    elif acs and options.source == "none" and _PCI_PACKAGE not in host.versions:
        problem = f"setpci ({_PCI_PACKAGE}) is not there, and rdma_source: none installs nothing (rdma_acs)"
        yield Refusal(problem, f"Install {_PCI_PACKAGE}. {keep}")
    if kernel_options and not (host.facts.get("boot") or {}).get("loader"):
        problem = "neither update-grub nor grubby is there, by which the kernel gets options (rdma_iommu)"
        yield Refusal(problem, f"Boot it with {_PASSTHROUGH} yourself, or set rdma_iommu: keep")


def _choose_packages(
    host: DeviceHost, options: RdmaOptions, rdma: Facts
) -> tuple[tuple[str, ...], tuple[Repository, ...], list[Refusal]]:
    """Return the packages that are missing, where they are, and why they cannot be had."""
    if options.source == "none" or host.facts.get("dgx_os") or rdma.get("doca"):
        return (), (), []
    if options.source == "doca":
        return _choose_doca(host, options)
    if rdma.get("other_ofed"):
        return (), (), []
    if host.manager is None:
        return (), (), [Refusal(f"runs {host.title}, of which neither apt nor dnf is known", "Set rdma_source: none")]
    cut = host.was_cut_short("rdma")
    missing = tuple(name for name in tables.RDMA_PACKAGES[host.manager] if cut or name not in host.versions)
    return missing, (), check_packages(host, _PACKAGES) if missing else []


def _choose_doca(
    host: DeviceHost, options: RdmaOptions
) -> tuple[tuple[str, ...], tuple[Repository, ...], list[Refusal]]:
    machine = tables.DOCA_MACHINES.get(str(host.facts.get("machine")))
    names = {"ubuntu": f"ubuntu{host.release}", "debian": f"debian{host.facts['os'].get('version')}"}
    folder = names.get(host.system, f"rhel{host.release}" if host.system == "rhel" else "")
    if not machine or not folder:
        problem = f"runs {host.title} ({host.facts.get('machine')}), for which DOCA has no repository"
        return (), (), [Refusal(problem, "Set rdma_source: inbox")]
    url = f"{tables.DOCA_URL}/{options.doca_version}/{folder}/{machine}/"
    repository = Repository("doca", url, tables.DOCA_KEY.url, tables.DOCA_KEY.fingerprint, suite="./")
    return ("doca-ofed",), (repository,), check_packages(host, _PACKAGES)


def _list_low_mtu(ports: t.Sequence[Facts], wanted: int) -> tuple[str, ...]:
    """Return the interfaces that get an MTU: with those that have it already, none where no other is left."""
    sizes = {
        str(port["netdev"]): port.get("mtu") or 0
        for port in ports
        if port.get("link_layer") == "ethernet" and port.get("netdev")
    }
    low = any(size < wanted for size in sizes.values())
    return tuple(sorted(name for name, size in sizes.items() if size <= wanted)) if low else ()


def _find_low_memlock(rdma: Facts) -> t.Iterator[str]:
    """Yield the units whose containers may not lock the memory that RDMA needs, not even after their next start."""
    declared = rdma.get("memlock_declared") or {}
    for unit, limit in (rdma.get("memlock") or {}).items():
        if _is_low(limit) and _is_low(declared.get(unit)):
            yield unit


def _is_low(limit: int | str | None) -> bool:
    return limit is None or (isinstance(limit, int) and limit < _LEAST_MEMLOCK)


def _judge_gpudirect(host: DeviceHost) -> str | None:
    """Return by what NICs reach GPU memory: dmabuf, peermem, empty for not at all; None where that is not known."""
    rdma = host.facts.get("rdma") or {}
    if not host.gpus or host.has_device(tables.SPARK):
        return ""
    if host.driver.get("flavour") == "open" and parse_version(host.kernel) >= (5, 12):
        if rdma.get("p2pdma"):
            return "dmabuf"
        if rdma.get("p2pdma") is None and not rdma.get("peermem"):
            return None
    return "peermem" if rdma.get("peermem") else ""


def _list_warnings(
    host: DeviceHost, options: RdmaOptions, ports: t.Sequence[Facts], hcas: t.Sequence[HcaUse]
) -> t.Iterator[str]:
    """Yield what slows or hides RDMA and is not changed unasked."""
    for port in ports:
        yield from _warn_of_port(port)
    for item in hcas:
        if item.reason.startswith(_SLOWER):
            fix = "Unless it is for storage, check its cable and the switch's port"
            yield f"{item.name} is left out: {item.reason}. {fix}"
    if not any(item.used for item in hcas):
        yield "no port of an HCA is up: jobs get no RDMA"
    yield from _warn_of_mtu(ports, options, hcas)
    if host.gpus:
        yield from _warn_of_gpudirect(host, options)
    rdma = host.facts.get("rdma") or {}
    new = [port["name"] for port in ports if port.get("device") in tables.NEW_HCAS]
    core = parse_version(rdma.get("rdma_core"))
    if new and options.source == "inbox" and core and core[0] < tables.LEAST_RDMA_CORE_OF_NEW and not rdma.get("doca"):
        yield f"{new[0]} is newer than rdma-core {core[0]} knows. Set rdma_source: doca"
    yield from _warn_of_silent(rdma)
    for unit, limit in (rdma.get("memlock") or {}).items():
        if _is_low(limit) and not _is_low((rdma.get("memlock_declared") or {}).get(unit)):
            yield f"{unit} may lock {(limit or 0) // 1024} KiB until it starts again: RDMA in its containers fails"
    for bond in rdma.get("bonds") or ():
        yield f"{bond} bonds ports: its RDMA device stands for both, and NCCL sees one"


def _warn_of_port(port: Facts) -> t.Iterator[str]:
    state, layer = port.get("state"), port.get("link_layer")
    if state == "init" and layer == "infiniband":
        yield f"{port['name']} is INIT: no subnet manager answers. Start one (opensm, or the switch's)"
    elif state == "down":
        yield f"{port['name']} is DOWN: no link. Check its cable and the switch's port"
    if state == "active" and layer == "ethernet" and "roce_v2" not in (port.get("gid_types") or ()):
        yield f"{port['name']} has no GID of RoCE v2: give its interface an address"


def _warn_of_silent(rdma: Facts) -> t.Iterator[str]:
    if rdma.get("silent"):
        fix = "Load mlx5_ib, or install the modules of its kernel (linux-modules-extra)"
        yield f"{', '.join(rdma['silent'])}: an HCA, or its virtual function, without an RDMA device. {fix}"


def _warn_of_platform(host: DeviceHost, options: RdmaOptions, rdma: Facts) -> t.Iterator[str]:
    """Yield what is on of ACS and the IOMMU and stays so."""
    acs = ", ".join((rdma.get("acs") or {}).get("enabled_on") or ())
    if acs and options.acs == "keep":
        can = "its host has to give it ATS" if host.is_vm else "without virtual machines on it, set rdma_acs: disabled"
        yield f"ACS is on ({acs}): GPUDirect goes through the CPU. It is not changed; {can}"
    elif acs and host.driver.get("processes"):
        yield f"ACS is on ({acs}), and its GPUs are in use: drain the machine, then run this again"
    iommu = rdma.get("iommu") or {}
    if iommu.get("mode") != "translated":
        return
    if iommu.get("booted"):
        yield f"the IOMMU translates with {_PASSTHROUGH}, too: look for DMA protection in its firmware's setup"
    elif options.iommu == "keep":
        yield "the IOMMU translates: GPUDirect is slow or hangs. It is not changed; set rdma_iommu: passthrough"
    elif iommu.get("configured") and not host.facts.get("reboot"):
        yield f"{_PASSTHROUGH} is set and it was booted without: boot it, and look which entry of its menu it takes"


def _warn_of_gpudirect(host: DeviceHost, options: RdmaOptions) -> t.Iterator[str]:
    rdma = host.facts.get("rdma") or {}
    yield from _warn_of_platform(host, options, rdma)
    if rdma.get("p2pdma") is False and host.driver.get("flavour") == "open" and not rdma.get("peermem"):
        yield "the kernel has no CONFIG_PCI_P2PDMA: no GPUDirect by DMA-BUF. Use the distribution's own kernel"
    if _judge_gpudirect(host) is None:
        yield "whether the kernel has CONFIG_PCI_P2PDMA cannot be read: GPUDirect by DMA-BUF is not known"


def _warn_of_mtu(ports: t.Sequence[Facts], options: RdmaOptions, hcas: t.Sequence[HcaUse]) -> t.Iterator[str]:
    used = {item.netdev for item in hcas if item.used and item.netdev}
    sizes = {
        str(port["netdev"]): port.get("mtu")
        for port in ports
        if port.get("link_layer") == "ethernet" and port.get("netdev") in used
    }
    low = sorted(name for name, mtu in sizes.items() if mtu and mtu < tables.RDMA_MTU)
    if low and not options.mtu:
        can = "set rdma_mtu where all machines and switches can"
        yield f"the MTU of {', '.join(low)} is below {tables.RDMA_MTU}: {can}"
