# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What surrounds a training loop: options, order of the samples, metrics lines, and a stop on SIGTERM.

Standard library only, Python 3.10 or newer. Both examples carry the same copy of this file, so that either
folder can be taken away alone.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import random
import signal
import sys
import threading
import time
import traceback
import typing as t
from pathlib import Path

EXIT_USAGE = 2
EXIT_DATA = 65  # sysexits.h EX_DATAERR: the loss is not a number any more, another attempt would end the same way
EXIT_IO = 74  # sysexits.h EX_IOERR: a checkpoint could not be written
EXIT_TERMINATED = 128 + signal.SIGTERM


def positive(text: str) -> int:
    """Read an option that must be a whole number of at least 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least 1")
    return value


def number(low: float, high: float = math.inf) -> t.Callable[[str], float]:
    """Return a reader of an option that must be a number from ``low`` to below ``high``."""

    def read(text: str) -> float:
        value = float(text)
        if not low <= value < high:
            raise argparse.ArgumentTypeError(f"{text} is not a number from {low:g} to below {high:g}")
        return value

    return read


def common_options(description: str) -> argparse.ArgumentParser:
    """Return a parser with the options that both examples understand."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", type=Path, help="text file to learn (default: data/LICENSE, or the LICENSE above)")
    parser.add_argument("--steps", type=positive, default=300, help="last step to reach, counted over all attempts")
    parser.add_argument("--batch-size", type=positive, default=20, help="samples per rank and micro-batch")
    parser.add_argument("--lr", type=number(0), default=3e-3, help="learning rate after a warm-up of 20 steps")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dropout", type=number(0, 1), default=0.0)
    parser.add_argument("--checkpoint-every", type=positive, default=20, help="steps between two checkpoints")
    parser.add_argument("--keep", type=positive, default=3, help="checkpoints to keep")
    parser.add_argument("--print-every", type=positive, default=10, help="steps between two printed lines")
    parser.add_argument("--step-time-min", type=number(0), default=0.0, help="seconds a step takes at least")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--timeout", type=number(0), default=300.0, help="seconds a rank waits for the others")
    parser.add_argument("--grace", type=number(0), default=10.0, help="seconds a step may still take after SIGTERM")
    return parser


def find_text(given: Path | None) -> Path:
    """Return the text to learn: ``given``, else a staged data/LICENSE, else the LICENSE of the repository.

    :raises OSError: there is none.
    """
    here = Path(__file__).resolve().parent
    candidates = [given] if given else [here / "data" / "LICENSE", Path("data/LICENSE"), here.parents[1] / "LICENSE"]
    for path in candidates:
        if path.is_file():
            return path
    raise OSError(f"no text to learn at {' or '.join(map(str, candidates))}: give one with --data FILE")


def learning_rate(peak: float, step: int, warm_up: int = 20) -> float:
    """Return the learning rate of ``step`` (counted from 1): a linear warm-up, then constant."""
    return peak * min(1.0, step / warm_up)


@functools.lru_cache(maxsize=8)
def _epoch_order(seed: int, epoch: int, windows: int) -> tuple[int, int]:
    choice = random.Random(f"{seed}/{epoch}/{windows}")
    while math.gcd(factor := choice.randrange(1, windows + 1), windows) != 1:
        pass
    return factor, choice.randrange(windows)


def window_of(seed: int, position: int, windows: int) -> int:
    """Return which of ``windows`` windows is the sample number ``position`` of the whole run.

    Within an epoch of ``windows`` samples each window comes once: ``i -> (a * i + b) mod windows`` with ``a``
    coprime to ``windows`` is a permutation, and it needs no state that a checkpoint would have to keep.
    """
    epoch, index = divmod(position, windows)
    factor, offset = _epoch_order(seed, epoch, windows)
    return (factor * index + offset) % windows


def windows_of_rank(seed: int, position: int, rank: int, count: int, windows: int) -> list[int]:
    """Return the ``count`` windows that ``rank`` reads in the step that begins at sample ``position``.

    A step takes ``world size * count`` samples, rank after rank. The run advances ``position`` by that much, so
    no sample is left out or read twice when the world size changes between two attempts.
    """
    first = position + rank * count
    return [window_of(seed, first + index, windows) for index in range(count)]


