# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares what was said of a run with what is true of it; knows nothing of the collection.

A sentence is a line of a screen, of the report's page, or a text of record and report. ``SENTENCES`` judges each claim
that a sentence makes, ``FIELDS`` the values of record and report, ``SILENCES`` what should have been said and was not.
"""

from __future__ import annotations

import dataclasses
import math
import re
import signal
import typing as t

from ansible_collections.muster.training.tests.support.truth import Life, Save, Truth


@dataclasses.dataclass(frozen=True, slots=True)
class Said:
    """All that a user can see of a run: screens and exit codes by playbook, record, report, page, fetched files.

    Screens named ``earlier NAME`` are of commands before the last one of that name.
    """

    screens: t.Mapping[str, str]
    codes: t.Mapping[str, int]
    record: dict[str, t.Any] | None
    report: dict[str, t.Any] | None
    page: str
    files: t.Mapping[str, str]
    # Which files lie in the run's folder on the controller.
    folder: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True, slots=True)
class Sentence:
    """One line that was said: where, what, and whether it is of the time after the run's end."""

    where: str
    text: str
    final: bool


class Rule(t.NamedTuple):
    """A claim that sentences make: its name, how it reads, and what is wrong with it (empty: nothing)."""

    name: str
    reads: re.Pattern[str]
    wrong: t.Callable[[re.Match[str], Sentence, Truth], str]


# What makes a claim of a checkpoint one of its absence.
ABSENT = re.compile(
    r"\b(?:not stored|not (?:there|found|kept|complete|on any|in any|saved|have)|no longer|is missing|is gone|are gone|was removed|vanish"
    r"|lost|has no|have no|without|only on|alone|last stored|not used|newer than|neither|not as it was|cannot)\b"
)
# What makes a smaller figure honest: the gap is named.
GAP = re.compile(
    r"not read|left out|was cut|is cut|missing|incomplete|torn|damaged|unknown|not known|could not be read|cannot be read|truncated|do(?:es)? not answer|did not answer|not available"
)


def untrue(said: Said, truth: Truth) -> list[str]:
    """Return every untrue word, with where it was said and why it is untrue."""
    found = []
    for sentence in sentences(said):
        for rule in SENTENCES:
            for match in rule.reads.finditer(sentence.text):
                if why := rule.wrong(match, sentence, truth):
                    found.append(f"{sentence.where}: {rule.name}: '{clip(sentence.text, match)}': {why}")
    for name, field in FIELDS.items():
        found += [f"{name}: {why}" for why in field(said, truth)]
    for name, silence in SILENCES.items():
        found += [f"{name}: {why}" for why in silence(said, truth)]
    return list(dict.fromkeys(found))


def judged(said: Said) -> int:
    """Return how many claims the sentences make that a rule reads: none means that nothing was judged."""
    return sum(1 for one in sentences(said) for rule in SENTENCES for _ in rule.reads.finditer(one.text))


def clip(text: str, match: re.Match[str]) -> str:
    """Return a claim with some words around it."""
    return text[max(0, match.start() - 60) : match.end() + 60].strip()


# Sentences


def sentences(said: Said) -> t.Iterator[Sentence]:
    """Yield all lines of screens and page, and all texts of record and report."""
    for name, screen in said.screens.items():
        lines = [line for line in screen.splitlines() if line.strip()]
        ends = [
            number
            for number, line in enumerate(lines)
            if re.search(r"run \S+ (?:succeeded|failed|cancelled|lost)\b", line)
        ]
        for number, line in enumerate(lines):
            if line.startswith(("TASK ", "PLAY ", "fatal:")):
                continue
            live = name.endswith("train") and (not ends or number < ends[0])
            yield Sentence(name, clean(line), not live and not name.startswith(("earlier", "begin", "prune")))
    yield from table_rows(said)
    for line in joined(said.page):
        # Of a record that cannot be read, which the page says, it knows what there was until then.
        yield Sentence("page", clean(line), not is_damaged(said))
    for where, value in (("record", said.record), ("report", said.report)):
        for text in texts(value):
            yield Sentence(where, clean(text), True)


