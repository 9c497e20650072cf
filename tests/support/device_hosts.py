# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recorded hosts of tests/fixtures/device_hosts as trees of files and as programs that answer, and what is expected.

A file holds a list of hosts. Each has ``name``, ``source`` (where such a machine was reported), and:

- ``files``: path without its first slash to text; ``dirs``: folders; ``os``: a key of ``SYSTEMS`` for etc/os-release;
  ``kernel``, ``machine`` (x86_64), ``dmi`` (sys_vendor and product_name), ``secure_boot`` (true, false, absent);
- ``pci``: ``{at, vendor, device, class, driver, below, acs, group}`` of each device, ``x`` with a list of addresses for
  several; ``below`` are the root complex and bridges above it, ``acs`` of a bridge, ``group`` the type of its IOMMU group;
- ``packages``: name to version, ``held`` and ``broken`` lists of names; ``rpm``: the same from rpm instead of dpkg;
- ``module``: ``{version, open}`` of a loaded driver; ``libraries``: the version of libnvidia-ml;
- ``tools``: a command line to what it prints, or to ``{rc, stderr}``;
- ``hcas``: ``{name, vendor, device, driver, layer, state, rate, netdev, mtu, gids, board}`` of each port 1;
- ``options``: of ``gpu_driver``, ``container_runtime``, ``rdma``; ``k3s_unit``; ``expect``: for each of the three the
  fields of its plan that are certain. A list is expected to be part of the plan's list; ``says`` is a text, or several,
  that the reason, a refusal or a warning holds, ``lacks`` are packages and units that the plan does not have.
"""

from __future__ import annotations

import json
import pathlib
import typing as t

from . import pci_space

FIXTURES = pathlib.Path(__file__).parents[1] / "fixtures" / "device_hosts"
Host = dict[str, t.Any]
SYSTEMS: t.Final = {
    "ubuntu22": 'ID=ubuntu\nID_LIKE=debian\nVERSION_ID="22.04"\nPRETTY_NAME="Ubuntu 22.04.5 LTS"\n',
    "ubuntu24": 'ID=ubuntu\nID_LIKE=debian\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04.3 LTS"\n',
    "ubuntu26": 'ID=ubuntu\nID_LIKE=debian\nVERSION_ID="26.04"\nPRETTY_NAME="Ubuntu 26.04 LTS"\n',
    "ubuntu20": 'ID=ubuntu\nID_LIKE=debian\nVERSION_ID="20.04"\nPRETTY_NAME="Ubuntu 20.04.6 LTS"\n',
    "debian12": 'ID=debian\nVERSION_ID="12"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
    "debian13": 'ID=debian\nVERSION_ID="13"\nPRETTY_NAME="Debian GNU/Linux 13 (trixie)"\n',
    "debian11": 'ID=debian\nVERSION_ID="11"\nPRETTY_NAME="Debian GNU/Linux 11 (bullseye)"\n',
    "rocky8": 'ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="8.10"\nPRETTY_NAME="Rocky Linux 8.10"\n',
    "rocky9": 'ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.6"\nPRETTY_NAME="Rocky Linux 9.6 (Blue Onyx)"\n',
    "rhel10": 'ID="rhel"\nID_LIKE="centos fedora"\nVERSION_ID="10.0"\nPRETTY_NAME="Red Hat Enterprise Linux 10.0"\n',
    "arch": 'ID=arch\nPRETTY_NAME="Arch Linux"\n',
    "sles": 'ID="sles"\nID_LIKE="suse"\nVERSION_ID="15.6"\nPRETTY_NAME="SUSE Linux Enterprise Server 15 SP6"\n',
}
# Facts of a machine with one GPU and nothing installed.
BARE: t.Final[dict[str, t.Any]] = {
    "os": {"id": "debian", "version": "12", "name": "Debian GNU/Linux 12", "like": []},
    "machine": "x86_64",
    "kernel": "6.1.0-38-amd64",
    "secure_boot": False,
    "headers": "installed",
    "packages": {"versions": {}, "held": [], "broken": [], "manager": "apt"},
    "gpus": [{"pci": "0000:10:00.0", "device": "2330", "driver": None}],
}
_EFIVARS = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


def load_hosts() -> list[Host]:
    """Return all recorded hosts, in the order of their files."""
    return [host for path in sorted(FIXTURES.glob("*.json")) for host in json.loads(path.read_text())]


def write_host(root: pathlib.Path, host: Host) -> dict[str, t.Any]:
    """Write the host's tree below ``root`` and return the request that reads it."""
    files = {**_system_files(host), **_driver_files(host), **_package_files(host), **host.get("files", {})}
    for path, text in files.items():
        _write(root / path, text)
    for path in ("var/lib", "sys/bus/pci/devices", *host.get("dirs", ())):
        (root / path).mkdir(parents=True, exist_ok=True)
    if "secure_boot" in host:
        _write_bytes(root / _EFIVARS, b"\6\0\0\0" + bytes([host["secure_boot"]]))
    for device in host.get("pci", ()):
        for address in device.get("x") or [device["at"]]:
            _write_pci(root, {**device, "at": address})
    for hca in host.get("hcas", ()):
        _write_hca(root, hca)
    _write_tools(root / "tools", host.get("tools", {}) | _rpm_tools(host))
    return {"root": str(root), "path": [str(root / "tools")]}


