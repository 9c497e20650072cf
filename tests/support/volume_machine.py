# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""This machine in a mount namespace of its own, where the roles install and mount a volume of JuiceFS.

A small program stands in for systemctl: it starts what a unit says, and starts it again when it fails, as systemd does.
Machines with systemd itself are in tests/lab.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import typing as t

from ansible_collections.muster.training.tests.support.run_inventory import environment

Dict = dict[str, t.Any]
SYSTEMCTL: t.Final = r"""
import os, pathlib, shlex, signal, subprocess, sys, time
root, words = pathlib.Path(os.environ["ROOT"]), sys.argv[1:]
unit = next((word for word in words if word.endswith(".service")), "")
with (root / "asked").open("a") as file: file.write(" ".join(words) + "\n")
place, pid = pathlib.Path("/etc/systemd/system") / unit, root / f"{unit}.pid"
def lines(key):
    found = [line.partition("=")[2] for line in place.read_text().splitlines() if line.startswith(key + "=")]
    return [line.replace("%%", "%") for line in found]
def alive():
    return pid.exists() and pathlib.Path("/proc", pid.read_text()).exists()
def start():
    env = {"PATH": os.environ["PATH"]} | dict(line.split("=", 1) for line in lines("Environment"))
    for line in lines("ExecStartPre"): subprocess.run(shlex.split(line.lstrip("-")), env=env, stderr=subprocess.DEVNULL)
    with (root / f"{unit}.log").open("ab") as log:
        process = subprocess.Popen(shlex.split(lines("ExecStart")[0]), env=env, stdout=log, stderr=log, start_new_session=True)
    for line in lines("ExecStartPost"):
        if subprocess.run(shlex.split(line), env={**env, "MAINPID": str(process.pid)}, timeout=60).returncode: return process, False
    return process, True
if words[0] == "show":
    state = "active" if alive() else "inactive"
    print(f"Id={unit}\nLoadState=loaded\nActiveState={state}\nUnitFileState=enabled")
elif words[0] == "is-enabled": print("enabled" if alive() else "disabled"); sys.exit(not alive())
elif words[0] == "start" and not alive():
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        pid.write_text(str(os.getpid()))
        process, ready = start()
        os.write(write, b"1" if ready else b"0")
        for number in (0, 1, 2, read, write): os.close(number)
        while ready and process.wait() not in (0, -signal.SIGTERM):
            time.sleep(0.2)
            process, _ready = start()
        os._exit(0)
    os.close(write)
    sys.exit(os.read(read, 1) != b"1")
elif words[0] == "stop":
    while alive(): time.sleep(0.05)
    pid.unlink(missing_ok=True)
"""
OVERLAYS: t.Final = """set -e
for place in /etc /usr/local/lib /var/cache; do
    mkdir -p $ROOT/over$place/upper $ROOT/over$place/work $place
    mount -t overlay overlay -o lowerdir=$place,upperdir=$ROOT/over$place/upper,workdir=$ROOT/over$place/work $place
done
mount -t tmpfs tmpfs /run/systemd 2>/dev/null || { mkdir -p /run/systemd && mount -t tmpfs tmpfs /run/systemd; }
mkdir -p /run/systemd/system
echo ready
exec sleep 3600
"""


class VolumeMachine:
    """``release``: a folder with the program of JuiceFS, as its project packs it."""

    def __init__(self, root: pathlib.Path, program: str) -> None:
        self.root = root
        self.path, self.release = root / "mnt", root / "release"
        for place in (root / "bin", self.release, self.path):
            place.mkdir()
        with tarfile.open(self.release / "juicefs-1.4.2-linux-amd64.tar.gz", "w:gz", compresslevel=1) as archive:
            archive.add(program, "juicefs")
        self._program("systemctl", f'exec {sys.executable} {root / "systemctl.py"} "$@"')
        (root / "systemctl.py").write_text(SYSTEMCTL)
        self._program("journalctl", 'tail -n 20 "$ROOT"/*.service.log')
        self.env = {**environment(root), "ROOT": str(root), "PATH": f"{root / 'bin'}:{os.environ['PATH']}"}
        unshare = ["unshare", "-m", "--propagation", "private", "sh", "-c", OVERLAYS]
        self._holder = subprocess.Popen(unshare, env=self.env, stdout=subprocess.PIPE, text=True)
        assert self._holder.stdout is not None and self._holder.stdout.readline() == "ready\n"

    def _program(self, name: str, text: str) -> None:
        place = self.root / "bin" / name
        place.write_text(f"#!/bin/sh\n{text}\n")
        place.chmod(0o755)

    def inside(self, *argv: str) -> list[str]:
        """Return the command that runs another one on the machine."""
        return [str(shutil.which("nsenter")), f"--mount=/proc/{self._holder.pid}/ns/mnt", *argv]

    def run(self, script: str, check: bool = True) -> str:
        """Run a command of root and return what it prints."""
        done = subprocess.run(
            self.inside("sh", "-c", script), env=self.env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0 or not check, done.stdout + done.stderr
        return done.stdout.strip()

    def play(self, tasks: t.Sequence[Dict], values: Dict, env: t.Mapping[str, str], *words: str) -> tuple[int, str]:
        """Run tasks on the machine by ansible-playbook; return its code and what it printed."""
        known = {"ansible_python_interpreter": sys.executable, "ansible_become": False,
                 "muster_state": {"path": str(self.root / "state")}, "filesystem_client_source": str(self.release)}  # fmt: skip
        play = {"hosts": "localhost", "gather_facts": False, "vars": {**known, **values}, "tasks": list(tasks)}
        (self.root / "play.yml").write_text(json.dumps([play]))
        program = str(pathlib.Path(sys.executable).parent / "ansible-playbook")
        place = str(self.root / "play.yml")
        argv = self.inside(program, "-i", "localhost,", "-c", "local", place, *words)
        done = subprocess.run(argv, cwd=self.root, env={**self.env, **env}, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def kill_programs(self) -> None:
        """End the programs of the mount at once; JuiceFS has a parent that starts another one."""
        for place in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (place / "cmdline").read_bytes()
                if b"juicefs" in words and str(self.path).encode() in words and b" mount" in words.replace(b"\0", b" "):
                    os.kill(int(place.name), signal.SIGKILL)

    def close(self) -> None:
        """End what its units started, and the machine."""
        for place in self.root.glob("*.service.pid"):
            self.run(f"kill -9 {place.read_text()}", check=False)
        self.run(f"umount -l {self.path}", check=False)
        self.kill_programs()
        self._holder.kill()
        self._holder.communicate()
