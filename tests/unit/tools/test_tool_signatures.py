# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What signatures leave open is found behind aliases too, and few functions of the plugins do."""

from __future__ import annotations

import ast
import pathlib

import pytest

from ansible_collections.muster.training.tools import signatures

ALIASES = {
    "plugins/plugin_utils/_a/alias.py": "import typing as t\nDict = dict[str, t.Any]\nPlain = dict[str, int]\n",
    "plugins/plugin_utils/_a/far.py": "from .alias import Dict\nRows = list[Dict]\n",
    "plugins/plugin_utils/_b/use.py": (
        "from .._a.far import Rows as Lines\nfrom .._a.alias import Plain\n"
        "def hidden(x: Lines) -> None: ...\ndef plain(x: Plain) -> None: ...\n"
        "def own(*x: 't.Any') -> None: ...\n"
    ),
}


def test_any_is_found_behind_aliases_of_other_files(monkeypatch: pytest.MonkeyPatch) -> None:
    trees = {name: ast.parse(text) for name, text in ALIASES.items()}
    monkeypatch.setattr(signatures, "parse_plugins", lambda _root: tuple(trees.items()))
    hits, count = signatures.find_open_functions("plugins/plugin_utils/_b/")
    assert ([hit.word for hit in hits], count) == (["hidden", "own"], 3)


def test_an_alias_of_itself_ends() -> None:
    names = signatures.Names({"a.py": ast.parse("A = list[B]\nB = list[A]\n")})
    assert not names.carries_any("a.py", "A")


@pytest.mark.parametrize(
    ("body", "decisions"),
    [
        ("return 1", 0),
        ("if a and b or c:\n        return 1", 3),
        ("return [x for x in y if x if not z]", 3),
        ("def inner():\n        if a: pass\n    return 1 if a else 2", 1),
        ("try:\n        pass\n    except E:\n        pass\n    for x in y: pass", 2),
    ],
)
def test_decisions_are_counted(body: str, decisions: int) -> None:
    (function, *_inner) = signatures.list_functions(ast.parse(f"def f():\n    {body}\n"))
    assert signatures.count_decisions(function) == decisions


def test_few_functions_leave_open_what_they_take(capsys: pytest.CaptureFixture[str]) -> None:
    """The share has its gate in tools.words, which is a check of its own."""
    assert signatures.main() == 0
    assert "decisions: plugins/" in capsys.readouterr().out


def test_the_list_of_the_worst_is_sorted(tmp_path: pathlib.Path) -> None:
    worst = signatures.find_worst_functions(most=5)
    assert len(worst) == 5 and [item[0] for item in worst] == sorted((item[0] for item in worst), reverse=True)
