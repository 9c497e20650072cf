# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Renders report.html, the self-contained page of one run."""

from __future__ import annotations

from ..data import format as fmt
from ..data.load import RunFolder
from ..data.run_model import build_run_model
from ..rules.advice import advise
from ..rules.verdict import judge_run
from . import page_details, page_summary
from .rendering import render


def render_html(run: RunFolder) -> str:
    """Return the page of one run."""
    model = build_run_model(run)
    submitted, end = model.clock.submitted, model.clock.end
    usage_plots, usage_table = page_details.build_usage(model)
    extras, hidden_extras = page_details.build_extra_curves(model)
    steps = advise(model)
    return render(
        "run.html.j2",
        title=f"{model.name}: {model.outcome}",
        run=model,
        kicker=page_summary.describe_run(model, submitted, end),
        caveat=page_summary.describe_caveat(model),
        verdict=judge_run(model),
        figures=page_summary.build_figures(model),
        advice=[step for step in steps if not step.is_later],
        later=[step for step in steps if step.is_later],
        checks=page_details.build_check_tables(model),
        time_line=page_details.build_time_line(model),
        hidden_nodes=page_details.describe_hidden_nodes(model),
        curves=page_details.build_curves(model),
        no_figures=page_details.describe_no_figures(model),
        attempts=page_details.build_attempt_table(model),
        hangs=page_details.build_hang_table(model),
        log=page_details.pick_failure_log(model),
        terms=page_summary.build_job_terms(model),
        extras=extras,
        hidden_extras=hidden_extras,
        commands=page_summary.build_commands(model),
        usage_plots=usage_plots,
        usage_table=usage_table,
        devices=page_details.build_device_table(model),
        islands=page_details.build_islands(model),
        account_bar=page_summary.build_account_bar(model),
        account_sentence=page_summary.describe_account(model),
        account=page_summary.build_account_table(model),
        cost_sentence=page_summary.describe_cost(model),
        costs=page_summary.build_cost_table(model),
        site=page_details.build_site_table(run.site),
        times_note=(f"State of {fmt.format_time(end)}. " if end is not None else "")
        + "Times count from when the job was submitted.",
    )