def clean(line: str) -> str:
    """Return a line without paths, which have names of steps in them, and without marks of JSON and tables."""
    return re.sub(r"(?<![\w])/(?:[^\s/:,'\"]+/)+[^\s:,'\"]*", "PATH", re.sub(r"\s+", " ", line)).strip()


def joined(page: str) -> t.Iterator[str]:
    """Yield a page's lines; a short label and the figure beneath it are one."""
    lines = [line.strip() for line in page.splitlines() if line.strip()]
    labels = ("Last step", "Final loss", "Restarts", "Steps lost", "Checkpoint", "Ranks", "Nodes")
    for number, line in enumerate(lines):
        yield f"{line}: {lines[number + 1]}" if line in labels and number + 1 < len(lines) else line


def texts(value: t.Any, key: str = "") -> t.Iterator[str]:
    """Yield all sentences of a value; what the job itself asks for is none."""
    if isinstance(value, str):
        if " " in value:
            yield value
    elif isinstance(value, dict):
        for name, one in value.items():
            if name not in ("job", "command", "path"):
                yield from texts(one, name)
    elif isinstance(value, list):
        for one in value:
            yield from texts(one, key)


def table_rows(said: Said) -> t.Iterator[Sentence]:
    """Yield the row of ``status`` as a sentence of its columns."""
    for row in status_rows(said):
        words = [f"status {name} {value}" for name, value in row.items()]
        yield Sentence("status", " · ".join(words), True)


def status_rows(said: Said) -> list[dict[str, str]]:
    """Return the rows of the table of ``status``."""
    lines = [line.strip().strip('",') for line in said.screens.get("status", "").splitlines()]
    head = next((line for line in lines if re.match(r"run +state ", line)), "")
    if not head:
        return []
    columns = [(match[0], match.start()) for match in re.finditer(r"\S+", head)]
    starts = [start for _, start in columns] + [None]
    rows = []
    for line in lines[lines.index(head) + 1 :]:
        if not re.match(r"\S+ {2,}\S", line):
            break
        rows.append({name: line[start : starts[n + 1]].strip() for n, (name, start) in enumerate(columns)})
    return rows


def claim(name: str, reads: str, wrong: t.Callable[[re.Match[str], Sentence, Truth], str]) -> Rule:
    """Make a rule."""
    return Rule(name, re.compile(reads), wrong)


def outcome(match: re.Match[str], sentence: Sentence, truth: Truth) -> str:
    word = match["outcome"]
    if sentence.where.startswith("earlier") or word in truth.outcomes:
        return ""
    return f"it is {'/'.join(sorted(truth.outcomes))}"


def last_step(match: re.Match[str], sentence: Sentence, truth: Truth) -> str:
    """A step in a live line was made; one that is said of the end is the last."""
    step = int(match["step"])
    if step and step not in truth.made:
        return f"step {step} was never made"
    is_furthest = sentence.where in ("page", "report") and step == max(truth.made, default=None)
    if not sentence.final or is_furthest or step == truth.last_step or (step == 0 and truth.last_step is None):
        return ""
    if truth.hurt and GAP.search(sentence.text):
        return ""
    return f"the last step is {truth.last_step}"


def loss(match: re.Match[str], sentence: Sentence, truth: Truth) -> str:
    """A loss is the one of its step; one that is said of the end is the last."""
    number = float(match["loss"].replace("NaN", "nan"))
    step = re.search(r"\bstep (\d+) \S $", sentence.text[: match.start()])
    if not sentence.final and not step:
        wanted = [value for life in truth.told for value in life.losses]
    elif step and not sentence.where.startswith("status"):
        wanted = [
            value
            for life in truth.told
            for made, value in zip(life.steps, life.losses, strict=True)
            if made == int(step[1])
        ]
    else:
        wanted = [truth.last_loss]
    if any(near(number, value) for value in wanted):
        return ""
    return f"the loss was {wanted}"


