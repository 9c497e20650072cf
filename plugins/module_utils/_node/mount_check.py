# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether this node can use a shared file system, and whether it is the one that the other nodes have."""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import time
import typing as t

from .mount_marker import FILE, Child, read_marker

NodeRequest = t.Mapping[str, t.Any]
FOLDER: t.Final = ".muster-check"
_BYTES: t.Final = 4 << 20
_FILES: t.Final = 100
_AGAIN_S: t.Final = 0.1


def read_mount(path: str, table: str) -> dict[str, t.Any]:
    """Return ``{type, source, device, root}`` of the mount that ``path`` is on; ``table`` is /proc/self/mountinfo.

    Its format: proc(5), "/proc/pid/mountinfo". Of mounts on one folder the last one is seen.
    """
    found: dict[str, t.Any] = {"type": "", "source": "", "device": "", "point": ""}
    for line in table.splitlines():
        left, _dash, right = line.partition(" - ")
        fields, about = left.split(" "), right.split(" ")
        point = _unescape(fields[4])
        if (path == point or path.startswith(point.rstrip("/") + "/")) and len(point) >= len(found["point"]):
            found = {"type": about[0], "source": _unescape(about[1]), "device": fields[2], "point": point}
    return found


def _unescape(text: str) -> str:
    """Return a name of the kernel's tables, where blanks are octal numbers."""
    parts = text.split("\\")
    return parts[0] + "".join(chr(int(part[:3], 8)) + part[3:] for part in parts[1:])


def start(request: NodeRequest) -> Child:
    """Begin the check of one file system: ``path``, and ``probe`` where something may be written there."""
    return Child(lambda: check(request))


def check(request: NodeRequest) -> dict[str, t.Any]:
    """Look at a file system and, where that is asked for, use it as jobs do. Only in a child."""
    path = str(request["path"])
    found: dict[str, t.Any] = {"user": os.geteuid()}
    step = "list"
    try:
        # First: a file system that is mounted on demand is mounted by this.
        os.listdir(path)
        found |= _describe(path)
        if found["is_own_disk"] and not request.get("any_disk"):
            # Nothing is written to a disk that is not the shared one.
            return found
        found["marker"] = read_marker(path)
        probe = request.get("probe")
        if probe and _is_wanted(found, request):
            step = "marker"
            if found["marker"] is None and not probe.get("unmarked"):
                found |= _make_marker(path)
            for name, do in _Probe(path, probe, found).steps():
                step = name
                do()
    except OSError as exc:
        ended = {errno.ENOENT: "absent", errno.ENOTDIR: "folder"}.get(exc.errno or 0) if step == "list" else None
        return {**found, "failed": ended or step, "error": errno.errorcode.get(exc.errno or 0, type(exc).__name__)}
    return found


def _is_wanted(found: t.Mapping[str, t.Any], request: NodeRequest) -> bool:
    """Return whether it is of a type that is written to: by mistake another file system may be there."""
    names = request.get("types") or []
    return not names or any(found["type"] == name or found["type"].startswith(f"{name}.") for name in names)


def _describe(path: str) -> dict[str, t.Any]:
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        table = file.read()
    mount = read_mount(os.path.realpath(path), table)
    # In a pod, Kubernetes takes this file from the disk of the node.
    own = {read_mount(item, table)["device"] for item in ("/", "/etc/hosts")}
    stat = os.statvfs(path)
    counts = stat.f_files > 0
    return {
        "type": mount["type"],
        # WebDAV and others may have a user and a password in it.
        "source": re.sub(r"//[^/@]*@", "//", mount["source"]),
        "is_own_disk": mount["device"] in own,
        "free_bytes": stat.f_bavail * stat.f_frsize if stat.f_blocks else None,
        "free_files": stat.f_favail if counts else None,
    }


