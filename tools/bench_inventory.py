# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Time and memory of a big inventory, as ratios within one run on one machine.

Ten thousand devices shaped like Tailscale's are put into an inventory in three ways, each in a process of its own:

- floor: a plugin of ``json.load``, ``add_host`` and one dictionary update for each host; less cannot be done.
- plugin: the collection's plugin, from the bytes of the API's answer to the last group.
- constructable: the same plugin, with its groups and variables made by Ansible's ``Constructable``.

Gates: the plugin is 20 times as fast as Constructable, takes at most 1.5 times the floor's time and twice its memory.
Times are CPU seconds to load the inventory with ``InventoryManager``, the least of several runs; memory is what the
process has grown by when the inventory stands.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import typing as t

OPTIONS = """
plugin: muster.training.tailscale
api_token: a-token-that-is-not-checked
compose:
  machine_os: tailscale_os
  mesh_address: muster_node.addresses.mesh[0].address
groups:
  reachable: muster_reachable
keyed_groups:
  - {key: tailscale_os, prefix: os}
  - {key: tailscale_tags, prefix: tag}
  - {key: muster_node.state, prefix: state}
"""
FASTER_THAN_CONSTRUCTABLE = 20.0
TIMES_FLOOR_TIME = 1.5
TIMES_FLOOR_MEMORY = 2.0


def device(number: int) -> dict[str, t.Any]:
    """Return one device with the 22 keys and the size that the API's have."""
    low, high = number % 250 + 1, number // 250
    return {
        "addresses": [
            f"100.{64 + high // 250}.{high % 250}.{low}",
            f"fd7a:115c:a1e0:ab12:4843:cd96:{number:04x}:{low:x}",
        ],
        "id": str(92960230385 + number),
        "nodeId": f"n{number:06d}kg92CNTRL",
        "user": f"person-{number % 40}@example.com",
        "name": f"machine-{number:05d}.tailfe8c.ts.net",
        "hostname": f"machine-{number:05d}",
        "clientVersion": "1.98.0-t1a2b3c4d5-gabcdef012",
        "updateAvailable": number % 3 == 0,
        "os": ("linux", "macOS", "windows")[number % 3],
        "created": "2026-03-01T05:23:30Z",
        "connectedToControl": number % 10 != 0,
        "lastSeen": "2026-11-20T05:23:30Z",
        "keyExpiryDisabled": number % 2 == 0,
        "expires": "2027-05-30T04:44:05Z",
        "authorized": True,
        "isExternal": False,
        "machineKey": f"mkey:{number:064x}",
        "nodeKey": f"nodekey:{number * 7:064x}",
        "blocksIncomingConnections": False,
        "enabledRoutes": ["10.0.0.0/16", "192.168.1.0/24"] if number % 8 == 0 else [],
        "advertisedRoutes": ["10.0.0.0/16", "192.168.1.0/24"] if number % 8 == 0 else [],
        "tags": [f"tag:team-{number % 12}", "tag:gpu"] if number % 2 else ["tag:server"],
    }


