# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the checks of ``tools/steps.py``: ``python -m tools.check [--all] [--only NAME,…] [--list]``.

Two steps at a time, but never two whose tests have limits of real time; what runs beside such a step has the processors
second. One line a step when it has ended, the end of its log when it failed, and a summary whose last line reads
``N passed, N failed``. A step that could not run is named with its reason; with MUSTER_REQUIRE_LAB=1 it counts as
failed. Logs: build/logs.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import typing as t

from .steps import STEPS, Step, places, unmet
from .tree import ROOT, TreeError, matching, project_files
from .venv import lock

Outcome = t.Literal["passed", "failed", "warned", "not run", "nothing to check yet"]
# An empty file of its own (Ansible refuses /dev/null), so that no user's settings change a result.
EMPTY_CONFIG = "build/ansible.cfg"
SHOWN_LINES = 60
SHOWN_SKIPS = 20
LANES = 2
# How nice a step is whose tests have no limits of real time: the others get three quarters of the processors.
SECOND = 5


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """How one step ended. ``passed`` and ``failed`` are what it adds to the total; ``note`` is short."""

    step: Step
    outcome: Outcome
    seconds: float = 0.0
    passed: int = 0
    failed: int = 0
    note: str = ""
    skipped: tuple[str, ...] = ()
    again: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Counts:
    """The numbers in the last summary line of pytest; errors are failures."""

    passed: int
    failed: int
    skipped: int


def pytest_counts(text: str) -> Counts | None:
    """The counts of the last line like ``3 failed, 120 passed, 2 skipped in 1.23s``, or nothing without such a line."""
    for line in reversed(text.splitlines()):
        if re.search(r"\d+ (passed|failed|errors?|skipped)\b.* in [\d.]+s", line):
            found = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|errors?|skipped)\b", line)}
            failed = found.get("failed", 0) + found.get("error", 0) + found.get("errors", 0)
            return Counts(found.get("passed", 0), failed, found.get("skipped", 0))
    return None


def coverage_total(text: str) -> str:
    """The percentage of coverage's TOTAL line, empty without one."""
    found = re.findall(r"^TOTAL\s.*?(\d+)%", text, flags=re.MULTILINE)
    return str(found[-1]) if found else ""


def skips(text: str) -> tuple[str, ...]:
    """pytest's lines about skipped tests: number, place and reason."""
    return tuple(re.findall(r"^SKIPPED (.+)$", text, flags=re.MULTILINE))


def second_tries(text: str) -> tuple[str, ...]:
    """The tests that failed and were tried again, however that ended."""
    return tuple(dict.fromkeys(re.findall(r"^TRIED AGAIN (.+) \(\w+\)$", text, flags=re.MULTILINE)))


def judge(step: Step, status: int, seconds: float, text: str) -> Result:
    """Make a result of a finished step's exit status and output."""
    if status != 0 and status == step.empty_status:
        return Result(step, "nothing to check yet", seconds)
    if status != 0 and step.warns:
        return Result(step, "warned", seconds, note="does not fail the whole")
    counts = (pytest_counts(text) if step.counted else None) or Counts(int(status == 0), 0, 0)
    # A crash after the last test leaves a clean count behind a bad exit status.
    failed = max(counts.failed, int(status != 0))
    outcome: Outcome = "failed" if failed else "passed"
    return Result(
        step, outcome, seconds, counts.passed, failed, describe(step, counts, text), skips(text), second_tries(text)
    )


def describe(step: Step, counts: Counts, text: str) -> str:
    """A few words about a finished step: its counts and coverage, or the last line of one of our own tools."""
    if not step.counted:
        return text.rstrip().rpartition("\n")[2] if "tools.artifact" in step.commands[-1] else ""
    covered = coverage_total(text)
    parts = [f"{counts.passed} tests", f"{counts.failed} failed" if counts.failed else ""]
    parts += [f"{counts.skipped} skipped" if counts.skipped else "", f"coverage {covered} %" if covered else ""]
    return ", ".join(filter(None, parts))


def chosen(names: t.Iterable[str], steps: tuple[Step, ...] = STEPS) -> tuple[Step, ...]:
    """The named steps with all that they come after, in the order of the table.

    :raises ValueError: for an unknown name.
    """
    by_name = {step.name: step for step in steps}
    pending, wanted = list(names), set[str]()
    while pending:
        name = pending.pop()
        if name not in by_name:
            raise ValueError(f"no step is called {name}; there are: {', '.join(by_name)}")
        if name not in wanted:
            wanted.add(name)
            pending.extend(by_name[name].after)
    return tuple(step for step in steps if step.name in wanted)


