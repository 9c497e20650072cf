# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The self-contained pages: report.html for one run, compare.html for several.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import typing as t

from ..data import format as fmt
from ..data.load import RunFolder
from ..data.run_model import RunModel, build_run_model
from . import page_details, page_summary
from .compare import comparison, title
from .css import style_sheet
from .html import Html, join, tag

# Nothing may be fetched and no script may run, even if a text of the run got past the escaping.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def document(name: str, content: Html) -> str:
    """Return a whole page around ``content``."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", name),
        tag("style", Html(style_sheet())),
    )
    return f"<!doctype html>\n{tag('html', head, tag('body', tag('main', content)), lang='en')}\n"


def render_html(run: RunFolder) -> str:
    """Return the page of one run.

    :raises InputError: matplotlib is not installed.
    """
    case = build_run_model(run)
    content = join(
        page_summary.heading(case),
        page_summary.next_steps(case),
        page_details.proofs(case),
        page_details.time_line(case),
        page_details.training(case),
        page_details.attempts(case),
        page_summary.the_job(case),
        page_details.nodes(case),
        page_details.fabric(case),
        page_summary.the_cost(case),
        page_summary.notes(case),
        _foot(case),
    )
    return document(f"{case.name}: {case.outcome}", content)


def render_compare(runs: t.Sequence[RunFolder]) -> str:
    """Return the page that compares runs, in the order given.

    :raises InputError: matplotlib is not installed.
    """
    cases = [build_run_model(run) for run in runs]
    return document(title(cases), comparison(cases))


def _foot(case: RunModel) -> Html:
    seen = f"State of {fmt.format_time(case.clock.end)}. " if case.clock.end is not None else ""
    words = f"{seen}Times count from when the job was handed in. Final loss is the median of the last ten steps."
    return tag("footer", tag("p", words), tag("p", "Made by muster.training from the run's own records."))
