# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the signatures of functions leave open, and which functions decide most.

``python -m tools.signatures`` prints the functions of workflows and of the Kubernetes client whose annotations carry
``Any``, by itself or behind an alias, then the functions with the most decisions. ``python -m tools.words`` prints the
share with its gate.
"""

from __future__ import annotations

import ast
import pathlib
import re
import sys
import typing as t

from .tree import ROOT
from .words import Hit, parse_plugins

ROOMS = ("plugins/plugin_utils/_workflows/", "plugins/plugin_utils/_kube/")
# In percent of the functions of each room.
OPEN_LIMIT = 20
_MOST = 20

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Names:
    """Which names of each file stand for a type that carries ``Any``."""

    def __init__(self, trees: t.Mapping[str, ast.Module]) -> None:
        self._aliases: dict[str, dict[str, set[str]]] = {}
        self._imports: dict[str, dict[str, tuple[str, str]]] = {}
        self._by_module: dict[str, list[str]] = {}
        for file, tree in trees.items():
            self._by_module.setdefault(pathlib.PurePath(file).stem, []).append(file)
            self._aliases[file] = dict(_find_aliases(tree))
            self._imports[file] = {
                item.asname or item.name: ((node.module or "").rpartition(".")[2], item.name)
                for node in ast.walk(tree)
                if isinstance(node, ast.ImportFrom)
                for item in node.names
            }

    def carries_any(self, file: str, name: str, seen: frozenset[tuple[str, str]] = frozenset()) -> bool:
        """Return whether ``name`` in a file is Any, or an alias of a type with Any in it."""
        if name == "Any":
            return True
        if (file, name) in seen:
            return False
        seen |= {(file, name)}
        if name in self._aliases[file]:
            return any(self.carries_any(file, word, seen) for word in self._aliases[file][name])
        module, origin = self._imports[file].get(name, ("", ""))
        homes = [home for home in self._by_module.get(module, ()) if origin in self._aliases[home]]
        return any(self.carries_any(home, origin, seen) for home in homes)


def _find_aliases(tree: ast.Module) -> t.Iterator[tuple[str, set[str]]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript | ast.BinOp):
            yield from ((target.id, _words(node.value)) for target in node.targets if isinstance(target, ast.Name))


def _words(node: ast.AST) -> set[str]:
    return set(re.findall(r"\w+", ast.unparse(node)))


def list_functions(tree: ast.Module) -> list[Function]:
    """Return the functions and methods of a file."""
    return [node for node in ast.walk(tree) if isinstance(node, Function)]


def list_annotations(function: Function) -> list[ast.expr]:
    """Return the annotations of a function's parameters and of what it returns."""
    given = function.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    found = [item.annotation for item in every if item is not None]
    return [item for item in [*found, function.returns] if item is not None]


def find_open_functions(room: str, root: pathlib.Path = ROOT) -> tuple[list[Hit], int]:
    """Return the functions below a folder whose annotations carry Any, and how many functions there are."""
    trees = dict(parse_plugins(root))
    names, hits, count = Names(trees), [], 0
    for file, tree in trees.items():
        for function in list_functions(tree) if file.startswith(room) else ():
            count += 1
            if any(names.carries_any(file, word) for item in list_annotations(function) for word in _words(item)):
                hits.append(Hit(file, function.lineno, function.name))
    return hits, count


def measure_open_functions(room: str, root: pathlib.Path = ROOT) -> float:
    """Return the share of functions below a folder whose annotations carry Any, in percent."""
    hits, count = find_open_functions(room, root)
    return round(100 * len(hits) / max(1, count), 1)


def count_decisions(function: Function) -> int:
    """Return how often a function decides: branches, loops, and/or, conditional expressions and comprehensions."""
    total, todo = 0, list(ast.iter_child_nodes(function))
    while todo:
        node = todo.pop()
        if isinstance(node, Function | ast.ClassDef):
            continue
        if isinstance(node, ast.If | ast.For | ast.While | ast.ExceptHandler | ast.IfExp | ast.match_case):
            total += 1
        elif isinstance(node, ast.BoolOp):
            total += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            total += 1 + len(node.ifs)
        todo += ast.iter_child_nodes(node)
    return total


def find_worst_functions(root: pathlib.Path = ROOT, most: int = _MOST) -> list[tuple[int, Hit]]:
    """Return the functions with the most decisions, the worst first."""
    every = [
        (count_decisions(function), Hit(file, function.lineno, function.name))
        for file, tree in parse_plugins(root)
        for function in list_functions(tree)
    ]
    return sorted(every, key=lambda item: (-item[0], str(item[1])))[:most]


def main() -> int:
    """Print both lists; there is no gate here."""
    for room in ROOMS:
        hits, count = find_open_functions(room)
        for hit in hits:
            print(hit)
        print(f"functions of {room} that carry Any: {len(hits)} of {count}")
    for decisions, hit in find_worst_functions():
        print(f"{decisions} decisions: {hit}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
