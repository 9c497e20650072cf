# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reports the checkpoints of programs that report none themselves, by their layout.

Where a name has no step, such as that of an epoch, it is the one that the file holds; else it is estimated: the last
that was printed before it was saved. A file without a known layout is reported where it holds a step.

They go into the run's metrics as a program's own reports do (``checkpoint_step``, ``path``), with the ``layout``, by
what it was recognised (``layout_by``), and how its step was estimated (``step_by``).
"""

from __future__ import annotations

import collections
import contextlib
import functools
import pathlib
import threading
import time
import typing as t

from . import checkpoint_steps, checkpoints, files
from .checkpoint_table import LAYOUTS, Saved
from .pod_log import Tail

_EVERY_S = 5.0
# In the run's folder: what was there or reported before.
_REMEMBERED = 10_000
_KNOWN = "checkpoints-found.json"
# How a step was estimated, for people. A bar whose newest frame is not read yet makes it too small.
_ESTIMATED: t.Final = "the last that was printed before it"
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
        unknown = [one for one in reversed(list_complete()) if (one.name, one.saved_at) not in self._known]
        new = [(saved, step) for saved in unknown if (step := self._find_step(saved))]
        for saved, step in new:
            path = str(self._folder / saved.name)
            layout = LAYOUTS.get(saved.layout)
            by = layout.known_by if layout else "its step, which it holds"
            by = "checkpoints.format" if self._form == saved.layout else by
            line = {"at": time.time(), **step, "path": path, "layout": saved.layout, "layout_by": by}
            files.append_json(self._run / "metrics.jsonl", line)
        if new:
            self._known |= {(saved.name, saved.saved_at) for saved, _step in new}
            self._keep()

    def _find_step(self, saved: Saved) -> dict[str, t.Any]:
        """Return the step of a checkpoint and, where it is estimated, how; empty where nothing tells it."""
        stated = saved.step
        if stated is None:
            stated = checkpoint_steps.read_step(self._folder / saved.name, saved.layout)
        if stated is not None:
            return {"checkpoint_step": stated}
        if saved.layout == "files":
            return {}
        printed = next((step for at, step in reversed(self._printed) if at * 1e9 <= saved.saved_at), None)
        return {} if printed is None else {"checkpoint_step": printed, "step_by": _ESTIMATED}

    def _keep(self) -> None:
        files.write_json(self._run / _KNOWN, sorted(self._known))


class LookingThread:
    """Looks beside the program, and a last time when it has ended.

    :param looks: what to do then and every few seconds, each with the list of complete checkpoints, made once for all.
    :param failed: told of an error that is none of the file system's; the other looks, and the next ones, go on.
    """

    def __init__(
        self, folder: pathlib.Path, form: str, looks: t.Sequence[Look], failed: t.Callable[[Exception], None]
    ) -> None:
        self._folder, self._form, self._looks, self._failed = folder, form, looks, failed
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
                try:
                    with contextlib.suppress(OSError):
                        look(list_complete)
                # Whatever it is, it is noted, and the other looks are due.
                except Exception as exc:  # pylint: disable=broad-exception-caught
                    self._failed(exc)
            if last:
                return
