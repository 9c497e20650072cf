# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Advises what to do next after a run, with the command to copy where there is one."""

from __future__ import annotations

import dataclasses
import itertools
import statistics
import typing as t

from ....module_utils._model import cadence
from ....module_utils._model.commands import describe_given, run_command
from ....module_utils._model.run_record import STANDING
from ....module_utils._model.wording import name_some
from ..data import format as fmt
from ..data import parsing
from ..data.attempts import AttemptView
from ..data.faults import Fault
from ..data.load import STOPS, Checkpoint, Log
from ..data.run_model import RunModel
from .verdict import split_detail

# Signals and sysexits as shells, the kernel's OOM killer and the collection's examples use them.
_CODES = {
    9: "killed (SIGKILL): often the kernel or a memory limit ran out of memory, see the node's kernel log",
    15: "ended by SIGTERM: something asked it to stop",
    11: "a segmentation fault (SIGSEGV) in native code",
    7: "a bus error (SIGBUS): often /dev/shm is too small",
    6: "aborted (SIGABRT): often a collective timed out or an assertion failed",
}
_EXITS = {74: "an I/O error: often the checkpoint folder is full or read-only", 126: "not executable", 127: "not found"}
# Another interval is advised where it is expected to save such a share of the time: the time between faults, of which
# few are known, is not known better.
_WORTH = 0.02
# What a save holds up is not known of a run that was shorter: its processors were busy with the start.
_LEAST_S = 120.0


@dataclasses.dataclass(frozen=True, slots=True)
class Advice:
    """One thing to do: what and why in a sentence, and the command or the path to copy where there is one.

    ``is_later``: it does not help against what ended the run.
    """

    text: str
    command: str | None = None
    path: str | None = None
    is_later: bool = False


def advise(model: RunModel) -> tuple[Advice, ...]:
    """Return what to do next, the most pressing first; of a run that failed, what is not about its end comes later."""
    first = (_advise_nan, _advise_unfinished, _advise_failure, _advise_rerun, _advise_missing_ranks, _advise_stalls)
    rest = (
        *(_advise_success, _advise_figures, _advise_resumes, _advise_saves),
        *(_advise_fabric, _advise_idle_gpus, _advise_teardown),
    )
    has_failed = model.outcome in ("failed", "lost")
    later = [dataclasses.replace(advice, is_later=has_failed) for rule in rest for advice in rule(model)]
    return (*(advice for rule in first for advice in rule(model)), *later)


def _play(model: RunModel, name: str, *, named: bool = False) -> str:
    """Return the command of a playbook, with the inventory of the run and, if ``named``, the run's id."""
    return run_command(model, name, **({"muster_run_id": model.run_id} if named else {}))


def explain_exit(code: int | None) -> str | None:
    """Return what an exit code (or a negative signal number, as Python and torchrun write it) usually means."""
    if code is None:
        return None
    signal = -code if code < 0 else code - 128
    return _EXITS.get(code) or _CODES.get(signal)


def pick_log(model: RunModel, attempt: AttemptView) -> Log | None:
    """Return the log to read first: of the attempt and its failed node, preferring one that names an error.

    Of a run that stood, it is where its ranks stood.
    """
    stacks = [log for log in model.run.logs if log.path.endswith(".stacks") and log.tail]
    if stacks and model.run.record.get("cause") in STANDING:
        return stacks[0]
    names = [*attempt.logs, *(name.removesuffix(".log") + ".err" for name in attempt.logs)]
    named = [log for log in model.run.logs if any(log.path.endswith(name) for name in names)]
    prefix = f"logs/{attempt.label}/"
    logs = named or [log for log in model.run.logs if log.path.startswith(prefix)] or list(model.run.logs)

    def rank(log: Log) -> tuple[bool, bool, bool]:
        # What the ranks alone wrote is beside it: in the whole log the launcher's words of its own end are the last.
        is_elsewhere = attempt.node not in log.path if attempt.node else False
        return is_elsewhere, not log.error, not log.path.endswith(".err")

    return min(logs, key=rank, default=None)


def _advise_unfinished(model: RunModel) -> t.Iterator[Advice]:
    if model.outcome == "waiting":
        yield Advice("See what the job is waiting for.", _play(model, "status", named=True))
    if model.outcome == "running":
        yield Advice(
            "See where the job is now; this page shows the state at the time it was written.",
            _play(model, "status", named=True),
        )
    if model.outcome == "unknown":
        yield Advice("Ask the backend for the state of the job.", _play(model, "status", named=True))


