# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reports the checkpoints of programs that report none themselves, by their layout.

They go into the run's metrics as a program's own reports do (``checkpoint_step``, ``path``), with the ``layout``.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import contextlib
import pathlib
import threading
import time

from . import checkpoints, files
from .pod_log import Tail

_EVERY_S = 5.0
# In the run's folder: what was there or reported before.
_KNOWN = "checkpoints-found.json"


class FoundCheckpoints:
    """Finds what a program has saved. What is there when a run begins is none of its own."""

    def __init__(self, folder: pathlib.Path, form: str, run: pathlib.Path) -> None:
        self._folder, self._form, self._run = folder, form, run
        self._tail = Tail(run / "metrics.jsonl")
        self._reports_itself = False
        known = files.read_json(run / _KNOWN)
        if isinstance(known, list):
            self._known = {(str(name), int(at)) for name, at in known}
        else:
            self._known = {(saved.name, saved.saved_at) for saved in checkpoints.list_complete(folder, form)}
            self._keep()

    def step(self) -> None:
        """Report what was saved since the last call, unless the program reports by itself."""
        own = any("checkpoint_step" in line and "layout" not in line for line in self._tail.lines())
        self._reports_itself = self._reports_itself or own
        if self._reports_itself:
            return
        complete = checkpoints.list_complete(self._folder, self._form)
        new = [
            saved
            for saved in reversed(complete)
            if saved.layout != "files" and saved.step is not None and (saved.name, saved.saved_at) not in self._known
        ]
        for saved in new:
            path = str(self._folder / saved.name)
            line = {"at": time.time(), "checkpoint_step": saved.step, "path": path, "layout": saved.layout}
            files.append_json(self._run / "metrics.jsonl", line)
        if new:
            self._known |= {(saved.name, saved.saved_at) for saved in new}
            self._keep()

    def _keep(self) -> None:
        files.write_json(self._run / _KNOWN, sorted(self._known))


class FoundThread:
    """Looks beside the program, and a last time when it has ended."""

    def __init__(self, folder: pathlib.Path, form: str, run: pathlib.Path) -> None:
        self._found = FoundCheckpoints(folder, form, run)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="find-checkpoints", daemon=True)
        self._thread.start()

    def close(self, within_s: float = 30.0) -> None:
        """Look a last time and stop."""
        self._ended.set()
        self._thread.join(within_s)

    def _work(self) -> None:
        while True:
            last = self._ended.wait(_EVERY_S)
            with contextlib.suppress(OSError):
                self._found.step()
            if last:
                return