def near(number: float, value: float | None) -> bool:
    """Whether a figure that is rounded to some digits is a value; None is no number."""
    if value is None or math.isnan(number):
        return value is None and math.isnan(number)
    return abs(number - value) <= max(0.0011, 0.002 * abs(value))


def checkpoint(match: re.Match[str], sentence: Sentence, truth: Truth) -> str:
    """A checkpoint of the end can be had; one of a live line was at least reported."""
    step = int(match["step"])
    if step not in truth.made:
        return f"step {step} was never made"
    if sentence.text[match.end() :].startswith(" had been saved"):
        return "" if step in {save.step for save in truth.saves} else f"step {step} was never saved"
    if not sentence.final:
        return ""
    absent = bool(ABSENT.search(sentence.text))
    available = newest_for(sentence, truth)
    there = available is not None and step in steps_there(sentence, truth)
    if absent or step == available or (there and sentence.where == "fetch"):
        return ""
    return f"the newest checkpoint that is there is that of step {available}"


def steps_there(sentence: Sentence, truth: Truth) -> set[int]:
    """Return the steps of the saves that are whole somewhere."""
    return {save.step for save in truth.saves if save in truth.kept or save.sha256 in truth.stored}


def newest_for(sentence: Sentence, truth: Truth) -> int | None:
    """Return the newest checkpoint that there was when a sentence was said."""
    return truth.available_at_end if sentence.where in ("train", "record", "report", "page") else truth.available


def restarts(match: re.Match[str], sentence: Sentence, truth: Truth) -> str:
    number = int(match["number"])
    if number > truth.starts - 1:
        return f"there were {truth.starts - 1}"
    return f"there were {truth.starts - 1}" if sentence.final and number != truth.starts - 1 else ""


def resumed(match: re.Match[str], sentence: Sentence, truth: Truth) -> str:
    step = int(match["step"])
    found = sorted({life.resumed_from for life in truth.lives if life.resumed_from is not None})
    return "" if step in found else f"ranks began from {found}"


def not_resumed(match: re.Match[str], sentence: Sentence, truth: Truth) -> str:
    """A life that began at 0 although something had been saved did not resume."""
    lives = truth.told
    anew = any(
        (life.resumed_from or 0) < max(save.step for save in earlier.saves)
        for earlier, life in zip(lives, lives[1:], strict=False)
        if earlier.saves and life.steps
    )
    return "" if anew else "every start resumed from what was saved"


def ranks(match: re.Match[str], sentence: Sentence, truth: Truth) -> str:
    """``ranks A/B`` and ``A of B ranks``: none that did not begin, and at the end all that did."""
    seen, asked = int(match["seen"]), int(match["asked"])
    if asked != truth.ranks:
        return f"{truth.ranks} ranks were asked for"
    if seen > truth.seen:
        return f"{truth.seen} ranks began"
    return f"{truth.seen} ranks began" if sentence.final and seen < truth.seen and not truth.hurt else ""


def alive(match: re.Match[str], sentence: Sentence, truth: Truth) -> str:
    return "" if int(match["seen"]) == len(truth.alive) else f"{len(truth.alive)} ranks are alive"


def on_nodes(match: re.Match[str], sentence: Sentence, truth: Truth) -> str:
    """How many ranks on how many nodes; nodes that are fewer machines are said to be."""
    if int(match["ranks"]) != truth.seen:
        return f"{truth.seen} ranks took part"
    # The page and the report say it once for all that is on them (see SILENCES).
    if int(match["nodes"]) <= truth.machines or sentence.where in ("page", "report") or "machine" in sentence.text:
        return ""
    return f"all were on {truth.machines} machine"


def all_zero(match: re.Match[str], sentence: Sentence, truth: Truth) -> str:
    codes = [truth.of(rank)[-1].code if truth.of(rank) else None for rank in range(truth.ranks)]
    return "" if sentence.where.startswith("earlier") or all(code == 0 for code in codes) else f"the codes are {codes}"


