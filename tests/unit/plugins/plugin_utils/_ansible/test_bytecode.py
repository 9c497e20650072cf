# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the plugins share is compiled once: counted in a process as Ansible's workers are, which start with nothing."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._ansible import bytecode

# Loads an action as Ansible does and tells whose loaders loaded what.
PROGRAM = """
import json, sys
from ansible.plugins.loader import action_loader, init_plugin_loader
init_plugin_loader([])
action_loader.get("muster.training.kube_apply", class_only=True)
prefix = "ansible_collections.muster.training.plugins."
ours = {name[len(prefix):]: module.__spec__ for name, module in sys.modules.items() if name.startswith(prefix)}
print(json.dumps({name: [type(spec.loader).__name__, spec.cached] for name, spec in ours.items()}))
assert not any(type(finder).__name__ == "Finder" for finder in sys.meta_path)
"""


def test_plugins_share_modules_that_are_compiled_once() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    argv = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=True)
    loaders = json.loads(done.stdout.splitlines()[-1])
    found = {name: cached for name, (loader, cached) in loaders.items() if loader == "SourceFileLoader"}
    assert {"plugin_utils._workflows.kube_apply", "plugin_utils._kube.api.client", "module_utils._http.client"} <= set(
        found
    )
    assert all(cached and pathlib.Path(cached).exists() for cached in found.values())
    # Packages are Ansible's, and what asks for the other loader.
    plugins = pathlib.Path(bytecode.__file__).parents[2]
    rest = {name for name in set(loaders) - set(found) if not plugins.joinpath(*name.split(".")).is_dir()}
    assert rest == {"plugin_utils._ansible.bytecode"}


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


def test_the_way_of_imports_is_as_it_was_afterwards() -> None:
    before = list(sys.meta_path)
    with pytest.raises(ImportError), bytecode.kept():
        assert isinstance(sys.meta_path[0], bytecode.Finder)
        raise ImportError
    assert sys.meta_path == before
