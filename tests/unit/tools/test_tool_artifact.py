# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Looking at what a user installs."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.tools import artifact


def test_public_plugins_are_found_by_type() -> None:
    texts = {
        "plugins/modules/node_info.py": "",
        "plugins/modules/_private.py": "",
        "plugins/module_utils/_model/errors.py": "",
        "plugins/action/node_info.py": "",
        "plugins/inventory/runpod.py": "",
        "plugins/filter/units.py": "class FilterModule: ...",
        "plugins/filter/to_gib.yml": "",
        "plugins/filter/own.py": "DOCUMENTATION = r''''''",
        "plugins/doc_fragments/_auth.py": "",
        "roles/mesh/tasks/main.yml": "",
    }
    assert artifact.plugin_names(texts, texts.__getitem__) == {
        "module": {"node_info"},
        "inventory": {"runpod"},
        "filter": {"to_gib", "own"},
    }


def test_roles_and_playbooks_are_found() -> None:
    files = ["roles/mesh/tasks/main.yml", "roles/notes/README.md", "playbooks/site.yml", "playbooks/site.meta.yml"]
    files += ["playbooks/tasks/part.yml", "playbooks/README.md"]
    assert artifact.role_names(files) == {"mesh"}
    assert artifact.playbook_names(files) == ["site"]


def test_the_archive_is_compared_with_the_project() -> None:
    files = ("LICENSE", "plugins/modules/a.py", "tests/unit/test_a.py")
    assert artifact.complaints({"LICENSE", "plugins/modules/a.py", "MANIFEST.json"}, files) == []
    assert artifact.complaints({"LICENSE", "tests/unit/test_a.py", ".venv/x"}, files) == [
        "missing in the archive: plugins/modules/a.py",
        "should not be packed: .venv/x",
        "should not be packed: tests/unit/test_a.py",
    ]


MODULE = {
    "doc": {"description": ["x"], "attributes": {"check_mode": {}, "diff_mode": {}, "idempotent": {}}},
    "examples": "- x",
    "return": {"x": {}},
}


@pytest.mark.parametrize(
    ("kind", "entry", "problem"),
    [
        ("module", MODULE, ""),
        ("module", None, "is not found"),
        ("module", {"error": "bad YAML"}, "cannot be read: bad YAML"),
        ("module", {**MODULE, "examples": None}, "lacks examples"),
        ("module", {**MODULE, "doc": {"description": ["x"]}}, "the attribute check_mode, the attribute diff_mode"),
        ("inventory", {"doc": {"description": ["x"]}}, ""),
        ("inventory", {"doc": {}}, "lacks description"),
        ("role", {"entry_points": {"main": {"short_description": "x"}}}, ""),
        ("role", {"entry_points": {"main": {}}}, "lacks an entry point"),
        ("role", {"entry_points": {}}, "lacks an entry point"),
    ],
)
def test_incomplete_documentation_is_named(kind: str, entry: object, problem: str) -> None:
    found = artifact.shortcoming(kind, entry)
    assert problem in found and bool(found) == bool(problem)


@pytest.fixture
def workplace(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A work folder without anything built in it."""
    monkeypatch.setattr(artifact, "WORK", tmp_path)
    monkeypatch.setattr(artifact, "FILES", tmp_path / "files.txt")
    return tmp_path


def tool(folder: pathlib.Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)


def test_ansible_sees_the_installed_collection_only(workplace: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANSIBLE_ROLES_PATH", "/x")
    tool(workplace, "show", "env; pwd")
    shown = artifact.run([os.fspath(workplace / "show")], collections=workplace / "collections")
    assert f"ANSIBLE_COLLECTIONS_PATH={workplace}/collections\n" in shown
    assert "ANSIBLE_COLLECTIONS_SCAN_SYS_PATH=false\n" in shown
    assert "ANSIBLE_ROLES_PATH" not in shown
    assert f"{workplace}/empty\n" in shown


def test_every_playbook_is_read_by_its_full_name(workplace: pathlib.Path) -> None:
    tool(workplace, "ansible-playbook", f'echo "$@" > {workplace}/asked')
    (workplace / "files.txt").write_text("playbooks/train.yml\nplaybooks/site.yml\n", encoding="utf-8")
    assert artifact.syntax(workplace) == "2 playbooks"
    asked = (workplace / "asked").read_text(encoding="utf-8")
    assert asked.strip() == "--syntax-check --inventory localhost, muster.training.site muster.training.train"


def test_missing_documentation_fails(workplace: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    tool(workplace, "ansible-doc", "echo '{}'")
    (workplace / "files.txt").write_text("plugins/modules/a.py\nplugins/modules/b.py\n", encoding="utf-8")
    (workplace / "source/plugins/modules").mkdir(parents=True)
    for name in "ab":
        (workplace / f"source/plugins/modules/{name}.py").touch()
    assert artifact.main(["docs", os.fspath(workplace)]) == 1
    assert "module muster.training.a is not found; module muster.training.b" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [(["pack"], 2, "build, docs, syntax"), (["syntax"], 1, "nothing is built yet")],
)
def test_misuse_is_told(
    workplace: pathlib.Path, capsys: pytest.CaptureFixture[str], arguments: list[str], status: int, said: t.Any
) -> None:
    assert artifact.main(arguments) == status
    assert said in capsys.readouterr().err


def test_a_failing_command_shows_what_it_said(workplace: pathlib.Path) -> None:
    tool(workplace, "ansible-galaxy", "echo no such collection >&2; exit 1")
    with pytest.raises(artifact.ArtifactError, match=r"ansible-galaxy failed:\nno such collection"):
        artifact.run([os.fspath(workplace / "ansible-galaxy")])
