# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One list of the sinks into which a secret could leak, and a search that reads them all in every encoding.

A search that cannot fail proves nothing: :func:`seed` puts a value into each sink, and a test asserts that it is found.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import gzip
import json
import os
import pathlib
import subprocess
import sys
import typing as t
import urllib.parse
import zlib

Chunks = t.Iterator[tuple[str, bytes]]


@dataclasses.dataclass(frozen=True)
class Places:
    """Where a run left something: folders of controller and nodes, output, and what the processes of the run are."""

    controller: pathlib.Path
    nodes: pathlib.Path
    outputs: tuple[pathlib.Path, ...]
    own_pids: frozenset[int] = frozenset()


def encodings(value: str) -> dict[str, bytes]:
    """Return the forms in which a value could be written, by name."""
    raw = value.encode()
    return {
        "raw": raw,
        "base64": base64.b64encode(raw).rstrip(b"="),
        "base64 with newline": base64.b64encode(raw + b"\n").rstrip(b"="),
        "url": urllib.parse.quote(value, safe="").encode(),
        "json": json.dumps(value)[1:-1].encode(),
        "hex": raw.hex().encode(),
    }


def _files(top: pathlib.Path) -> Chunks:
    for path in sorted(top.rglob("*")):
        if path.is_file() and not path.is_symlink():
            yield str(path), path.read_bytes()


def _processes(name: str) -> t.Callable[[Places], Chunks]:
    def read(places: Places) -> Chunks:
        own = {os.getpid(), *places.own_pids}
        for entry in os.listdir("/proc"):
            if entry.isdigit() and int(entry) not in own:
                with contextlib.suppress(OSError):
                    yield f"/proc/{entry}/{name}", pathlib.Path("/proc", entry, name).read_bytes()

    return read


SINKS: t.Final[dict[str, t.Callable[[Places], Chunks]]] = {
    "output": lambda places: ((str(path), path.read_bytes()) for path in places.outputs),
    "controller files (ledger, bindings, run record, events, logs, report)": lambda places: _files(places.controller),
    "node files": lambda places: _files(places.nodes),
    "argv of all processes": _processes("cmdline"),
    "environment of other processes": _processes("environ"),
}


def find_leaks(value: str, places: Places, sinks: t.Collection[str] = tuple(SINKS)) -> list[str]:
    """Return ``sink: place (encoding)`` for each place that holds the value in any encoding, packed or not."""
    wanted = encodings(value)
    found = []
    for sink in sinks:
        for place, data in SINKS[sink](places):
            for packing, text in (("", data), *_unpack(data)):
                found += [f"{sink}: {place} ({name}{packing})" for name, form in wanted.items() if form in text]
    return found


def _unpack(data: bytes) -> t.Iterator[tuple[str, bytes]]:
    if data[:2] == b"\x1f\x8b":
        with contextlib.suppress(OSError, EOFError, zlib.error):
            yield " in gzip", gzip.decompress(data)


@contextlib.contextmanager
def seed(sink: str, text: bytes, places: Places) -> t.Iterator[None]:
    """Put ``text`` where a sink looks, for as long as the block runs."""
    if sink.startswith(("argv", "environment")):
        code = "import sys; print(flush=True); sys.stdin.read()"
        extra = [os.fsdecode(text)] if sink.startswith("argv") else []
        environment = {"LEAK": os.fsdecode(text)} if sink.startswith("environment") else {}
        argv = [sys.executable, "-I", "-S", "-c", code, *extra]
        with subprocess.Popen(argv, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            t.cast("t.IO[bytes]", process.stdout).readline()
            yield
            t.cast("t.IO[bytes]", process.stdin).close()
        return
    top = {"output": places.outputs[0].parent, "node files": places.nodes}.get(sink, places.controller)
    place = places.outputs[0] if sink == "output" else top / "seeded-leak"
    before = place.read_bytes() if place.exists() else None
    place.write_bytes(text if text[:2] == b"\x1f\x8b" else (before or b"") + b"x " + text)
    try:
        yield
    finally:
        if before is None:
            place.unlink()
        else:
            place.write_bytes(before)
