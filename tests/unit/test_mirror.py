# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``tests/unit`` mirrors ``plugins``: a file with behaviour has a test file of the same name in the same folder.

``plugins/plugin_utils/_kube/api/client.py`` is tested by ``tests/unit/plugins/plugin_utils/_kube/api/test_client.py``.
A file has behaviour when it defines a function or method that does something: more than a docstring, ``pass``, ``...``
or ``raise NotImplementedError``, and not a declaration of a ``Protocol``. The entry points that Ansible loads
(``action``, ``inventory``, ``callback``, ``modules``, ``doc_fragments``) hold options and one call. Their options are
compared with their documentation in ``action/test_options_match_docs.py``, and what they call is tested in its own
file, so they need a test file only when they define more than the methods by which Ansible enters them.
"""

from __future__ import annotations

import ast
import pathlib

from ansible_collections.muster.training.tools.tree import project_files

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = project_files(ROOT)
ENTRY_POINTS = {
    "action": {"run", "work"},
    "inventory": {"verify_file", "parse", "source"},
    "callback": {"__init__"},
    "modules": {"main"},
    "doc_fragments": set(),
}


def is_stub(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether the body only declares: a docstring, ``pass``, ``...`` or ``raise NotImplementedError``."""

    def declares(statement: ast.stmt) -> bool:
        if isinstance(statement, ast.Expr):
            return isinstance(statement.value, ast.Constant)
        if isinstance(statement, ast.Raise):
            return statement.exc is not None and "NotImplementedError" in ast.unparse(statement.exc)
        return isinstance(statement, ast.Pass)

    return all(declares(statement) for statement in node.body)


def behaviour(source: str) -> set[str]:
    """The names of the functions and methods of a file that do something."""
    return {
        node.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not is_stub(node)
    }


def needs_test(name: str) -> bool:
    names = behaviour((ROOT / name).read_text(encoding="utf-8"))
    return bool(names - ENTRY_POINTS.get(name.split("/")[1], set()))


def mirror_of(name: str) -> str:
    folder, _slash, file = name.rpartition("/")
    return f"tests/unit/{folder}/test_{file}"


def test_every_file_with_behaviour_has_its_test_file() -> None:
    sources = [name for name in FILES if name.startswith("plugins/") and name.endswith(".py")]
    missing = [mirror_of(name) for name in sources if needs_test(name) and mirror_of(name) not in FILES]
    assert not missing, f"{len(missing)} test files are missing:\n" + "\n".join(missing)


def test_the_rule_on_known_texts() -> None:
    assert behaviour("class P:\n    def f(self) -> int:\n        '''Doc.'''\n        ...\n") == set()
    assert behaviour("def f():\n    raise NotImplementedError\n\ndef g():\n    return 1\n") == {"g"}
    assert mirror_of("plugins/plugin_utils/_a/b.py") == "tests/unit/plugins/plugin_utils/_a/test_b.py"