def step_environment(root: pathlib.Path, python: str, given: t.Mapping[str, str]) -> dict[str, str]:
    """The environment of every step: the development tools first, no personal settings of Ansible or Python."""
    kept = {name: value for name, value in given.items() if not name.startswith(("ANSIBLE_", "PYTHON"))}
    spoken = next(filter(None, (given.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))), "")
    if "UTF8" not in spoken.upper().replace("-", ""):
        # Ansible refuses to start under any other encoding.
        kept["LC_ALL"] = "C.UTF-8"
    path = os.pathsep.join([os.fspath(pathlib.Path(python).parent), given.get("PATH", os.defpath)])
    ours = {"PATH": path, "NO_COLOR": "1", "PY_COLORS": "0", "ANSIBLE_NOCOLOR": "1"}
    ansible = {"ANSIBLE_CONFIG": os.fspath(root / EMPTY_CONFIG), "ANSIBLE_HOME": os.fspath(root / "build" / "ansible")}
    return {**kept, **ours, **ansible, "MOLECULE_GLOB": "molecule/*/molecule.yml"}


def choose_next(waiting: t.Sequence[Step], running: t.Collection[Step]) -> Step | None:
    """Return the step to start now: the first in order that may run beside the running ones, None to wait for those."""
    unfinished = {step.name for step in (*waiting, *running)}
    if len(running) >= LANES:
        return None
    taken = any(step.timed for step in running)
    ready = (step for step in waiting if not unfinished.intersection(step.after))
    return next((step for step in ready if not (step.timed and taken)), None)


def yield_processors(pid: int) -> None:
    """Let a step's processes have the processors second; Linux weighs sessions too, by a number of their own."""
    os.setpriority(os.PRIO_PROCESS, pid, os.nice(0) + SECOND)
    with contextlib.suppress(OSError):
        pathlib.Path("/proc", str(pid), "autogroup").write_text(str(SECOND), encoding="ascii")


