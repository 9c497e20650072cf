# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reports the checkpoints of programs that report none themselves, by their layout.

A name without a step, such as that of an epoch, has the last step that was printed before it was saved.

They go into the run's metrics as a program's own reports do (``checkpoint_step``, ``path``), with the ``layout`` and by
what it was recognised (``layout_by``).
"""

from __future__ import annotations

import collections
import contextlib
import functools
import pathlib
import threading
import time
import typing as t

from . import checkpoints, files
from .checkpoint_table import LAYOUTS, Saved
from .pod_log import Tail

_EVERY_S = 5.0
# In the run's folder: what was there or reported before.
_REMEMBERED = 10_000
_KNOWN = "checkpoints-found.json"
Look = t.Callable[[t.Callable[[], list[Saved]]], None]


class FoundCheckpoints:
    """Finds what a program has saved. What is there when a run begins is none of its own."""

    def __init__(self, folder: pathlib.Path, form: str, run: pathlib.Path) -> None:
        self._folder, self._form, self._run = folder, form, run
        self._tail = Tail(run / "metrics.jsonl")
        self._reports_itself = False
        self._printed: collections.deque[tuple[float, int]] = collections.deque(maxlen=_REMEMBERED)
        known = files.read_json(run / _KNOWN)
        if isinstance(known, list):
            self._known = {(str(name), int(at)) for name, at in known}
        else:
            self._known = {(saved.name, saved.saved_at) for saved in checkpoints.list_complete(folder, form)}
            self._keep()

    def step(self, list_complete: t.Callable[[], list[Saved]]) -> None:
        """Report what was saved since the last call, unless the program reports by itself."""
        lines = list(self._tail.lines())
        own = any("checkpoint_step" in line and "layout" not in line for line in lines)
        self._reports_itself = self._reports_itself or own
        self._printed += [(float(line["at"]), int(line["step"])) for line in lines if "step" in line and "at" in line]
        if self._reports_itself:
            return
        new = [
            saved
            for saved in reversed(list_complete())
            if saved.layout != "files"
            and (saved.name, saved.saved_at) not in self._known
            and self._step_of(saved) is not None
        ]
        for saved in new:
            path = str(self._folder / saved.name)
            line = {"at": time.time(), "checkpoint_step": self._step_of(saved), "path": path, "layout": saved.layout}
            by = "checkpoints.format" if self._form == saved.layout else LAYOUTS[saved.layout].known_by
            files.append_json(self._run / "metrics.jsonl", {**line, "layout_by": by})
        if new:
            self._known |= {(saved.name, saved.saved_at) for saved in new}
            self._keep()

    def _step_of(self, saved: Saved) -> int | None:
        """Return the step in a checkpoint's name, else the last one that was printed before it was saved."""
        if saved.step is not None:
            return saved.step
        return next((step for at, step in reversed(self._printed) if at * 1e9 <= saved.saved_at), None)

    def _keep(self) -> None:
        files.write_json(self._run / _KNOWN, sorted(self._known))


class LookingThread:
    """Looks beside the program, and a last time when it has ended.

    :param looks: what to do then and every few seconds, each with the list of complete checkpoints, made once for all.
    """

    def __init__(self, folder: pathlib.Path, form: str, looks: t.Sequence[Look]) -> None:
        self._folder, self._form, self._looks = folder, form, looks
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
            list_complete = functools.cache(functools.partial(checkpoints.list_complete, self._folder, self._form))
            for look in self._looks:
                with contextlib.suppress(OSError):
                    look(list_complete)
            if last:
                return