def _advise_failure(model: RunModel) -> t.Iterator[Advice]:
    if model.outcome not in ("failed", "lost") or not model.attempts:
        return
    last = model.attempts[-1]
    meaning = explain_exit(last.exit_code)
    log = pick_log(model, last)
    fix = split_detail(model)[1]
    if fix:
        yield Advice(f"{fix.rstrip('.')}.")
    if log:
        # The verdict has the reason already.
        told = log.error and log.error[:60] in str(model.run.record.get("detail"))
        error = f" Its last error: {log.error}" if log.error and not told else " Its last lines are shown above."
        whose = "lost node" if model.outcome == "lost" else "failed process"
        whose = "run" if model.run.record.get("cause") in STOPS else whose
        yield Advice(f"Read the log of the {whose}.{error}", path=log.path, is_later=bool(fix))
    else:
        command = _play(model, "logs", named=True)
        yield Advice("No log was collected: fetch them while the nodes exist.", command)
    if meaning and not fix and model.run.record.get("cause") not in STOPS:
        yield Advice(f"Exit code {last.exit_code} usually means: {meaning}.")
    ends = {attempt.last_step for attempt in model.attempts}
    if len(model.attempts) > 2 and len(ends) == 1:
        step = f"at step {fmt.format_count(last.last_step)}" if last.last_step is not None else "before its first step"
        yield Advice(
            f"All {len(model.attempts)} attempts ended {step}: fix the cause first, a restart alone fails there again."
        )


def _advise_stalls(model: RunModel) -> t.Iterator[Advice]:
    stood = sum(right - left for left, right in model.stalls)
    if stood and model.clock.duration and stood > 0.1 * model.clock.duration:
        longest = max(model.stalls, key=lambda span: span[1] - span[0])
        where = fmt.format_clock(longest[0] - model.clock.zero) if model.clock.zero is not None else "?"
        text = (
            f"No step was made for {fmt.format_duration(stood)} of {fmt.format_duration(model.clock.duration)}, "
            f"longest from {where} on: look at what the ranks did then."
        )
        yield Advice(text, _play(model, "diagnose", named=True))


def _advise_rerun(model: RunModel) -> t.Iterator[Advice]:
    if model.outcome not in ("failed", "lost", "cancelled"):
        return
    if model.nan_since is not None and model.checkpoint and model.checkpoint.step >= model.nan_since:
        where = f" ({model.checkpoint.path})" if model.checkpoint.path else ""
        yield Advice(
            f"The same run id would continue from the checkpoint of {_call_step(model.checkpoint)}"
            f"{where}, of after the loss stopped being a number: move those checkpoints away first."
        )
        return
    saved = model.checkpoint
    step = saved.step if saved else None
    start = f"continues from the checkpoint of {_call_step(saved)}" if saved and step else "starts from the beginning"
    if step and model.outcome == "lost" and not model.store_name:
        start += ", or the newest one that is left"
    condition = "Once the cause is fixed" if model.outcome == "failed" else "When the nodes are back"
    when = "To continue" if model.outcome == "cancelled" else condition
    why = "" if step else ", because no checkpoint is known"
    text = f"{when}, the same run id {start}{why}{describe_given(model.values_not_kept)}."
    yield Advice(text, _play(model, "train", named=True))


def _call_step(saved: Checkpoint) -> str:
    """Return the step of a checkpoint, an estimated one with what it is."""
    step = f"step {fmt.format_count(saved.step)}"
    return f"about {step}, {saved.step_by}" if saved.step_by else step


def _advise_missing_ranks(model: RunModel) -> t.Iterator[Advice]:
    asked, seen = model.ranks_asked, model.ranks_seen
    if asked is not None and seen is not None and seen < (model.ranks_needed or asked):
        yield Advice(
            f"{asked - seen} of {asked} ranks never joined: a model trained by fewer ranks than asked has another "
            f"batch size. Check each node before trying again{describe_given(model.values_not_kept)}.",
            _play(model, "preflight"),
        )


def _advise_nan(model: RunModel) -> t.Iterator[Advice]:
    since = model.nan_since
    if since is None:
        return
    saved = [point for part in model.run.segments for point in part.checkpoints if point.step < since]
    last = max(saved, key=lambda point: point.step, default=None)
    newest = f" The newest checkpoint from before that is of {_call_step(last)}." if last else ""
    yield Advice(
        f"The loss stopped being a number: lower the learning rate, clip gradients, or look at the data.{newest}"
    )


