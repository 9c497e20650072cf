# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults that others have reported, each from its table through rent, reap, the reaper unit, teardown and heal.

Their sources are issues of other projects, the providers' own documents and error lists. What must hold whatever
happens: nothing bills at the end, nothing of others is touched, no order beyond what may be replaced, and no output
promises more than was proven. ``holds`` is what must hold besides.
"""

from __future__ import annotations

import collections
import pathlib

import pytest

from ansible_collections.muster.training.tests.fakes.cycle import Server
from ansible_collections.muster.training.tests.faults import (
    drawn_lambda,
    drawn_runpod,
    drawn_shadeform,
    drawn_vastai,
    fourth_cluster,
    fourth_lambda,
    fourth_more,
    fourth_runpod,
    fourth_shadeform,
    fourth_times,
    fourth_vastai,
    third_lambda,
    third_runpod,
    third_shadeform,
    third_vastai,
)
from ansible_collections.muster.training.tests.faults.reported_changes import CHANGES
from ansible_collections.muster.training.tests.faults.reported_lambda import LAMBDA
from ansible_collections.muster.training.tests.faults.reported_runpod import RUNPOD
from ansible_collections.muster.training.tests.faults.reported_shadeform import SHADEFORM
from ansible_collections.muster.training.tests.faults.reported_vastai import VASTAI
from ansible_collections.muster.training.tests.faults.reported_world import Life, Reported

FIRST = (*LAMBDA, *RUNPOD, *VASTAI, *SHADEFORM, *CHANGES)
# Drawn from the sources alone, before the rules of renting and the first round were looked at.
SECOND = (
    *drawn_lambda.LAMBDA,
    *drawn_runpod.RUNPOD,
    *drawn_vastai.VASTAI,
    *drawn_shadeform.SHADEFORM,
    *drawn_shadeform.CHANGES,
)
# Drawn once more from other sources, before what the second round had mended was looked at.
THIRD = (*third_lambda.LAMBDA, *third_runpod.RUNPOD, *third_vastai.VASTAI, *third_shadeform.SHADEFORM)
# Drawn by somebody else from the documents, issues and docs, before any of the rules and rounds above was looked at.
FOURTH = (
    *fourth_lambda.LAMBDA,
    *fourth_runpod.RUNPOD,
    *fourth_cluster.CLUSTERS,
    *fourth_vastai.VASTAI,
    *fourth_shadeform.SHADEFORM,
    *fourth_more.MORE,
    *fourth_times.TIMES,
)
ROUNDS = {"first": FIRST, "second": SECOND, "third": THIRD, "fourth": FOURTH}
FIGURES: collections.Counter[str] = collections.Counter()


@pytest.mark.parametrize("case", FIRST, ids=lambda case: f"{case.product}: {case.name}")
def test_a_reported_fault(tmp_path: pathlib.Path, served: tuple[Server, str], case: Reported) -> None:
    check(tmp_path, served, case)


@pytest.mark.parametrize("case", SECOND, ids=lambda case: f"{case.product}: {case.name}")
def test_a_drawn_fault(tmp_path: pathlib.Path, served: tuple[Server, str], case: Reported) -> None:
    check(tmp_path, served, case)
    FIGURES["cases of the second round"] += 1


def check(tmp_path: pathlib.Path, served: tuple[Server, str], case: Reported) -> None:
    """Live through a case, and count what must be zero."""
    life = Life(tmp_path, case, *served)
    life.run()
    figures = {
        "machines alive": len(life.ours),
        "touched": life.touched,
        "orders beyond": life.excess,
        "untrue outputs": len(life.untrue),
    }
    FIGURES.update({"cases": 1, **figures})
    problems = [f"{name}: {count}" for name, count in figures.items() if count] + life.untrue + life.problems
    problems += [f"against the document: {line}" for line in sorted(set(life.api.violations))[:3]]
    assert problems == [], f"{case.name} ({case.source}): {case.does}; {case.holds}"


@pytest.mark.parametrize("case", THIRD, ids=lambda case: f"{case.product}: {case.name}")
def test_a_fault_of_the_third_round(tmp_path: pathlib.Path, served: tuple[Server, str], case: Reported) -> None:
    check(tmp_path, served, case)
    FIGURES["cases of the third round"] += 1


@pytest.mark.parametrize("case", FOURTH, ids=lambda case: f"{case.product}: {case.name}")
def test_a_fault_of_the_fourth_round(tmp_path: pathlib.Path, served: tuple[Server, str], case: Reported) -> None:
    check(tmp_path, served, case)
    FIGURES["cases of the fourth round"] += 1


@pytest.mark.parametrize("cases", ROUNDS.values(), ids=ROUNDS)
def test_a_round_is_whole(cases: tuple[Reported, ...]) -> None:
    sources = {case.source for case in cases}
    assert len(cases) == len({(case.product, case.name) for case in cases}) >= 60 and len(sources) >= 30
    assert all(case.source and case.does and case.holds and case.steps for case in cases)


def test_no_fault_is_in_two_rounds() -> None:
    names = [(case.product, case.name) for cases in ROUNDS.values() for case in cases]
    assert len(names) == len(set(names))
