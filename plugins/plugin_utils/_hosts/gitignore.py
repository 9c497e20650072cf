# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which files of a folder ``.gitignore`` leaves out, by the rules of gitignore(5). Git itself is not needed.

A file that is tracked although a rule names it is left out too: name it again with ``!``.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
import typing as t

FILE = ".gitignore"


@dataclasses.dataclass(frozen=True, slots=True)
class IgnoreRule:
    """One line of a ``.gitignore`` in the folder ``base``; ``keeps`` is one that begins with ``!``."""

    base: pathlib.Path
    pattern: re.Pattern[str]
    keeps: bool
    folders_only: bool


def rules_above(folder: pathlib.Path) -> tuple[IgnoreRule, ...]:
    """Return the rules of the folders above ``folder`` that belong to the same repository, the topmost first."""
    folder = folder.absolute()
    if (folder / ".git").exists():
        return ()
    for index, parent in enumerate(folder.parents):
        if (parent / ".git").exists():
            above = [parent, *reversed(folder.parents[:index])]
            return tuple(rule for place in above for rule in read_rules(place))
    return ()


def read_rules(folder: pathlib.Path) -> tuple[IgnoreRule, ...]:
    """Return the rules of the ``.gitignore`` in ``folder``, none where there is no such file."""
    try:
        text = (folder / FILE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    found = (_parse_line(folder.absolute(), line) for line in text.splitlines())
    return tuple(rule for rule in found if rule is not None)


def is_ignored(path: pathlib.Path, is_folder: bool, rules: t.Sequence[IgnoreRule]) -> bool:
    """Return whether the last rule that matches ``path`` leaves it out."""
    path = path.absolute()
    for rule in reversed(rules):
        if (is_folder or not rule.folders_only) and rule.pattern.fullmatch(path.relative_to(rule.base).as_posix()):
            return not rule.keeps
    return False


def _parse_line(base: pathlib.Path, line: str) -> IgnoreRule | None:
    text = re.sub(r"(?<!\\) +$", "", line)
    if not text or text.startswith("#"):
        return None
    keeps = text.startswith("!")
    text = text[1:] if keeps else text
    folders_only = text.endswith("/")
    text = text.rstrip("/")
    if not text:
        return None
    anchored = "/" in text
    try:
        pattern = re.compile(("" if anchored else "(?:.*/)?") + _translate(text.lstrip("/")), re.DOTALL)
    except re.error:
        # Git does not match a pattern that is not one, either.
        return None
    return IgnoreRule(base, pattern, keeps, folders_only)


def _translate(glob: str) -> str:
    """Return the regular expression of a pattern; ``*`` and ``?`` stop at a slash, ``**`` does not."""
    result, rest = "", glob
    while rest:
        if found := re.match(r"\*\*/", rest):
            result, rest = result + "(?:.*/)?", rest[found.end() :]
        elif rest == "**":
            result, rest = result + ".*", ""
        elif found := re.match(r"\*+", rest):
            result, rest = result + "[^/]*", rest[found.end() :]
        elif found := re.match(r"\[([!^]?)(\]?(?:\\.|[^\]\\])*)\]", rest):
            negated = "^" if found[1] else ""
            result, rest = f"{result}(?!/)[{negated}{_escape_class(found[2])}]", rest[found.end() :]
        elif rest[0] == "\\" and len(rest) > 1:
            result, rest = result + re.escape(rest[1]), rest[2:]
        else:
            result, rest = result + ("[^/]" if rest[0] == "?" else re.escape(rest[0])), rest[1:]
    return result


def _escape_class(content: str) -> str:
    return content.replace("[", r"\[").replace("]", r"\]").replace("&&", r"&\&").replace("||", r"|\|")
