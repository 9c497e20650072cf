# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compiled code is kept between runs, used for its own source only, and never taken from somebody else."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import types

import pytest

from ansible_collections.muster.training.plugins.plugin_utils import _loading

PREFIX = "ansible_collections.muster.training.plugins"
SCRIPT = f"""
import builtins, importlib, json, sys
from ansible.plugins.loader import init_plugin_loader
init_plugin_loader([])
import ansible.plugins.action
compiled = []
inner = builtins.compile
def compile(source, filename, *args, **values):
    compiled.append(str(filename))
    return inner(source, filename, *args, **values)
builtins.compile = compile
module = importlib.import_module("{PREFIX}.action.kube_apply")
apply = sys.modules["{PREFIX}.plugin_utils._kube.apply"]
print(json.dumps([apply.__file__, apply.__name__, module.ActionModule.__name__, compiled]))
"""


@pytest.fixture(autouse=True)
def _code_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)


def load(finder: _loading.Finder, name: str, place: pathlib.Path) -> types.ModuleType:
    spec = finder.find_spec(name, [str(place)])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def source(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "source" / "part.py"
    path.parent.mkdir()
    path.write_text("VALUE = 1\n")
    return path


def test_code_is_compiled_once_and_again_when_its_source_changes(
    tmp_path: pathlib.Path, source: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[str] = []
    inner = compile

    def counted(text: bytes, path: str, *args: str, **values: bool) -> types.CodeType:
        compiled.append(path)
        return inner(text, path, *args, **values)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(_loading, "compile", counted, raising=False)
    finder = _loading.Finder(["a.utils"], _loading.Kept(str(tmp_path / "code")))
    stamp = source.stat()
    for _ in range(3):
        assert load(finder, "a.utils.part", source.parent).VALUE == 1
    assert compiled == [str(source)]
    # As many bytes and the same time: an installer may set both.
    source.write_text("VALUE = 2\n")
    os.utime(source, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert load(finder, "a.utils.part", source.parent).VALUE == 2
    assert len(compiled) == 2
    assert [path.name for path in (tmp_path / "code").iterdir()] == ["a.utils.part"]


def test_a_copy_of_the_source_elsewhere_has_its_own_place_in_tracebacks(
    tmp_path: pathlib.Path, source: pathlib.Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "part.py").write_text("def fail():\n    raise ValueError\n")
    source.write_text("def fail():\n    raise ValueError\n")
    finder = _loading.Finder(["a.utils"], _loading.Kept(str(tmp_path / "code")))
    for place in (source.parent, other):
        assert load(finder, "a.utils.part", place).fail.__code__.co_filename == str(place / "part.py")


@pytest.mark.parametrize("mode", [0o666, 0o620])
def test_what_others_may_write_is_not_run(tmp_path: pathlib.Path, source: pathlib.Path, mode: int) -> None:
    place = tmp_path / "code"
    kept = _loading.Kept(str(place))
    finder = _loading.Finder(["a.utils"], kept)
    load(finder, "a.utils.part", source.parent)
    assert place.stat().st_mode & 0o777 == 0o700
    digest = (place / "a.utils.part").read_bytes()[:32]
    assert kept.load("a.utils.part", digest) is not None
    (place / "a.utils.part").chmod(mode)
    assert kept.load("a.utils.part", digest) is None
    assert kept.load("a.utils.part", b"x" * 32) is None


def test_what_others_own_is_not_run(
    tmp_path: pathlib.Path, source: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = _loading.Kept(str(tmp_path / "code"))
    load(_loading.Finder(["a.utils"], kept), "a.utils.part", source.parent)
    digest = (tmp_path / "code" / "a.utils.part").read_bytes()[:32]
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert kept.load("a.utils.part", digest) is None


@pytest.mark.parametrize("damage", [b"", b"junk", b"\xf3" * 40])
def test_a_torn_entry_is_made_anew(tmp_path: pathlib.Path, source: pathlib.Path, damage: bytes) -> None:
    finder = _loading.Finder(["a.utils"], _loading.Kept(str(tmp_path / "code")))
    load(finder, "a.utils.part", source.parent)
    entry = tmp_path / "code" / "a.utils.part"
    sound = entry.read_bytes()
    entry.write_bytes(sound[:32] + damage)
    assert load(finder, "a.utils.part", source.parent).VALUE == 1
    assert entry.read_bytes() == sound


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: pathlib.Path, source: pathlib.Path) -> None:
    (tmp_path / "code").write_text("a file, not a folder")
    finder = _loading.Finder(["a.utils"], _loading.Kept(str(tmp_path / "code")))
    assert load(finder, "a.utils.part", source.parent).VALUE == 1


def test_python_is_obeyed_when_told_to_write_nothing(
    tmp_path: pathlib.Path, source: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    finder = _loading.Finder(["a.utils"], _loading.Kept(str(tmp_path / "code")))
    assert load(finder, "a.utils.part", source.parent).VALUE == 1
    assert not (tmp_path / "code").exists()


def test_packages_and_other_names_are_left_to_others(tmp_path: pathlib.Path, source: pathlib.Path) -> None:
    (source.parent / "package").mkdir()
    finder = _loading.Finder(["a.utils"], _loading.Kept(str(tmp_path / "code")))
    places = [str(source.parent)]
    assert finder.find_spec("a.utils.package", places) is None
    assert finder.find_spec("a.utilsother.part", places) is None
    assert finder.find_spec("a.utils.absent", places) is None
    assert finder.find_spec("a.utils.part", None) is None


def test_installed_once_and_only_where_the_code_is_not_kept_already(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    finders: list[object] = []
    by_python = importlib.machinery.ModuleSpec("x", importlib.machinery.SourceFileLoader("x", "x.py"))
    by_ansible = importlib.machinery.ModuleSpec("x", None)
    _loading.install(f"{PREFIX}.plugin_utils", by_python, finders)
    assert finders == []
    for _ in range(2):
        _loading.install(f"{PREFIX}.plugin_utils", by_ansible, finders)
    assert len(finders) == 1 and isinstance(finders[0], _loading.Finder)


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"XDG_CACHE_HOME": "/c", "HOME": "/h"}, "/c/muster.training/code/"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "/h/.cache/muster.training/code/"),
        ({}, ""),
    ],
)
def test_the_folder(environ: dict[str, str], folder: str) -> None:
    assert _loading.folder(environ) == (f"{folder}{sys.implementation.cache_tag}" if folder else "")


def test_ansible_compiles_the_private_parts_once(tmp_path: pathlib.Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def run() -> list[str]:
        argv = [sys.executable, "-c", SCRIPT]
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        file, name, face, compiled = json.loads(done.stdout)
        assert file.endswith("/plugins/plugin_utils/_kube/apply.py") and face == "ActionModule"
        assert name == f"{PREFIX}.plugin_utils._kube.apply"
        return [path for path in compiled if "/plugins/plugin_utils/_" in path or "/plugins/module_utils/" in path]

    first = {pathlib.Path(path).name for path in run()}
    assert {"apply.py", "client.py", "wire.py"} <= first
    assert {pathlib.Path(path).name for path in run()} <= {"__init__.py", "_loading.py"}