def _advise_figures(model: RunModel) -> t.Iterator[Advice]:
    history = model.run.history
    if left := history.left.describe_left(history.checkpoint, history.checkpoint_at):
        yield Advice(f"{left}.")
        return
    logged = any(part.steps for part in model.run.segments)
    if logged and not any(part.checkpoints for part in model.run.segments) and model.checkpoint is None:
        yield Advice("No checkpoint was saved: after a fault the job starts over. Save to MUSTER_CHECKPOINT_DIR.")


def _advise_resumes(model: RunModel) -> t.Iterator[Advice]:
    for fault in model.faults:
        if fault.proof == "contradicted":
            yield Advice(f"Fault {fault.number} was not resumed correctly: {'; '.join(fault.reasons)}.")
    if any(fault.proof == "unproven" and fault.had_checkpoint for fault in model.faults):
        yield Advice(
            "A resume is not proven. Have the program report the step from which it resumed (resumed_from_step in "
            "MUSTER_METRICS_FILE, or metrics.resume_pattern), or declare checkpoints.interval_steps; then drill it, "
            f"which starts a run of its own{describe_given(model.values_not_kept)}.",
            _play(model, "drill", named=True),
        )
    early = [fault for fault in model.faults if fault.proof in ("fresh", "unproven") and not fault.had_checkpoint]
    if early:
        # That the job saves nothing at all is advised above.
        lost = sum(fault.steps_lost or 0 for fault in early)
        cost = f" with {fmt.plural(lost, 'step')} made again" if lost else ""
        yield Advice(
            f"{_list_faults(early)} came before any checkpoint: there was nothing to resume, and the job started from "
            f"the beginning{cost}."
        )
    worst = max((fault.steps_lost or 0 for fault in model.faults), default=0)
    if model.interval is not None and worst > model.interval:
        text = f"A fault cost {worst} steps, more than the {model.interval} between checkpoints: is every one complete?"
        yield Advice(text)


def _list_faults(faults: t.Sequence[Fault]) -> str:
    numbers = [str(fault.number) for fault in faults]
    return f"Fault {numbers[0]}" if len(numbers) == 1 else f"Faults {', '.join(numbers[:-1])} and {numbers[-1]}"


def _advise_saves(model: RunModel) -> t.Iterator[Advice]:
    """Yield how often to save, where another interval would have cost less by what this run measured."""
    every_s, saves = _measure_saves(model)
    seconds = model.account[0] if model.account else {}
    if every_s is None or not seconds.get("checkpoint"):
        return
    blocked_s = seconds["checkpoint"] / saves
    held_s = sum(seconds.values()) - seconds.get("queue", 0.0) - seconds.get("idle", 0.0)
    faults = sum(fault.cause != "drill" for fault in model.faults)
    mtbf_s = cadence.estimate_mtbf_s(held_s, faults)
    best, lost = cadence.advise(blocked_s, mtbf_s), cadence.lost_share(max(0.0, every_s - blocked_s), blocked_s, mtbf_s)
    if lost - best.lost < _WORTH or held_s < _LEAST_S:
        return
    price = model.usd_per_hour or 0.0
    money = f", {fmt.format_usd((lost - best.lost) * price)} an hour" if price else ""
    yield Advice(
        f"Save every {fmt.format_duration(best.interval_s)} (now every {fmt.format_duration(every_s)}): a save holds "
        f"the steps up for {fmt.format_duration(blocked_s)}, and {fmt.plural(faults, 'fault')} in "
        f"{fmt.format_duration(held_s)} count as one in {fmt.format_duration(mtbf_s)}. Time that goes to saves and "
        f"faults: {100 * lost:.1f} % → {100 * best.lost:.1f} %{money}."
    )


def _measure_saves(model: RunModel) -> tuple[float | None, int]:
    """Return the usual seconds between saves, None where fewer than two gaps are known, and how many there were."""
    times = [[item.at for item in part.checkpoints if item.at is not None] for part in model.run.segments]
    gaps = [after - before for part in times for before, after in itertools.pairwise(part) if after > before]
    return (statistics.median(gaps) if len(gaps) > 1 else None), sum(map(len, times))


