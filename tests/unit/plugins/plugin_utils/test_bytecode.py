# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the plugins share is compiled once: counted in a process as Ansible's workers are, which start with nothing."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

from ansible_collections.muster.training.plugins.plugin_utils import bytecode

# Loads an action as Ansible does and tells whose loaders loaded what.
PROGRAM = """
import json, sys
from ansible.plugins.loader import action_loader, init_plugin_loader
init_plugin_loader([])
action_loader.get("muster.training.kube_apply", class_only=True)
prefix = "ansible_collections.muster.training.plugins."
ours = {name[len(prefix):]: module.__spec__ for name, module in sys.modules.items() if name.startswith(prefix)}
print(json.dumps({name: [type(spec.loader).__name__, spec.cached] for name, spec in ours.items()}))
"""


def test_plugins_share_modules_that_are_compiled_once() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    loaders = json.loads(done.stdout.splitlines()[-1])
    found = {name: cached for name, (loader, cached) in loaders.items() if loader == "SourceFileLoader"}
    assert {"plugin_utils._run.kube_apply", "plugin_utils._kube.client", "module_utils._http.client"} <= set(found)
    assert all(cached and pathlib.Path(cached).exists() for cached in found.values())
    # Packages are Ansible's, and what asks for the other loader.
    plugins = pathlib.Path(bytecode.__file__).parents[1]
    rest = {name for name in set(loaders) - set(found) if not plugins.joinpath(*name.split(".")).is_dir()}
    assert rest == {"plugin_utils.bytecode"}


def test_what_is_not_ours_is_left_to_others(tmp_path: pathlib.Path) -> None:
    parent = bytecode.__name__.rpartition(".")[0]
    (tmp_path / "there.py").write_text("")
    (tmp_path / "folder").mkdir()
    folders = [str(tmp_path)]
    assert bytecode.Finder.find_spec(f"{parent}.there", folders) is not None
    for name in (
        "ansible_collections.other.one.plugins.plugin_utils.there",
        "json",
        f"{parent}.folder",
        f"{parent}.no",
    ):
        assert bytecode.Finder.find_spec(name, folders) is None
    assert bytecode.Finder.find_spec(f"{parent}.there") is None


def test_it_is_asked_first_and_once() -> None:
    before = list(sys.meta_path)
    try:
        bytecode.use()
        bytecode.use()
        assert sys.meta_path.count(bytecode.Finder) == 1  # type: ignore[arg-type]
    finally:
        sys.meta_path[:] = before
