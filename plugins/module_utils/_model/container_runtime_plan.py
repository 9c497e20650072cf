# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How containers of a machine get its GPUs: a pure decision; the role container_runtime carries it out."""

from __future__ import annotations

import dataclasses
import typing as t

from . import device_tables as tables
from .device_host import (
    DeviceHost,
    Facts,
    Refusal,
    Repository,
    check_packages,
    parse_version,
    require_choice,
    write_version,
)

Action = t.Literal["none", "keep", "install", "upgrade", "refuse"]
_PACKAGES = r"(nvidia-container-toolkit|libnvidia-container)"
# containerd has CDI on by default from 2.0 (release notes); 1.7 starts a pod without its devices, and without a word.
_CDI_BY_DEFAULT = (2, 0)
CONTAINERDS: t.Final = ("auto", "k3s", "containerd")


@dataclasses.dataclass(frozen=True, slots=True)
class RuntimeOptions:
    """What is asked for; the options of the role ``container_runtime``."""

    version: str = tables.TOOLKIT_VERSION
    containerd: str = "auto"
    upgrade: bool = False

    def __post_init__(self) -> None:
        require_choice("container_runtime_containerd", self.containerd, CONTAINERDS)
        if parse_version(self.version) < tables.TOOLKIT_REFUSED_BELOW:
            least = write_version(tables.TOOLKIT_REFUSED_BELOW)
            allowed = f"{least} or newer (CVE-2025-23266 lets a container take over its host below it)"
            require_choice("container_runtime_version", self.version, (allowed,))


@dataclasses.dataclass(frozen=True, slots=True)
class RuntimePlan:
    """What is done to one machine, and why.

    ``packages`` with the one version that all of them get. ``cdi``: whether the machine's CDI specification has to be
    written. ``cdi_switch``: whether CDI has to be switched on in containerd's own file. ``restart``: the unit that has
    to start again, since K3s looks for runtimes at its start only; empty for none.
    """

    action: Action
    reason: str
    refusals: tuple[Refusal, ...] = ()
    manager: str | None = None
    warnings: tuple[str, ...] = ()
    repositories: tuple[Repository, ...] = ()
    packages: tuple[str, ...] = ()
    version: str = ""
    cdi: bool = False
    refresh_unit: bool = False
    cdi_switch: bool = False
    restart: str = ""


def plan_container_runtime(host: DeviceHost, options: RuntimeOptions, gets_driver: bool = False) -> RuntimePlan:
    """Return the plan of one machine.

    :param gets_driver: the machine has no driver yet and gets one before.
    """
    if host.is_container:
        return RuntimePlan("none", "a container cannot start containers with GPUs of its own")
    if not host.gpus or not (host.has_working_driver or gets_driver):
        return RuntimePlan("none", "no GPU with a driver")
    refusal = _check_installed(host, options)
    if refusal:
        return RuntimePlan("refuse", refusal.problem, (refusal,))
    installed = _read_version(host)
    stale = _needs_packages(host, options)
    if stale:
        refusals = check_packages(host, _PACKAGES)
        if refusals:
            return RuntimePlan("refuse", refusals[0].problem, tuple(refusals))
        if not _repository_of(host):
            problem = f"runs {host.title}, for which the toolkit has no packages"
            return RuntimePlan("refuse", problem, (Refusal(problem, "Install nvidia-container-toolkit yourself"),))
    plan = RuntimePlan(
        ("upgrade" if installed else "install") if stale else "keep",
        stale or f"nvidia-container-toolkit {installed}",
        warnings=tuple(_list_warnings(host, bool(stale))),
        manager=host.manager,
        repositories=(_repository_of(host),) if stale else (),  # type: ignore[arg-type]
        packages=tables.TOOLKIT_PACKAGES if stale else (),
        version=options.version if stale else installed,
        cdi=not _runtime(host).get("cdi_specs"),
        refresh_unit=not _runtime(host).get("refresh_unit"),
    )
    return _add_containerd(host, options, plan)


def _runtime(host: DeviceHost) -> Facts:
    return host.facts.get("runtime") or {}


def _read_version(host: DeviceHost) -> str:
    """Return the version of the toolkit's packages; empty where none is installed or they differ."""
    versions = set((_runtime(host).get("packages") or {}).values())
    return str(versions.pop()) if len(versions) == 1 else ""


