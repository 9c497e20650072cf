# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What may import what, where import-linter cannot say it."""

from __future__ import annotations

import ast
import dataclasses
import pathlib
import sys
import typing as t

import pytest

from ansible_collections.muster.training.tools.tree import project_files

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = [name for name in project_files(ROOT) if name.startswith("plugins/") and name.endswith(".py")]
CAPABILITIES = ("_fabric", "_hosts", "_kube", "_launch", "_providers", "_provision", "_report", "_services")
# Installed by those who use the part that needs them, so importing them can never be a condition for the rest.
OPTIONAL = frozenset({"botocore", "hvac", "jmespath", "kubernetes", "matplotlib", "numpy", "torch"})
# New in Python 3.11 and later, and so absent on nodes.
TOO_NEW = frozenset({"tomllib", "compression", "annotationlib", "concurrent.interpreters"})


@dataclasses.dataclass(frozen=True)
class Import:
    """One import: the file, the dotted name below ``plugins`` or of another package, and whether it runs at once."""

    file: str
    name: str
    inside: bool
    early: bool


def imports_of(name: str, source: str) -> t.Iterator[Import]:
    package = pathlib.PurePosixPath(name).parent.parts[1:]
    tree = ast.parse(source)
    late = {id(node) for outer in ast.walk(tree) if defers(outer) for node in ast.walk(outer)}
    for node in ast.walk(tree):
        early = id(node) not in late
        if isinstance(node, ast.Import):
            yield from (Import(name, alias.name, False, early) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield Import(name, node.module or "", False, early)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1]
            for alias in node.names:
                yield Import(name, ".".join([*base, *filter(None, [node.module]), alias.name]), True, early)


def defers(node: ast.AST) -> bool:
    """Whether what is inside the node does not run when the file is imported."""
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.unparse(node.test)
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def imports_below(folder: str) -> list[Import]:
    names = [name for name in SOURCES if name.startswith(f"plugins/{folder}/")]
    return [found for name in names for found in imports_of(name, (ROOT / name).read_text(encoding="utf-8"))]


def test_imports_are_told_apart() -> None:
    source = (
        "import os.path\nfrom ..module_utils._model import job\nfrom . import near\n"
        "def f():\n    import torch\nif t.TYPE_CHECKING:\n    import yaml\n"
    )
    found = {(item.name, item.inside, item.early) for item in imports_of("plugins/modules/x.py", source)}
    assert found == {
        ("os.path", False, True),
        ("module_utils._model.job", True, True),
        ("modules.near", True, True),
        ("torch", False, False),
        ("yaml", False, False),
    }


def test_shared_code_needs_the_standard_library_only() -> None:
    outside = [item for item in imports_below("module_utils") if not item.inside]
    # The rendezvous store is started under the job's own interpreter, which has torch.
    wrong = [item for item in outside if item.name.split(".")[0] not in {*sys.stdlib_module_names, "torch"}]
    wrong += [item for item in outside if item.name.startswith("torch") and item.early]
    wrong += [item for item in outside if item.name in TOO_NEW]
    assert not wrong


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_capabilities_know_neither_ansible_nor_each_other(capability: str) -> None:
    allowed = (f"plugin_utils.{capability}", *(f"module_utils.{part}" for part in ("_http", "_model", "_secrets")))
    found = imports_below(f"plugin_utils/{capability}")
    wrong = [item for item in found if item.inside and not item.name.startswith(allowed)]
    wrong += [item for item in found if item.name.split(".")[0] in {"ansible", "ansible_collections"}]
    assert not wrong


def test_modules_need_nothing_of_the_controller() -> None:
    found = imports_below("modules")
    assert not [item for item in found if item.inside and not item.name.startswith("module_utils.")]


def test_optional_packages_are_imported_where_they_are_used() -> None:
    everywhere = [item for folder in ("module_utils", "plugin_utils") for item in imports_below(folder)]
    assert not [item for item in everywhere if item.early and item.name.split(".")[0] in OPTIONAL]


def test_own_files_are_imported_relatively() -> None:
    assert not [
        item
        for item in [
            found for folder in sorted({name.split("/")[1] for name in SOURCES}) for found in imports_below(folder)
        ]
        if item.name.startswith("ansible_collections.muster")
    ]
