# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of services in the mesh: what is no name is refused, and a check of a new machine fails on no other one."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
import yaml

from ansible_collections.muster.training.tests.support.run_inventory import environment

NAMES = {"include_role": {"name": "muster.training.mesh", "tasks_from": "ensure_names"}}


@pytest.mark.parametrize(
    ("names", "is_name"),
    [({"mlflow": "a"}, True), ({"mlflow\n192.0.2.1 example.org": "a"}, False), ({"mlflow": "--help"}, False)],
    ids=["a name", "two lines", "an option"],
)
def test_names_of_services_are_names(tmp_path: pathlib.Path, names: dict[str, str], is_name: bool) -> None:
    """The machine that would ask for the addresses is not in the mesh yet, as in a check before it joins."""
    play = {"hosts": "a,b", "gather_facts": False, "tasks": [NAMES]}
    values = {"mesh_names": names, "ansible_become": False, "__mesh": {"joined": "{{ inventory_hostname == 'b' }}"}}
    (tmp_path / "plays.yml").write_text(yaml.safe_dump([{**play, "vars": values}]))
    program = pathlib.Path(sys.executable).parent / "ansible-playbook"
    argv = [os.fspath(program), "--check", "-i", "a,b,", "-c", "local", "plays.yml"]
    done = subprocess.run(argv, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, check=False)
    assert (done.returncode == 0) is is_name, done.stdout + done.stderr
    assert ("mesh_names: a name has small letters" in done.stdout + done.stderr) is not is_name
