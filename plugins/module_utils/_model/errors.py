# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one exception tree of the collection.

Capabilities raise; the error boundary (``plugin_utils/_ansible/errors.py``) turns an error into one scrubbed line. A
message says what is wrong and where; ``fix`` says what to do about it.
"""

from __future__ import annotations

import re

# Controls of a terminal, ends of lines, and marks that let a line read as another one than it is.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")
# What steers a terminal: sequences that begin with ESC or its one-byte form (ECMA-48: CSI, then OSC and other strings,
# then all others), and single controls but tabs and ends of lines.
_STEERING = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]|(?:\x1b[P\\]X^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\\\|\x9c)?"
    "|\x1b[ -/]*[0-~]?|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)


def plain_lines(text: str) -> str:
    """Return lines of a program without what would steer the terminal of who reads them; ``\\r`` ends a line."""
    return _STEERING.sub("", text).replace("\r\n", "\n").replace("\r", "\n")


def one_line(text: str) -> str:
    """Return ``text`` as one line without terminal control characters: programs and servers may send anything."""
    return _CONTROLS.sub(" ", text)


class MusterError(Exception):
    """Base of all errors that a user may see.

    :param message: what is wrong and where, one line, no secret.
    :param fix: what the user can do, one line; empty when the message already says it.
    """

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.message.removesuffix('.')}. {self.fix}" if self.fix else self.message


class InputError(MusterError):
    """An option has a wrong name or value. ``option`` is its dotted path, such as ``job.restart.max_crashes``."""

    def __init__(self, option: str, problem: str, fix: str = "") -> None:
        super().__init__(f"{option}: {problem}", fix)
        self.option = option


class RefusedError(MusterError):
    """The request is well formed but must not be carried out here (preflight, placement, policy, ownership)."""


class LockHeldError(RefusedError):
    """Another process holds the lock; the message names it."""


class NodeError(MusterError):
    """Something failed on one node. ``node`` is its inventory name."""

    def __init__(self, node: str, problem: str, fix: str = "") -> None:
        super().__init__(f"{node}: {problem}", fix)
        self.node = node


class UnreachableError(NodeError):
    """The node did not answer over its connection; whether the request took effect is unknown."""


class StoppedNodeError(NodeError):
    """A node is not started again: the run was stopped on it meanwhile."""


class EmptiedError(NodeError):
    """The node answers, but what a run had on it is gone: its disk is new, or was emptied."""


class TransportError(MusterError):
    """There was no usable HTTP response: refused, timed out, cut short, too large, or of an unexpected shape.

    ``ambiguous`` is true when the request may have taken effect although no response was received.
    """

    def __init__(self, message: str, fix: str = "", *, ambiguous: bool = False) -> None:
        super().__init__(message, fix)
        self.ambiguous = ambiguous


class ApiError(TransportError):
    """An HTTP response with an error status. Holds method, path, status and the server's request id, never a body."""

    def __init__(
        self, method: str, path: str, status: int, detail: str = "", *, request_id: str = "", fix: str = ""
    ) -> None:
        suffix = f": {detail}" if detail else ""
        trace = f" (request {request_id})" if request_id else ""
        super().__init__(f"{method} {path} answered {status}{suffix}{trace}", fix, ambiguous=status >= 500)
        self.status = status


class ProviderError(MusterError):
    """Creating or terminating machines failed. ``created_ids`` are machines that exist and may bill."""

    def __init__(self, message: str, fix: str = "", *, created_ids: tuple[str, ...] = ()) -> None:
        ids = f" (may be billing: {', '.join(created_ids)})" if created_ids else ""
        super().__init__(f"{message}{ids}", fix)
        self.created_ids = created_ids
