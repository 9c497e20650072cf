# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shows the live progress of training jobs on one line of the terminal."""

from __future__ import annotations

DOCUMENTATION = r"""
name: progress
type: aggregate
version_added: 0.1.0
short_description: Show the live progress of training jobs
description:
  - Shows the state of a training job (nodes joined, step, loss, speed, checkpoint, restarts, cost) on one line that is
    rewritten on a terminal. Without this callback the same figures are printed as plain lines.
  - Enable it with C(callbacks_enabled = muster.training.progress).
author:
  - muster.training contributors (@muster-training)
"""

EXAMPLES = r"""
# ansible.cfg
# [defaults]
# callbacks_enabled = muster.training.progress
#
# Or for one command: ANSIBLE_CALLBACKS_ENABLED=muster.training.progress ansible-playbook …
"""

import json
import os
import sys
import threading
import typing as t

from ansible.plugins.callback import CallbackBase

from ..plugin_utils._workflows.shared.progress import PIPE_VARIABLE
from ..plugin_utils._workflows.training_job.movement import describe_state, fit_line


class CallbackModule(CallbackBase):
    """Reads the progress that tasks write into a pipe; their processes inherit it."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "muster.training.progress"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, display: t.Any = None, options: t.Any = None) -> None:
        super().__init__(display=display, options=options)
        self._terminal = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._line_length = 0
        if self._terminal:
            reader, writer = os.pipe()
            # Workers are forked later and find the pipe by its number.
            os.set_inheritable(writer, True)
            os.environ[PIPE_VARIABLE] = str(writer)
            threading.Thread(target=self._read, args=(reader,), daemon=True).start()

    def _read(self, reader: int) -> None:
        with os.fdopen(reader, encoding="utf-8", errors="replace") as lines:
            for raw in lines:
                try:
                    message = json.loads(raw)
                except ValueError:
                    continue
                if "line" in message:
                    self._clear()
                    self._display.display(message["line"])
                else:
                    self._rewrite(describe_state(message["values"]))

    def _rewrite(self, line: str) -> None:
        width = os.get_terminal_size(sys.stdout.fileno()).columns - 1
        text = fit_line(line, width)
        sys.stdout.write("\r" + text + " " * max(0, self._line_length - len(text)))
        sys.stdout.flush()
        self._line_length = len(text)

    def _clear(self) -> None:
        if self._line_length:
            sys.stdout.write("\r" + " " * self._line_length + "\r")
            sys.stdout.flush()
            self._line_length = 0

    def v2_runner_on_ok(self, result: t.Any) -> None:
        """Clear the line before the task's result is printed."""
        self._clear()

    def v2_runner_on_failed(self, result: t.Any, ignore_errors: bool = False) -> None:
        """Clear the line before the task's result is printed."""
        self._clear()
