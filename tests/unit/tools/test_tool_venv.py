# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The virtual environments: stamps, locks, groups of requirements."""

from __future__ import annotations

import fcntl
import json
import os
import pathlib
import re
import subprocess
import sys
import tomllib
import typing as t
import venv as standard_venv

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.tools import venv

ROOT = pathlib.Path(__file__).resolve().parents[3]


@pytest.fixture
def root(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/constraints.txt").write_text("# known\nalpha==1\n", encoding="utf-8")
    groups = '[dependency-groups]\ndev = ["alpha"]\ntorch = ["beta"]\ncore220 = ["alpha==2"]\ncore222 = ["alpha==3"]\n'
    (tmp_path / "pyproject.toml").write_text(groups, encoding="utf-8")
    return tmp_path


@pytest.fixture
def installs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str], str]]:
    """Calls of pip, which is not run: folder, requirements, constraints."""
    calls: list[tuple[str, list[str], str]] = []
    monkeypatch.setattr(
        venv, "install", lambda folder, wanted, bounds, _held: calls.append((folder.name, wanted, bounds))
    )
    # An environment without pip takes a tenth of the time.
    create = standard_venv.create
    monkeypatch.setattr(standard_venv, "create", lambda folder, **how: create(folder, **{**how, "with_pip": False}))
    return calls


