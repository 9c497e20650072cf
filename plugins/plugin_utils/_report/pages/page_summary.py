# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The upper part of a run's page: the verdict, the figures, what to do next, the job and its cost.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

from ..data import format as fmt
from ..data import parsing
from ..data.run_model import RunModel
from ..rules.advice import advise
from ..rules.summary import build_job_figures
from ..rules.verdict import RunVerdict, judge_run
from .html import Child, Html, code, join, pairs, section, table, tag

SYMBOLS = {
    "ok": "\N{CHECK MARK}",
    "warn": "!",
    "bad": "\N{MULTIPLICATION X}",
    "live": "\N{BLACK RIGHT-POINTING TRIANGLE}",
    "calm": "\N{BLACK SQUARE}",
}


def caveat(case: RunModel) -> str | None:
    """Return the sentence that says what the figures are not, or None on real machines with GPUs."""
    if case.loopback:
        kind = "on CPUs, " if case.cpu_only else ""
        return f"Figures measured {kind}on loopback of one machine; they say nothing about a real network."
    return "Figures measured on CPUs; the job asked for no GPU." if case.cpu_only else None


def heading(case: RunModel) -> Html:
    """Return the title, the verdict and the line of figures."""
    verdict = judge_run(case)
    started = f"handed in {fmt.format_time(case.clock.submitted)}" if case.clock.submitted else "start not known"
    said = caveat(case)
    return join(
        tag(
            "header",
            tag("p", f"Training run {case.run_id}, {started}", class_="kicker"),
            tag("h1", case.name),
            tag("p", said, class_="caveat") if said else None,
        ),
        verdict_block(verdict),
        pairs(_figures(case), "figures"),
    )


def verdict_block(verdict: RunVerdict) -> Html:
    """Return the verdict: a word, a symbol and a colour, then the sentence."""
    symbol = tag("span", SYMBOLS[verdict.tone], aria_hidden="true")
    word = tag("p", symbol, verdict.word, class_="word")
    return tag("div", word, tag("p", verdict.sentence), class_=f"verdict t-{verdict.tone}")


def _figures(case: RunModel) -> list[tuple[str, Child]]:
    pace = case.throughput if case.throughput is not None else case.steps_per_s
    restarts = case.restarts if case.attempts else None
    proven = sum(fault.proof == "proven" for fault in case.faults)
    lost = fmt.format_duration(case.seconds_lost) if case.seconds_lost else None
    over = case.outcome not in ("running", "waiting")
    from_loss = f"from {fmt.format_figure(case.first_loss)}" if case.first_loss is not None else None
    return [
        ("Duration" if over else "So far", fmt.format_duration(case.clock.elapsed)),
        ("Last step", _with(fmt.format_count(case.last_step), _pace(case))),
        ("Final loss" if over else "Loss", _with(fmt.format_figure(case.final_loss), from_loss)),
        ("Throughput", _with(fmt.format_figure(pace), case.unit if pace is not None else None)),
        (
            "Ranks seen",
            _with(
                fmt.format_count(case.ranks_seen), f"of {case.ranks_asked:,}" if case.ranks_asked is not None else None
            ),
        ),
        ("Restarts", _with(fmt.format_count(restarts), f"{fmt.plural(proven, 'resume')} proven" if restarts else None)),
        ("Steps lost", _with(fmt.format_count(case.steps_lost), lost)),
        ("Cost", cost_words(case)),
    ]


def _with(value: str, small: str | None) -> Html:
    return join(value, " ", tag("small", small)) if small and value != fmt.UNKNOWN else join(value)


def _pace(case: RunModel) -> str | None:
    return f"{fmt.format_figure(case.steps_per_s)} steps/s" if case.steps_per_s is not None else None


def cost_words(case: RunModel) -> Html:
    """Return the cost with what is known of its completeness."""
    small = None if case.usd_complete is None or case.usd_complete else "so far known"
    if case.usd == 0 and not case.usd_per_hour:
        small = "no rented node"
    return _with(fmt.format_usd(case.usd), small)


def next_steps(case: RunModel) -> Html:
    """Return what to do next, in order."""
    found = advise(case)
    if not found:
        return Html("")
    items = []
    for item in found:
        copied = item.command or item.path
        items.append(tag("li", tag("p", item.text), code(copied) if copied else None))
    return section("What to do next", tag("ol" if len(items) > 1 else "ul", *items, class_="steps"))


