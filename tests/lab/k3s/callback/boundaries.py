# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counts the tasks of a play before each begins, and kills ansible-playbook before one of them: nothing is tidied up."""

from __future__ import annotations

import os
import signal
import typing as t

from ansible.plugins.callback import CallbackBase

LOG, KILL_AT = "MUSTER_LAB_BOUNDARIES", "MUSTER_LAB_KILL_AT"


class CallbackModule(CallbackBase):
    """One line of the file LOG for each task; the process is gone before the task KILL_AT."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "boundaries"

    def __init__(self) -> None:
        super().__init__()
        self.passed = 0
        self.kill_at = int(os.environ.get(KILL_AT) or 0)

    def v2_playbook_on_task_start(self, task: t.Any, is_conditional: bool) -> None:
        """Pass the boundary before a task."""
        self._pass(task)

    def v2_playbook_on_handler_task_start(self, task: t.Any) -> None:
        """Pass the boundary before a handler."""
        self._pass(task)

    def _pass(self, task: t.Any) -> None:
        self.passed += 1
        with open(os.environ[LOG], "a", encoding="utf-8") as log:
            log.write(f"{task.get_name()}\n")
        if self.passed == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
