# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rented machines that no inventory plugin lists are in the groups of the next plays by the role's add_host alone."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import typing as t

import pytest
import yaml

from ansible_collections.muster.training.tests.support.run_inventory import environment

RENTED = {"name": "lab-h100-0-0a1b2c3d", "ssh": {"host": "203.0.113.7", "port": 22022, "user": "root"}}
ADD = [
    {
        "ansible.builtin.include_role": {
            "name": "muster.training.rented_nodes",
            "tasks_from": "add_hosts",
        }
    }
]


@pytest.mark.parametrize("groups", [None, ["muster_rented"]], ids=["default", "one group"])
def test_rented_machines_join_the_machines_of_the_next_plays(tmp_path: pathlib.Path, groups: list[str] | None) -> None:
    pool: dict[str, t.Any] = {"nodes": [{**RENTED, "ssh_arguments": "-o HostKeyAlias=x", "ownership": "rented"}]}
    values = {"__rented_nodes_pool": pool, **({"rented_nodes_groups": groups} if groups else {})}
    show = {"ansible.builtin.debug": {"msg": "{{ inventory_hostname }} at {{ ansible_host }}:{{ ansible_port }}"}}
    common = {"gather_facts": False}
    plays = [
        {"hosts": "localhost", **common, "tasks": ADD},
        {"hosts": "{{ muster_node_hosts | default('muster_nodes') }}", **common, "tasks": [show]},
    ]
    (tmp_path / "plays.yml").write_text(yaml.safe_dump(plays))
    program = pathlib.Path(sys.executable).parent / "ansible-playbook"
    argv = [os.fspath(program), "-i", "localhost,", "-c", "local", "plays.yml", "-e", json.dumps(values)]
    done = subprocess.run(argv, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ("lab-h100-0-0a1b2c3d at 203.0.113.7:22022" in done.stdout) is (groups is None), done.stdout
