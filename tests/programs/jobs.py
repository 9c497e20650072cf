# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The job of a real program, its data, and what has to be true of its run, on hosts and in pods."""

from __future__ import annotations

import functools
import json
import math
import os
import pathlib
import shutil
import subprocess
import typing as t

from . import sources
from .table import Program

HERE = pathlib.Path(__file__).parent
_ENV: t.Final = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
_LOAD_S = 120
_DIGITS = 0.01


def find_python() -> str:
    """Return the interpreter with the programs' packages, empty where none is named."""
    return shutil.which(os.environ.get("MUSTER_PROGRAMS_PYTHON", "")) or ""


@functools.cache
def make_data(python: str, kind: str) -> pathlib.Path:
    """Return the folder with data of a kind."""
    place = sources.BUILD / "data" / kind
    if not place.is_dir():
        part = place.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        subprocess.run([python, str(HERE / "make_data.py"), kind, str(part)], check=True)
        part.rename(place)
    return place


def build_job(program: Program, starter: str, checkpoints: str, **values: t.Any) -> dict[str, t.Any]:
    """Return the program's job over its nodes, without its data.

    :param starter: the Python that starts a program of the launcher ``command``.
    :param checkpoints: a folder that both nodes share. :param values: keys of the job; those of ``env`` are added.
    """
    origin, own = program.origin, dict(program.job)
    code = sources.obtain(origin) if isinstance(origin, sources.Source) else origin
    if "command" in own:
        own["command"] = [starter if word == "PYTHON" else word for word in own["command"]]
    shared = {"path": checkpoints, "keep": program.keep, "grace_s": 5}
    return {
        "name": "program",
        "nodes": program.ranks,
        **({} if isinstance(code, str) else {"code": {"ref": str(code)}}),
        **own,
        **values,
        "env": {**_ENV, **own.get("env", {}), **values.get("env", {})},
        "checkpoints": {**shared, **own.get("checkpoints", {})},
    }


def assert_recorded(program: Program, record: t.Mapping[str, t.Any]) -> None:
    """Assert what the record says: all ranks, two attempts, the layout, and where the second attempt went on."""
    world = {"asked": program.ranks, "seen": program.ranks}
    assert (record["outcome"], record["world_size"]) == ("succeeded", world), record["detail"]
    assert record["problems"] == [] and len(record["attempts"]) == 2, record
    checkpoint = record["checkpoint"]
    # Of one that was read of a line its layout is not said.
    assert (checkpoint.get("layout", "files"), checkpoint["step"]) == (program.layout, program.saved or program.last)
    before, after = record["attempts"]
    if program.last is None:
        # Its lines have no step: then nothing is said of it.
        assert (after["first_step"], after["resumed"]) == (None, None)
        return
    assert after["resumed"] is True and after["last_step"] == program.last, record["attempts"]
    assert before["first_step"] < after["first_step"] <= before["last_step"] + program.every, record["attempts"]


def assert_kept(program: Program, folder: pathlib.Path, newest: str, events: t.Iterable[t.Mapping[str, t.Any]]) -> None:
    """Assert that ``keep`` left the newest checkpoints of a run's folder, which are whole, and took the others."""
    left = sorted(place for place in folder.glob(program.checkpoints) if not place.name.startswith("."))
    assert len(left) == program.keep and folder / newest in left, left
    # A program with one name for all of them writes over the last.
    removed = [event for event in events if event["kind"] == "checkpoint_removed"]
    assert bool(removed) is ("*" in program.checkpoints), removed


def assert_read(
    program: Program, python: str, folder: pathlib.Path, metrics: t.Iterable[t.Mapping[str, t.Any]]
) -> tuple[int, int]:
    """Assert that the losses read of a run's lines are those that its library wrote down in the run's folder.

    :returns: how many steps were compared, and how many the library has.
    """
    read = [(int(line["step"]), float(line["loss"])) for line in metrics if line.get("loss") is not None]
    if program.losses in ("", "unknown"):
        assert not read or not program.losses, read
        return 0, 0
    argv = [python, str(HERE / "read_losses.py"), program.losses, str(folder)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_LOAD_S)
    assert done.returncode == 0, done.stderr[-3000:]
    written: dict[int, list[float]] = {}
    for step, loss in json.loads(done.stdout.splitlines()[-1]):
        written.setdefault(step, []).append(loss)
    # A bar and a printed line have three to four digits.
    wrong = [
        (step, loss, written.get(step))
        for step, loss in read
        if not any(math.isclose(loss, own, rel_tol=_DIGITS) for own in written.get(step, ()))
    ]
    steps = {step for step, _loss in read}
    # A bar is not drawn at each step.
    assert wrong == [] and 2 * len(steps) >= len(written), (wrong, len(steps), len(written))
    return len(steps), len(written)


def assert_loads(program: Program, python: str, checkpoint: pathlib.Path) -> int:
    """Assert that a checkpoint is one that its library loads; return how many tensors it has."""
    argv = [python, str(HERE / "load_checkpoint.py"), program.load, str(checkpoint)]
    env = {**os.environ, "HF_HUB_OFFLINE": "1"}
    loaded = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_LOAD_S, env=env)
    assert loaded.returncode == 0, loaded.stderr[-3000:]
    return int(loaded.stdout.split()[-1])


def keep_output(place: str, run: pathlib.Path, output: str) -> pathlib.Path:
    """Keep what a run printed and its record in ``build/programs``, for a look afterwards; return the folder."""
    folder = sources.BUILD / place
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "play.log").write_text(output)
    for source in (*(run / "logs").glob("*.log"), *run.glob("*.json*")):
        shutil.copy(source, folder / source.name)
    return folder
