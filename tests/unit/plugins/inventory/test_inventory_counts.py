# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ten thousand devices cost, as numbers that do not depend on the machine: calls, templates, writes of variables.

The options are those of ``tools/bench_inventory.py``, which measures the time.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

from ansible_collections.muster.training.tests.support.run_inventory import environment

ROOT = pathlib.Path(__file__).resolve().parents[4]
HOSTS = 10_000
SCRIPT = """
import collections, json, pathlib, sys, tempfile
from ansible.plugins.loader import init_plugin_loader
init_plugin_loader()
from ansible._internal._templating import _engine
from ansible.inventory.data import InventoryData
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.inventory import Constructable
from ansible_collections.muster.training.plugins.plugin_utils._providers import connection
from ansible_collections.muster.training.tools import bench_inventory as bench

counts = collections.Counter()

def count(owner, name):
    inner = getattr(owner, name)
    def counted(*args, **kwargs):
        counts[name] += 1
        return inner(*args, **kwargs)
    setattr(owner, name, counted)

for owner, names in (
    (Constructable, ("_set_composite_vars", "_add_host_to_composed_groups", "_add_host_to_keyed_groups")),
    (_engine.TemplateEngine, ("evaluate_expression", "template")),
    (InventoryData, ("set_variable",)),
):
    for name in names:
        count(owner, name)

hosts = int(sys.argv[1])
with tempfile.TemporaryDirectory() as place:
    folder = pathlib.Path(place)
    data = folder / "devices.json"
    data.write_text(json.dumps({"devices": [bench.device(number) for number in range(hosts)]}))
    source = bench.plugin(data, folder)
    count(connection.ConnectionPool, "__call__")
    manager = InventoryManager(DataLoader(), sources=[str(source)])
groups = {name: len(group.hosts) for name, group in manager.groups.items()}
print(json.dumps({"hosts": len(manager.hosts), "groups": groups, **counts}))
"""


def load(folder: pathlib.Path, hosts: int) -> dict[str, int]:
    argv = [sys.executable, "-c", SCRIPT, str(hosts)]
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, cwd=folder, env=environment(folder), timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_ten_thousand_devices_cost_what_one_costs(tmp_path: pathlib.Path) -> None:
    one, many = load(tmp_path, 1), load(tmp_path, HOSTS)
    assert many["hosts"] == HOSTS
    # One listing, whatever its length.
    assert many["__call__"] == 1
    # No device is taken to Jinja or to Constructable, and none of its variables goes through set_variable.
    slow = ("_set_composite_vars", "_add_host_to_composed_groups", "_add_host_to_keyed_groups")
    assert {name: many.get(name, 0) for name in slow} == dict.fromkeys(slow, 0)
    # Ansible's add_host notes by itself which source a host is from.
    assert many["set_variable"] <= 2 * HOSTS
    for name in ("evaluate_expression", "template"):
        assert many.get(name, 0) <= one.get(name, 0) + 10, name
    groups = dict(many["groups"])  # type: ignore[call-overload]
    assert groups["os_linux"] + groups["os_macOS"] + groups["os_windows"] == HOSTS
    assert groups["state_running"] == groups["reachable"] and groups["tag_tag_gpu"] == HOSTS // 2
