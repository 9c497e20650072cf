# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The words of the project: phrases that no message, document or docstring uses, and what names are counted.

``python -m tools.words`` prints each place as ``file:line: phrase`` and then the figures with their gates. The tests
``tests/unit/test_words.py`` and ``tests/unit/test_names.py`` hold them. ``CONTRIBUTING.md`` says what to write instead.
"""

from __future__ import annotations

import ast
import collections
import dataclasses
import functools
import io
import pathlib
import re
import sys
import tokenize
import typing as t

from .tree import ROOT, project_files

PYTHON = ("plugins/", "roles/", "tools/", "examples/")
TEXTS = (*PYTHON, "docs/", "playbooks/", "inventories/", "molecule/", "changelogs/fragments/", "meta/")
TEXT_ENDINGS = (".md", ".rst", ".yml", ".yaml", ".j2", ".sh", ".service", ".timer")
# This file names the phrases; nothing else may.
OWN = "tools/words.py"

# A space stands for any white space, so that a phrase is found across the lines of a paragraph.
PHRASES: t.Final = {
    "nobody": r"\bnobody\b(?!:)",
    "somebody": r"\bsomebody\b",
    "whoever": r"\bwhoever\b",
    "goes on": r"\bgoes on\b",
    "lives": r"\blives\b",
    "is told": r"\bis told\b",
    "by now": r"\bby now\b",
    "give back": r"\b(?:give|gives|giving|gave|given) (?:\w+ ){0,2}back\b",
    "is no …": r"(?<!there\s)\bis no (?!longer\b)",
    "what … is": (
        r"(?:\A|[.:;!?)] |\n\s*\n\s*(?:- )?|^\s*- )What (?!(?:is|are|was|were|to)\b)\w+ "
        r"(?:(?!\b(?:when|if|where|because|since|that|how)\b)[^.?!:;|,]){0,60}?\b(?:is|are|was) (?=\w)(?![^.]*\?)"
    ),
    "was heard": r"\b(?:was|were|is|been) heard\b",
    "is ours": r"\b(?:is|are|was) (?:ours|theirs)\b",
    # In double backquotes it is the name of a field.
    "a metaphor": (
        r"(?<!``)\b(?:landlords?|doomed|reroll(?:s|ed)?|giveback|tenancy|custody|insists?|companions?|last words)\b"
    ),
}
# A document of another project is cited with the name of that project, as in: nccl-tests' doc/PERFORMANCE.md.
THIRD_PARTIES: t.Final = ("nccl-tests",)
_OF_THIRD_PARTY = re.compile(rf"\b(?:{'|'.join(map(re.escape, THIRD_PARTIES))})(?:'s?)\s+\Z")
# Documents that describe the project from outside the repository.
FOREIGN = r"\bcontracts?: |\((?:facts|contracts|architecture)\b|\.\./(?:shared|facts|design)\b|\bfacts: \w+ \d"

# A function is named by a verb; a bare participle or one of these metaphors says nothing to a reader who looks for it.
_IRREGULAR_TEXT = """
kept made found told held seen said given taken shown known gone lost spoken done bound built brought bought caught
chosen drawn driven fallen felt fed fought forgotten frozen gotten grown heard hidden hung hurt laid led let lit
meant met mistaken paid ridden risen shaken sold sought spent spoken stood stolen struck stuck sworn swept taught
thought thrown torn understood woken won worn written begun broken
"""
IRREGULAR = frozenset(_IRREGULAR_TEXT.split())
_METAPHORS_TEXT = """
landlord landlords keeper rent rental giveback doomed reroll mint book journal covered tally lender burst mirror
least spare companions look looks story ground meet meeting fence hygiene insist face boundary custody tenancy
claim told nobody somebody whoever
"""
METAPHORS = frozenset(_METAPHORS_TEXT.split())
NOT_PARTICIPLES = frozenset(
    {"seed", "speed", "feed", "need", "embed", "string", "ping", "bring", "warning", "ring", "setting"}
)
# Ansible finds these classes by their names, so every plugin has one.
CLASSES_OF_ANSIBLE = frozenset({"ActionModule", "CallbackModule", "InventoryModule", "ModuleDocFragment"})
FOLDER_LIMIT, FUNCTION_NAMES_LIMIT = 17, 5


@dataclasses.dataclass(frozen=True, slots=True)
class Hit:
    """One place: the file, the line and the phrase or name."""

    file: str
    line: int
    word: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.word}"


def compile_phrases(phrases: t.Mapping[str, str] = PHRASES) -> dict[str, re.Pattern[str]]:
    """Return the patterns by name; each space matches any white space."""
    flags = re.IGNORECASE | re.MULTILINE
    return {
        name: re.compile(pattern.replace(" ", r"\s+"), flags if name != "what … is" else re.MULTILINE)
        for name, pattern in phrases.items()
    }


_PATTERNS = compile_phrases()


def find_phrases(text: str, patterns: t.Mapping[str, re.Pattern[str]] = _PATTERNS) -> list[tuple[int, str]]:
    """Return the phrases in a text, each with the number of the line (from 0) on which it begins."""
    spots = [(match, name) for name, pattern in patterns.items() for match in pattern.finditer(text)]
    # A phrase that begins with the end of the sentence before it is counted where its own words begin.
    return sorted((text.count("\n", 0, match.end() - len(match[0].lstrip())), name) for match, name in spots)


def _constant_text(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return None


def read_strings(source: str) -> t.Iterator[tuple[int, str]]:
    """Yield every string of Python source with its first line; the parts of an f-string are one string."""
    tree = ast.parse(source)
    inner = {id(child) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for child in ast.walk(node)} - {
        id(node) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)
    }
    for node in ast.walk(tree):
        text = _constant_text(node)
        if text and id(node) not in inner:
            yield t.cast(ast.expr, node).lineno, text


def read_comments(source: str) -> t.Iterator[tuple[int, str]]:
    """Yield every block of comments with its first line; neighbouring lines are one block."""
    block: list[str] = []
    first = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if block and token.start[0] != last + 1:
            yield first, "\n".join(block)
            block = []
        first, last = (token.start[0] if not block else first), token.start[0]
        block.append(token.string.lstrip("#"))
    if block:
        yield first, "\n".join(block)


def read_passages(root: pathlib.Path, name: str) -> t.Iterator[tuple[int, str]]:
    """Yield the passages of a file that people read, each with its first line."""
    text = (root / name).read_text(encoding="utf-8")
    if not name.endswith(".py"):
        yield 1, re.sub(r"(?m)^(\s*)#", r"\1 ", text)
        return
    yield from read_strings(text)
    yield from read_comments(text)


def list_texts(root: pathlib.Path = ROOT) -> list[str]:
    """Return the files whose words are checked."""
    names = [name for name in project_files(root) if not (root / name).is_symlink() and name != OWN]
    python = [name for name in names if name.endswith(".py") and name.startswith(PYTHON)]
    top = [name for name in names if "/" not in name and name.endswith(".md")]
    return python + top + [name for name in names if name.startswith(TEXTS) and name.endswith(TEXT_ENDINGS)]


def find_words(root: pathlib.Path = ROOT, phrases: t.Mapping[str, str] = PHRASES) -> list[Hit]:
    """Return every forbidden phrase of the project."""
    patterns = compile_phrases(phrases)
    hits = {
        Hit(name, line + offset, word)
        for name in list_texts(root)
        for line, text in read_passages(root, name)
        for offset, word in find_phrases(text, patterns)
    }
    return sorted(hits, key=lambda hit: (hit.file, hit.line, hit.word))


def find_documents(text: str, there: t.Container[str]) -> list[re.Match[str]]:
    """Return the documents that a text cites and that are neither in the project nor of a named third party."""
    return [
        match
        for match in re.finditer(r"[\w./-]*\w\.(?:md|rst)\b", text)
        if match[0].rpartition("/")[2] not in there and not _OF_THIRD_PARTY.search(text[: match.start()])
    ]


def find_citations(root: pathlib.Path = ROOT) -> list[Hit]:
    """Return the docstrings and comments of plugins, roles, tools and examples that cite what is not in the project."""
    names = project_files(root)
    there = {name.rpartition("/")[2] for name in names}
    foreign = re.compile(FOREIGN)
    hits = []
    for name in list_texts(root):
        for line, text in read_passages(root, name):
            spots = find_documents(text, there)
            spots += foreign.finditer(text) if name.endswith(".py") else []
            hits += [Hit(name, line + text.count("\n", 0, match.start()), match[0]) for match in spots]
    return hits


@functools.cache
def parse_plugins(root: pathlib.Path) -> tuple[tuple[str, ast.Module], ...]:
    """Return the Python files below ``plugins`` with their syntax trees, as they were at the first call."""
    return tuple(
        (name, ast.parse((root / name).read_text(encoding="utf-8")))
        for name in project_files(root)
        if name.startswith("plugins/") and name.endswith(".py")
    )


def is_riddle(name: str) -> bool:
    """Return whether a function's name is a bare participle or holds a metaphor."""
    plain = name.strip("_")
    if METAPHORS & set(plain.split("_")):
        return True
    if "_" in plain or plain in NOT_PARTICIPLES:
        return False
    return plain.endswith(("ed", "ing")) or plain in IRREGULAR


