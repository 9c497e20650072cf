# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Loads inventories in a process of its own, as Ansible's commands do, and prints what they hold as JSON.

Usage: ``python run_inventory.py CASES.json``; a case is ``{"name": ..., "sources": [...], "cache": true}``.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import typing as t


def load(sources: list[str], cache: bool) -> dict[str, t.Any]:
    """Return hosts, groups and the error of one inventory."""
    from ansible import constants
    from ansible.errors import AnsibleError
    from ansible.inventory.manager import InventoryManager
    from ansible.parsing.dataloader import DataLoader

    # A source that could not be read leaves this set, for the rest of a run that has ended.
    t.cast(t.Any, constants).INVENTORY_ANY_UNPARSED_IS_FAILED = False
    try:
        manager: t.Any = InventoryManager(DataLoader(), sources=sources, cache=cache)
    except AnsibleError as exc:
        return {"error": str(exc), "hosts": {}, "groups": {}, "all": {}}
    return {
        "error": None,
        "hosts": {name: host.vars for name, host in manager.hosts.items()},
        "groups": {name: [host.name for host in group.hosts] for name, group in manager.groups.items()},
        "all": manager.groups["all"].vars,
    }


def main() -> None:
    """Run all cases; each one's warnings follow its name on standard error."""
    from ansible.plugins import loader

    t.cast(t.Any, loader).init_plugin_loader()
    found = {}
    for case in json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")):
        print(f"=== {case['name']}", file=sys.stderr, flush=True)
        found[case["name"]] = load(case["sources"], case.get("cache", True))
    print(json.dumps(found, default=str))


VARIABLES = (
    "LAMBDA_API_KEY", "RUNPOD_API_KEY", "VAST_API_KEY", "SHADEFORM_API_KEY", "TAILSCALE_API_KEY", "HEADSCALE_API_KEY",
    "COREWEAVE_API_TOKEN", "TAILSCALE_OAUTH_CLIENT_SECRET",
)  # fmt: skip


def environment(folder: pathlib.Path, **extra: str) -> dict[str, str]:
    """Return an environment without anybody's credentials, proxies or settings."""
    kept = {
        name: value for name, value in os.environ.items() if name not in VARIABLES and not name.startswith("ANSIBLE_")
    }
    return {
        **kept,
        "HOME": str(folder),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "ANSIBLE_LOCALHOST_WARNING": "0",
        **extra,
    }


class Workbench:
    """Source files and cases of one run; ``endings`` gives each plugin's file name and the path of its API."""

    def __init__(self, folder: pathlib.Path, token: str, endings: dict[str, tuple[str, str]]) -> None:
        self.folder = folder
        self.cases: list[dict[str, t.Any]] = []
        self._token = token
        self._endings = endings

    def source(self, name: str, text: str) -> str:
        """Write a source file and return its path."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return str(path)

    def plugin(self, case: str, plugin: str, url: str, more: str = "", token: str | None = "") -> str:
        """Write a source for ``plugin`` at ``url``; ``token`` None leaves it out."""
        ending, path = self._endings[plugin]
        lines = [f"plugin: muster.training.{plugin}", f"api_url: {url}{path}"]
        lines += [] if token is None else [f"api_token: {token or self._token}"]
        return self.source(f"{case}/{ending}", "\n".join([*lines, more]) + "\n")

    def case(self, name: str, *sources: str, **options: t.Any) -> None:
        """Add an inventory of ``sources``, in their order."""
        self.cases.append({"name": name, "sources": list(sources), **options})

    def run(self, **env: str) -> dict[str, dict[str, t.Any]]:
        """Load all inventories in one process."""
        return run_cases(self.folder, self.cases, environment(self.folder, **env))


def run_cases(folder: pathlib.Path, cases: list[dict[str, t.Any]], env: dict[str, str]) -> dict[str, dict[str, t.Any]]:
    """Run ``cases`` in one process; each result gets its standard error as ``log``."""
    path = folder / "cases.json"
    path.write_text(json.dumps(cases), encoding="utf-8")
    command = [sys.executable, __file__, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, dict[str, t.Any]] = json.loads(done.stdout)
    for part in done.stderr.split("=== ")[1:]:
        name, _newline, log = part.partition("\n")
        found[name]["log"] = log
    return found


if __name__ == "__main__":
    main()