def exit_code(match: re.Match[str], sentence: Sentence, truth: Truth) -> str:
    code = int(match["code"])
    known = codes_of(truth)
    if "the job" in sentence.text[: match.start()] and "failed" in truth.outcomes and "succeeded" not in truth.outcomes:
        return "" if code else "a run that failed does not end with 0"
    return "" if code in known else f"the codes were {sorted(known)}"


def codes_of(truth: Truth) -> set[int]:
    """Return the exit codes that are right for some rank of some life: 128 and the signal's number for a signal.

    A rank without a last word was ended from outside; a launcher ends with 1 when it gives up.
    """
    found: set[int] = {0} if any(life.code == 0 for life in truth.lives) else set()
    for life in truth.lives:
        signals = [value for do, value in life.acts if do == "signal"] + ["KILL" for do, _ in life.acts if do == "half"]
        for name in signals:
            number = int(getattr(signal, f"SIG{name}"))
            found |= {128 + number, -number}
        if life.code is not None:
            found.add(life.code)
        elif not signals:
            found |= {137, -9, 143, -15, 124}
    return found


def trained(match: re.Match[str], sentence: Sentence, truth: Truth) -> str:
    """``Trained`` is said of runs that succeeded after at least one step."""
    if "succeeded" not in truth.outcomes:
        return f"it is {'/'.join(sorted(truth.outcomes))}"
    return "" if truth.made else "no step was made"


def no_problem(match: re.Match[str], sentence: Sentence, truth: Truth) -> str:
    if "stands" in truth.needs:
        return "it stands"
    return "" if truth.outcomes & {"succeeded", "running"} else f"it is {'/'.join(sorted(truth.outcomes))}"


def steps_lost(match: re.Match[str], sentence: Sentence, truth: Truth) -> str:
    number = int(match["number"])
    if sentence.where.startswith("earlier") or number == truth.steps_lost:
        return ""
    return f"{truth.steps_lost} steps were made again"


def stored(match: re.Match[str], sentence: Sentence, truth: Truth) -> str:
    """The newest step that is said to be stored, or there, is whole where it was promised, and none is newer."""
    if not sentence.final:
        return ""
    step = int(match["step"]) if match["step"] else None
    newest = truth.available_at_end
    return "" if step == newest else f"the newest step that is there is {newest}"


def nothing_there(match: re.Match[str], sentence: Sentence, truth: Truth) -> str:
    """``fetch`` says that there is no checkpoint: then there is none."""
    looks_on = "looking in" in sentence.text
    return (
        ""
        if sentence.where != "fetch" or looks_on or truth.available is None
        else f"that of step {truth.available} can be had"
    )


