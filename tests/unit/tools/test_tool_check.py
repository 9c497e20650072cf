# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runner of the checks: outcomes, counts, prerequisites, environment."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.tools import check
from ansible_collections.muster.training.tools.steps import SECOND_TRY, STEPS, Step, places, unmet

PYTHON = sys.executable


def python_step(name: str, code: str, **more: t.Any) -> Step:
    return Step(name, name, ((PYTHON, "-c", code),), **more)


def run(
    tmp_path: pathlib.Path, *steps: Step, files: tuple[str, ...] = ("a.py",), **given_env: str
) -> list[check.Result]:
    runner = check.Runner(tmp_path, files, {"PATH": "/usr/bin:/bin", **given_env}, PYTHON)
    runner.logs.mkdir(parents=True)
    by_name = {result.step.name: result for result in runner.run(steps)}
    return [by_name[step.name] for step in steps]


def test_a_step_passes_and_the_next_one_fails(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = run(tmp_path, python_step("good", ""), python_step("bad", "print('why not'); raise SystemExit(3)"))
    assert (good.outcome, good.passed, good.failed) == ("passed", 1, 0)
    assert (bad.outcome, bad.passed, bad.failed) == ("failed", 0, 1)
    assert "    why not" in capsys.readouterr().out


def test_the_first_failing_command_ends_a_step(tmp_path: pathlib.Path) -> None:
    mark = tmp_path / "mark"
    commands = ((PYTHON, "-c", "raise SystemExit(1)"), (PYTHON, "-c", f"open({str(mark)!r}, 'w')"))
    (result,) = run(tmp_path, Step("two", "two", commands))
    assert result.outcome == "failed" and not mark.exists()


SHAKY = """
import pathlib
def test_shaky():
    mark = pathlib.Path(__file__).with_name("mark")
    if not mark.exists():
        mark.touch()
        raise ValueError("the first try")
def test_sound():
    pass
def test_broken():
    raise ValueError("always")
"""


@pytest.mark.parametrize(("name", "outcome", "numbers"), [("shaky", "passed", (1, 0)), ("broken", "failed", (0, 1))])
def test_a_second_try_is_named_and_the_first_failure_is_in_the_log(
    tmp_path: pathlib.Path, name: str, outcome: str, numbers: tuple[int, int]
) -> None:
    (tmp_path / "test_it.py").write_text(SHAKY)
    words = (PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", name, *SECOND_TRY, "test_it.py")
    (result,) = run(tmp_path, Step("it", "it", (words,), counted=True))
    assert (result.outcome, (result.passed, result.failed)) == (outcome, numbers)
    assert f"tried a second time in it: test_it.py::test_{name}\n" in check.summary([result], 1.0)
    assert "ValueError" in (tmp_path / "build/logs/it.log").read_text(encoding="utf-8")


def test_a_missing_command_is_a_failure(tmp_path: pathlib.Path) -> None:
    (result,) = run(tmp_path, Step("gone", "gone", (("{bin}/no-such-command",),)))
    assert result.outcome == "failed" and result.failed == 1


def test_a_step_that_does_not_end_is_stopped(tmp_path: pathlib.Path) -> None:
    (result,) = run(tmp_path, python_step("endless", "import signal; signal.pause()", limit_s=0))
    assert result.outcome == "failed"
    assert "no end after 0 s" in (tmp_path / "build/logs/endless.log").read_text(encoding="utf-8")


def test_what_a_command_started_ends_with_it() -> None:
    child = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}])"
    process = subprocess.Popen([PYTHON, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    number = int(process.stdout.readline())
    try:
        check.kill_group(process)
        # The end of the pipe comes when nobody holds it any more; the limit is for a child that still does.
        assert process.communicate(timeout=20)[0] == b""
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)


def test_nothing_to_check_is_said_and_is_no_failure(tmp_path: pathlib.Path) -> None:
    absent, empty = run(
        tmp_path,
        python_step("absent", "raise SystemExit(1)", subject=("roles/*",)),
        python_step("empty", "raise SystemExit(5)", empty_status=5),
    )
    assert (absent.outcome, absent.failed) == ("nothing to check yet", 0)
    assert (empty.outcome, empty.failed) == ("nothing to check yet", 0)


@pytest.mark.parametrize(("required", "outcome", "failed"), [("", "not run", 0), ("1", "failed", 1)])
def test_a_missing_prerequisite_is_named(tmp_path: pathlib.Path, required: str, outcome: str, failed: int) -> None:
    (result,) = run(tmp_path, python_step("needy", "", needs=("torch",)), MUSTER_REQUIRE_LAB=required)
    assert (result.outcome, result.failed) == (outcome, failed)
    assert "MUSTER_TORCH_PYTHON" in result.note
    assert f"{outcome}: needy: MUSTER_TORCH_PYTHON names no" in check.summary([result], 1.0)


def test_a_step_after_a_failed_one_is_not_run(tmp_path: pathlib.Path) -> None:
    first, second = run(
        tmp_path, python_step("first", "raise SystemExit(1)"), python_step("second", "", after=("first",))
    )
    assert second.outcome == "not run" and "first" in second.note


def test_two_steps_run_at_a_time_and_one_of_those_with_limits_of_time() -> None:
    one, two, three = (python_step(name, "") for name in ("one", "two", "three"))
    timed, other = (python_step(name, "", timed=True) for name in ("timed", "other"))
    later = python_step("later", "", after=("one",))
    assert check.choose_next([one, two, three], []) is one
    assert check.choose_next([two, three], [one]) is two
    assert check.choose_next([three], [one, two]) is None
    assert check.choose_next([later, two], [one]) is two, "what must wait is overtaken"
    assert check.choose_next([timed, two], [one]) is timed
    assert check.choose_next([other, two], [timed]) is two
    assert check.choose_next([other], [timed]) is None


NICENESS = """
import os, pathlib, sys, time
here = pathlib.Path({here!r})
def numbers():
    return [os.nice(0), int(pathlib.Path("/proc/self/autogroup").read_text().split()[-1])]
end = time.monotonic() + 20
while {waits} and time.monotonic() < end:
    time.sleep(0.01)
(here / {name!r}).write_text(repr(numbers()))
"""


def test_what_is_beside_tests_with_limits_of_time_has_the_processors_second(tmp_path: pathlib.Path) -> None:
    """Linux weighs sessions by one number and the processes in each by another."""
    if not pathlib.Path("/proc/self/autogroup").exists():
        pytest.skip("this kernel does not weigh sessions")
    before, after = [os.nice(0), 0], [os.nice(0) + check.SECOND, check.SECOND]
    waits = {"timed": "not (here / 'other').exists()", "other": f"numbers() != {after}"}
    steps = [
        python_step(name, NICENESS.format(here=str(tmp_path), name=name, waits=words), timed=name == "timed")
        for name, words in waits.items()
    ]
    assert [result.outcome for result in run(tmp_path, *steps)] == ["passed", "passed"]
    assert [(tmp_path / name).read_text() for name in waits] == [repr(before), repr(after)]


def test_steps_that_may_do_run_at_the_same_time(tmp_path: pathlib.Path) -> None:
    """Each of two waits for what the other one writes."""
    code = (
        "import pathlib, time; pathlib.Path({mine!r}).touch()\n"
        "while not pathlib.Path({other!r}).exists(): time.sleep(0.01)"
    )
    marks = [str(tmp_path / name) for name in ("a", "b")]
    steps = [
        python_step(name, code.format(mine=mine, other=other), limit_s=60)
        for name, mine, other in (("a", *marks), ("b", *reversed(marks)))
    ]
    assert [result.outcome for result in run(tmp_path, *steps)] == ["passed", "passed"]


def test_an_interrupt_ends_what_runs(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = check.Runner(tmp_path, ("a.py",), {"PATH": "/usr/bin:/bin"}, PYTHON)
    runner.logs.mkdir(parents=True)

    def interrupt(*_futures: t.Any, **_options: t.Any) -> t.NoReturn:
        while not runner.processes:
            pass
        raise KeyboardInterrupt

    monkeypatch.setattr(check.concurrent.futures, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        runner.run([python_step("endless", "import signal; signal.pause()")])
    assert not runner.processes


def test_a_warning_does_not_fail(tmp_path: pathlib.Path) -> None:
    (result,) = run(tmp_path, python_step("preview", "raise SystemExit(1)", warns=True))
    assert (result.outcome, result.passed, result.failed) == ("warned", 0, 0)


def test_counts_of_pytest_go_into_the_total(tmp_path: pathlib.Path) -> None:
    code = "print('SKIPPED [2] tests/x.py:3: no sshd'); print('TOTAL 10 1 91%'); print('7 passed, 2 skipped in 0.10s')"
    (result,) = run(tmp_path, python_step("tests", code, counted=True))
    assert (result.passed, result.failed) == (7, 0)
    assert result.note == "7 tests, 2 skipped, coverage 91 %"
    text = check.summary([result], 1.0)
    assert "skipped in tests: [2] tests/x.py:3: no sshd" in text
    assert text.splitlines()[-1] == "7 passed, 0 failed"


def test_a_crash_after_clean_counts_is_a_failure(tmp_path: pathlib.Path) -> None:
    (result,) = run(tmp_path, python_step("tests", "print('7 passed in 0.1s'); raise SystemExit(1)", counted=True))
    assert (result.outcome, result.passed, result.failed) == ("failed", 7, 1)


def test_failed_tests_are_failures_even_with_a_good_status(tmp_path: pathlib.Path) -> None:
    (result,) = run(tmp_path, python_step("tests", "print('1 failed, 6 passed in 0.1s')", counted=True))
    assert (result.outcome, result.failed) == ("failed", 1)


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("120 passed in 3.20s", (120, 0, 0)),
        ("= 3 failed, 2 passed, 1 skipped, 2 errors in 0.12s =", (2, 5, 1)),
        ("1 error in 0.12s", (0, 1, 0)),
        ("5 passed, 2 warnings in 61.00s (0:01:01)", (5, 0, 0)),
    ],
)
def test_summary_lines_of_pytest(line: str, counts: tuple[int, int, int]) -> None:
    found = check.pytest_counts(f"noise\n{line}\nafter")
    assert found == check.Counts(*counts)


def test_no_summary_line_is_no_count() -> None:
    assert check.pytest_counts("no tests ran in 0.01s") is None
    assert check.pytest_counts("the node passed 3 checks") is None


@given(st.text())
def test_any_text_can_be_counted(text: str) -> None:
    counts = check.pytest_counts(text)
    assert counts is None or min(counts.passed, counts.failed, counts.skipped) >= 0
    assert check.coverage_total(text) == "" or check.coverage_total(text).isdigit()


@given(*[st.integers(min_value=0, max_value=10**6)] * 3)
def test_counts_survive_the_way_through_a_log(passed: int, failed: int, skipped: int) -> None:
    line = f"{failed} failed, {passed} passed, {skipped} skipped in 1.00s"
    assert check.pytest_counts(f"x\n{line}\n") == check.Counts(passed, failed, skipped)


def test_chosen_steps_bring_what_they_come_after() -> None:
    assert [step.name for step in check.chosen(["syntax"])] == ["artifact", "syntax"]
    with pytest.raises(ValueError, match="no step is called sintax"):
        check.chosen(["sintax"])


def test_the_table_of_steps_is_sound(tmp_path: pathlib.Path) -> None:
    names = [step.name for step in STEPS]
    assert len(names) == len(set(names))
    words = places(tmp_path, PYTHON)
    for position, step in enumerate(STEPS):
        assert set(step.after) <= set(names[:position]), "a step comes after those it uses"
        assert all(word.format_map(words) for command in step.commands for word in command)


def test_every_prerequisite_can_be_answered(tmp_path: pathlib.Path) -> None:
    assert unmet("torch", tmp_path, {"MUSTER_TORCH_PYTHON": PYTHON}) == ""
    assert "does not exist" in unmet("torch", tmp_path, {"MUSTER_TORCH_PYTHON": str(tmp_path / "python")})
    assert "make venv-core220" in unmet("core220", tmp_path, {})
    (tmp_path / ".venv-core220/bin").mkdir(parents=True)
    (tmp_path / ".venv-core220/bin/python").touch()
    assert unmet("core220", tmp_path, {}) == ""


def test_personal_settings_do_not_reach_a_step(tmp_path: pathlib.Path) -> None:
    given_env = {"ANSIBLE_CONFIG": "/home/me/ansible.cfg", "ANSIBLE_STRATEGY": "free", "PYTHONPATH": "/x", "LANG": "C"}
    environment = check.step_environment(tmp_path, PYTHON, given_env)
    assert environment["ANSIBLE_CONFIG"].startswith(str(tmp_path))
    assert not {"ANSIBLE_STRATEGY", "PYTHONPATH"} & set(environment)
    assert environment["LC_ALL"] == "C.UTF-8"
    assert "LC_ALL" not in check.step_environment(tmp_path, PYTHON, {"LANG": "de_DE.utf8"})


def test_unknown_names_and_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main(["--list"]) == 0
    shown = capsys.readouterr().out
    assert "sanity" in shown and "core222" not in shown
    with pytest.raises(SystemExit) as caught:
        check.main(["--only", "nothing"])
    assert caught.value.code == 2
