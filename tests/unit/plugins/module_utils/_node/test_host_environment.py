# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The environment of a job's requirements: made once under a lock, beside what its interpreter has, or a clear reason."""

from __future__ import annotations

import concurrent.futures
import pathlib
import subprocess
import sys
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import host_environment


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Return a package that pip installs without an index: one file, no build tools."""
    import zipfile

    wheel = tmp_path_factory.mktemp("wheels") / "tiny_thing-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_thing.py", "value = 7\n")
        archive.writestr("tiny_thing-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-thing\nVersion: 1.0\n")
        archive.writestr(
            "tiny_thing-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("tiny_thing-1.0.dist-info/RECORD", "")
    return wheel


def make(state: pathlib.Path, *requirements: str, **values: t.Any) -> dict[str, t.Any]:
    request = {"python": sys.executable, "requirements": list(requirements), **values}
    return host_environment.answer(state, request)


def test_two_nodes_that_share_a_path_make_it_once(tmp_path: pathlib.Path, package: pathlib.Path) -> None:
    wanted = f"tiny-thing @ file://{package}"
    assert make(tmp_path / "a", wanted, check=True)["python"] is None and not list(tmp_path.iterdir())
    with concurrent.futures.ThreadPoolExecutor() as pool:
        answers = list(pool.map(lambda node: make(tmp_path / node, wanted), ("a", "b")))
    assert sorted(answer["made"] for answer in answers) == [False, True], answers
    (python,) = {answer["python"] for answer in answers}
    # It sees its own packages and those of the interpreter that it was made by.
    code = "import tiny_thing, yaml; print(tiny_thing.value)"
    assert subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout == "7\n"
    assert make(tmp_path / "a", wanted) == {**answers[0], "made": False}


def test_a_package_that_does_not_exist_leaves_nothing(tmp_path: pathlib.Path) -> None:
    answer = make(tmp_path / "a", "--no-index", "surely-not-there==9")
    assert answer["problem"].startswith("job.requirements: pip: ERROR: ") and "surely-not-there" in answer["problem"]
    assert [item.suffix for item in (tmp_path / host_environment.FOLDER).iterdir()] == [".lock"]


def test_an_interpreter_that_does_not_exist(tmp_path: pathlib.Path) -> None:
    assert make(tmp_path, "x", python="/none/python")["problem"] == "/none/python does not exist"


def test_the_reason_is_told_apart_and_holds_no_password() -> None:
    advice = host_environment._explain("/py", "Error: ensurepip is not available.", "job.requirements")
    assert "python3-venv" in advice["fix"]
    said = host_environment._explain("/py", "ERROR: could not open https://me:pa55@index.example/simple", "x")
    assert said["problem"].endswith("ERROR: could not open https://index.example/simple")


def test_an_environment_of_its_own_is_made_in_the_background_and_waited_for(
    tmp_path: pathlib.Path, package: pathlib.Path
) -> None:
    folder = tmp_path / "env"
    wanted = f"tiny-thing @ file://{package}"
    started = make(tmp_path / "a", wanted, folder=str(folder), background=True)
    assert started["made"] and started["python"] == str(folder / "bin" / "python")
    make(tmp_path / "b", wanted, folder=str(folder))
    code = "import tiny_thing; print(tiny_thing.value)"
    run = [str(folder / "bin" / "python"), "-c", code]
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout == "7\n"
    own = subprocess.run([run[0], "-c", "import yaml"], capture_output=True, check=False)
    assert own.returncode == 1, "what its interpreter has is not seen"
    failed = make(tmp_path / "a", "--no-index", "surely-not-there", folder=str(folder))
    assert failed["problem"].startswith("muster_training_requirements: pip: ERROR")
    assert "surely-not-there" in failed["problem"] and folder.exists(), "what was there stays"