SENTENCES = (
    claim("outcome", r"\brun \S+ (?P<outcome>succeeded|failed|cancelled|lost)\b", outcome),
    claim("outcome", r"\bstatus state (?P<outcome>[a-z]+)", outcome),
    claim("outcome", r"^[\w-]+: (?P<outcome>succeeded|failed|cancelled|lost)$", outcome),
    claim("all codes", r"all ranks exited with code 0", all_zero),
    claim("exit code", r"(?:exited with|(?<!did not answer \()exit) code (?P<code>-?\d+)", exit_code),
    claim("last step", r"(?:·|\bstatus|ended,|moving,|trained to|Last) step:? (?P<step>\d+)\b(?! \d+ s)", last_step),
    claim("last step", r"(?:ended|moving|hanging|stalled|slow|succeeded)(?:, | · last )step (?P<step>\d+)", last_step),
    claim("loss", r"(?<!Final )\bloss (?P<loss>-?[\d.]+(?:e-?\d+)?|nan|NaN)\b", loss),
    claim("final loss", r"Final loss: (?P<loss>-?[\d.]+|nan|NaN)\b", loss),
    claim(
        "checkpoint",
        r"(?<!continued from the )(?<!resumed from the )\bcheckpoint (?:of step |step[- ])?(?P<step>\d+)\b",
        checkpoint,
    ),
    claim("restarts", r"\b[Rr]estarts:? (?P<number>\d+)", restarts),
    claim("resumed", r"\b(?:resumed|continued) from (?:the checkpoint of )?(?:step )?(?P<step>\d+)\b", resumed),
    claim("did not resume", r"did not resume", not_resumed),
    claim("ranks", r"\branks (?P<seen>\d+)/(?P<asked>\d+)", ranks),
    claim("ranks", r"(?P<seen>\d+) of (?P<asked>\d+) ranks took part", ranks),
    claim("ranks alive", r"(?P<seen>\d+) of (?P<asked>\d+) ranks alive", alive),
    claim("ranks on nodes", r"(?P<ranks>\d+) ranks? on (?P<nodes>\d+) (?:nodes?|pods?|hosts?)\b", on_nodes),
    claim("trained", r"^(?:\N{CHECK MARK} )?Trained\b|\btrained to step", trained),
    claim("no problem", r"no problem found|^run \S+: PASS\b", no_problem),
    claim(
        "steps lost",
        r"[Ss]teps lost:? (?P<number>\d+)|(?<!Only )\blost (?P<n>\d+) steps",
        lambda m, s, tr: steps_lost(m, s, tr) if m["number"] else "",
    ),
    claim(
        "stored",
        r"(?:\N{MIDDLE DOT} stored|the newest that is(?: there)? has step) (?P<step>\d+)|none of the run is\b",
        stored,
    ),
    claim(
        "nothing there",
        r"No checkpoint of this run is there|a complete checkpoint was not found|has a file there",
        nothing_there,
    ),
)

# Values of record and report


def record_fields(said: Said, truth: Truth) -> t.Iterator[str]:
    """Yield what is wrong in run.json."""
    record = said.record
    if record is None:
        if not is_damaged(said) and "refused" not in truth.outcomes:
            yield "there is no record"
        if is_damaged(said):
            names = [
                name for name, words in places(said, "train", "status", "report").items() if "run.json" not in words
            ]
            yield from (f"it cannot be read, and {name} does not say so" for name in names)
        return
    yield from record_end(record, truth)
    size, seen = record["world_size"], record["world_size"]["seen"]
    if size["asked"] != truth.ranks or (seen not in (truth.seen, None) and not (truth.hurt and seen < truth.seen)):
        yield f"world_size {size}, {truth.seen} of {truth.ranks} ranks began"
    yield from record_checkpoint(record, truth)
    yield from record_attempts(record, truth)
    if record["steps_lost"] is not None and record["steps_lost"] != truth.steps_lost:
        yield f"steps_lost {record['steps_lost']}, {truth.steps_lost} steps were made again"


def record_end(record: dict[str, t.Any], truth: Truth) -> t.Iterator[str]:
    """How it ended, and with which code: a job may end with 1 or 124 by itself."""
    told, code = record["outcome"], record["exit_code"]
    if (told or record["state"]) not in truth.outcomes:
        yield f"outcome {told or record['state']}, it is {'/'.join(sorted(truth.outcomes))}"
    if told and code is not None and code not in {*codes_of(truth), 1, 124}:
        yield f"exit_code {code}, the codes were {sorted(codes_of(truth))}"
    if told and (told == "succeeded") != (code == 0):
        yield f"exit_code {code} of a run that {told}"


def record_checkpoint(record: dict[str, t.Any], truth: Truth) -> t.Iterator[str]:
    """A checkpoint of the record is there, or the record's problems say that it is not."""
    told = record["checkpoint"] or {}
    step = told.get("step")
    if step is None:
        if truth.available_at_end is not None and not truth.hurt:
            yield f"checkpoint null, that of step {truth.available_at_end} is there"
        return
    problems = " ".join(str(one) for one in record["problems"])
    if step != truth.available_at_end and not (ABSENT.search(problems) and str(step) in problems):
        yield f"checkpoint {step}, the newest one that is there is {truth.available_at_end}"


