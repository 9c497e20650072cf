# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds what a run's page says in words and figures: the figures on top, the job and its cost."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from markupsafe import Markup

from ....module_utils._model.account import BUCKETS, describe, useful_share
from ....module_utils._model.commands import run_command
from ..data import format as fmt
from ..data import parsing
from ..data.run_model import RunModel
from ..rules.summary import build_job_figures
from .rendering import MOST_ROWS, Cell, Table, add_note

# Percent of the bar's width.
_LEAST_SEEN = 0.3


def describe_caveat(model: RunModel) -> str | None:
    """Return the sentence that says what the figures are not, or None on real machines with GPUs."""
    if model.loopback:
        kind = "on CPUs, " if model.cpu_only else ""
        return f"Figures measured {kind}on loopback of one machine; they say nothing about a real network."
    return "Figures measured on CPUs; the job asked for no GPU." if model.cpu_only else None


def describe_run(model: RunModel, submitted: float | None, end: float | None) -> Markup:
    """Return the line above the title: the run's id, which a click selects as a whole, and its times."""
    times = [f"submitted {fmt.format_time(submitted)}" if submitted else "start not known"]
    times += [f"ended {fmt.format_time(end)}"] if model.clock.over and end is not None else []
    words = Markup(", ").join(Markup('<span class="when">{0}</span>').format(item) for item in times)
    return Markup('Training run <code class="id">{0}</code>, {1}').format(model.run_id, words)


def build_commands(model: RunModel) -> list[str]:
    """Return the commands that act on this run, to copy."""
    names = ["logs", "fetch"] if model.clock.over else ["status", "logs", "cancel"]
    return [run_command(model, name, muster_run_id=model.run_id) for name in names]


def build_figures(model: RunModel) -> list[tuple[str, Cell]]:
    """Return the figures below the verdict."""
    pace = model.throughput if model.throughput is not None else model.steps_per_s
    restarts = model.restarts if model.attempts else None
    proven = sum(fault.proof == "proven" for fault in model.faults)
    ended = model.outcome not in ("running", "waiting")
    notes = {
        "step": f"{fmt.format_figure(model.steps_per_s)} steps/s" if model.steps_per_s is not None else None,
        "loss": f"from {fmt.format_figure(model.first_loss)}" if model.first_loss is not None else None,
        "pace": _pace_words(model) if pace is not None else None,
        "stood": _stood_words(model),
        "restarts": f"{fmt.plural(proven, 'resume')} proven" if restarts else None,
        "lost": fmt.format_duration(model.seconds_lost) if model.seconds_lost else None,
    }
    figures: list[tuple[str, Cell]] = [
        ("Duration" if ended else "So far", fmt.format_duration(model.clock.duration)),
        ("Last step", add_note(fmt.format_count(model.last_step), notes["step"])),
        ("Final loss" if ended else "Loss", _format_loss(model, notes["loss"])),
        ("Throughput", add_note(fmt.format_figure(pace), notes["pace"])),
        ("Useful time", add_note(fmt.format_percent(_useful_percent(model)), notes["stood"])),
    ]
    # What did not happen needs no place.
    happened: list[tuple[str, Cell, object]] = [
        ("Restarts", add_note(fmt.format_count(restarts), notes["restarts"]), restarts),
        ("Steps lost", add_note(fmt.format_count(model.steps_lost), notes["lost"]), restarts),
        ("Cost", format_cost(model), model.usd != 0 or model.usd_per_hour),
    ]
    return figures + [(term, value) for term, value, is_shown in happened if is_shown]


def _pace_words(model: RunModel) -> str:
    """Return the unit, and who printed the figure where others print one, too."""
    read = model.run.history.steps_read
    rank, node = read.get("rank"), parsing.read_text(read.get("node"), 80)
    who = f"rank {rank}" if isinstance(rank, int) else node
    return f"{model.unit}, as {who} printed" if who and model.throughput is not None else model.unit


def _useful_percent(model: RunModel) -> float | None:
    """Return the share of the time that went to steps which count, None where most of the time is not known."""
    seconds = model.account[0] if model.account else {}
    share = useful_share(seconds)
    return None if share is None else 100 * share