def _advise_fabric(model: RunModel) -> t.Iterator[Advice]:
    nodes = parsing.read_integer(model.job.get("nodes")) or 0
    if not model.verdicts and nodes > 1:
        yield _advise_verifying(model, "The network between the nodes was not measured: verify it")
    for verdict in model.verdicts:
        island, outcome = (
            parsing.read_text(verdict.get("island"), 80) or "the island",
            parsing.read_text(verdict.get("outcome"), 20),
        )
        for cause in parsing.read_rows(verdict.get("causes")):
            fix, node = parsing.read_text(cause.get("fix")), parsing.read_text(cause.get("node"), 80)
            if fix:
                yield Advice(f"Fabric of {island}{f', {node}' if node else ''}: {fix}.")
        if outcome == "unproven" and _lacks_expectation(verdict):
            yield _advise_verifying(
                model,
                f"The fabric of {island} was measured, but the expected rate of its link is not known (links inside one"
                " machine have none): declare it in muster_expectations and verify again",
            )
        elif outcome in ("fail", "unproven", None):
            yield _advise_verifying(model, f"The fabric of {island} is {outcome or 'unproven'}: verify it again")


def _advise_verifying(model: RunModel, text: str) -> Advice:
    """Return the advice to verify the fabric as it fits the rights: a cluster's nodes are its administrator's."""
    record = model.run.record
    if record.get("backend") != "kubernetes":
        return Advice(f"{text}.", _play(model, "verify_fabric"))
    if parsing.read_mapping(record.get("derived")).get("reads_nodes") is False:
        return Advice(f"{text}: an administrator of the cluster has to, with the playbook verify_fabric.")
    return Advice(f"{text}, with the kubeconfig of an administrator of the cluster.", _play(model, "verify_fabric"))


def _lacks_expectation(verdict: t.Mapping[str, object]) -> bool:
    """Return whether a bandwidth was measured that there is nothing to compare with."""
    bandwidth = parsing.read_mapping(verdict.get("bandwidth"))
    return bandwidth.get("busbw_gb_s") is not None and bandwidth.get("expected_gb_s") is None


def _advise_success(model: RunModel) -> t.Iterator[Advice]:
    if model.outcome != "succeeded" or not model.checkpoint or model.nan_since is not None:
        return
    text = f"The trained model is the checkpoint of {_call_step(model.checkpoint)}"
    if model.store_name:
        yield from _advise_stored(model, text)
    elif model.checkpoint.path:
        yield Advice(f"{text}:", path=model.checkpoint.path)
    else:
        yield Advice(f"{text}. Fetch it from the nodes.", _play(model, "fetch", named=True))


def _advise_stored(model: RunModel, text: str) -> t.Iterator[Advice]:
    """Yield where the model is of a run whose checkpoints go to an object store."""
    unstored, stored = parsing.read_text(model.run.record.get("unstored")), model.stored_checkpoint
    fetch = _play(model, "fetch", named=True)
    if not unstored and stored is not None:
        yield Advice(f"{text}, in the object store {model.store_name} as {stored.name}.", fetch)
    elif stored is None:
        yield Advice(f"{text}, and it is not in the object store: {unstored or 'its nodes told of none'}.")
    else:
        yield Advice(
            f"{text}, and it is not in the object store. What can be fetched is {stored.name}: {unstored}.", fetch
        )


def _advise_idle_gpus(model: RunModel) -> t.Iterator[Advice]:
    samples = [sample.gpu_percent for sample in model.run.usage if sample.gpu_percent is not None]
    mean = statistics.fmean(samples) if samples else 100.0
    if mean < 50:
        yield Advice(
            f"The GPUs were busy for {fmt.format_percent(mean)} of the time: look at data loading and the batch size."
        )


def _list_rented(nodes: t.Sequence[t.Mapping[str, object]]) -> str:
    names = [parsing.read_text(node.get("id")) or "a node" for node in nodes]
    return name_some(names, 3)


def _advise_teardown(model: RunModel) -> t.Iterator[Advice]:
    attempts = parsing.read_rows(model.run.record.get("attempts"))
    nodes = parsing.read_rows(attempts[-1].get("nodes")) if attempts else []
    # One that was rented from here has a token; no playbook ends what the user owns.
    rented = [node for node in nodes if parsing.read_text(node.get("token"))]
    price = sum(parsing.read_number(node.get("price_usd_per_hour")) or 0.0 for node in rented)
    if model.clock.over and price > 0:
        which = "These nodes" if len(rented) == len(nodes) else f"Of these nodes {_list_rented(rented)}"
        text = f"{which} cost {fmt.format_usd(price)} an hour until they are deleted."
        yield Advice(text, _play(model, "teardown"))
