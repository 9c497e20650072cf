# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run that a task asks for: which id it has, what is recorded of it, and what its lock leaves behind."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.job import Job, parse_job, to_yaml_names
from ansible_collections.muster.training.plugins.module_utils._model.run_record import SavedCheckpoint
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import run_record
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.request import RunRequest
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.requested import open_run
from ansible_collections.muster.training.tests.support.run_world import Said

JOB = parse_job({"name": "x", "script": "t.py", "code": {"ref": "."}})


@pytest.fixture
def home(tmp_path: pathlib.Path) -> StateHome:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "t.py").write_text("1")
    return StateHome({"path": str(tmp_path / "state")}, "lab")


def request(home: StateHome, check: bool = False, **options: t.Any) -> RunRequest:
    return RunRequest(options, [], {}, home.root.parent / "code", check, lambda _names: [], Said())


def record(home: StateHome, run_id: str, attempt: int, outcome: str | None = None) -> None:
    ended: dict[str, t.Any] = {"state": "ended", "outcome": outcome} if outcome else {}
    values = run_record.new_record(run_id, to_yaml_names(JOB), 1.0, backend="hosts", generation=attempt, **ended)
    home.run_folder(run_id).mkdir(parents=True, exist_ok=True)
    run_record.write_record(home.run_folder(run_id), values)


def test_a_run_has_the_id_of_its_job_and_code_unless_it_is_named(home: StateHome) -> None:
    with open_run(request(home), home, JOB) as asked:
        assert asked.run_id.startswith("x-") and asked.before is None and asked.next_attempt == 1
        assert [file.path for item in asked.source.placed for file in item.tree.files] == ["t.py"]
        with open_run(request(home), home, JOB) as again:
            assert again.run_id == asked.run_id
    record(home, "mine", 3)
    with open_run(request(home, run_id="mine"), home, JOB) as named:
        assert named.run_id == "mine" and named.before is not None and named.folder == home.run_folder("mine")
        assert named.next_attempt == named.before.last_attempt + 1


def test_a_drill_of_a_run_that_has_succeeded_is_a_run_of_its_own(home: StateHome) -> None:
    record(home, "mine", 1, "succeeded")
    with open_run(request(home, run_id="mine", drill={"kill": "rank"}), home, JOB) as asked:
        assert asked.run_id == "mine-drill-1" and asked.before is None


def test_nothing_is_left_of_a_run_that_was_not_started(home: StateHome) -> None:
    with open_run(request(home), home, JOB) as asked:
        with pytest.raises(ZeroDivisionError), asked.lock():
            assert asked.folder.exists()
            raise ZeroDivisionError
        assert not asked.folder.exists()
    record(home, "mine", 1)
    with open_run(request(home, run_id="mine"), home, JOB) as named:
        with named.lock():
            pass
        assert (named.folder / "run.json").exists()


@pytest.mark.parametrize("before", [None, 1])
def test_a_run_that_another_process_has_ended_meanwhile_is_not_run_again(home: StateHome, before: int | None) -> None:
    """Two tasks of one play, as without run_once: the second one waits for the lock of the first."""
    if before:
        record(home, "mine", before, "failed")
    with open_run(request(home, run_id="mine"), home, JOB) as asked:
        with asked.lock():
            pass
        record(home, "mine", 2, "succeeded")
        words = r"followed run mine to its end meanwhile \(succeeded\)\. .* needs run_once: true"
        with pytest.raises(RefusedError, match=words), asked.lock():
            raise AssertionError("it would be run again")
    with open_run(request(home, run_id="mine"), home, JOB) as later, later.lock():
        assert later.before is not None and later.before.outcome == "succeeded"


def save(home: StateHome, run_id: str, outcome: str, step: int, at: float, job: Job = JOB) -> None:
    values = run_record.new_record(run_id, to_yaml_names(job), at, backend="hosts", state="ended", outcome=outcome)
    home.run_folder(run_id).mkdir(parents=True)
    run_record.write_record(
        home.run_folder(run_id), dataclasses.replace(values, checkpoint=SavedCheckpoint(step, "/c"))
    )


def test_a_job_that_was_changed_says_which_run_it_does_not_continue(home: StateHome) -> None:
    """It has another id, and begins at step 1, although the one before got to a checkpoint."""
    save(home, "x-older", "failed", 10, 100.0)
    save(home, "x-newer", "lost", 20, 200.0)
    save(home, "x-done", "succeeded", 90, 300.0)
    save(home, "x-y-1", "failed", 80, 400.0, dataclasses.replace(JOB, name="x-y"))
    asked = request(home)
    with open_run(asked, home, JOB) as new:
        (said,) = asked.progress.lines
        assert "does not continue run x-newer, which ended (lost) with a checkpoint of step 20" in said
        assert "-e muster_run_id=x-newer" in said and new.run_id in said
    for quiet in (
        request(home, run_id="x-newer"),
        request(home, run_id="other"),
        request(home, drill={"kill": "rank"}),
    ):
        with open_run(quiet, home, JOB):
            assert quiet.progress.lines == []
    anew = parse_job({**to_yaml_names(JOB), "checkpoints": {"resume": "never"}})
    asked = request(home)
    with open_run(asked, home, anew):
        assert asked.progress.lines == []


def test_check_mode_says_that_a_run_is_of_another_job(home: StateHome) -> None:
    record(home, "mine", 1, "failed")
    for job, other in ((JOB, ""), (dataclasses.replace(JOB, name="y"), ', with another job: name ("x" recorded, "y" ')):
        asked_for = request(home, check=True, run_id="mine")
        with open_run(asked_for, home, job) as asked:
            asked.say_plan(True, "on a")
        (said,) = asked_for.progress.lines  # type: ignore[attr-defined]
        assert (", with another job" in said, other in said) == (bool(other), True), said


def test_a_check_predicts_that_a_run_which_another_command_follows_is_refused(home: StateHome) -> None:
    record(home, "mine", 1)
    asked = request(home, check=True, run_id="mine")
    with open_run(asked, home, JOB) as run:
        run.say_plan(False, "on a")
        assert (
            t.cast(Said, asked.progress).lines[-1]
            == "run mine is running on a; it would be followed; nothing was changed"
        )
        with home.lock("mine"):
            kept = (run.folder / "lock").read_bytes()
            with pytest.raises(
                RefusedError, match=r"is being followed by another command on this controller \(process"
            ):
                run.say_plan(False, "on a")
            assert (run.folder / "lock").read_bytes() == kept
        run.say_plan(False, "on a")