def test_made_once_linked_and_then_left_alone(
    root: pathlib.Path, installs: list[tuple[str, list[str], str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert venv.ensure("dev", root)
    link = next((root / ".venv").glob("lib/python3.*/site-packages/ansible_collections/muster/training"))
    assert link.readlink() == root
    assert installs == [(".venv", ["alpha"], "alpha==1\n")]
    capsys.readouterr()
    assert not venv.ensure("dev", root)
    assert len(installs) == 1 and capsys.readouterr().out == ""


def test_a_new_requirement_is_noticed(
    root: pathlib.Path, installs: list[tuple[str, list[str], str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    venv.ensure("torch", root)
    marker = root / ".venv-torch" / "kept"
    marker.touch()
    monkeypatch.setattr(venv, "runs_here", lambda folder: True)
    (root / "tools/constraints.txt").write_text("beta==2\n", encoding="utf-8")
    assert venv.ensure("torch", root)
    assert installs[1] == (".venv-torch", ["beta"], "beta==2\n")
    assert marker.exists(), "what is there is completed, not made again"


def test_an_environment_of_another_place_is_made_again(
    root: pathlib.Path, installs: list[tuple[str, list[str], str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    venv.ensure("torch", root)
    stamp = root / ".venv-torch" / venv.STAMP
    stamp.write_text(
        json.dumps({**json.loads(stamp.read_text(encoding="utf-8")), "base": "elsewhere"}), encoding="utf-8"
    )
    marker = root / ".venv-torch" / "old"
    marker.touch()
    monkeypatch.setattr(venv, "runs_here", lambda folder: True)
    assert venv.ensure("torch", root) and not marker.exists()


def test_a_link_to_the_environment_of_another_checkout_is_not_emptied(
    root: pathlib.Path, installs: list[tuple[str, list[str], str]]
) -> None:
    other = root / "other"
    other.mkdir()
    (other / "python").touch()
    (root / ".venv-torch").symlink_to(other)
    with pytest.raises(venv.VenvError, match=r"\.venv-torch is a link to .*other; remove it"):
        venv.ensure("torch", root)
    assert (other / "python").exists() and installs == []


def test_a_failed_change_leaves_no_stamp(
    root: pathlib.Path, installs: list[tuple[str, list[str], str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> None:
        raise venv.VenvError("pip could not fill it")

    venv.ensure("torch", root)
    monkeypatch.setattr(venv, "runs_here", lambda folder: True)
    monkeypatch.setattr(venv, "install", fail)
    (root / "tools/constraints.txt").write_text("beta==2\n", encoding="utf-8")
    with pytest.raises(venv.VenvError):
        venv.ensure("torch", root)
    # Half of the change may be installed: going back to the old requirements is work, too.
    assert len(installs) == 1 and venv.read_stamp(root / ".venv-torch") is None


def test_a_folder_in_the_place_of_the_link_is_not_removed(tmp_path: pathlib.Path) -> None:
    there = tmp_path / "lib/python3.13/site-packages/ansible_collections/muster/training"
    there.mkdir(parents=True)
    with pytest.raises(venv.VenvError, match="not a link to this checkout"):
        venv.link_collection(tmp_path, tmp_path)


def test_a_link_to_an_old_place_is_replaced(tmp_path: pathlib.Path) -> None:
    there = tmp_path / "lib/python3.13/site-packages/ansible_collections/muster"
    there.mkdir(parents=True)
    (there / "training").symlink_to("/nonexistent")
    venv.link_collection(tmp_path, tmp_path)
    assert (there / "training").readlink() == tmp_path


def test_calls_at_the_same_time_wait_for_each_other(tmp_path: pathlib.Path) -> None:
    code = (
        "import pathlib, sys; from ansible_collections.muster.training.tools import venv\n"
        "root = pathlib.Path(sys.argv[1]); trace = root / 'trace'\n"
        "with venv.lock(root, 'one'):\n"
        "    with trace.open('a') as f: f.write('in ')\n"
        "    with trace.open('a') as f: f.write('out ')\n"
    )
    # This interpreter's import path reaches the child, however the collection is found here.
    above = next(path for path in pathlib.Path(venv.__file__).parents if path.name == "ansible_collections").parent
    environment = {**os.environ, "PYTHONPATH": os.fspath(above)}
    with venv.lock(tmp_path, "one"):
        others = [
            subprocess.Popen([sys.executable, "-c", code, tmp_path], env=environment, stdout=subprocess.PIPE, text=True)
            for _number in range(2)
        ]
        for other in others:
            assert other.stdout is not None and "waiting" in other.stdout.readline()
        assert not (tmp_path / "trace").exists()
    assert [other.wait(60) for other in others] == [0, 0]
    for other in others:
        other.communicate()
    assert (tmp_path / "trace").read_text(encoding="utf-8") == "in out in out "


def test_a_process_that_inherits_the_lock_keeps_it(tmp_path: pathlib.Path) -> None:
    with venv.lock(tmp_path, "one") as held:
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[held])
    with (tmp_path / ".cache/locks/one").open() as handle:
        with pytest.raises(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        child.communicate()
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_pip_inherits_the_lock(root: pathlib.Path) -> None:
    folder = root / ".venv-torch"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/python").write_text(
        '#!/bin/sh\necho "$@" > "$0.argv"\nls -l /proc/self/fd > "$0.fds"\n', encoding="utf-8"
    )
    (folder / "bin/python").chmod(0o755)
    with venv.lock(root, "one") as held:
        venv.install(folder, ["beta"], "beta==1\n", held)
    assert ".cache/locks/one" in (folder / "bin/python.fds").read_text(encoding="utf-8")
    argv = (folder / "bin/python.argv").read_text(encoding="utf-8").split()
    assert argv[:3] == ["-m", "pip", "install"] and argv[-1] == "beta"
    assert (folder / "muster-constraints.txt").read_text(encoding="utf-8") == "beta==1\n"


def test_groups_are_expanded_once_and_in_order() -> None:
    groups: dict[str, list[t.Any]] = {"a": ["x", {"include-group": "b"}, "y"], "b": ["x", "z"]}
    assert venv.expand_group(groups, "a") == ["x", "z", "y"]


@pytest.mark.parametrize(
    ("groups", "problem"),
    [
        ({}, "no dependency group a"),
        ({"a": [{"include-group": "a"}]}, "include each other: a -> a"),
        ({"a": [7]}, "cannot read the entry 7"),
        ({"a": [{"include": "b"}]}, "cannot read the entry"),
    ],
)
def test_groups_that_cannot_be_read(groups: dict[str, list[t.Any]], problem: str) -> None:
    with pytest.raises(venv.VenvError, match=problem):
        venv.expand_group(groups, "a")


def test_an_exact_pin_wins_over_the_constraints() -> None:
    text = "# why\nansible-core==2.21.5\nPyYAML==6\n"
    assert venv.constraints_for(["ansible_core==2.20.10", "pyyaml"], text) == "PyYAML==6\n"


@given(
    st.from_regex(r"[A-Za-z][A-Za-z0-9._-]{0,20}[A-Za-z0-9]", fullmatch=True),
    st.sampled_from(["", ">=1", "[x]==2", " ; x", "~=3"]),
)
def test_names_of_requirements_compare(name: str, rest: str) -> None:
    assert venv.normal_name(name + rest) == venv.normal_name(name.upper().replace("-", "_"))
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", venv.normal_name(name + rest))


def test_stamps_that_cannot_be_read_count_as_none(tmp_path: pathlib.Path) -> None:
    for text in ("", "[]", "{}", '{"base": 1}', "\x00"):
        (tmp_path / venv.STAMP).write_text(text, encoding="utf-8")
        assert venv.read_stamp(tmp_path) is None


def test_the_project_pins_what_its_groups_ask_for() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    pins = (ROOT / "tools/constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {venv.normal_name(line) for line in pins if not line.startswith("#")}
    asked = {
        venv.normal_name(item) for recipe in venv.RECIPES.values() for item in venv.expand_group(groups, recipe.group)
    }
    assert not asked - pinned


def test_unknown_names_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert venv.main(["prod"]) == 2
    assert "dev, torch, launchers, programs, services, core220, core222" in capsys.readouterr().err


def test_what_must_fit_torch_is_built_again_with_its_variables(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Never from a wheel that pip kept: that one may have been built without them."""
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text('#!/bin/sh\necho "$PART" "$@" >> "${0%/*}/../calls"\n', encoding="utf-8")
    python.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.defpath}")
    compiler = tmp_path / "bin" / "c++"
    compiler.write_text("#!/bin/sh\n", encoding="utf-8")
    compiler.chmod(0o755)
    with (tmp_path / "lock").open("w") as held:
        venv.compile_against(tmp_path, {"alpha": {"PART": "1"}}, held.fileno())
        (line,) = (tmp_path / "calls").read_text(encoding="utf-8").splitlines()
        assert line.startswith("1 -m pip install ") and line.endswith(" alpha")
        assert {"--force-reinstall", "--no-deps", "--no-build-isolation", "--no-cache-dir"} <= set(line.split())
        monkeypatch.setenv("PATH", str(tmp_path))
        venv.compile_against(tmp_path, {"alpha": {"PART": "1"}}, held.fileno())
    assert len((tmp_path / "calls").read_text(encoding="utf-8").splitlines()) == 1
    assert "no C++ compiler" in capsys.readouterr().out


def test_an_environment_sees_the_packages_of_all_below_it(tmp_path: pathlib.Path) -> None:
    """A path file is read in an environment's own folder alone, so the nearest one does not bring the others along."""
    assert venv.list_below(venv.RECIPES["programs"]) == [".venv-launchers", ".venv-torch"]
    packages = [tmp_path / name / "lib" / "python3.13" / "site-packages" for name in ("own", "a", "b")]
    for place in packages:
        place.mkdir(parents=True)
    venv.see_packages(tmp_path / "own", [tmp_path / "a", tmp_path / "b"])
    assert (packages[0] / "muster-below.pth").read_text() == f"{packages[1]}\n{packages[2]}\n"
    with pytest.raises(venv.VenvError, match="own needs .venv-c first"):
        venv.see_packages(tmp_path / "own", [tmp_path / ".venv-c"])


def test_what_is_compiled_belongs_to_the_stamp(tmp_path: pathlib.Path) -> None:
    plain = venv.wanted_stamp(tmp_path, ["alpha"], "")
    assert venv.wanted_stamp(tmp_path, ["alpha"], "", {}) == plain
    assert venv.wanted_stamp(tmp_path, ["alpha"], "", {"alpha": {"PART": "1"}}).content != plain.content
