# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The literal names of Host lines in an ssh_config file and in what it includes; what they mean, ssh itself says.

Source: ssh_config(5). Nothing but Host and Include is read, in the words of OpenSSH's own parser: keywords in any case,
``Keyword=value``, arguments in double quotes, and a ``#`` that ends the line.
"""

from __future__ import annotations

import glob
import os
import pathlib
import pwd
import re
from collections.abc import Iterator

from ....module_utils._model.errors import InputError

# OpenSSH's own limit of nested Include lines (READCONF_MAX_DEPTH).
MAX_DEPTH = 16
MAX_BYTES = 1 << 20
_LINE = re.compile(r'\s*([A-Za-z][A-Za-z0-9]*)(?:\s*=\s*|\s+|(?="))(.*)\Z', re.DOTALL)
_WORD = re.compile(r'"([^"]*)"|([^\s"#][^\s"]*)|(#)')
# What makes a word of a Host line a pattern.
_PATTERN = re.compile(r"[*?!]")


def own_folder() -> pathlib.Path:
    """Return the user's ``~/.ssh`` as ssh finds it: by the user database, whatever HOME is."""
    try:
        home = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        home = os.path.expanduser("~")
    return pathlib.Path(home) / ".ssh"


def find_aliases(path: pathlib.Path, folder: pathlib.Path) -> list[str]:
    """Return the names on Host lines that are no patterns, in their order, each once.

    :param folder: what relative paths of Include lines are relative to: ``~/.ssh`` for a user's file.
    :raises InputError: for a file that cannot be read, and for files that include each other.
    """
    return list(dict.fromkeys(_read_names(path, folder, 0)))


def _read_names(path: pathlib.Path, folder: pathlib.Path, depth: int) -> Iterator[str]:
    if depth > MAX_DEPTH:
        raise InputError(str(path), "includes itself, or Include lines are nested too deep", "Remove the Include line")
    for line in _read_text(path).splitlines():
        keyword, words = _split(line)
        if keyword == "host":
            yield from (word for word in words if not _PATTERN.search(word))
        elif keyword == "include":
            for word in words:
                for found in sorted(glob.glob(str(_resolve(word, folder)))):
                    yield from _read_names(pathlib.Path(found), folder, depth + 1)


def _read_text(path: pathlib.Path) -> str:
    try:
        with open(path, "rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as exc:
        problem = f"cannot be read ({(exc.strerror or 'error').lower()})"
        raise InputError(str(path), problem, "Name the file that ssh reads in path") from None
    if len(data) > MAX_BYTES:
        raise InputError(str(path), f"is larger than {MAX_BYTES} bytes", "Name an ssh_config file in path")
    return data.decode("utf-8", "replace")


def _split(line: str) -> tuple[str, list[str]]:
    """Return the keyword of a line in lower case and its arguments; an empty keyword for a comment."""
    match = _LINE.match(line)
    if match is None:
        return "", []
    words = []
    for word in _WORD.finditer(match.group(2)):
        if word.group(3):
            break
        words.append(word.group(1) if word.group(1) is not None else word.group(2))
    return match.group(1).lower(), [word for word in words if word]


def _resolve(word: str, folder: pathlib.Path) -> pathlib.Path:
    expanded = str(own_folder().parent / word[2:]) if word.startswith("~/") else os.path.expanduser(word)
    place = pathlib.Path(expanded)
    return place if place.is_absolute() else folder / place