def _system_files(host: Host) -> dict[str, str]:
    dmi = host.get("dmi", ["Dell Inc.", "PowerEdge R760"])
    return {
        "etc/os-release": SYSTEMS.get(host.get("os", ""), host.get("os", "")),
        "proc/sys/kernel/osrelease": host.get("kernel", "6.8.0-111-generic"),
        "proc/sys/kernel/arch": host.get("machine", "x86_64"),
        "sys/class/dmi/id/sys_vendor": dmi[0],
        "sys/class/dmi/id/product_name": dmi[1],
        **(
            {"proc/77/comm": "k3s-server" if host["k3s_unit"] == "k3s" else host["k3s_unit"]}
            if "k3s_unit" in host
            else {}
        ),
        "proc/cpuinfo": "flags\t\t: fpu hypervisor\n" if host.get("vm") else "flags\t\t: fpu\n",
    }


def _driver_files(host: Host) -> dict[str, str]:
    files = {}
    module = host.get("module")
    if module:
        kind = "UNIX Open Kernel Module for x86_64" if module.get("open") else "UNIX x86_64 Kernel Module"
        files["proc/driver/nvidia/version"] = f"NVRM version: NVIDIA {kind}  {module['version']}  Release Build"
        files["sys/module/nvidia/refcnt"] = "10"
    libraries = host.get("libraries")
    if libraries:
        folder = "aarch64-linux-gnu" if host.get("machine") == "aarch64" else "x86_64-linux-gnu"
        files[f"usr/lib/{folder}/libnvidia-ml.so.{libraries}"] = ""
    return files


def _package_files(host: Host) -> dict[str, str]:
    if "packages" not in host:
        return {}
    broken = host.get("broken", ())
    rows = []
    for name, version in {**host["packages"], **dict.fromkeys(broken, "1.0")}.items():
        want = "hold" if name in host.get("held", ()) else "install"
        state = "half-configured" if name in broken else "installed"
        rows.append(f"Package: {name}\nStatus: {want} ok {state}\nVersion: {version}\n")
    return {"var/lib/dpkg/status": "\n".join(rows)}


def _rpm_tools(host: Host) -> dict[str, str]:
    if "rpm" not in host:
        return {}
    return {"rpm": "".join(f"{name} {version}\n" for name, version in host["rpm"].items())}


def _write(path: pathlib.Path, text: str) -> None:
    _write_bytes(path, (text if text.endswith("\n") else f"{text}\n").encode())


def _write_bytes(path: pathlib.Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _write_pci(root: pathlib.Path, device: Host) -> None:
    place = root / "sys/bus/pci/devices" / device["at"]
    if "below" in device:
        real = root / "sys/devices" / device["below"] / device["at"]
        real.mkdir(parents=True, exist_ok=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(real)
    if "acs" in device:
        _write_bytes(place / "config", pci_space.acs_config(device["acs"]))
    if "group" in device:
        _write(place / "iommu_group/type", device["group"])
    for name in ("vendor", "device"):
        _write(place / name, f"0x{device.get(name, '10de')}")
    _write(place / "class", f"0x{device.get('class', '030200')}")
    if device.get("driver"):
        driver = root / "sys/bus/pci/drivers" / device["driver"]
        driver.mkdir(parents=True, exist_ok=True)
        (place / "driver").symlink_to(driver)


def _write_hca(root: pathlib.Path, hca: Host) -> None:
    base = root / "sys/class/infiniband" / hca["name"]
    for name, value in (("vendor", hca.get("vendor", "15b3")), ("device", hca.get("device", "1021"))):
        _write(base / "device" / name, f"0x{value}")
    driver = root / "sys/bus/pci/drivers" / hca.get("driver", "mlx5_core")
    driver.mkdir(parents=True, exist_ok=True)
    (base / "device/driver").symlink_to(driver)
    _write(base / "board_id", hca.get("board", "MT_0000000838"))
    port = base / "ports/1"
    states = {"down": "1: DOWN", "init": "2: INIT", "active": "4: ACTIVE"}
    _write(port / "link_layer", hca.get("layer", "InfiniBand"))
    _write(port / "state", states[hca.get("state", "active")])
    _write(port / "rate", f"{hca.get('rate', 400)} Gb/sec (4X NDR)")
    for index, kind in enumerate(hca.get("gids", ["IB/RoCE v1"])):
        _write(port / f"gids/{index}", f"fe80:0000:0000:0000:0000:0000:0000:{index + 1:04x}")
        _write(port / f"gid_attrs/types/{index}", kind)
    if hca.get("netdev"):
        (base / "device/net" / hca["netdev"]).mkdir(parents=True)
        _write(root / "sys/class/net" / hca["netdev"] / "mtu", str(hca.get("mtu", 9000)))
    if hca.get("numvfs"):
        _write(base / "device/sriov_numvfs", str(hca["numvfs"]))


def _write_tools(folder: pathlib.Path, tools: t.Mapping[str, t.Any]) -> None:
    """Write one program a tool: it answers the command lines that are known, and fails for others."""
    folder.mkdir(parents=True, exist_ok=True)
    names: dict[str, list[str]] = {}
    for index, (line, answer) in enumerate(tools.items()):
        name, _unused, arguments = line.partition(" ")
        said = answer if isinstance(answer, dict) else {"stdout": answer}
        for stream in ("stdout", "stderr"):
            _write_bytes(folder / f".{index}.{stream}", str(said.get(stream, "")).encode())
        test = f'[ "$*" = "{arguments}" ] &&' if arguments else ""
        ends = f'cat "$0.d"/{index}.stderr >&2; exit {said.get("rc", 0)}'
        names.setdefault(name, []).append(f'{test} {{ cat "$0.d"/{index}.stdout; {ends}; }}')
    for name, lines in names.items():
        program = folder / name
        program.write_text("#!/bin/sh\n" + "\n".join(lines).replace('"$0.d"/', f"{folder}/.") + "\nexit 9\n")
        program.chmod(0o755)
