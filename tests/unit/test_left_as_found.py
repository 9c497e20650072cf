# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines of a cluster are left as they were found: no task leaves Ansible's folder in the home of the user on them.

Operations of this collection need no such folder. A module of ansible.builtin has its files below /tmp.
"""

from __future__ import annotations

import pathlib
import typing as t

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEVICE_ROLES = ("container_runtime", "device_packages", "gpu_driver", "rdma")
ROLES = (*DEVICE_ROLES, "firewall", "gang_scheduling", "join", "k3s", "mesh", "preflight", "storage_claim", "team")
PLAYBOOKS = (
    "cluster",
    "cluster_absent",
    "cluster_jobs",
    "devices",
    "join",
    "mesh",
    "remove_nodes",
    "site",
    "site_phase",
)
# Done by the controller alone.
ON_THE_CONTROLLER = {
    *("add_host", "assert", "debug", "fail", "group_by", "meta", "pause", "set_fact"),
    *("import_playbook", "import_role", "import_tasks", "include_role", "include_tasks", "include_vars"),
}
PREFIX = "ansible.builtin."
FOLDER = "ansible_remote_tmp"
Task = dict[str, t.Any]


def files() -> list[pathlib.Path]:
    """Return the files with tasks for machines that somebody owns."""
    own = [
        place for role in ROLES for kind in ("tasks", "handlers") for place in ROOT.glob(f"roles/{role}/{kind}/*.yml")
    ]
    return [*own, *(ROOT / "playbooks" / f"{name}.yml" for name in PLAYBOOKS)]


def tasks_of(entries: t.Iterable[Task], outer: t.Mapping[str, t.Any]) -> t.Iterator[Task]:
    """Give each task of plays, blocks and lists of tasks, with the variables and the place that it has from around it."""
    for entry in entries:
        mixed = {**outer, **entry, "vars": {**outer.get("vars", {}), **(entry.get("vars") or {})}}
        inner = [name for name in ("pre_tasks", "tasks", "post_tasks", "block", "rescue", "always") if name in entry]
        for name in inner:
            yield from tasks_of(entry[name], {key: mixed[key] for key in ("vars", "delegate_to") if key in mixed})
        if not inner:
            yield mixed


def modules_on_machines(place: pathlib.Path) -> list[Task]:
    """Return the tasks of a file whose module Ansible sends to a machine."""
    role = place.parents[1] / "vars/main.yml"
    of_role = yaml.safe_load(role.read_text()) if role.is_file() else {}
    tasks = tasks_of(yaml.safe_load(place.read_text()) or [], {"vars": of_role})
    return [
        task
        for task in tasks
        if any(key.startswith(PREFIX) and key.removeprefix(PREFIX) not in ON_THE_CONTROLLER for key in task)
        and task.get("delegate_to") != "localhost"
    ]


@pytest.mark.parametrize("place", files(), ids=lambda place: str(place.relative_to(ROOT)))
def test_what_ansible_sends_to_a_machine_is_not_kept_in_a_home(place: pathlib.Path) -> None:
    assert [task["name"] for task in modules_on_machines(place) if task["vars"].get(FOLDER) != "/tmp"] == []


def test_there_are_such_tasks() -> None:
    assert sum(len(modules_on_machines(place)) for place in files()) >= 4