def find_function_names(root: pathlib.Path = ROOT) -> list[Hit]:
    """Return the functions and methods of the plugins that :func:`is_riddle` refuses."""
    return [
        Hit(file, node.lineno, node.name)
        for file, tree in parse_plugins(root)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_riddle(node.name)
    ]


def split_class_name(name: str) -> set[str]:
    """Return the words of a name such as ``RunLeases`` in lower case."""
    return {part.lower() for part in re.findall(r"[A-Z][a-z0-9]*", name)}


def find_class_names(root: pathlib.Path = ROOT) -> list[Hit]:
    """Return the classes whose name holds a metaphor."""
    return [
        Hit(file, node.lineno, node.name)
        for file, tree in parse_plugins(root)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and METAPHORS & split_class_name(node.name)
    ]


def find_class_collisions(root: pathlib.Path = ROOT) -> dict[str, list[str]]:
    """Return the public class names that stand for more than one thing, with the files that define them."""
    files: dict[str, list[str]] = collections.defaultdict(list)
    for file, tree in parse_plugins(root):
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and node.name not in CLASSES_OF_ANSIBLE:
                files[node.name].append(file)
    return {name: where for name, where in sorted(files.items()) if len(where) > 1}


def measure_folders(root: pathlib.Path = ROOT) -> dict[str, int]:
    """Return how many Python files lie directly in each folder below ``plugins/plugin_utils``."""
    counts = collections.Counter(
        name.rpartition("/")[0]
        for name in project_files(root)
        if name.startswith("plugins/plugin_utils/") and name.endswith(".py")
    )
    return dict(counts)


