# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of form that every file of the collection keeps; what breaks one is listed by name."""

from __future__ import annotations

import ast
import io
import os
import pathlib
import re
import tokenize
import typing as t

import pytest
import yaml

from ansible_collections.muster.training.tools.tree import project_files

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = project_files(ROOT)
FACES = ("action", "callback", "filter", "inventory", "lookup", "modules")
DOCUMENTATION_NAMES = {"DOCUMENTATION", "EXAMPLES", "RETURN"}
FACE_LINES, FUNCTION_LINES, FILE_LINES, TASK_LINES = 60, 60, 500, 100


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def python_files(*above: str) -> list[str]:
    return [name for name in FILES if name.endswith(".py") and name.startswith(above)]


def faces(*kinds: str) -> list[str]:
    found = [name for name in python_files("plugins/") if name.split("/")[1] in kinds and name.count("/") == 2]
    return [name for name in found if not name.rpartition("/")[2].startswith("_")]


def is_documentation(node: ast.stmt) -> bool:
    """A docstring or one of the assignments that Ansible reads as documentation."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    return isinstance(node, ast.Assign) and any(
        isinstance(target, ast.Name) and target.id in DOCUMENTATION_NAMES for target in node.targets
    )


def documentation_lines(source: str) -> set[int]:
    nodes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt) and is_documentation(node))
    return {line for node in nodes for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}


def code_lines(source: str) -> int:
    """Lines that hold code: neither blank, nor comment, nor documentation."""
    silent = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {line for token in tokens if token.type not in silent for line in range(token.start[0], token.end[0] + 1)}
    return len(lines - documentation_lines(source))


def long_functions(source: str, limit: int) -> list[str]:
    nodes = ast.walk(ast.parse(source))
    functions = (node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return [node.name for node in functions if (node.end_lineno or 0) - node.lineno + 1 > limit]


def documentation(name: str) -> dict[str, t.Any]:
    """The documentation values of a plugin file, read as YAML."""
    found: dict[str, t.Any] = {}
    for node in ast.parse(text(name)).body:
        if isinstance(node, ast.Assign) and is_documentation(node) and isinstance(node.value, ast.Constant):
            target = node.targets[0]
            assert isinstance(target, ast.Name)
            found[target.id] = yaml.safe_load(str(node.value.value))
    return found


def roles() -> list[str]:
    return sorted({name.split("/")[1] for name in FILES if name.startswith("roles/") and "/tasks/" in name})


def runtime() -> dict[str, t.Any]:
    value = yaml.safe_load(text("meta/runtime.yml"))
    assert isinstance(value, dict)
    return value


def test_measures_on_a_known_text() -> None:
    source = '"""Doc."""\n# why\nDOCUMENTATION = r"""\na: 1\n"""\n\n\ndef f():\n    """Doc."""\n\n    return (\n'
    source += "        1\n    )\n"
    assert code_lines(source) == 4
    assert long_functions(source, 6) == [] and long_functions(source, 5) == ["f"]


def test_galaxy_names_what_other_places_name() -> None:
    galaxy = yaml.safe_load(text("galaxy.yml"))
    assert (galaxy["namespace"], galaxy["name"]) == ("muster", "training")
    assert not galaxy["dependencies"]
    assert galaxy["readme"] in FILES
    assert runtime()["requires_ansible"] == ">=2.20.0", "a lower bound only: an upper one makes installs fail"


def test_action_groups_and_modules_agree() -> None:
    modules = {pathlib.PurePosixPath(name).stem for name in faces("modules")}
    groups = {
        name: {entry for entry in entries if isinstance(entry, str)}
        for name, entries in runtime()["action_groups"].items()
    }
    unknown = {f"{group}: {entry}" for group, entries in groups.items() for entry in entries - modules}
    assert not unknown, "action_groups of meta/runtime.yml name modules that are not there"
    assert not modules - groups["all"], "add these modules to action_groups.all in meta/runtime.yml"


def test_every_module_is_documented() -> None:
    wrong = []
    for name in faces("modules"):
        found, full = documentation(name), f"muster.training.{pathlib.PurePosixPath(name).stem}"
        about = found.get("DOCUMENTATION") or {}
        if not about.get("attributes") and "attributes" not in str(about.get("extends_documentation_fragment")):
            wrong.append(f"{name}: no attributes")
        if full not in str(found.get("EXAMPLES")):
            wrong.append(f"{name}: no example by the full name {full}")
        if not found.get("RETURN"):
            wrong.append(f"{name}: no RETURN")
        if about.get("module") != pathlib.PurePosixPath(name).stem:
            wrong.append(f"{name}: DOCUMENTATION names another module")
    assert not wrong


def test_every_action_has_its_documentation_twin() -> None:
    twins = {pathlib.PurePosixPath(name).stem for name in faces("modules")}
    assert not {pathlib.PurePosixPath(name).stem for name in faces("action")} - twins


def contract_gaps(role: str) -> list[str]:
    """What the contract of one role lacks: its files, its entry points, options that defaults set."""
    parts = ("README.md", "meta/argument_specs.yml", "meta/main.yml", "tasks/main.yml")
    absent = [f"{role}: no {part}" for part in parts if f"roles/{role}/{part}" not in FILES]
    if absent:
        return absent
    points = yaml.safe_load(text(f"roles/{role}/meta/argument_specs.yml"))["argument_specs"]
    if "main" not in points:
        return [f"{role}: no entry point main"]
    wrong = []
    for name, point in points.items():
        options = point.get("options", {})
        named = {"short_description": point.get("short_description"), "description": point.get("description")}
        wrong += [f"{role}, {name}: no {part}" for part, value in named.items() if not value]
        wrong += [
            f"{role}, {name}: {option} has no description" for option, o in options.items() if not o.get("description")
        ]
    if f"roles/{role}/defaults/main.yml" in FILES:
        defaults = set(yaml.safe_load(text(f"roles/{role}/defaults/main.yml")) or {})
        public = {name for name in defaults if not name.startswith("__")}
        wrong += [
            f"{role}: {name} has a default and no specification"
            for name in public - set(points["main"].get("options", {}))
        ]
    return wrong


def test_every_role_has_its_contract() -> None:
    assert not [gap for role in roles() for gap in contract_gaps(role)]


def test_playbooks_can_be_called_by_name() -> None:
    names = [name for name in FILES if re.fullmatch(r"playbooks/[^/]+\.ya?ml", name)]
    assert not [name for name in names if not re.fullmatch(r"playbooks/[a-z][a-z0-9_]*(\.meta)?\.yml", name)]


def test_faces_are_thin() -> None:
    sizes = {name: code_lines(text(name)) for name in faces(*FACES)}
    assert not {name: size for name, size in sizes.items() if size > FACE_LINES}


def test_functions_and_files_are_short() -> None:
    wrong = []
    for name in python_files("examples/", "plugins/", "roles/", "tools/"):
        source = text(name)
        wrong += [f"{name}: {function}" for function in long_functions(source, FUNCTION_LINES)]
        # The documentation of a plugin's options and return values is as long as they are many.
        outside = documentation_lines(source) if name.startswith("plugins/") else set()
        if source.count("\n") - len(outside) > FILE_LINES:
            wrong.append(f"{name}: {source.count(chr(10))} lines")
    assert not wrong


def test_task_files_are_short() -> None:
    names = [name for name in FILES if re.fullmatch(r"roles/[^/]+/(tasks|handlers)/.+\.ya?ml", name)]
    assert not [name for name in names if text(name).count("\n") > TASK_LINES]


def test_python_files_begin_alike() -> None:
    wrong = []
    for name in python_files("plugins/", "roles/", "tests/", "tools/", "examples/"):
        source = text(name)
        if not source.strip() or name.startswith("tests/fixtures/"):
            continue
        if "SPDX-License-Identifier: GPL-3.0-or-later" not in "".join(source.splitlines(keepends=True)[:5]):
            wrong.append(f"{name}: no licence header")
        if "from __future__ import annotations" not in source:
            wrong.append(f"{name}: no future annotations")
    assert not wrong


def test_private_parts_say_so() -> None:
    utils = python_files("plugins/module_utils/", "plugins/plugin_utils/")
    wrong = [name for name in utils if not any(part.startswith("_") for part in name.split("/")[2:])]
    assert not wrong, "utilities are private: an underscore in the name says so"


def test_packages_hold_no_code() -> None:
    assert not [name for name in FILES if name.endswith("__init__.py") and text(name).strip()]


# Packages come by name from wherever a machine's own clients look: no file says where that is.
PACKAGE_INDEX = re.compile(r"--(?:extra-)?index-url[ =]|\bGOPROXY *[=:]|^\s*index-url *=", re.MULTILINE)
# Folders of a system that are the same everywhere say nothing about the place a file was written at.
COMMON_FOLDERS = {"", "/", "/root", "/home", "/opt", "/srv", "/tmp", "/usr", "/var", "/usr/src", "/usr/local"}
UNFINISHED = re.compile(r"\b(" + "TO" + "DO|FIX" + r"ME)\b")


def readable() -> t.Iterator[tuple[str, str]]:
    for name in FILES:
        path = ROOT / name
        if not path.is_symlink() and path.suffix not in {".gz", ".png", ".xz"}:
            yield name, path.read_text(encoding="utf-8", errors="replace")


def own_places(root: pathlib.Path, home: pathlib.Path) -> list[re.Pattern[str]]:
    """Patterns of the folders of this machine that no file may name: the checkout's, those above it, the user's."""
    folders = {os.fspath(folder) for folder in (root, *root.parents)} - COMMON_FOLDERS
    # A folder of one short word (/src) is also a common path in containers: only what lies below it tells a machine.
    found = [rf"(?<![\w./-]){re.escape(folder)}/" for folder in sorted(folders) if folder.count("/") > 1]
    return [re.compile(pattern) for pattern in [*found, rf"(?<![\w./-]){re.escape(os.fspath(home))}/\."]]


def test_own_places_are_told_from_common_ones() -> None:
    places = own_places(pathlib.Path("/srv/build/checkout"), pathlib.Path("/home/someone"))
    told = ["/srv/build/checkout/x", "cd /srv/build/other", "/home/someone/.cache"]
    assert [bool(any(place.search(text) for place in places)) for text in told] == [True, True, True]
    other = ["/srv/data", "/home/ubuntu/data", "https://example.org/srv/build/x"]
    assert not [text for text in other if any(place.search(text) for place in places)]


def test_no_file_knows_where_it_was_written() -> None:
    places = own_places(ROOT, pathlib.Path.home())
    wrong = [f"{name}: {place.pattern}" for name, body in readable() for place in places if place.search(body)]
    assert not wrong


@pytest.mark.parametrize("line", ["pip install --index-url X y", "GOPROXY=direct", "index-url = x"])
def test_setting_a_package_index_is_seen(line: str) -> None:
    assert PACKAGE_INDEX.search(line)


def test_no_file_says_where_packages_come_from() -> None:
    own = "tests/unit/test_collection_frame.py"
    assert not [name for name, body in readable() if name != own and PACKAGE_INDEX.search(body)]


def test_nothing_is_left_for_later() -> None:
    assert not [name for name, body in readable() if UNFINISHED.search(body)]