def record_attempts(record: dict[str, t.Any], truth: Truth) -> t.Iterator[str]:
    """Attempts are the starts of the gang, each with its steps."""
    attempts = record["attempts"]
    told = truth.told
    if len(attempts) != truth.starts and truth.lives:
        yield f"{len(attempts)} attempts, the gang began {truth.starts} times"
        return
    for attempt, life in zip(attempts, told, strict=False):
        yield from (f"attempt {attempt['n']}: {why}" for why in one_attempt(attempt, life, truth.hurt))


def one_attempt(attempt: dict[str, t.Any], life: Life, hurt: bool) -> t.Iterator[str]:
    """The steps of one attempt; of one that was hurt fewer may be known."""
    first, last, origin = attempt["first_step"], attempt["last_step"], attempt.get("resumed_from_step")
    if life.steps and first != life.steps[0] and not hurt:
        yield f"first_step {first}, it was {life.steps[0]}"
    if last != life.last_step and not (hurt and (last or 0) < (life.last_step or 0)):
        yield f"last_step {last}, it was {life.last_step}"
    if origin not in (None, life.resumed_from):
        yield f"resumed_from_step {origin}, it was {life.resumed_from}"
    if attempt.get("resumed") is True and not life.resumed_from:
        yield f"resumed, it began from {life.resumed_from}"


def report_fields(said: Said, truth: Truth) -> t.Iterator[str]:
    """Yield what is wrong in report.json; of a record that cannot be read it only says that."""
    report = said.report
    if report is None:
        if "report" in said.codes and "refused" not in truth.outcomes:
            yield "there is no report"
        return
    damaged = is_damaged(said)
    if report["outcome"] not in {*truth.outcomes, *(("unknown",) if damaged else ())}:
        yield f"outcome {report['outcome']}, it is {'/'.join(sorted(truth.outcomes))}"
    if not damaged:
        yield from report_figures(report["figures"], truth, all_of(report))
    logs = {log for attempt in report["attempts"] for log in attempt["logs"]}
    if missing := sorted(logs - said.folder):
        yield f"names logs that are not there: {missing}"
    yield from report_model(report, truth)


def report_figures(figures: dict[str, t.Any], truth: Truth, words: str) -> t.Iterator[str]:
    """A figure is right, null, or less with a gap that is named."""
    last = figures["last_step"]
    wanted = {
        # Of several starts, the furthest is what the run has reached.
        "last_step": last if last is not None and last == max(truth.made, default=None) else truth.last_step,
        "restarts": truth.starts - 1 if truth.lives else None,
        "steps_lost": truth.steps_lost,
        "ranks_seen": truth.seen,
    }
    for name, value in wanted.items():
        told = figures[name]
        is_less = truth.hurt and (told or 0) < (value or 0) and bool(GAP.search(words))
        if told != value and not is_less and (told is not None or name == "last_step"):
            yield f"{name} {told}, it is {value}"
    final, step = figures["final_loss"], figures["checkpoint_step"]
    if final is not None and not near(final, truth.last_loss):
        yield f"final_loss {final}, it was {truth.last_loss}"
    absent = ABSENT.search(words) and str(step) in words
    if step is not None and step != truth.available_at_end and not absent:
        yield f"checkpoint_step {step}, the newest one that is there is {truth.available_at_end}"


def is_damaged(said: Said) -> bool:
    """Return whether there is a record that cannot be read."""
    return said.record is None and "run.json" in said.folder


def report_model(report: dict[str, t.Any], truth: Truth) -> t.Iterator[str]:
    """The path beside ``the trained model is the checkpoint of step N`` has that model."""
    for one in report["next"]:
        match = re.search(r"The trained model is the checkpoint of step (\d+)", one["text"])
        if match and one.get("path") and not truth.bucket:
            there = {save.path for save in truth.kept_at_end if save.step == int(match[1])}
            if one["path"] not in there:
                yield f"the model of step {match[1]} is not at {one['path']}"