def main() -> int:
    """Print every place and the figures; the exit status is 1 where a gate is missed."""
    # It reads the plugins by way of this file.
    from . import signatures

    words, citations, functions = find_words(), find_citations(), find_function_names()
    collisions, classes = find_class_collisions(), find_class_names()
    for hit in (*words, *citations, *functions, *classes):
        print(hit)
    for name, files in collisions.items():
        print(f"{', '.join(files)}: class {name}")
    folder, size = max(measure_folders().items(), key=lambda item: item[1])
    figures = (
        ("forbidden phrases in messages, docs and docstrings", len(words), 0),
        ("citations of documents that are not here", len(citations), 0),
        ("functions named by a bare participle or a metaphor", len(functions), FUNCTION_NAMES_LIMIT),
        ("classes named by a metaphor", len(classes), 0),
        ("public class names with more than one meaning", len(collisions), 0),
        (f"largest folder below plugins/plugin_utils ({folder})", size, FOLDER_LIMIT),
        *(
            (
                f"percent of functions of {room} that carry Any",
                signatures.measure_open_functions(room),
                signatures.OPEN_LIMIT,
            )
            for room in signatures.ROOMS
        ),
    )
    for title, figure, gate in figures:
        print(f"{title}: {figure} (at most {gate}) {'PASS' if figure <= gate else 'FAIL'}")
    return int(any(figure > gate for _title, figure, gate in figures))


if __name__ == "__main__":
    sys.exit(main())