def the_job(case: RunModel) -> Html:
    """Return what ran, where, and by which versions."""
    job, figures = case.job, build_job_figures(case)
    program = (
        parsing.read_text(job.get("script"))
        or parsing.read_text(job.get("module"))
        or parsing.hide_secrets(job.get("command"))
    )
    nodes, processes = figures["nodes"], figures["processes_per_node"]
    size = (
        f"{fmt.format_count(nodes)} × {fmt.format_count(processes)} processes"
        if nodes and processes
        else fmt.format_count(nodes)
    )
    rows: list[tuple[str, Child]] = [
        ("Program", program),
        ("Arguments", parsing.hide_secrets(job.get("args"))),
        ("Launcher", figures["launcher"]),
        ("Nodes", size),
        ("GPUs per node", _gpus(case)),
        ("Backend", figures["backend"]),
        ("Connection", {"local": "local, one machine", "ssh": "SSH"}.get(figures["connection"] or "")),
        ("Effective batch", _batch(case)),
        ("All-reduce", _predicted(case)),
        ("Transport seen", parsing.read_text(case.run.record.get("transport_seen"))),
        ("Code", _digest(figures["code_sha256"])),
        ("Image", figures["image_digest"]),
        ("Submitted by", figures["submitted_by"]),
        ("Versions", ", ".join(f"{name} {value}" for name, value in figures["versions"].items() if value) or None),
    ]
    known = [(term, value) for term, value in rows if value and value != fmt.UNKNOWN]
    if not known:
        return section("The job", tag("p", "The record says nothing about the job."))
    return section("The job", pairs(known, "terms"))


def _gpus(case: RunModel) -> str | None:
    count = parsing.read_integer(case.job.get("gpus_per_node"))
    model = parsing.read_text(parsing.read_mapping(case.job.get("gpu")).get("model"), 60)
    if count is None:
        return None
    return "none, CPU only" if count == 0 else f"{count}{f' × {model}' if model else ''}"


def _batch(case: RunModel) -> str | None:
    batch, rate = (
        parsing.read_integer(case.derived.get("effective_batch")),
        parsing.read_number(case.derived.get("learning_rate_advice")),
    )
    advice = f", advised learning rate {rate:.3g}" if rate is not None else ""
    return f"{fmt.format_count(batch)}{advice}" if batch is not None else None


def _predicted(case: RunModel) -> str | None:
    seconds = parsing.read_number(case.derived.get("predicted_allreduce_s"))
    return f"{fmt.format_figure(seconds * 1000)} ms a step, predicted" if seconds is not None else None


def _digest(value: str | None) -> Html | None:
    return join(tag("code", value[:16], title=value), " (sha256)") if value else None


def the_cost(case: RunModel) -> Html:
    """Return the cost by node, where nodes have a price."""
    stays = [stay for attempt in case.attempts for stay in attempt.nodes]
    hours: dict[str, float] = {}
    prices: dict[str, float | None] = {}
    for stay in stays:
        if stay.start is not None and stay.end is not None:
            hours[stay.name] = hours.get(stay.name, 0.0) + max(stay.end - stay.start, 0.0) / 3600
            prices[stay.name] = stay.price_usd_per_hour
    lines: list[list[Child]] = []
    for name in sorted(hours, key=parsing.natural_key):
        price = prices[name]
        amount = fmt.format_usd(price * hours[name]) if price is not None else fmt.UNKNOWN
        lines.append([name, fmt.format_duration(hours[name] * 3600), fmt.format_usd(price), amount])
    text = _cost_sentence(case)
    if not any(prices.values()):
        return section("Cost", tag("p", text))
    caption = "Time in attempts at the price of the whole node; what a provider bills between attempts is not in it"
    listed = table(("Node", "In attempts", "Per hour", "Amount"), lines, caption, " nnn", compact=True)
    if len(lines) > 12:
        listed = tag("details", tag("summary", f"All {len(lines)} nodes"), listed)
    return section("Cost", tag("p", text), listed)


def _cost_sentence(case: RunModel) -> str:
    if case.usd is None:
        rate = f" The nodes cost {fmt.format_usd(case.usd_per_hour)} an hour." if case.usd_per_hour else ""
        return f"The cost is not known.{rate}"
    if case.usd == 0 and not case.usd_per_hour:
        return "No rented node took part: nothing was paid for this run."
    whole = {True: "complete", False: "not complete yet", None: "not marked as complete"}[case.usd_complete]
    rate = f", at {fmt.format_usd(case.usd_per_hour)} an hour for all nodes" if case.usd_per_hour else ""
    return f"{fmt.format_usd(case.usd)}{rate}. The record is {whole}."


def notes(case: RunModel) -> Html:
    """Return what was missing or unreadable."""
    if not case.run.notes:
        return Html("")
    items = (tag("li", note) for note in case.run.notes)
    return section(
        "Gaps", tag("p", "What was missing or could not be read:", class_="note"), tag("ul", *items, class_="note")
    )
