# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes with real mounts: each has a mount namespace of its own, in which a file system is at one path, or not."""

from __future__ import annotations

import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import typing as t

from ansible_collections.muster.training.tests.support.node_lab import NodeShell, eventually
from ansible_collections.muster.training.tests.support.run_world import RunWorld

_ENTER = shutil.which("nsenter") or "nsenter"


def can_mount() -> bool:
    """Return whether this user may mount in a namespace."""
    found = shutil.which("unshare") and shutil.which("nsenter") and os.geteuid() == 0
    return bool(found) and subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode == 0


class MountShell(NodeShell):
    """A connection to a node: its commands run in the holder's namespace, with mounts of the node's own above it.

    Of a node, one namespace is kept: what is mounted for it stays.
    """

    def __init__(self, env: t.Mapping[str, str], holder: int, mounts: str) -> None:
        super().__init__(env)
        script = f"{mounts or 'true'} && echo ready && exec sleep 3600"
        argv = [
            "nsenter",
            f"--mount=/proc/{holder}/ns/mnt",
            "unshare",
            "-m",
            "--propagation",
            "slave",
            "sh",
            "-c",
            script,
        ]
        self._process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self._process.stdout is not None and self._process.stderr is not None
        assert self._process.stdout.readline() == "ready\n", self._process.stderr.read()

    def __call__(self, command: str, data: bytes) -> tuple[int, str, str]:
        self.sent += len(data)
        inner = f"cd / && umask 000; {command}"
        argv = [_ENTER, f"--mount=/proc/{self._process.pid}/ns/mnt", "/bin/sh", "-c", inner]
        done = subprocess.run(argv, input=data, capture_output=True, env=self.env, check=False)
        return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")

    def run(self, script: str) -> str:
        """Run a command of the node's root."""
        argv = [_ENTER, f"--mount=/proc/{self._process.pid}/ns/mnt", "sh", "-c", script]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout

    def close(self) -> None:
        """End its namespace."""
        self._process.kill()
        self._process.communicate()


class MountWorld(RunWorld):
    """Nodes, and file systems that they may have at :attr:`path`. ``systems`` is name -> options of a tmpfs."""

    def __init__(self, root: pathlib.Path) -> None:
        super().__init__(root)
        self.path, self.store = root / "shared", root / "systems"
        for place in (self.path, self.store):
            place.mkdir()
        self.shells: dict[str, MountShell] = {}
        script = f"mount -t tmpfs -o size=256m store {shlex.quote(str(self.store))} && echo ready && exec sleep 3600"
        self._holder = subprocess.Popen(
            ["unshare", "-m", "--propagation", "private", "sh", "-c", script], stdout=subprocess.PIPE, text=True
        )
        assert self._holder.stdout is not None and self._holder.stdout.readline() == "ready\n"

    def system(self, name: str, options: str = "size=64m") -> str:
        """Make a file system; return its folder in the namespace of all nodes."""
        place = self.store / name
        self.hold(f"mkdir {place} && mount -t tmpfs -o {options} {name} {place}")
        return str(place)

    def hold(self, script: str) -> str:
        """Run a command where all file systems are."""
        argv = [_ENTER, f"--mount=/proc/{self._holder.pid}/ns/mnt", "sh", "-c", script]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout

    def node(self, name: str, system: str | None, options: str = "") -> MountShell:
        """Give a node the file system at the path, none with None."""
        mounts = f"mount --bind {system} {self.path}" if system else ""
        if options:
            mounts += f" && mount -o remount,bind,{options} {self.path}"
        if name not in self.nodes and not self.lab.state(name).exists():
            self.lab.installed(name)
        shell = self.shells[name] = MountShell(self.lab.env, self._holder.pid, mounts)
        self.nodes[name] = self.lab.remote(name, shell=shell)
        return shell

    def close(self) -> None:
        super().close()
        for shell in self.shells.values():
            shell.close()
        self._holder.send_signal(signal.SIGKILL)
        self._holder.wait()
        eventually(lambda: self._holder.poll() is not None, "the namespace to end")
