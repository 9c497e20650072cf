# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two nodes in network namespaces with a real sshd each, whose links are cut as a pulled cable cuts them: no reset comes.

The controller runs in the namespace of the switch. Cutting a link takes it down there, so that nothing tells either end.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import time
import typing as t

from ansible_collections.muster.training.tests.e2e.playbook_world import NODES, Play, World, until
from ansible_collections.muster.training.tests.lab.fabric.netns import Net, Wire, unmet
from ansible_collections.muster.training.tests.support import debian

_MBIT = 1000.0
# One rank that makes five steps a second, saves every tenth and ends when the file "finish" appears.
STEPS = """
import json, os, pathlib, sys, time
here = pathlib.Path(sys.argv[1]); rank = os.environ["RANK"]
with open(here / "began", "a") as handle:
    handle.write(f"{rank} {os.environ['MUSTER_ATTEMPT']} {os.getpid()}\\n")
place = pathlib.Path(os.environ["MUSTER_CHECKPOINT_DIR"]) / f"step-{rank}"
step = int(place.read_text()) if place.exists() else 0
metrics = open(os.environ["MUSTER_METRICS_FILE"], "a", buffering=1)
if rank == "0" and step:
    metrics.write(json.dumps({"at": time.time(), "resumed_from_step": step}) + "\\n")
while not (here / "finish").exists():
    step += 1
    if rank == "0":
        metrics.write(json.dumps({"at": time.time(), "step": step, "loss": 1.0 / step, "world_size": 2}) + "\\n")
    print("step", step, flush=True)
    if step % 10 == 0:
        place.write_text(str(step))
        if rank == "0":
            metrics.write(json.dumps({"at": time.time(), "checkpoint_step": step, "path": str(place)}) + "\\n")
    time.sleep(0.2)
"""


def lacking() -> str:
    """Return why links cannot be cut on this machine, empty when they can."""
    return debian.obtain("sshd", "openssh-server") or unmet()


class CutWorld(World):
    """A world whose nodes are behind links. Call :meth:`up` first."""

    def __init__(self, root: pathlib.Path) -> None:
        super().__init__(root)
        self.net = Net([Wire(_MBIT), Wire(_MBIT)])
        self.daemons: list[subprocess.Popen[bytes]] = []

    def up(self) -> None:
        """Make the links, start the daemons and write the inventory."""
        self.net.up()
        self.net.join_switch()
        keys = self.root / "keys"
        keys.mkdir(mode=0o700)
        for name in ("user", "host"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(keys / name)], check=True)
        for node in NODES:
            self._start_daemon(node, keys)
        hosts = {node: {"ansible_host": self.net.address(node)} for node in NODES}
        shared = {
            "ansible_connection": "ssh",
            "ansible_user": "root",
            "ansible_port": 2222,
            "ansible_ssh_private_key_file": str(keys / "user"),
            "ansible_ssh_common_args": "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR",
            "ansible_python_interpreter": sys.executable,
            "ansible_pipelining": True,
            "muster_cluster": "local",
        }
        self.inventory = self.root / "inventory.json"
        groups = {"muster_nodes": {"hosts": hosts, "vars": shared}}
        self.inventory.write_text(json.dumps({"all": {"children": groups}}))
        self.prefix = ("ip", "netns", "exec", self.net.switch)
        (self.root / "ansible.cfg").write_text(f"[defaults]\nlocal_tmp = {self.root}/tmp\n")

    def step_job(self, **values: t.Any) -> dict[str, t.Any]:
        """Return a job that makes steps until :meth:`finish`."""
        argv = [sys.executable, "-I", "-S", "-c", STEPS, str(self.root)]
        return self.job(command=argv, **{"checkpoints": {"grace_s": 1, "interval_steps": 10}, **values})

    def follow(self, drill: dict[str, t.Any] | None = None, **values: t.Any) -> Play:
        """Start ``train`` and wait until both ranks make steps."""
        play = self.start(job=self.step_job(**values), **({"training_job_drill": drill} if drill else {}))
        until(lambda: play.process.poll() is not None or (self.steps() >= 5 and len(self.ranks()) == 2), "steps", 60)
        assert play.process.poll() is None, play.output
        return play

    def steps(self) -> int:
        """Return how many steps the controller knows."""
        place = self.run_folder() / "metrics.jsonl"
        return place.read_text().count('"step"') if place.exists() else 0

    def cut(self, node: str) -> float:
        """Cut a node's link; return when."""
        self.net.unplug(node)
        return time.monotonic()

    def said(self, play: Play, words: str, since: float, within_s: float = 60.0) -> float:
        """Return the seconds from ``since`` until a playbook printed ``words``."""
        until(lambda: words in play.output, f"'{words}' in:\n{play.output[-2000:]}", within_s)
        return time.monotonic() - since

    def close(self) -> None:
        """End everything and remove the links."""
        super().close()
        self.net.down()
        for daemon in self.daemons:
            daemon.wait()

    def _start_daemon(self, node: str, keys: pathlib.Path) -> None:
        program = debian.program("sshd") or "sshd"
        config = self.root / f"sshd-{node}"
        lines = ["Port 2222", f"HostKey {keys / 'host'}", f"AuthorizedKeysFile {keys / 'user.pub'}", "UsePAM no"]
        lines += ["StrictModes no", "PidFile none", "PermitRootLogin yes", "MaxStartups 100"]
        config.write_text("\n".join(lines) + "\n")
        with open(self.root / f"sshd-{node}.log", "wb") as log:
            argv = ["ip", "netns", "exec", self.net.namespace(node), program, "-D", "-e", "-f", str(config)]
            env = {"PATH": os.environ["PATH"]}
            self.daemons.append(subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env))
