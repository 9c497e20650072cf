# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of runs on a node: their folders, and writes that leave the old or the new content after a crash."""

from __future__ import annotations

import json
import os
import pathlib
import pwd
import re
import threading
import time
import typing as t

# Bytes; file systems allow 255, of which endings take some.
_LONGEST_NAME = 200
# A write that has not grown for so long is of a process that was killed.
LEFT_S = 600.0
# The files whose leavings this process has looked for.
_cleared: set[pathlib.Path] = set()


def home_dir() -> pathlib.Path:
    """Return the home directory of this user, also when HOME is unset."""
    return pathlib.Path(os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir)


def login_environment() -> dict[str, str]:
    """Return the variables that a login of this user sets, HOME, USER, LOGNAME and SHELL; none for a nameless user."""
    try:
        user = pwd.getpwuid(os.getuid())
    except KeyError:
        return {}
    return {"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name, "SHELL": user.pw_shell or "/bin/sh"}


def state_root(node: str, override: str | None = None) -> pathlib.Path:
    """Return this node's state folder. Two nodes on one machine (a lab) differ by their inventory name."""
    node = re.sub(r"[^A-Za-z0-9._-]", "_", node).lstrip(".") or "_"
    if override:
        return pathlib.Path(override).expanduser() / node
    base = os.environ.get("XDG_STATE_HOME")
    return (pathlib.Path(base) if base else home_dir() / ".local" / "state") / "muster" / "nodes" / node


def plain_name(name: t.Any) -> str:
    """Return the name of a file for ``name``, which a server or a program may have chosen: it stays in its folder."""
    letters = (letter if letter.isalnum() or letter in "-._" else "_" for letter in str(name))
    return "".join(letters).lstrip(".").encode()[:_LONGEST_NAME].decode(errors="ignore") or "_"


def private_dir(path: pathlib.Path) -> pathlib.Path:
    """Create ``path`` and missing parents, each with mode 0700 whatever the umask says, and return it."""
    for folder in [*reversed(path.parents), path]:
        if not folder.exists():
            folder.mkdir(mode=0o700, exist_ok=True)
            os.chmod(folder, 0o700)
    return path


def clear_left(
    folder: pathlib.Path, begin: str, end: str, older_s: float = LEFT_S, keep: t.Container[str] = ()
) -> None:
    """Remove what killed processes left in a folder: files and trees whose names begin and end so, but those to keep.

    What was written to within ``older_s`` seconds may be a write of another process.
    """
    try:
        names = [item for item in os.listdir(folder) if item.startswith(begin) and item.endswith(end)]
    except OSError:
        return
    for name in names:
        place = folder / name
        if name not in keep and time.time() - _newest_write(place) > older_s:
            # Late: few writes find anything.
            import shutil

            shutil.rmtree(place, ignore_errors=True) if place.is_dir() and not place.is_symlink() else unlink(place)


def unlink(place: pathlib.Path) -> None:
    """Remove a file, if that is possible."""
    try:
        place.unlink(missing_ok=True)
    except OSError:
        pass


def _newest_write(place: pathlib.Path) -> float:
    """Return when something of a file or a tree was written last, now where that cannot be read."""
    try:
        inner = [] if place.is_symlink() or not place.is_dir() else list(place.rglob("*"))
        return max(item.lstat().st_mtime for item in (place, *inner))
    except OSError:
        return time.time()


def write_atomic(path: pathlib.Path, data: bytes, mode: int = 0o600) -> None:
    """Replace ``path`` so that a reader, or a restart after a crash, sees the old or the new content only."""
    if path not in _cleared:
        _cleared.add(path)
        clear_left(path.parent, f".{path.name}.", ".tmp")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except OSError as exc:
        # A full disk must not keep a partial file.
        unlink(temporary)
        raise _name_file(exc, path) from exc


def _name_file(exc: OSError, path: pathlib.Path) -> OSError:
    """Return the error of a write with its file, which that of a full disk does not name."""
    return exc if exc.errno is None else OSError(exc.errno, exc.strerror, str(path))


def write_json(path: pathlib.Path, value: t.Any, mode: int = 0o600) -> None:
    """Replace ``path`` by the JSON text of ``value``."""
    write_atomic(path, json.dumps(value, separators=(",", ":")).encode(), mode)


def read_json(path: pathlib.Path) -> t.Any:
    """Return the JSON value in ``path``, or None when the file is missing, torn or unreadable."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


def read_text(path: pathlib.Path) -> str:
    """Return the text of a file, empty when it is missing or unreadable; bytes that are not UTF-8 are replaced."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def parse_json_lines(text: str | bytes) -> t.Iterator[dict[str, t.Any]]:
    """Yield the JSON objects of a piece of a JSON-lines file; a torn or foreign line is skipped."""
    for raw in text.splitlines():
        try:
            value = json.loads(raw)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield value


def json_line(value: t.Mapping[str, t.Any]) -> str:
    """Return a value as one line of a JSON-lines file."""
    return json.dumps(value, separators=(",", ":")) + "\n"


def append_json(path: pathlib.Path, value: t.Mapping[str, t.Any]) -> None:
    """Append one JSON line with a single write, so that lines of several processes never mix."""
    append_text(path, json_line(value))


def append_text(path: pathlib.Path, text: str) -> None:
    """Append ``text`` with a single write to a file of mode 0600, never through a symbolic link."""
    line = text.encode(errors="replace")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    try:
        while line:
            # A disk that is nearly full takes a part; the next write says that it is full.
            line = line[os.write(descriptor, line) :]
    except OSError as exc:
        raise _name_file(exc, path) from exc
    finally:
        os.close(descriptor)


def sha256_of(place: pathlib.Path) -> str:
    """Return the SHA-256 digest of a file's content, in hexadecimal; a large file is read in pieces."""
    # Few requests to a node need it.
    import hashlib

    digest = hashlib.sha256()
    with place.open("rb") as handle:
        while data := handle.read(1 << 20):
            digest.update(data)
    return digest.hexdigest()