def _stood_words(model: RunModel) -> str | None:
    stood = sum(right - left for left, right in model.stalls)
    return f"stood {fmt.format_duration(stood)}" if stood else None


def _format_loss(model: RunModel, note: str | None) -> Cell:
    if model.nan_since is not None:
        return add_note("NaN", f"since step {fmt.format_count(model.nan_since)}")
    return add_note(fmt.format_figure(model.final_loss), note)


def format_cost(model: RunModel) -> str:
    """Return the cost with what is known of its completeness."""
    note = "known so far" if model.usd_complete is False else None
    if model.usd == 0 and not model.usd_per_hour:
        note = "no rented node"
    return add_note(fmt.format_usd(model.usd), note)


def build_job_terms(model: RunModel) -> list[tuple[str, Cell]]:
    """Return what ran, where, and by which versions, as far as it is known."""
    job, figures = model.job, build_job_figures(model)
    texts = {name: parsing.read_text(figures[name]) for name in ("launcher", "backend", "image_digest", "submitted_by")}
    connection = {"local": "local, one machine", "ssh": "SSH"}.get(str(figures["connection"]))
    versions = parsing.read_mapping(figures["versions"]).items()
    terms: list[tuple[str, Cell]] = [
        ("Program", _program(job)),
        ("Arguments", parsing.hide_secrets(job.get("args"))),
        ("Launcher", texts["launcher"]),
        ("Nodes", model.shared_machines or _nodes(figures)),
        ("GPUs per node", _gpus(job)),
        ("Backend", texts["backend"]),
        ("Connection", connection),
        ("Effective batch", _batch(model)),
        ("All-reduce", _predicted_allreduce(model)),
        ("Transport seen", parsing.read_text(model.run.record.get("transport_seen"))),
        ("Template", _template(parsing.read_mapping(figures["catalogue_template"]))),
        ("Code", _digest(parsing.read_text(figures["code_sha256"]))),
        ("Image", texts["image_digest"]),
        ("Submitted by", texts["submitted_by"]),
        ("Tracked in", _link(model.run.tracking, "url")),
        ("Dashboard", _link(model.run.monitoring, "dashboard")),
        ("Versions", ", ".join(f"{name} {version}" for name, version in versions if version)),
    ]
    return [(term, value) for term, value in terms if value and value != fmt.UNKNOWN]


def _link(known: Mapping[str, object] | None, key: str) -> Markup | None:
    """Return a link to the run in its tracker, or in Grafana, None where it has none."""
    url = parsing.read_text((known or {}).get(key), 500) or ""
    is_web = url.startswith(("http://", "https://"))
    shown = url.partition("/#/")[0].partition("/d/")[0]
    return Markup('<a href="{0}">{1}</a>').format(url, shown) if is_web else None


def _program(job: dict[str, object]) -> str | None:
    path = parsing.read_text(job.get("script")) or parsing.read_text(job.get("module"))
    return path or parsing.hide_secrets(job.get("command"))


def _nodes(figures: dict[str, object]) -> str:
    nodes, processes = (parsing.read_integer(figures[name]) for name in ("nodes", "processes_per_node"))
    each = f" × {fmt.format_count(processes)} processes" if nodes and processes else ""
    return fmt.format_count(nodes) + each


def _gpus(job: dict[str, object]) -> str | None:
    count = parsing.read_integer(job.get("gpus_per_node"))
    model = parsing.read_text(parsing.read_mapping(job.get("gpu")).get("model"), 60)
    if count is None:
        return None
    return "none, CPU only" if count == 0 else f"{count}{f' × {model}' if model else ''}"


def _batch(model: RunModel) -> str | None:
    batch = parsing.read_integer(model.derived.get("effective_batch"))
    rate = parsing.read_number(model.derived.get("learning_rate_advice"))
    advice = f", advised learning rate {rate:.3g}" if rate is not None else ""
    return f"{fmt.format_count(batch)}{advice}" if batch is not None else None