def fetched_files(said: Said, truth: Truth) -> t.Iterator[str]:
    """What was fetched is one checkpoint, whole, the newest; its step is the one that was said."""
    if "fetch" not in said.codes:
        return
    screen = said.screens.get("fetch", "")
    by_digest: dict[str, Save] = {save.sha256: save for save in truth.saves}
    yield from (f"{name} is no save of the run" for name, digest in said.files.items() if digest not in by_digest)
    steps = {by_digest[digest].step for digest in said.files.values() if digest in by_digest}
    code, available = said.codes["fetch"], truth.available
    if code == 0 and not steps and truth.saves:
        yield "exit code 0, and nothing was fetched"
    if code != 0 and available is not None and not is_damaged(said):
        yield f"exit code {code}, the checkpoint of step {available} can be had: {last_error(screen)}"
    if steps and steps != {available}:
        yield f"fetched step {sorted(steps)}, step {available} can be had"
    for match in re.finditer(r"fetched (?P<a>\d+) of (?P<b>\d+) files", screen):
        if int(match["a"]) > len(said.files):
            yield f"'{match[0]}', there are {len(said.files)}"


def last_error(screen: str) -> str:
    return next((line[:200] for line in screen.splitlines() if line.startswith("[ERROR]")), "")


def exit_codes(said: Said, truth: Truth) -> t.Iterator[str]:
    """``train`` ends with 0 exactly when the run has succeeded; the others with 0 wherever they could look.

    All refuse a record that cannot be read.
    """
    if is_damaged(said):
        yield from (f"{name} ended with 0" for name in ("train", "status", "fetch") if said.codes.get(name) == 0)
        return
    if "train" in said.codes and not truth.outcomes >= {"succeeded", "failed"}:
        well = bool(truth.outcomes & {"succeeded", "running"})
        # One whose newest checkpoint is not where it was promised did not end well.
        if (said.codes["train"] == 0) != well and not (well and is_behind(truth)):
            yield f"train ended with {said.codes['train']}, the run is {'/'.join(sorted(truth.outcomes))}"
    for name in ("status", "report"):
        if said.codes.get(name, 0) != 0 and "refused" not in truth.outcomes:
            yield f"{name} ended with {said.codes[name]}: {last_error(said.screens[name])}"


FIELDS: dict[str, t.Callable[[Said, Truth], t.Iterator[str]]] = {
    "record": record_fields,
    "report.json": report_fields,
    "fetched": fetched_files,
    "exit code": exit_codes,
}

# What must be said


def all_of(value: t.Any) -> str:
    """Return all texts of a value as one."""
    return " \N{MIDDLE DOT} ".join(texts(value))


def places(said: Said, *names: str) -> dict[str, str]:
    """Return the words of those of a run's sources that there are: train, status, record, report, page, fetch."""
    found = {name: screen for name, screen in said.screens.items() if not name.startswith("earlier")}
    if "train" in found:
        found["train"] += said.screens.get("earlier train", "")
    if said.record is not None:
        found["record"] = all_of(said.record)
    if said.report is not None:
        found["report"] = all_of(said.report)
    if said.page:
        found["page"] = said.page
    return {name: found[name] for name in names if name in found}


def behind(said: Said, truth: Truth) -> t.Iterator[str]:
    """A newest save that is not where it was promised is said by all: train, status, record, report and page."""
    promised, newest = truth.available_at_end, truth.newest_reported
    if not is_behind(truth) or "running" in truth.outcomes or "refused" in truth.outcomes:
        return
    for name, words in places(said, "train", "status", "record", "report", "page").items():
        told = [line for line in re.split(r"[\n·]", words) if ABSENT.search(line)]
        if not any(re.search(rf"\b(?:step[- ]?)?{newest}\b|checkpoints?\b", line) for line in told):
            yield f"{name} does not say that the checkpoint of step {newest} is not kept (newest: {promised})"
    if "train" in said.screens and "succeeded" in truth.outcomes and "not clean" not in said.screens["train"]:
        yield "train ends clean"


