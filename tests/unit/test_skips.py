# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The list of reasons for which tests are left out: each reason is in it, each entry is used, another one is a failure."""

from __future__ import annotations

import ast
import pathlib
import re
import subprocess
import sys

from ansible_collections.muster.training.tests.support import skips

ROOT = pathlib.Path(__file__).resolve().parents[2]
_NAMES = ("skip", "not_run", "lacking", "importorskip", "skipif")


def reasons() -> list[tuple[str, str]]:
    """Return the file and the reason of each skip; the reason is empty where it is no literal."""
    found = []
    for place in sorted((ROOT / "tests").rglob("*.py")):
        name = place.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(place.read_text())):
            if isinstance(node, ast.Call) and _called(node) in _NAMES:
                word = next((item.value for item in node.keywords if item.arg == "reason"), None)
                value = word or (node.args[0] if node.args else None)
                if value is None or (_called(node) == "lacking" and isinstance(value, ast.Name)):
                    continue
                text = f"could not import '{_text(value)}'" if _called(node) == "importorskip" else _text(value)
                found.append((name, text))
    return found


def _called(node: ast.Call) -> str:
    word = node.func
    return word.attr if isinstance(word, ast.Attribute) else word.id if isinstance(word, ast.Name) else ""


def _text(value: ast.expr) -> str:
    if isinstance(value, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in value.values)
    return str(value.value) if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""


def test_each_reason_is_in_the_list() -> None:
    found = reasons()
    assert len(found) > 30
    # What is given to the doors of the lab may be any words: they are its own, and fail where it is required.
    doors = ("not_run", "lacking")
    unknown = [
        (name, reason)
        for name, reason in found
        if not skips.explain(reason, name) and not _goes_through_a_door(name, reason, doors)
    ]
    assert unknown == []


def _goes_through_a_door(name: str, reason: str, doors: tuple[str, ...]) -> bool:
    text = (ROOT / name).read_text()
    quoted = re.escape(reason[:30])
    return bool(re.search(rf"\b({'|'.join(doors)})\(\s*f?\"?{quoted}" if reason else rf"\b({'|'.join(doors)})\(", text))


def test_each_entry_of_the_list_is_used() -> None:
    texts = [reason for _name, reason in reasons()]
    for pattern in skips.ALLOWED:
        assert any(re.search(pattern, text) for text in texts), pattern


def test_another_reason_is_a_failure_and_the_others_are_printed(tmp_path: pathlib.Path) -> None:
    """By pytest itself, with the hooks of all tests."""
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "def test_known(): pytest.skip('git is not installed')\n"
        "def test_unknown(): pytest.skip('not today')\n"
        "@pytest.mark.skip\n"
        "def test_without(): pass\n"
        "@pytest.mark.parametrize('x', [])\n"
        "def test_empty(x): pass\n"
        "@pytest.mark.xfail(reason='known')\n"
        "def test_fails(): assert False\n"
    )
    (tmp_path / "test_whole.py").write_text("import pytest\npytest.skip('later', allow_module_level=True)\n")
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--continue-on-collection-errors", str(tmp_path)]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert "1 failed, 1 skipped, 1 xfailed, 3 errors" in done.stdout, done.stdout
    for reason in ("not today", "unconditional skip", "got empty parameter set", "later"):
        assert f"does not allow: {reason}" in done.stdout
    assert f"not run: 1 tests: git is not installed ({skips._TOOL})" in done.stdout
