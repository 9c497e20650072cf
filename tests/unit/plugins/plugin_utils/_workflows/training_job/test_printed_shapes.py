# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""First and last step and loss of recorded shapes of output, as a follower takes them in and a report shows them."""

from __future__ import annotations

import pathlib
import re
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.module_utils._node import files, metric_lines
from ansible_collections.muster.training.plugins.plugin_utils._report.data.load import load_run
from ansible_collections.muster.training.plugins.plugin_utils._report.data.run_model import build_run_model
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.follower import Follower

SHAPES = pathlib.Path(__file__).resolve().parents[5] / "fixtures" / "printed_steps" / "shapes.corpus"
T0 = 1_700_000_000.0
FIGURES = ("first step", "last step", "first loss", "last loss")


class Shape(t.NamedTuple):
    """One shape of the corpus: its figures as they are written there."""

    name: str
    truth: tuple[str, ...]
    source: str
    text: str


class Silent:
    """A progress that nobody looks at."""

    def say(self, line: str) -> None:
        pass

    def show(self, values: t.Mapping[str, t.Any]) -> None:
        pass


def shapes() -> list[Shape]:
    """The corpus."""
    found = []
    for part in SHAPES.read_text(encoding="utf-8").split("\n@@ ")[1:]:
        head, _, text = part.partition("\n")
        name, *truth, source = head.split(" | ")
        found.append(Shape(name, tuple(truth), source, text.replace("\\r", "\r").replace("\\e", "\x1b") + "\n"))
    return found


def read(text: str, folder: pathlib.Path, on_host: bool) -> tuple[float | None, ...]:
    """Return the four figures of a run that printed a text: None for what is said to be unknown.

    :param on_host: a node reads it, in pieces that end anywhere a line or a redrawn bar does; else the follower does,
        by lines, as those of a pod.
    """
    job = parse_job({"name": "x", "script": "/t.py"})
    follower = Follower(job, "x-1", folder, Silent(), lambda _: None, None)  # type: ignore[arg-type]
    follower.record_event("worker_started", T0, node="a", rank=0, attempt=1, world_size=1)
    reader = metric_lines.LineReader(job.metrics.forms)
    for number, piece in enumerate(re.findall(r"[^\r\n]*[\r\n]+" if on_host else r"[^\n]*\n", text)):
        at = T0 + 1 + number
        if on_host:
            found = "".join(files.json_line({**line, "printed": True}) for line in reader.read(piece, at))
            follower.take_text("a", "metrics", found)
        else:
            follower.take_text("a", "log", piece, [at])
    follower._release_printed(ended=True)
    (folder / "run.json").write_text("{}")
    model, attempt = build_run_model(load_run(folder)), follower.story.attempts[0]
    known = follower.story.are_steps_known
    steps = (attempt.first_step, attempt.last_step) if known else (None, None)
    return *steps, model.first_loss, model.final_loss


def is_right(truth: str, figure: float | None) -> bool:
    """Return whether a figure is that of the log, or said to be unknown where the corpus says so."""
    return figure is None if truth == "-" or truth.endswith("?") else figure == float(truth)


def test_the_corpus_is_large_and_half_of_it_public() -> None:
    corpus = shapes()
    assert len(corpus) >= 40 and 2 * sum(shape.source.startswith("https://") for shape in corpus) >= len(corpus)


@pytest.mark.parametrize("on_host", [True, False], ids=["host", "pod"])
@pytest.mark.parametrize("shape", shapes(), ids=lambda shape: shape.name)
def test_a_shape_gives_its_figures_and_no_others(shape: Shape, on_host: bool, tmp_path: pathlib.Path) -> None:
    found = read(shape.text, tmp_path, on_host)
    wrong = [
        f"{name}: {figure} instead of {truth}"
        for name, truth, figure in zip(FIGURES, shape.truth, found, strict=True)
        if not is_right(truth, figure)
    ]
    assert not wrong
