# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Expands a manifest of tests/fixtures/nodes into a tree of /proc, /sys and /dev, and into a request for ``gather``.

An entry with ``x`` (a list) stands for one entry an item: ``{x}`` is the item, ``{i}`` its index, ``{j}`` its index
plus two; another list of the same length gives each its own value.
"""

from __future__ import annotations

import json
import pathlib
import typing as t

from ansible_collections.muster.training.tests.support.pci_space import acs_config

FIXTURES = pathlib.Path(__file__).parents[4] / "fixtures" / "nodes"
NAMES = sorted(path.stem for path in FIXTURES.glob("*.json"))
ZERO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"
Entry = dict[str, t.Any]


def load(name: str) -> Entry:
    """Return the manifest ``name``."""
    return t.cast(Entry, json.loads((FIXTURES / f"{name}.json").read_text()))


def _fill(value: t.Any, names: dict[str, t.Any], length: int, index: int) -> t.Any:
    if isinstance(value, str):
        for key, word in names.items():
            value = value.replace(f"{{{key}}}", str(word))
        return value
    if isinstance(value, list):
        per_item = len(value) == length and not isinstance(value[0], list)
        return value[index] if per_item else [_fill(item, names, -1, index) for item in value]
    return value


def each(entries: list[Entry]) -> t.Iterator[Entry]:
    """Expand the entries that stand for several."""
    for entry in entries:
        items = entry.get("x")
        if items is None:
            yield entry
            continue
        for index, item in enumerate(items):
            names = {"x": item, "i": index, "j": index + 2}
            rest = {key: value for key, value in entry.items() if key != "x"}
            yield {key: _fill(value, names, len(items), index) for key, value in rest.items()}


def write(path: pathlib.Path, text: t.Any) -> None:
    """Write a file as the kernel shows it: with a newline at its end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n" if not str(text).endswith("\n") else str(text))


def link(path: pathlib.Path, target: pathlib.Path) -> None:
    """Make ``path`` a symbolic link to ``target``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def _pci(root: pathlib.Path, entry: Entry) -> None:
    device = root / "sys/devices" / entry["at"]
    write(device / "vendor", entry["vendor"])
    write(device / "class", entry["class"])
    write(device / "numa_node", entry.get("numa", -1))
    if "speed" in entry:
        write(device / "current_link_speed", entry["speed"])
        write(device / "max_link_speed", entry.get("max_speed", entry["speed"]))
        write(device / "current_link_width", entry["width"])
        write(device / "max_link_width", entry.get("max_width", entry["width"]))
    if "group" in entry:
        write(device / "iommu_group/type", entry["group"])
    if "acs" in entry:
        (device / "config").write_bytes(acs_config(entry["acs"]))
    if entry.get("virtio"):
        (device / "virtio0").mkdir()
    link(root / "sys/bus/pci/devices" / device.name, device)


def _netdev(root: pathlib.Path, entry: Entry, index: int) -> None:
    base = root / "sys/class/net" / entry["name"]
    defaults = {"mtu": 1500, "type": 1, "operstate": "up", "carrier": "1", "speed": ""}
    for key, default in defaults.items():
        write(base / key, entry.get(key, default))
    write(base / "ifindex", index)
    write(base / "iflink", 1000 + index if entry.get("veth") else index)
    write(base / "uevent", f"INTERFACE={entry['name']}")
    if "pci" in entry:
        device = root / "sys/bus/pci/devices" / entry["pci"]
        link(base / "device", device / "virtio0" if entry.get("virtio") else device)
        (device.resolve() / "net" / entry["name"]).mkdir(parents=True)
        write(device.resolve() / "net" / entry["name"] / "dev_port", 0)
    for port in entry.get("bridge", []):
        (base / "brif" / port).mkdir(parents=True)
    if "bridge" in entry:
        (base / "bridge").mkdir()
    if "bond" in entry:
        write(base / "bonding/slaves", entry["bond"])
    if entry.get("tun"):
        write(base / "tun_flags", "0x1001")


def _rdma(root: pathlib.Path, entry: Entry) -> None:
    base = root / "sys/class/infiniband" / entry["name"]
    port = base / "ports/1"
    write(base / "fw_ver", "28.39.1002")
    write(base / "node_guid", "b83f:d203:00c5:7a00")
    link(base / "device", root / "sys/bus/pci/devices" / entry["pci"])
    write(port / "link_layer", entry["link_layer"])
    write(port / "rate", entry["rate"])
    write(port / "state", entry.get("state", "4: ACTIVE"))
    write(port / "pkeys/0", "0xffff")
    for index in range(len(entry["gids"]) + 20):
        gid, kind, netdev = entry["gids"][index] if index < len(entry["gids"]) else (ZERO_GID, "", "")
        write(port / "gids" / str(index), gid)
        write(port / "gid_attrs/types" / str(index), kind)
        write(port / "gid_attrs/ndevs" / str(index), netdev)


def _tool(folder: pathlib.Path, name: str, answers: dict[str, list[str]]) -> None:
    lines = ["#!/bin/sh", 'case "$1" in']
    for option, answer in answers.items():
        lines += [f"{option}*) cat <<'END'", *answer, "END", ";;"]
    script = folder / name
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text("\n".join([*lines, "*) echo 'no such option' >&2; exit 2 ;;", "esac", ""]))
    script.chmod(0o755)


def _limits(value: str) -> str:
    head = "Limit                     Soft Limit           Hard Limit           Units     \n"
    rows = (("Max stack size", "8388608"), ("Max open files", "1024"), ("Max locked memory", value))
    return head + "".join(f"{name:<26}{soft:<21}{soft:<21}bytes     \n" for name, soft in rows)


def expand(name: str, root: pathlib.Path) -> Entry:
    """Write the tree of manifest ``name`` below ``root`` and return the request that reads it."""
    manifest = load(name)
    for entry in each(manifest["pci"]):
        _pci(root, entry)
    for index, entry in enumerate(each(manifest["netdevs"]), start=2):
        _netdev(root, entry, index)
    if "rdma" in manifest:
        (root / "sys/class/infiniband").mkdir(parents=True)
        for entry in each(manifest["rdma"]):
            _rdma(root, entry)
    for tool, answers in manifest["tools"].items():
        _tool(root / "tools", tool, answers)
    for pid, process in manifest["processes"].items():
        # The kernel keeps 15 characters of a name.
        write(root / "proc" / pid / "comm", process[:15])
    for pid, value in manifest["limits"].items():
        write(root / "proc" / pid / "limits", _limits(value))
    for folder in manifest["dirs"]:
        (root / folder).mkdir(parents=True, exist_ok=True)
    for path, text in manifest["files"].items():
        write(root / path, text)
    # The fake tools are shell scripts that use cat.
    return {"root": str(root), "path": [str(root / "tools"), "/bin"], "addresses": manifest["addresses"]}