def _check_installed(host: DeviceHost, options: RuntimeOptions) -> Refusal | None:
    """Return why a toolkit that is there cannot stay, and may not be changed unasked."""
    packages: t.Mapping[str, str] = _runtime(host).get("packages") or {}
    if not packages:
        return None
    differ = len(set(packages.values())) > 1
    lowest = min(packages.values(), key=parse_version)
    unsafe = parse_version(lowest) < tables.TOOLKIT_REFUSED_BELOW
    if (differ or unsafe) and host.facts.get("dgx_os"):
        return Refusal(_describe_toolkit(packages, unsafe), "Update DGX OS (apt full-upgrade), which owns the toolkit")
    if (differ or unsafe) and not options.upgrade:
        return Refusal(
            _describe_toolkit(packages, unsafe), "Set container_runtime_upgrade: true, or update it yourself"
        )
    if (differ or unsafe) and host.driver.get("processes"):
        problem = f"{_describe_toolkit(packages, unsafe)}, and {host.driver['processes']} processes use its GPUs"
        return Refusal(problem, "Drain the machine first (kube_node, or cancel the run)")
    return None


def _describe_toolkit(packages: t.Mapping[str, str], unsafe: bool) -> str:
    if unsafe:
        least = write_version(tables.TOOLKIT_REFUSED_BELOW)
        lowest = min(packages.values(), key=parse_version)
        return (
            f"nvidia-container-toolkit {lowest} is below {least} (CVE-2025-23266: a container can take over its host)"
        )
    return (
        f"the toolkit's packages differ: {', '.join(f'{name} {version}' for name, version in sorted(packages.items()))}"
    )


def _needs_packages(host: DeviceHost, options: RuntimeOptions) -> str:
    """Return why packages are installed, empty where what is there stays."""
    packages: t.Mapping[str, str] = _runtime(host).get("packages") or {}
    if host.was_cut_short("container-runtime"):
        return "its installation was cut short"
    if not packages and not _runtime(host).get("program"):
        return "nvidia-container-toolkit is not installed"
    if not packages:
        return ""
    lowest = min(packages.values(), key=parse_version)
    if len(set(packages.values())) > 1 or parse_version(lowest) < tables.TOOLKIT_REFUSED_BELOW:
        return _describe_toolkit(packages, parse_version(lowest) < tables.TOOLKIT_REFUSED_BELOW)
    if options.upgrade and not host.facts.get("dgx_os") and parse_version(lowest) < parse_version(options.version):
        return f"nvidia-container-toolkit {lowest} is older than {options.version}"
    return ""


def _list_warnings(host: DeviceHost, stale: bool) -> t.Iterator[str]:
    installed = _read_version(host)
    if installed and not stale and parse_version(installed) < tables.TOOLKIT_ADVISED:
        yield f"nvidia-container-toolkit {installed}: {write_version(tables.TOOLKIT_ADVISED)} or newer is advised"
    if not installed and not stale and _runtime(host).get("program"):
        yield f"{_runtime(host)['program']} belongs to no package: its version is not known"


def _repository_of(host: DeviceHost) -> Repository | None:
    key = tables.TOOLKIT_KEY
    machine = str(host.facts.get("machine"))
    if host.manager == "apt" and machine in tables.DEB_MACHINES:
        url = f"{tables.TOOLKIT_URL}/stable/deb/{tables.DEB_MACHINES[machine]}/"
        return Repository("nvidia-container-toolkit", url, key.url, key.fingerprint)
    if host.manager == "dnf":
        url = f"{tables.TOOLKIT_URL}/stable/rpm/{machine}"
        return Repository("nvidia-container-toolkit", url, key.url, key.fingerprint)
    return None


def _add_containerd(host: DeviceHost, options: RuntimeOptions, plan: RuntimePlan) -> RuntimePlan:
    """Return the plan with what the machine's containerd needs: K3s' own, or another one."""
    runtime, k3s_unit = _runtime(host), str(host.facts.get("k3s_unit") or "")
    of_k3s = options.containerd == "k3s" or (options.containerd == "auto" and (k3s_unit or runtime.get("k3s")))
    if of_k3s:
        # K3s writes the runtime into its containerd's file when it starts, and looks at no later time.
        own = runtime.get("k3s") or {}
        missing = bool(k3s_unit) and not own.get("nvidia")
        off = "CDI is off in K3s' containerd (enable_cdi = false): a pod would start without its GPUs, without an event"
        return dataclasses.replace(
            plan,
            restart=k3s_unit if missing or plan.action in ("install", "upgrade") else "",
            warnings=(*plan.warnings, off) if own.get("cdi") is False else plan.warnings,
        )
    other = runtime.get("containerd")
    if options.containerd == "auto" and other is None:
        return plan
    known = parse_version(runtime.get("containerd_version"))
    state = (other or {}).get("cdi")
    on = state if state is not None else bool(known) and known >= _CDI_BY_DEFAULT
    if on:
        return plan
    if options.containerd == "auto":
        line = "CDI is off in its containerd (enable_cdi): a pod would start without its GPUs, and without an event"
        return dataclasses.replace(plan, warnings=(*plan.warnings, line))
    return dataclasses.replace(plan, cdi_switch=True, restart="containerd")
