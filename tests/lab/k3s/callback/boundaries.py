# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counts the tasks of a play before each begins, and kills ansible-playbook before one of them: nothing is tidied up.

A task that no host ran, or whose action only tells Ansible what to do next, leaves the machines, the cluster and the
state home as they are: being killed before it and after it is the same.

KILL_AT counts the boundaries. KILL_AFTER is a file of keys of tasks: the process is gone at the boundary after the first
of them that acts. A key stays the same in a run that skips what is done: it is the way to the task through includes.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import signal
import typing as t

from ansible.plugins.callback import CallbackBase

LOG, KILL_AT, KILL_AFTER = "MUSTER_LAB_BOUNDARIES", "MUSTER_LAB_KILL_AT", "MUSTER_LAB_KILL_AFTER"
_BUILTIN = [
    "assert",
    "debug",
    "fail",
    "group_by",
    "include_role",
    "include_tasks",
    "import_role",
    "import_tasks",
    "meta",
    "set_fact",
]
INERT = {prefix + name for prefix in ("", "ansible.builtin.") for name in (*_BUILTIN, "validate_argument_spec")}
# Actions that change nothing where they say so. A file that is written may be said to be no change, since it is a note.
READING = {"command", "find", "node_device_info", "shell", "slurp", "stat"}


@dataclasses.dataclass(frozen=True)
class Task:
    """A task as it was run: ``acts`` says that it may have changed something outside of ansible-playbook.

    ``reads``: its action is one that reads, and it says that it has changed nothing.
    """

    name: str
    acts: bool
    key: str = ""
    reads: bool = False


def read_tasks(log: pathlib.Path) -> list[Task]:
    """Return the tasks of a play in the order in which they began."""
    tasks: list[Task] = []
    for line in map(json.loads, log.read_text().splitlines()):
        if "task" in line:
            tasks.append(Task(line["task"], False, line["key"]))
            action = line["action"]
        elif action not in INERT:
            reads = action.rpartition(".")[2] in READING and not line.get("changed")
            tasks[-1] = dataclasses.replace(tasks[-1], acts=True, reads=reads)
    return tasks


def distinct(tasks: t.Sequence[Task]) -> list[int]:
    """Return the boundaries, counted from 1, that differ: the first one after each task that acts, and the first."""
    return [1, *(index + 2 for index, task in enumerate(tasks[:-1]) if task.acts)]


def find_way(task: t.Any) -> str:
    """Return where a task stands, with the includes through which it came."""
    way: list[str] = []
    while task is not None:
        place = task.get_path() if hasattr(task, "get_path") else None
        way += [pathlib.PurePath(place).as_posix().rpartition("/roles/")[2]] if place else []
        task = getattr(task, "_parent", None)
    return " < ".join(dict.fromkeys(way))


class CallbackModule(CallbackBase):
    """A line of the file LOG for each task and each host that ran it; the process is gone where it is told to be."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "boundaries"

    def __init__(self) -> None:
        super().__init__()
        self.passed = 0
        self.kill_at = int(os.environ.get(KILL_AT) or 0)
        keys = os.environ.get(KILL_AFTER)
        self.wanted = set(json.loads(pathlib.Path(keys).read_text())) if keys else set()
        self.key, self.is_over = "", False
        self.seen: dict[str, int] = {}

    def v2_playbook_on_task_start(self, task: t.Any, is_conditional: bool) -> None:
        """Pass the boundary before a task."""
        self._pass(task)

    def v2_playbook_on_handler_task_start(self, task: t.Any) -> None:
        """Pass the boundary before a handler."""
        self._pass(task)

    def v2_runner_on_ok(self, result: t.Any) -> None:
        """Note that a host ran the task."""
        self._log(ran=True, changed=bool(result.is_changed()))
        self.is_over = self.key in self.wanted

    def v2_runner_on_failed(self, result: t.Any, ignore_errors: bool = False) -> None:
        """Note that a host ran the task."""
        self._log(ran=True)

    def v2_runner_on_unreachable(self, result: t.Any) -> None:
        """Note that a host was to run the task."""
        self._log(ran=True)

    def _log(self, **line: t.Any) -> None:
        with open(os.environ[LOG], "a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")

    def _pass(self, task: t.Any) -> None:
        self.passed += 1
        if self.is_over:
            self._log(killed=self.key)
            os.kill(os.getpid(), signal.SIGKILL)
        way = find_way(task)
        self.seen[way] = self.seen.get(way, 0) + 1
        self.key = f"{way} {self.seen[way]}"
        self._log(task=task.get_name(), action=task.action, key=self.key)
        if self.passed == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