def _predicted_allreduce(model: RunModel) -> str | None:
    seconds = parsing.read_number(model.derived.get("predicted_allreduce_s"))
    return f"{fmt.format_figure(seconds * 1000)} ms a step, predicted" if seconds is not None else None


def _digest(value: str | None) -> Markup | None:
    return Markup('<code title="{0}">{1}</code> (sha256)').format(value, value[:16]) if value else None


def _template(found: dict[str, object]) -> Markup | None:
    name, version, digest = (parsing.read_text(found.get(key)) for key in ("name", "version", "digest"))
    code = _digest(digest)
    return Markup("{0} {1}, {2}").format(name, version or "", code) if name and code else None


def build_cost_table(model: RunModel) -> Table | None:
    """Return the cost by node, or None where no node has a price."""
    hours: dict[str, float] = {}
    prices: dict[str, float | None] = {}
    for stay in (stay for attempt in model.attempts for stay in attempt.nodes):
        if stay.start is not None and stay.end is not None:
            hours[stay.name] = hours.get(stay.name, 0.0) + max(stay.end - stay.start, 0.0) / 3600
            prices[stay.name] = stay.price_usd_per_hour
    if not any(prices.values()):
        return None
    lines: list[list[Cell]] = []
    for name in sorted(hours, key=parsing.natural_key):
        price = prices[name]
        amount = price * hours[name] if price is not None else None
        lines.append([name, fmt.format_duration(hours[name] * 3600), fmt.format_usd(price), fmt.format_usd(amount)])
    return Table(
        ("Node", "In attempts", "Per hour", "Amount"),
        lines,
        "Time in attempts at the price of the whole node; what a provider bills between attempts is not included",
        " nnn",
        compact=True,
        fold=f"All {len(lines)} nodes" if len(lines) > MOST_ROWS else None,
    )


class AccountPart(t.NamedTuple):
    """A part of the bar that shows where the time of a run went."""

    name: str
    percent: float
    is_useful: bool


def build_account_bar(model: RunModel) -> list[AccountPart]:
    """Return the parts of the bar, the useful one first; what is too small to be seen is left out."""
    seconds = model.account[0] if model.account else {}
    wall = sum(seconds.values())
    shares = [AccountPart(name, 100 * value / wall, name == "useful") for name, value in seconds.items() if wall]
    return [share for share in shares if share.percent >= _LEAST_SEEN]


def build_account_table(model: RunModel) -> Table | None:
    """Return where the time and the money of a run went, or None where its times are not known."""
    if model.account is None or not sum(model.account[0].values()):
        return None
    seconds, usd = model.account
    wall = sum(seconds.values())
    lines: list[list[Cell]] = [
        [
            name,
            fmt.format_duration(value),
            fmt.format_percent(100 * value / wall),
            fmt.format_usd(usd.get(name, 0.0)) if usd and sum(usd.values()) else fmt.UNKNOWN,
            BUCKETS[name],
        ]
        for name, value in sorted(seconds.items(), key=lambda item: (item[0] != "useful", -item[1]))
    ]
    return Table(
        ("Went to", "Time", "Share", "Cost", "What it is"),
        lines,
        "Every second from the submission to the end is in one line",
        " nnn",
        fold="Each second, by what it went to",
    )


def describe_account(model: RunModel) -> str:
    """Return where the time of a run went in one sentence, empty where most of it is not known."""
    return describe(*model.account) if model.account else ""


def describe_cost(model: RunModel) -> str:
    """Return a sentence on the cost of the run."""
    if model.usd is None:
        rate = f" The nodes cost {fmt.format_usd(model.usd_per_hour)} an hour." if model.usd_per_hour else ""
        return f"The cost is not known.{rate}"
    if model.usd == 0 and not model.usd_per_hour:
        return "No rented node took part: the run cost nothing."
    state = {True: "complete", False: "not complete yet", None: "not marked as complete"}[model.usd_complete]
    rate = f", at {fmt.format_usd(model.usd_per_hour)} an hour for all nodes" if model.usd_per_hour else ""
    return f"{fmt.format_usd(model.usd)}{rate}. The record is {state}."
