# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that share a real JuiceFS over a real SeaweedFS: each has a mount namespace and a FUSE mount of its own.

Store and mounts can be killed and come back with what they had.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import time
import typing as t

from ansible_collections.muster.training.tests.e2e.conftest import lacking
from ansible_collections.muster.training.tests.e2e.service_world import KEYS, free_port, services_python
from ansible_collections.muster.training.tests.support.mount_world import MountWorld, can_mount
from ansible_collections.muster.training.tests.support.node_lab import eventually

VOLUME = "team"


def program() -> str:
    """Return the program of JuiceFS; where it or FUSE is not to be had, the test is not run."""
    found = pathlib.Path(services_python()).parent / "juicefs"
    reasons = (
        (not found.exists(), "MUSTER_SERVICES_PYTHON names no interpreter with JuiceFS"),
        (not can_mount(), "mounts in namespaces need root"),
        (not os.access("/dev/fuse", os.W_OK), "FUSE needs /dev/fuse"),
        (not shutil.which("fusermount3") and not shutil.which("fusermount"), "FUSE needs the program fusermount"),
    )
    for is_missing, reason in reasons:
        if is_missing:
            lacking(reason)
    return str(found)


class JuiceFsWorld(MountWorld):
    """Nodes a and b, a volume that both have at :attr:`path`, and the store that holds its data."""

    def __init__(self, root: pathlib.Path) -> None:
        super().__init__(root)
        self.program = program()
        self.meta = f"sqlite3://{root / 'meta.db'}"
        self.data = root / "weed"
        self.data.mkdir()
        self._ports = [str(free_port()) for _number in range(6)]
        self._store: subprocess.Popen[bytes] | None = None
        self.start_store()
        keys = ["--access-key", KEYS["AWS_ACCESS_KEY_ID"], "--secret-key", KEYS["AWS_SECRET_ACCESS_KEY"]]
        bucket = f"http://127.0.0.1:{self._ports[0]}/jfs"
        about = ["--storage", "s3", "--bucket", bucket, *keys, "--trash-days", "0"]
        eventually(lambda: self._format(about), "the bucket to take the volume", 60)
        for name in "ab":
            self.node(name, None)
            self.mount(name)

    def _format(self, about: t.Sequence[str]) -> bool:
        argv = [self.program, "format", *about, self.meta, VOLUME]
        return subprocess.run(argv, capture_output=True, check=False).returncode == 0

    def start_store(self) -> None:
        """Start the store where it was, with what it has."""
        weed = str(pathlib.Path(services_python()).parent / "weed")
        names = ("-s3.port", "-master.port", "-volume.port", "-filer.port", "-admin.port", "-webdav.port")
        argv = [weed, "-logdir", str(self.data), "mini", "-dir", str(self.data), "-bucket", "jfs"]
        argv += ["-ip", "127.0.0.1", "-ip.bind", "127.0.0.1", "-s3.port.iceberg", "0", "-s3.port.lance", "0"]
        argv += [word for pair in zip(names, self._ports, strict=True) for word in pair]
        with (self.root / "weed.log").open("ab") as log:
            self._store = subprocess.Popen(argv, env={**os.environ, **KEYS}, cwd=self.data, stdout=log, stderr=log)

    def kill_store(self) -> None:
        """End the store at once, as a machine that loses its power does to its programs."""
        assert self._store is not None
        self._store.kill()
        self._store.wait()

    def mount(self, name: str) -> None:
        """Mount the volume on a node, by a process of its own."""
        cache, log = self.root / f"cache-{name}", self.root / f"juicefs-{name}.log"
        words = f"--no-usage-report --cache-dir {cache} --log {log} --no-syslog --attr-cache 0 --entry-cache 0"
        self.shells[name].run(f"{self.program} mount -d {words} {self.meta} {self.path} >/dev/null 2>&1 </dev/null")

    def kill_mount(self, name: str) -> None:
        """End the program of a node's mount at once."""
        for pid in self._list_mounts(name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        eventually(lambda: not self._list_mounts(name), "the mount's program to end")

    def repair_mount(self, name: str) -> None:
        """Mount it again, as its unit does."""
        self.shells[name].run(f"umount -l {self.path} 2>/dev/null; true")
        self.mount(name)

    def _list_mounts(self, name: str) -> list[int]:
        """Return the processes of a node's mount: JuiceFS has a parent that starts another one."""
        found = []
        for place in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                # It writes its own command line, as one word.
                words = (place / "cmdline").read_bytes()
                alive = (place / "stat").read_text().rpartition(") ")[2][:1] != "Z"
                if alive and f"{self.root}/cache-{name}".encode() in words and self.program.encode() in words:
                    found.append(int(place.name))
        return found

    def close(self) -> None:
        """End everything, the mounts before the store that they ask."""
        for name in self.shells:
            self.kill_mount(name)
        super().close()
        self.kill_store()
        time.sleep(0.1)