def is_behind(truth: Truth) -> bool:
    """Return whether the newest save that was reported was not where it had been promised."""
    return truth.newest_reported is not None and truth.available_at_end != truth.newest_reported


def older_fetched(said: Said, truth: Truth) -> t.Iterator[str]:
    """``fetch`` says when what it took is older than the run's last save."""
    newest = truth.newest_reported
    if newest is None or truth.available in (None, newest) or said.codes.get("fetch") != 0:
        return
    screen = said.screens["fetch"]
    if not re.search(rf"\b{newest}\b", clean_screen(screen)) or not re.search(
        rf"\b{truth.available}\b", clean_screen(screen)
    ):
        yield f"fetch took step {truth.available} and does not say that the last one was of step {newest}"


def clean_screen(screen: str) -> str:
    """Return a screen without paths."""
    return "\n".join(clean(line) for line in screen.splitlines())


def must(need: str, words: str, *names: str) -> t.Callable[[Said, Truth], t.Iterator[str]]:
    """Return a silence: a truth that needs ``need`` is said with ``words`` by all of some sources."""

    def judge(said: Said, truth: Truth) -> t.Iterator[str]:
        if need in truth.needs:
            for name, found in places(said, *names).items():
                if not re.search(words, found):
                    yield f"{name} does not say it"

    return judge


def one_step(said: Said, truth: Truth) -> t.Iterator[str]:
    """Ranks of one start that begin at different steps are said."""
    for number in range(truth.starts):
        lives = [truth.of(rank)[number] for rank in range(truth.ranks) if len(truth.of(rank)) > number]
        froms = {life.resumed_from for life in lives if life.resumed_from is not None}
        if len(froms) > 1:
            for name, words in places(said, "train", "record", "report").items():
                if not re.search(r"different steps|different checkpoints|began at (?:different )?step", words):
                    yield f"{name} does not say that the ranks of start {number + 1} began from {sorted(map(str, froms))}"


def reasons(said: Said, truth: Truth) -> t.Iterator[str]:
    """A run that did not succeed has a reason in status."""
    for row in status_rows(said):
        if row.get("state") in ("failed", "lost") and row.get("why", "-") in ("", "-"):
            yield "status gives no reason"


def gaps(said: Said, truth: Truth) -> t.Iterator[str]:
    """Figures that are less than what was are named as such."""
    if not truth.hurt or said.record is None or not truth.starts or truth.last_step is None:
        return
    attempts = said.record["attempts"]
    # The newest start may have had no step left to make.
    last = next((attempt["last_step"] for attempt in reversed(attempts) if attempt["last_step"]), None)
    if last != truth.last_step:
        for name, words in places(said, "train", "record").items():
            if not GAP.search(words):
                yield f"{name}: last step {last} of {truth.last_step}, and no word of a gap"


def machines(said: Said, truth: Truth) -> t.Iterator[str]:
    """Nodes that are one machine are said to be, in the report at least."""
    if truth.nodes > truth.machines and said.report is not None:
        for name, words in (("page", said.page), ("train", said.screens.get("train", ""))):
            if re.search(rf"\b{truth.nodes} nodes\b", words) and not re.search(
                r"one machine|1 machine|loopback", words
            ):
                yield f"{name} does not say that {truth.nodes} nodes are {truth.machines} machine"


SILENCES: dict[str, t.Callable[[Said, Truth], t.Iterator[str]]] = {
    "checkpoint not kept": behind,
    "older checkpoint fetched": older_fetched,
    "not resumed": must("not_resumed", "did not resume", "train", "record", "report", "page"),
    "not a number": must("nan", r"(?i)\bnan\b|not a number", "train", "status", "record", "report", "page"),
    "stands": must(
        "stands", r"\b(?:no (?:new )?step (?:for|since)|stalled|stalls|hanging|hangs|stands)\b", "status", "diagnose"
    ),
    "different steps": one_step,
    "no reason": reasons,
    "gap": gaps,
    "one machine": machines,
}
