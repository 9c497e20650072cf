# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The entry of a machine in the configuration of k8s-rdma-shared-dev-plugin: the HCAs that jobs get, and no others.

The plugin's rules (v1.5.3): a name has no dash; the kind of link is read of the network interface, so that a port of
InfiniBand without IPoIB never matches it; an unknown selector is dropped without a word.
"""

from __future__ import annotations

import dataclasses
import json
import re
import typing as t

from .device_host import Facts

# How many pods of a machine may share its HCAs: the plugin wants a number, and no job starts as many.
SHARES: t.Final = 63
SELECTORS: t.Final = ("vendors", "deviceIDs", "drivers", "ifNames", "linkTypes")
_NAMES: t.Final = {"infiniband": "ib", "roce": "roce"}
_LINKS: t.Final = {"infiniband": "infiniband", "roce": "ether"}


@dataclasses.dataclass(frozen=True, slots=True)
class PluginEntry:
    """``entry``: one of ``configList``, None where jobs get no HCA; ``warning``: what it cannot keep from pods."""

    entry: dict[str, t.Any] | None = None
    warning: str = ""


def build_entry(kind: str, ports: t.Sequence[Facts], used: t.Collection[tuple[str, int]]) -> PluginEntry:
    """Return the entry for the ports (name and number) that jobs get.

    Other ports are kept out by their device ids, else by the interfaces of those that jobs get.
    """
    mine = [port for port in ports if (port["name"], int(port["port"])) in used]
    if kind not in _NAMES or not mine or not all(port.get("vendor") for port in mine):
        return PluginEntry()
    others = [port for port in ports if port not in mine]
    selectors: dict[str, list[str]] = {"vendors": _distinct(mine, "vendor")}
    if all(port.get("driver") for port in mine):
        selectors["drivers"] = _distinct(mine, "driver")
    if all(port.get("netdev") for port in mine):
        selectors["linkTypes"] = [_LINKS[kind]]
    left = [port for port in others if _is_selected(port, selectors, kind)]
    if left and all(port.get("device") for port in mine):
        selectors["deviceIDs"] = _distinct(mine, "device")
        left = [port for port in left if port.get("device") in selectors["deviceIDs"]]
    if left and all(port.get("netdev") for port in mine):
        selectors["ifNames"] = _distinct(mine, "netdev")
        left = []
    entry = {"resourceName": _NAMES[kind], "rdmaHcaMax": SHARES, "selectors": selectors}
    names = ", ".join(sorted({str(port["name"]) for port in left}))
    # Pods see it and could use it; NCCL_IB_HCA names the others.
    return PluginEntry(entry, f"no selector of the RDMA device plugin tells {names} from those of jobs" if left else "")


def _distinct(ports: t.Sequence[Facts], key: str) -> list[str]:
    return sorted({str(port[key]) for port in ports if port.get(key)})


def _is_selected(port: Facts, selectors: t.Mapping[str, t.Collection[str]], kind: str) -> bool:
    """Whether the plugin would take a port by these selectors."""
    layer = "infiniband" if kind == "infiniband" else "ethernet"
    is_link = "linkTypes" not in selectors or (port.get("netdev") is not None and port.get("link_layer") == layer)
    is_driver = "drivers" not in selectors or port.get("driver") in (None, *selectors["drivers"])
    return is_link and is_driver and port.get("vendor") in selectors["vendors"]


def check_config(text: str) -> str:
    """Return what the plugin would refuse of a configuration, or drop without a word; empty where it takes it all."""
    try:
        entries = json.loads(text)["configList"]
    except (ValueError, TypeError, KeyError):
        return "it is not JSON with a configList"
    if not isinstance(entries, list) or not entries:
        return "its configList has no entry"
    names = [str(entry.get("resourceName")) if isinstance(entry, dict) else "" for entry in entries]
    problems = (_check_entry(entry, name) for entry, name in zip(entries, names, strict=True))
    twice = next((f"two entries are named {name}" for name in names if names.count(name) > 1), "")
    return next((problem for problem in problems if problem), twice)


def _check_entry(entry: t.Any, name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_]+", name):
        return f"resourceName {name} may have letters, digits and _ only"
    shares, selectors = entry.get("rdmaHcaMax"), entry.get("selectors") or {}
    if not isinstance(shares, int) or shares < 1:
        return f"rdmaHcaMax of {name} must be a number of pods"
    if not isinstance(selectors, dict) or not (selectors or entry.get("devices")):
        return f"{name} has neither selectors nor devices"
    unknown = next((key for key in selectors if key not in SELECTORS), None)
    return f"{name} has no selector {unknown}: {', '.join(SELECTORS)}" if unknown else ""
