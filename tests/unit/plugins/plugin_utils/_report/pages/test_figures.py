# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pictures of one run."""

from __future__ import annotations

import dataclasses

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._report.data.load import RunFolder, Usage, load_run
from ansible_collections.muster.training.plugins.plugin_utils._report.data.run_model import build_run_model
from ansible_collections.muster.training.plugins.plugin_utils._report.pages import figures
from ansible_collections.muster.training.plugins.plugin_utils._report.pages.plots import Size
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._report.runs import (
    FIXTURES,
    case,
    start,
    steps,
)

WIDE, NARROW = Size("wide", 840, 200), Size("narrow", 340, 200)


def test_a_run_without_figures_has_no_picture() -> None:
    model = build_run_model(RunFolder("r", {}))
    assert [draw(model) for draw in (figures.draw_loss, figures.draw_throughput, figures.draw_usage)] == [None] * 3
    assert figures.draw_pairs({"transport": {"pairs": []}}, "0") is None


def test_the_loss_is_drawn_twice_and_the_fault_is_numbered() -> None:
    drawing = figures.draw_loss(build_run_model(load_run(FIXTURES / "resumed")))
    assert drawing is not None
    (wide, narrow), above = drawing
    assert 'class="wide" viewBox="0 0 840' in wide and 'class="narrow" viewBox="0 0 340' in narrow
    assert "× 1" in wide and "× 1" in narrow and above is None


def test_throughput_needs_the_times_of_the_run() -> None:
    model = case([start(0, 0), *steps(1, 1, 27)])
    assert figures.draw_throughput(model) is not None
    clock = dataclasses.replace(model.clock, first_step=None)
    assert figures.read_times(dataclasses.replace(model, clock=clock)) is None


@pytest.mark.parametrize(("length", "wide", "narrow"), [(2, 30, 30), (40, 180, 96)])
def test_names_get_the_room_they_need_up_to_a_limit(length: int, wide: int, narrow: int) -> None:
    assert (figures.label_width(["x" * length], WIDE), figures.label_width(["x" * length], NARROW)) == (wide, narrow)


def test_a_pair_is_drawn_with_its_figure_and_the_slowest_is_framed() -> None:
    pairs = [{"a": "n1", "b": "n2", "busbw_gb_s": 3.25}, {"a": "n1", "b": "n3", "busbw_gb_s": 9.0}]
    picture = figures.draw_pairs({"transport": {"pairs": pairs}}, "0")
    assert picture is not None and picture[0].count(">3.25<") == 2 and "var(--bad)" in picture[0]


@pytest.mark.parametrize(("nodes", "shaded"), [(2, False), (3, True)])
def test_a_heat_map_is_drawn_from_three_nodes_on(nodes: int, shaded: bool) -> None:
    """Two nodes are two lines, and the one bandwidth between them is in the table of pairs."""
    found = load_run(FIXTURES / "running")
    begin = build_run_model(found).clock.submitted
    assert begin is not None
    samples = tuple(Usage(begin + at, f"n{n}", 30.0 * n, 1.0, None) for n in range(nodes) for at in range(60))
    drawing = figures.draw_usage(build_run_model(dataclasses.replace(found, usage=samples)))
    assert drawing is not None and drawing[1] == "CPU"
    for svg in drawing[0]:
        assert ("var(--heat-" in svg, "var(--series-" in svg) == (shaded, not shaded)
    pairs = [{"a": "n0", "b": f"n{n}", "busbw_gb_s": 3.0} for n in range(1, nodes)]
    assert (figures.draw_pairs({"transport": {"pairs": pairs}}, "0") is not None) == shaded