class Metrics:
    """JSON lines for the follower of the run, one ``write`` call of the system each, so none is torn by a kill.

    A metrics file that cannot be written costs the lines and not the training: the first error is printed and
    the file is left alone from then on.
    """

    def __init__(self, path: str | None) -> None:
        self._file: t.BinaryIO | None = None
        if path:
            self._guard(lambda: self._open(Path(path)))

    def _open(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab+", buffering=0)
        if self._file.tell():
            self._file.seek(-1, os.SEEK_END)
            # A machine that lost power may have left half a line; ours must not be glued to it.
            if self._file.read(1) != b"\n":
                self._file.write(b"\n")

    def write(self, **values: float | str) -> None:
        """Append one line: ``at`` (Unix seconds) and ``values``."""
        if self._file is not None:
            line = json.dumps({"at": round(time.time(), 3), **values}).encode() + b"\n"
            self._guard(lambda: self._file and self._file.write(line))

    def _guard(self, action: t.Callable[[], object]) -> None:
        try:
            action()
        except OSError as error:
            self._file = None
            print(f"no metrics from now on: {describe(error)}", file=sys.stderr, flush=True)


class Reporter:
    """Tells the progress of the run: a metrics line every step, a printed line every ``print_every`` steps.

    Only the rank with ``speaks`` (rank 0) says anything, so that all ranks can make the same calls.
    """

    def __init__(self, speaks: bool, print_every: int, last: int) -> None:
        self._speaks = speaks
        self._print_every = print_every
        self._last = last
        self._metrics = Metrics(os.environ.get("MUSTER_METRICS_FILE") if speaks else None)

    def say(self, line: str) -> None:
        """Print one line."""
        if self._speaks:
            print(line, flush=True)

    def started(self, resumed_from: int, world_size: int) -> None:
        """Report the step that this attempt continues from, 0 for a fresh start."""
        run, attempt = os.environ.get("MUSTER_RUN_ID"), os.environ.get("MUSTER_ATTEMPT")
        name = f"run {run} attempt {attempt or 1}: " if run else ""
        how = f"continues after step {resumed_from}" if resumed_from else "starts at step 1"
        self.say(f"{name}{how}, world size {world_size}")
        self._metrics.write(resumed_from_step=resumed_from, world_size=world_size)

    def step(self, step: int, loss: float, tokens: int, took_s: float, lr: float) -> None:
        """Report one finished step. ``tokens`` is what all ranks together read in ``took_s`` seconds."""
        pace = tokens / max(took_s, 1e-9)
        self._metrics.write(step=step, loss=round(loss, 6), tokens_per_s=round(pace, 1), lr=lr)
        if step % self._print_every == 0 or step == self._last:
            self.say(f"step={step} loss={loss:.4f} tokens_per_s={pace:.0f}")

    def saved(self, step: int, path: Path | None) -> None:
        """Report a complete checkpoint; ``path`` is None if no directory was given."""
        if path is not None:
            self._metrics.write(checkpoint_step=step, path=str(path))


class StopFlag:
    """Notes SIGTERM, so that the loop can finish its step, save and leave.

    The signal's number arrives through a pipe that a thread reads: a Python handler would not run while the main
    thread waits in a collective for a rank that is gone. If the loop has not called :meth:`reached` ``grace_s``
    seconds after the signal, and is not :attr:`saving` either, the thread ends the process with exit code 143.
    """

    def __init__(self, grace_s: float) -> None:
        self.requested = False
        self.saving = threading.Lock()
        self._grace_s = grace_s
        self._reached = threading.Event()
        self._read_end, write_end = os.pipe()
        os.set_blocking(write_end, False)
        signal.signal(signal.SIGTERM, lambda *_: None)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        threading.Thread(target=self._watch, name="stop-flag", daemon=True).start()

    def reached(self) -> None:
        """Say that the loop has seen the request at the end of a step: from now on it may take its time."""
        self._reached.set()

    def _watch(self) -> None:
        while os.read(self._read_end, 1)[0] != signal.SIGTERM:
            pass
        self.requested = True
        while not self._reached.wait(self._grace_s):
            if self.saving.acquire(blocking=False):
                line = f"SIGTERM: the step did not end within {self._grace_s:g} s, the last checkpoint counts\n"
                os.write(sys.stderr.fileno(), line.encode())
                os._exit(EXIT_TERMINATED)


def keep_pace(started: float, minimum_s: float) -> float:
    """Wait until ``minimum_s`` seconds have passed since ``started`` (monotonic); return how long it was."""
    rest = started + minimum_s - time.monotonic()
    if rest > 0:
        time.sleep(rest)
    return time.monotonic() - started


def describe(error: OSError) -> str:
    """Return an operating system error as one line without its number."""
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename else reason


def exit_after(body: t.Callable[[], int]) -> t.NoReturn:
    """Run ``body`` and end the process with its exit code, without the interpreter's own shutdown.

    That shutdown races with gloo's threads: with torch 2.15 on two CPU ranks about one exit in ten ended in SIGABRT
    after all work was done, and every one took a second longer, which a restart would have to wait for.
    """
    code = 1
    try:
        code = body()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
