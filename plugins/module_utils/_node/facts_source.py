# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads facts: files below roots that a test can move, tools with a timeout, and a list of problems.

No value of a machine raises an error: one that is missing is None, and one that vanishes, cannot be read or means
``unknown`` is None with a line in ``problems``. Standard library only, Python 3.10.
"""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import os
import re
import shutil
import typing as t

MAX_BYTES = 4 << 20
# The kernel allocates what a read of /proc/sys asks for, so it is asked in pieces.
_PIECE = 1 << 16
TOOL_TIMEOUT_S = 5.0
_NOTHING = {"", "unknown", "n/a", "[n/a]", "[not supported]", "not supported", "none"}
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")
T = t.TypeVar("T")


def clean_value(value: str | None) -> str | None:
    """Return ``value`` without surrounding space, or None where it means unknown."""
    stripped = _CONTROL.sub(" ", value or "").strip()
    return None if stripped.lower() in _NOTHING else stripped


class FactsSource:
    """The folders that facts are read from. ``root`` moves all of them; each can be moved by itself.

    ``path`` holds the folders that tools are searched in; standard ones are added because a non-interactive SSH
    session often lacks the sbin folders.
    """

    def __init__(self, request: t.Mapping[str, t.Any]) -> None:
        self.root = str(request.get("root") or "/")
        self.proc = str(request.get("proc_root") or os.path.join(self.root, "proc"))
        self.sys = str(request.get("sys_root") or os.path.join(self.root, "sys"))
        self.dev = str(request.get("dev_root") or os.path.join(self.root, "dev"))
        folders = request.get("path")
        standard = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
        self.path: list[str] = (
            [str(item) for item in folders]
            if folders is not None
            else [*os.environ.get("PATH", "").split(os.pathsep), *standard]
        )
        self.timeout_s = float(request.get("tool_timeout_s") or TOOL_TIMEOUT_S)
        self.problems: list[str] = []

    @property
    def live(self) -> bool:
        """Return whether the facts are those of the running kernel, which may then be asked directly."""
        return self.proc == "/proc"

    def problem(self, text: str) -> None:
        """Record one line, once."""
        if text not in self.problems:
            self.problems.append(text)

    def data(self, path: str, limit: int = MAX_BYTES) -> bytes | None:
        """Return at most ``limit`` bytes of a file; None when there is none."""
        try:
            with open(path, "rb", buffering=0) as handle:
                pieces = [handle.read(min(_PIECE, limit))]
                while pieces[-1] and sum(map(len, pieces)) < limit:
                    pieces.append(handle.read(_PIECE))
                return b"".join(pieces)[:limit]
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as exc:
            # EINVAL is how sysfs says that a value does not apply now, such as the speed of a link that is down.
            if exc.errno not in (13, 22):
                self.problem(f"{path}: {exc.strerror}")
            return None

    def text(self, path: str) -> str | None:
        """Return a file's first line without surrounding space; None when it is missing, empty or unknown."""
        raw = self.data(path)
        return None if raw is None else clean_value(raw.partition(b"\n")[0].decode(errors="replace"))

    def lines(self, path: str) -> list[str]:
        """Return a file's lines; none when it is missing."""
        return (self.data(path) or b"").decode(errors="replace").splitlines()

    def need(self, path: str, label: str) -> str | None:
        """Return a text that should be there; its absence is a problem called ``label``."""
        value = self.text(path)
        if value is None:
            self.problem(f"{label} is unknown")
        return value

    def number(self, path: str, label: str | None = None) -> int | None:
        """Return a whole number of at least 0; ``label`` makes its absence a problem."""
        value = self.text(path) or ""
        if re.fullmatch(r"[0-9]{1,18}", value):
            return int(value)
        if label:
            self.problem(f"{label} is unknown")
        return None

    def names(self, path: str) -> list[str]:
        """Return the sorted names in a folder; none when it is missing."""
        try:
            return sorted(os.listdir(path))
        except OSError:
            return []

    def below(self, path: str) -> str:
        """Return an absolute path of the machine below this source's root."""
        return os.path.join(self.root, path.lstrip("/"))

    def run(self, tool: str, *args: str, accept: t.Collection[int] = (0,)) -> str | None:
        """Return what a tool prints; None when it is not installed, fails or takes longer than the timeout.

        :param accept: the exit statuses that are no failure.
        """
        program = shutil.which(tool, path=os.pathsep.join(self.path))
        if program is None:
            return None
        import subprocess  # 10 ms that a node without such tools need not pay

        try:
            done = subprocess.run(
                [program, *args], stdin=subprocess.DEVNULL, capture_output=True, timeout=self.timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            self.problem(f"{tool} did not answer within {self.timeout_s:g} s")
            return None
        except OSError as exc:
            self.problem(f"{tool} cannot be run: {exc.strerror}")
            return None
        if done.returncode not in accept:
            message = (done.stderr or done.stdout).decode(errors="replace").strip().partition("\n")[0]
            reason = clean_value(message) or "no message"
            self.problem(f"{tool} failed with {done.returncode}: {reason[:120]}")
            return None
        return done.stdout.decode(errors="replace")

    def guard(self, label: str, read: t.Callable[[], T], default: t.Any) -> T:
        """Return ``read()``; ``default`` and a problem when the machine's data has an unexpected form."""
        try:
            return read()
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as exc:
            self.problem(f"{label} cannot be read: {type(exc).__name__}: {exc}")
            return t.cast(T, default)