def memory_mib() -> float:
    """Return the resident memory of this process."""
    pages = int(pathlib.Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


FLOOR_PLUGIN = """
import json
from ansible.plugins.inventory import BaseInventoryPlugin

DOCUMENTATION = '''
name: bench_floor
short_description: The least that a plugin must do
options: {plugin: {description: Name.}, data: {description: File.}}
'''


class InventoryModule(BaseInventoryPlugin):
    NAME = "bench_floor"

    def parse(self, inventory, loader, path, cache=True):
        super().parse(inventory, loader, path, cache)
        with open(self._read_config_data(path)["data"], "rb") as stream:
            devices = json.load(stream)["devices"]
        for device in devices:
            inventory.add_host(device["hostname"])
            inventory.hosts[device["hostname"]].vars.update(device)
"""


def floor(data: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Prepare a plugin that does the least that any plugin must do; return the inventory source."""
    from ansible.plugins.loader import inventory_loader

    plugins = folder / "plugins"
    plugins.mkdir(exist_ok=True)
    (plugins / "bench_floor.py").write_text(FLOOR_PLUGIN, encoding="utf-8")
    inventory_loader.add_directory(str(plugins))
    source = folder / "floor.yml"
    source.write_text(f"plugin: bench_floor\ndata: {data}\n", encoding="utf-8")
    return source


def plugin(data: pathlib.Path, folder: pathlib.Path, *, constructable: bool = False) -> pathlib.Path:
    """Prepare the collection's plugin to be answered with ``data``; return the inventory source."""
    from ansible_collections.muster.training.plugins.module_utils._http.messages import HttpResponse
    from ansible_collections.muster.training.plugins.plugin_utils._inventory import base
    from ansible_collections.muster.training.plugins.plugin_utils._providers import connection

    class File:
        """Answers every call with the file, as the wire would with what it had read."""

        def __init__(self, **_options: t.Any) -> None:
            pass

        def __call__(self, *_call: t.Any) -> HttpResponse:
            return HttpResponse(200, {"content-type": "application/json"}, data.read_bytes())

    # The places where the plugin takes its wire and its constructor from.
    t.cast(t.Any, connection).ConnectionPool = File
    if constructable:
        t.cast(t.Any, base).Constructor = Slow
    source = folder / "bench.tailscale.yml"
    source.write_text(OPTIONS, encoding="utf-8")
    return source


class Slow:
    """``construct.Constructor`` made of Ansible's own helpers, called as plugins of other collections do."""

    def __init__(self, plugin: t.Any, _reader: object) -> None:
        self._plugin = plugin

    def apply(self, host: t.Any) -> None:
        plugin, variables, strict = self._plugin, host.get_vars(), self._plugin.get_option("strict")
        plugin._set_composite_vars(plugin.get_option("compose"), variables, host.name, strict)
        plugin._add_host_to_composed_groups(plugin.get_option("groups"), variables, host.name, strict)
        plugin._add_host_to_keyed_groups(plugin.get_option("keyed_groups"), variables, host.name, strict)

    def finish(self) -> None:
        return None


def constructable(data: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Prepare the collection's plugin with Ansible's own way of making groups and variables."""
    return plugin(data, folder, constructable=True)


WAYS = {"floor": floor, "plugin": plugin, "constructable": constructable}


def load(way: str, data: pathlib.Path) -> t.Any:
    """Load an inventory as ``ansible-playbook`` does before its first task."""
    from ansible.inventory.manager import InventoryManager
    from ansible.parsing.dataloader import DataLoader

    with tempfile.TemporaryDirectory() as folder:
        source = WAYS[way](data, pathlib.Path(folder))
        return InventoryManager(DataLoader(), sources=[str(source)])


def measure_here(way: str, data: pathlib.Path) -> dict[str, float]:
    """Run one way in this process; CPU seconds, MiB grown, hosts and groups."""
    from ansible.plugins.loader import init_plugin_loader

    init_plugin_loader()
    with tempfile.TemporaryDirectory() as folder:
        small = pathlib.Path(folder) / "one.json"
        small.write_text(json.dumps({"devices": [device(0)]}), encoding="utf-8")
        # Once with a single device: imports and compilations are not what is compared.
        load(way, small)
    gc.collect()
    before, started = memory_mib(), time.process_time()
    inventory = load(way, data)
    seconds = time.process_time() - started
    gc.collect()
    return {
        "seconds": seconds,
        "memory_mib": memory_mib() - before,
        "hosts": len(inventory.hosts),
        "groups": len(inventory.groups),
    }


def measure(ways: tuple[str, ...], count: int, runs: int) -> dict[str, dict[str, float]]:
    """Return the best of ``runs`` processes for each way and ``count`` devices; the ways take turns."""
    found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder) / "devices.json"
        data.write_text(json.dumps({"devices": [device(number) for number in range(count)]}), encoding="utf-8")
        for _run in range(runs):
            for way, results in found.items():
                command = [sys.executable, __file__, "--here", way, "--data", str(data)]
                results.append(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))
    for way, results in found.items():
        if any(result["hosts"] != count for result in results):
            raise SystemExit(f"inventory {way}: not all hosts are there")
    return {way: _least(results) for way, results in found.items()}


def _least(results: list[dict[str, float]]) -> dict[str, float]:
    return {key: min(result[key] for result in results) for key in ("seconds", "memory_mib")}


def line(name: str, value: float, gate: str, holds: bool) -> str:
    """Return one line of the report."""
    return f"inventory {name:<42} {value:8.2f}  gate {gate:<8} {'PASS' if holds else 'FAIL'}"


def main() -> int:
    """Print figures and gates; the exit code is 1 when a gate does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument(
        "--sample", type=int, default=1_000, help="hosts for Constructable, whose time is linear in them"
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--here", choices=WAYS)
    parser.add_argument("--data", type=pathlib.Path)
    options = parser.parse_args()
    if options.here:
        print(json.dumps(measure_here(options.here, options.data)))
        return 0
    found = measure(("floor", "plugin"), options.hosts, options.runs)
    sample = min(options.sample, options.hosts)
    slow = measure(("constructable",), sample, 1)["constructable"]
    slow_seconds = slow["seconds"] * options.hosts / sample
    for way, result in (*found.items(), (f"constructable ({sample} hosts)", slow)):
        print(f"inventory {way:<42} {result['seconds']:8.2f} s CPU {result['memory_mib']:8.1f} MiB")
    faster = slow_seconds / found["plugin"]["seconds"]
    times = found["plugin"]["seconds"] / found["floor"]["seconds"]
    memory = found["plugin"]["memory_mib"] / found["floor"]["memory_mib"]
    print(line("times as fast as Constructable", faster, ">= 20", faster >= FASTER_THAN_CONSTRUCTABLE))
    print(line("time, as a multiple of the floor", times, "<= 1.5", times <= TIMES_FLOOR_TIME))
    print(line("memory, as a multiple of the floor", memory, "<= 2", memory <= TIMES_FLOOR_MEMORY))
    return (
        0 if faster >= FASTER_THAN_CONSTRUCTABLE and times <= TIMES_FLOOR_TIME and memory <= TIMES_FLOOR_MEMORY else 1
    )


if __name__ == "__main__":
    sys.exit(main())