def run_commands(
    step: Step,
    words: t.Mapping[str, str],
    environment: t.Mapping[str, str],
    log: pathlib.Path,
    root: pathlib.Path,
    processes: set[subprocess.Popen[bytes]],
) -> int:
    """Run a step's commands into its log until one fails; 124 when the time is up.

    :param processes: holds the process of the command while that runs, so that an interrupt can end it.
    """
    deadline = time.monotonic() + step.limit_s
    with log.open("w", encoding="utf-8") as handle:
        for command in step.commands:
            argv = [word.format_map(words) for word in command]
            print("+", *argv, file=handle, flush=True)
            process = subprocess.Popen(
                argv, cwd=root, env=dict(environment), stdin=subprocess.DEVNULL, stdout=handle,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            processes.add(process)
            if not step.timed:
                yield_processors(process.pid)
            try:
                status = process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                print(f"stopped: no end after {step.limit_s} s", file=handle)
                status = 124
            finally:
                # Also what a command left running when it ended or we are interrupted.
                kill_group(process)
                processes.discard(process)
            if status:
                return status
    return 0


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """End every process of the command's session and reap the first."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Runner:
    """Runs steps and keeps their results; ``root`` is the project, ``files`` what belongs to it."""

    def __init__(self, root: pathlib.Path, files: tuple[str, ...], given: t.Mapping[str, str], python: str) -> None:
        self.root = root
        self.files = files
        self.required = given.get("MUSTER_REQUIRE_LAB") == "1"
        self.environment = step_environment(root, python, given)
        self.words = places(root, python)
        self.logs = root / "build" / "logs"
        self.results: list[Result] = []
        self.processes: set[subprocess.Popen[bytes]] = set()

    def reason_not_to_run(self, step: Step) -> str:
        """Why the step cannot run now, empty when it can."""
        broken = [r.step.name for r in self.results if r.step.name in step.after and r.outcome != "passed"]
        if broken:
            return f"the step {broken[0]} did not pass"
        reasons = (unmet(need, self.root, self.environment) for need in step.needs)
        return next(filter(None, reasons), "")

    def run(self, steps: t.Iterable[Step]) -> list[Result]:
        """Run steps in their order, two at a time where they may; return the results in the order of their ends."""
        waiting = list(steps)
        running: dict[concurrent.futures.Future[Result], Step] = {}
        with concurrent.futures.ThreadPoolExecutor(LANES) as lanes:
            try:
                while waiting or running:
                    while (step := choose_next(waiting, running.values())) is not None:
                        waiting.remove(step)
                        running[lanes.submit(self.attempt, step)] = step
                    for future in concurrent.futures.wait(running, return_when="FIRST_COMPLETED").done:
                        del running[future]
                        self.keep(future.result())
            finally:
                # Interrupted: what runs ends with us.
                for process in list(self.processes):
                    kill_group(process)
        return self.results

    def keep(self, result: Result) -> None:
        """Keep a result, print its line and, when the step failed, the end of its log."""
        self.results.append(result)
        step, note = result.step, f"  {result.note}" if result.note else ""
        print(f"{step.title:<52}{result.outcome:<21} {result.seconds:7.1f} s{note}", flush=True)
        if result.outcome in {"failed", "warned"} and (self.logs / f"{step.name}.log").exists():
            self.show_log(step)

    def attempt(self, step: Step) -> Result:
        """Decide whether the step runs, run it and judge it."""
        log = self.logs / f"{step.name}.log"
        log.unlink(missing_ok=True)
        if not matching(self.files, step.subject):
            return Result(step, "nothing to check yet")
        reason = self.reason_not_to_run(step)
        if reason:
            failed = self.required and not step.warns
            return Result(step, "failed" if failed else "not run", failed=int(failed), note=reason)
        started = time.monotonic()
        try:
            status = run_commands(step, self.words, self.environment, log, self.root, self.processes)
        except OSError as error:
            log.write_text(f"cannot start: {error}\n", encoding="utf-8")
            status = 127
        return judge(step, status, time.monotonic() - started, log.read_text(encoding="utf-8", errors="replace"))

    def show_log(self, step: Step) -> None:
        """Print the end of a step's log, indented."""
        path = self.logs / f"{step.name}.log"
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        if len(lines) > SHOWN_LINES:
            print(f"    … {len(lines) - SHOWN_LINES} lines before, in {path.relative_to(self.root)}")
        print("\n".join(f"    {line}" for line in lines[-SHOWN_LINES:]), flush=True)


def summary(results: t.Sequence[Result], seconds: float) -> str:
    """The text at the end: every step with its time, what did not run and why, the total."""
    lines = ["", "step          result                 seconds", "-" * 44]
    lines += [f"{r.step.name:<13} {r.outcome:<20} {r.seconds:9.1f}" for r in results]
    lines += [f"{'all':<13} {'':<20} {seconds:9.1f}", ""]
    lines += [f"not run: {r.step.name}: {r.note}" for r in results if r.outcome == "not run"]
    absent = [r.step.name for r in results if r.outcome == "nothing to check yet"]
    lines += [f"nothing to check yet: {', '.join(absent)}"] if absent else []
    left_out = [f"skipped in {r.step.name}: {line}" for r in results for line in r.skipped]
    lines += left_out[:SHOWN_SKIPS]
    lines += [f"… {len(left_out) - SHOWN_SKIPS} more skips, see build/logs"] if len(left_out) > SHOWN_SKIPS else []
    lines += [f"tried a second time in {r.step.name}: {name}" for r in results for name in r.again]
    # What a missing prerequisite turned into a failure has no log.
    broken = [(r, f"build/logs/{r.step.name}.log" if r.seconds else r.note) for r in results if r.outcome == "failed"]
    lines += [f"failed: {r.step.name}: {where}" for r, where in broken]
    lines.append(f"{sum(r.passed for r in results)} passed, {sum(r.failed for r in results)} failed")
    return "\n".join(lines) + "\n"


def run_all(steps: t.Iterable[Step], root: pathlib.Path, given: t.Mapping[str, str], python: str) -> int:
    """Run the steps, write the summary to build/logs/summary.txt as well; 0 when none failed."""
    started = time.monotonic()
    runner = Runner(root, project_files(root), given, python)
    runner.logs.mkdir(parents=True, exist_ok=True)
    (root / EMPTY_CONFIG).write_text("[defaults]\n", encoding="utf-8")
    runner.run(steps)
    text = summary(runner.results, time.monotonic() - started)
    (runner.logs / "summary.txt").write_text(text, encoding="utf-8")
    print(text, end="", flush=True)
    return int(any(result.outcome == "failed" for result in runner.results))


def main(arguments: list[str]) -> int:
    """Command line: choose steps, run them one call at a time in this checkout."""
    parser = argparse.ArgumentParser(prog="check", description="Run the checks of the project.")
    parser.add_argument("--all", action="store_true", help="also the steps that make test leaves out")
    parser.add_argument("--only", default="", metavar="NAME,…", help="these steps and what they come after")
    parser.add_argument("--list", action="store_true", help="print the steps and end")
    options = parser.parse_args(arguments)
    try:
        steps = chosen(filter(None, options.only.split(","))) if options.only else STEPS
    except ValueError as error:
        parser.error(str(error))
    if not options.only:
        steps = tuple(step for step in steps if (not step.within if options.all else step.tier == "test"))
    if options.list:
        print("\n".join(f"{step.name:<13} {step.title}" for step in steps))
        return 0
    try:
        with lock(ROOT, "check"):
            return run_all(steps, ROOT, os.environ, sys.executable)
    except TreeError as error:
        print(f"check: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ncheck: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
