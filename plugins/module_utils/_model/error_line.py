# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The error line of a program's output: the last line of the last Python traceback in it, or what stopped its start."""

from __future__ import annotations

import re

_LIMIT = 300
# The prefixes that torchrun's --tee, torch's own traceback hook and mpirun's --tag-output put before a rank's lines.
_PREFIX = re.compile(r"^(?:\[default\d+\]:|\[rank\d+\]: ?|\[[^\[\]\s]+,\d+\]<std(?:out|err)>:\s?)+")
_OF_RANK = re.compile(r"\[default(\d+)\]:")
_ERROR = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit)(?::.*)?$")
# What interpreters, shells and argparse say before a program has begun.
_BEFORE = re.compile(
    r"^\S+: (?:line \d+: |\d+: )?(?:can't open file .+|No module named .+|error: .+"
    r"|\S+: (?:command not found|not found|No such file or directory|Permission denied))$"
)
# PyTorch says in one line that NCCL failed, and NCCL's own words after these.
_NCCL_SAYS = re.compile(r"^.*\bLast error:[ \t]*\n(.+)$", re.MULTILINE)
# torchrun at SIGTERM, in torch 2.6 and 2.10, and the rest of its traceback.
_STOP = re.compile(r"Received (?:Signals\.SIGTERM|15) death signal")
_OTHERS = ("torch.distributed.elastic.", "subprocess.CalledProcessError")
_OF_MPI = re.compile(r"^\[[^\[\]\s]+,\d+\]<std")
# What is said where a rank elsewhere has ended, or the store with its launcher.
_NETWORK = re.compile(
    r"Dist(?:Network|Store)Error|Rendezvous\w+Error|C10d store|[Ff]ailed to (?:recv|send)|(?:recv|send)\w+ failed on"
    r"|Connection (?:was likely )?(?:closed|reset)|Broken pipe|remote process exited"
)
_RENDEZVOUS = re.compile(r"Rendezvous\w+Error")


def last_error(text: str) -> str | None:
    """Return the last line that ends a Python traceback in ``text`` (a node's log), without its prefixes.

    A launcher's own report of the failure is skipped: it only says that a rank failed, or that its store is gone.
    Without a traceback it is what the program was refused with: a file that is not there, an unknown argument.
    """
    own = rank_lines(text)
    found = _last_error(own) or _last_error(text)
    if found and "NCCL error" in found:
        return _shorten(": ".join([found, *_nccl_words(own or text)]))
    return found or _last_match(own or text, _BEFORE)


def _nccl_words(text: str) -> list[str]:
    """Return what NCCL said last of its error, where PyTorch repeats it."""
    return [_PREFIX.sub("", line).strip() for line in _NCCL_SAYS.findall(text)[-1:]]


def _shorten(line: str) -> str:
    return line if len(line) <= _LIMIT else line[: _LIMIT - 1] + "…"


def rank_lines(text: str) -> str:
    """Return the lines of a log that a launcher shows as its ranks' own, empty where it marks none."""
    return "".join(line for line in text.splitlines(keepends=True) if _PREFIX.match(line))


def rank_errors(text: str) -> dict[int, str]:
    """Return by rank the last line that ends a traceback among the lines that torchrun shows as that rank's."""
    lines: dict[int, list[str]] = {}
    for line in rank_lines(text).splitlines():
        if found := _OF_RANK.match(line):
            lines.setdefault(int(found[1]), []).append(line)
    errors = {rank: _last_error("\n".join(own)) for rank, own in lines.items()}
    return {rank: error for rank, error in errors.items() if error}


def without_launcher(text: str) -> str:
    """Return a log without the launcher's own lines where a rank says why it ended: they follow from that."""
    own = rank_lines(text)
    return own if _last_error(own) else text


def without_victims(text: str, *, is_own: bool) -> str:
    """Return a log without the network errors that followed from the end of a rank that is known.

    :param is_own: whether the log is of the node of that rank. mpirun shows the lines of all nodes in one log.
    """
    marked = rank_lines(text)
    lines = (text if is_own else marked or text).splitlines(keepends=True)
    return "".join(
        line
        for line in lines
        if not _NETWORK.search(line) or _OF_MPI.match(line) or (is_own and (not marked or _PREFIX.match(line)))
    )


def without_rendezvous(text: str) -> str:
    """Return a log without the errors of torchrun's rendezvous: after a rank has failed, they follow from that."""
    return "".join(line for line in text.splitlines(keepends=True) if not _RENDEZVOUS.search(line))


def without_stop(text: str) -> str:
    """Return a log up to where its launcher was told to end: what it prints then is about that, and no cause."""
    found = _STOP.search(text)
    return text[: text.rfind("\n", 0, found.start()) + 1] if found else text


def _last_error(text: str) -> str | None:
    return _last_match(text, _ERROR)


def _last_match(text: str, pattern: re.Pattern[str]) -> str | None:
    for raw in reversed(text.splitlines()):
        line = _PREFIX.sub("", raw).strip()
        if pattern.match(line) and not line.startswith(_OTHERS):
            return _shorten(line)
    return None