def _make_marker(path: str) -> dict[str, t.Any]:
    """Create the marker; where another node was faster, read its one."""
    text = os.urandom(12).hex()
    try:
        number = os.open(os.path.join(path, FILE), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        return {"marker": read_marker(path)}
    with os.fdopen(number, "w") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(number)
    return {"marker": text, "made": True}


class _Probe:
    """What a job does with files, and what another node that does the same sees of it.

    ``token`` is of the check, ``node`` of this one, ``writer`` whose file it reads within ``wait_s``.
    """

    def __init__(self, path: str, request: NodeRequest, found: dict[str, t.Any]) -> None:
        self.top = os.path.join(path, FOLDER)
        self.folder = os.path.join(self.top, str(request["token"]))
        self.node, self.writer = str(request["node"]), str(request["writer"])
        self.token, self.wait_s, self.found = str(request["token"]), float(request["wait_s"]), found
        self._lock = -1

    def steps(self) -> t.Iterator[tuple[str, t.Callable[[], object]]]:
        """Yield what is done, each with the word by which a failure names it."""
        yield "mkdir", self._make_folder
        yield "write", self._write
        yield "rename", self._rename
        yield "small files", self._write_small
        yield "read", self._read_other
        yield "delete", self._delete

    def _place(self, kind: str, node: str) -> str:
        return os.path.join(self.folder, f"{kind}-{hashlib.sha256(node.encode()).hexdigest()[:16]}")

    def _content(self, node: str) -> bytes:
        return hashlib.shake_256(f"{self.token} {node}".encode()).digest(_BYTES)

    def _make_folder(self) -> None:
        for _try in range(5):
            # Another check that ends removes the folder above.
            with contextlib.suppress(FileNotFoundError):
                os.makedirs(self.folder, exist_ok=True)
                return
        os.makedirs(self.folder)

    def _write(self) -> None:
        content, began = self._content(self.node), time.monotonic()
        self._lock = os.open(self._place("new", self.node), os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        view = memoryview(content)
        while view:
            view = view[os.write(self._lock, view) :]
        os.fsync(self._lock)
        seconds = time.monotonic() - began
        os.lseek(self._lock, 0, os.SEEK_SET)
        if os.read(self._lock, _BYTES) != content:
            raise OSError(errno.EIO, "reads otherwise than it was written")
        self.found["mb_per_s"] = _BYTES / 1e6 / max(seconds, 1e-6)
        self.found["owner"] = os.fstat(self._lock).st_uid
        self.found["locks"] = "own" if _try_lock(self._lock) else "none"

    def _rename(self) -> None:
        target = self._place("file", self.node)
        with open(target, "wb"):
            pass
        os.replace(self._place("new", self.node), target)
        self.found["wrote"] = True

    def _write_small(self) -> None:
        began = time.monotonic()
        names = [self._place(f"small{number}", self.node) for number in range(_FILES)]
        for name in names:
            with open(name, "wb") as file:
                file.write(b"muster")
        for name in names:
            os.unlink(name)
        self.found["latency_ms"] = (time.monotonic() - began) * 1000 / _FILES

    def _read_other(self) -> None:
        """See what the other node wrote, and that its lock holds here; say so, and wait until another has seen ours."""
        until = time.monotonic() + self.wait_s
        place = self._place("file", self.writer)
        if self.writer == self.node:
            return
        if not self._wait_for(lambda: _has_content(place, self._content(self.writer)), until):
            self.found["unread"] = True
            return
        if self.found["locks"] == "own":
            number = os.open(place, os.O_RDWR)
            self.found["locks"] = "local" if _try_lock(number) else "shared"
            os.close(number)
        with open(self._place("seen", self.writer), "wb"):
            pass
        self._wait_for(lambda: os.path.exists(self._place("seen", self.node)), until)

    def _wait_for(self, is_there: t.Callable[[], bool], until: float) -> bool:
        while True:
            # Has a network file system ask its server again.
            os.listdir(self.folder)
            if is_there():
                return True
            if time.monotonic() > until:
                return False
            time.sleep(_AGAIN_S)

    def _delete(self) -> None:
        os.close(self._lock)
        for kind in ("file", "seen"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._place(kind, self.node))
        for folder in (self.folder, self.top):
            # Others may still be at work in it.
            with contextlib.suppress(OSError):
                os.rmdir(folder)


def _has_content(place: str, content: bytes) -> bool:
    try:
        with open(place, "rb") as file:
            return file.read() == content
    except FileNotFoundError:
        return False


def _try_lock(number: int) -> bool:
    try:
        fcntl.lockf(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def clean_up(request: NodeRequest) -> dict[str, t.Any]:
    """Delete what a check left: all of its ``token``, and with ``marker`` the marker that has this content."""
    child = Child(lambda: _clean_up(str(request["path"]), str(request["token"]), request.get("marker")))
    return child.answer(time.monotonic() + float(request["limit_s"]))


def _clean_up(path: str, token: str, marker: str | None) -> dict[str, t.Any]:
    top = os.path.join(path, FOLDER)
    folder = os.path.join(top, token)
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
    for place in (folder, top):
        with contextlib.suppress(OSError):
            os.rmdir(place)
    if marker and read_marker(path) == marker:
        os.unlink(os.path.join(path, FILE))
    return {"ok": True}
