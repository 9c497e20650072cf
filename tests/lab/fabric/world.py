# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``verify_fabric`` on namespaces: a real ``ansible-playbook``, whose nodes' interpreters enter a namespace each."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time
import typing as t

from .netns import FABRIC, MANAGEMENT, Net, NetError, Wire, inside, unmet

Dict = dict[str, t.Any]
Fault = t.Callable[["World"], None]
LIMIT_S = 420.0
# A fault strikes when this much has crossed the link: start-up is over by then and most of the test is still to come.
MID_TEST_BYTES = 12 << 20
_LOOK_S = 0.05


def missing() -> str:
    """Return why the cases cannot run here, empty when they can."""
    python = os.environ.get("MUSTER_TORCH_PYTHON", "")
    if not python or not shutil.which(python):
        return "MUSTER_TORCH_PYTHON names no interpreter with torch"
    return unmet()


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """What a case gives to the product: the declared rate in Mbit/s and what differs from a plain inventory.

    ``environment`` is set by the training interpreter's wrapper on every node, as an image or a login script would.
    ``deaf`` nodes are in the inventory and nothing answers there.
    """

    wires: tuple[Wire, ...]
    declared: float
    address_on: str = FABRIC
    environment: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    timeout_s: int = 60
    fault: Fault | None = None
    deaf: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """What came out: the playbook's exit code, output and seconds, and the island of fabric.json (empty when none)."""

    code: int
    output: str
    seconds: float
    island: Dict
    struck: bool
    left: tuple[str, ...]

    @property
    def outcome(self) -> str:
        """The island's outcome, ``none`` when no verdict was written."""
        return str(self.island.get("outcome", "none"))

    @property
    def causes(self) -> list[tuple[str, str | None]]:
        """(code, node) of each cause."""
        return [(cause["code"], cause.get("node")) for cause in self.island.get("causes", [])]

    @property
    def rate_mbit(self) -> float | None:
        """The measured bus bandwidth in Mbit/s."""
        busbw = (self.island.get("bandwidth") or {}).get("busbw_gb_s")
        return None if busbw is None else float(busbw) * 8000

    @property
    def interfaces(self) -> set[str]:
        """The interfaces that are proven to have carried the traffic."""
        return {pair["via"] for pair in (self.island.get("transport") or {}).get("pairs", [])}


class World:
    """The links of one case and everything below one folder: inventory, wrappers, state home, the nodes' folders."""

    def __init__(self, root: pathlib.Path, setting: Setting) -> None:
        self.root, self.setting = root, setting
        self.net = Net(setting.wires)

    def verify(self) -> Seen:
        """Make the links, run the playbook, remove all; the folder stays, so that a reader can look at it.

        :raises NetError: when the links cannot be made.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        self.net.up()
        left: list[str] = []
        try:
            inventory = self._inventory()
            began = time.monotonic()
            code, struck = self._play(inventory)
            seconds = time.monotonic() - began
        finally:
            # Nothing of a run may outlive its verdict, so what is in the namespaces now is told before it is ended.
            left += [f"{node}: process {pid}" for node, pid in self._units()]
            left += self.net.down()
            strays = self._strays()
            self.signal(strays, signal.SIGKILL)
            left += [f"process {pid}" for pid in strays]
        output = (self.root / "play.log").read_text(errors="replace")
        return Seen(code, output, seconds, self._island(), struck, tuple(left))

    @contextlib.contextmanager
    def training(self, script: str) -> t.Iterator[None]:
        """Keep a run of ``script`` under torchrun on all nodes, which nobody follows, for as long as the block lasts.

        :raises NetError: when the links cannot be made.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        self.net.up()
        try:
            (self.root / "train.py").write_text(script)
            job = {
                "name": "live",
                "nodes": len(self.net.nodes),
                "launcher": "torchrun",
                "script": str(self.root / "train.py"),
                "checkpoints": {"grace_s": 1},
                "restart": {"max_crashes": 0, "max_lost_nodes": 0, "on_lost_node": "fail"},
            }
            task = {"job": job, "run_id": "live-1", "wait": False, "state_home": {"path": str(self.root / "first")}}
            play = {"hosts": "muster_nodes", "gather_facts": False}
            tasks = [{"muster.training.training_job": task, "run_once": True}]
            (self.root / "begin.yml").write_text(json.dumps([{**play, "tasks": tasks}]))
            self._inventory()
            done = self._ansible(str(self.root / "begin.yml"))
            if done.returncode:
                raise NetError(f"the run did not start: {done.stdout[-1500:]}")
            yield
        finally:
            self.net.down()

    def diagnose(self) -> tuple[Dict, float]:
        """Return what the diagnose playbook of a controller that knows no run writes, and the seconds it took."""
        out = self.root / "diagnosis.json"
        values = {"muster_state": {"path": str(self.root / "second")}, "diagnose_out": str(out)}
        began = time.monotonic()
        done = self._ansible("muster.training.diagnose", values)
        seconds = time.monotonic() - began
        if not out.exists():
            raise NetError(f"nothing was diagnosed: {done.stdout[-1500:]}")
        found = json.loads(out.read_text())
        out.unlink()
        return t.cast(Dict, found), seconds

    def _ansible(self, play: str, values: Dict | None = None) -> subprocess.CompletedProcess[str]:
        program = str(pathlib.Path(sys.executable).parent / "ansible-playbook")
        extra = {"muster_node_state": str(self.root / "nodes"), **(values or {})}
        argv = [program, "-i", str(self.root / "inventory.json"), play, "-e", json.dumps(extra)]
        return subprocess.run(
            argv, cwd=self.root, env=self._variables(), capture_output=True, text=True, timeout=LIMIT_S, check=False
        )

    def ranks(self, node: str) -> list[int]:
        """Return the ranks of the bench on a node: the processes without children that were given a RANK."""
        return [pid for pid in inside(self.net.namespace(node)) if "RANK" in _environment(pid)]

    def agents(self, node: str) -> list[int]:
        """Return torchrun's processes on a node."""
        found = inside(self.net.namespace(node))
        return [pid for pid in found if b"torch.distributed.run" in _command(pid) and "RANK" not in _environment(pid)]

    def signal(self, pids: t.Iterable[int], number: int) -> None:
        """Send a signal; those already gone are no error."""
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def _inventory(self) -> pathlib.Path:
        hosts = {}
        for node in self.net.nodes:
            wrapped = {
                name: self.net.wrapper(node, program, self.root / f"{node}-{name}", variables)
                for name, program, variables in (
                    ("python", sys.executable, None),
                    ("torch", os.environ["MUSTER_TORCH_PYTHON"], self.setting.environment),
                )
            }
            hosts[node] = {
                "ansible_connection": "local",
                "ansible_python_interpreter": wrapped["python"],
                "muster_training_python": wrapped["torch"],
                "muster_address": self.net.address(node, self.setting.address_on),
            }
            if node in self.setting.deaf:
                # No SSH server listens at port 1.
                hosts[node].update(ansible_connection="ssh", ansible_host="127.0.0.1", ansible_port="1")
        place = self.root / "inventory.json"
        place.write_text(json.dumps({"muster_nodes": {"hosts": hosts}}))
        return place

    def _play(self, inventory: pathlib.Path) -> tuple[int, bool]:
        """Run the playbook with the fault in its middle; return its exit code and whether the fault was done."""
        island = {"nodes": list(self.net.nodes), "link": "ethernet", "nic_count": 1}
        values = {
            "muster_islands": [{**island, "nic_rate_gbps": self.setting.declared / 1000}],
            "muster_state": {"path": str(self.root / "state")},
            "muster_node_state": str(self.root / "nodes"),
            "fabric_verify_timeout_s": self.setting.timeout_s,
        }
        program = str(pathlib.Path(sys.executable).parent / "ansible-playbook")
        argv = [program, "-i", str(inventory), "muster.training.verify_fabric", "-e", json.dumps(values)]
        with (self.root / "play.log").open("wb") as log:
            play = subprocess.Popen(
                argv, cwd=self.root, env=self._variables(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
            over = threading.Event()
            struck: list[bool] = []
            striker = threading.Thread(target=lambda: struck.append(self._strike(over)))
            striker.start()
            try:
                code = play.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                play.kill()
                code = play.wait()
            finally:
                over.set()
                striker.join()
                play.kill()
        return code, struck == [True]

    def _strike(self, over: threading.Event) -> bool:
        """Do the fault once the link of the last node is in the middle of the test."""
        fault, node = self.setting.fault, self.net.nodes[-1]
        interface = FABRIC if self.setting.address_on == FABRIC else MANAGEMENT
        while fault is not None and not over.wait(_LOOK_S):
            if self.net.sent(node, interface) > MID_TEST_BYTES:
                fault(self)
                return True
        return False

    def _variables(self) -> dict[str, str]:
        kept = {
            k: v for k, v in os.environ.items() if not k.startswith(("ANSIBLE_", "MUSTER_", "XDG_", "GLOO_", "NCCL_"))
        }
        home = self.root / "home"
        home.mkdir(exist_ok=True)
        (self.root / "ansible.cfg").write_text("[defaults]\n")
        ours = {"ANSIBLE_CONFIG": str(self.root / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1", "HOME": str(home)}
        return {**kept, **ours, "ANSIBLE_HOME": str(self.root / "ansible")}

    def _island(self) -> Dict:
        place = self.root / "state" / "default" / "fabric.json"
        islands = json.loads(place.read_text())["islands"] if place.exists() else []
        return t.cast(Dict, islands[0]) if islands else {}

    def _units(self) -> list[tuple[str, int]]:
        """Return (node, pid) of what carries the mark of a run: supervisors, agents, stores and ranks."""
        found = [(node, pid) for node in self.net.nodes for pid in inside(self.net.namespace(node))]
        return [
            (node, pid) for node, pid in found if "MUSTER_UNIT" in _environment(pid) or b"supervise" in _command(pid)
        ]

    def _strays(self) -> list[int]:
        """Return what still runs on this machine and names the case's folder (nothing may)."""
        mark = os.fsencode(self.root)
        pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and int(entry) != os.getpid()]
        return [pid for pid in pids if mark in _command(pid)]


def kill_agent(world: World) -> None:
    """Kill torchrun on the last node."""
    world.signal(world.agents(world.net.nodes[-1]), signal.SIGKILL)


def stop_rank(world: World) -> None:
    """Stop the ranks of the last node without ending them: they hold their connections and say nothing."""
    world.signal(world.ranks(world.net.nodes[-1]), signal.SIGSTOP)


def pull_cable(world: World) -> None:
    """Take the last node's link down."""
    world.net.unplug(world.net.nodes[-1])


def _command(pid: int) -> bytes:
    try:
        return pathlib.Path("/proc", str(pid), "cmdline").read_bytes()
    except OSError:
        return b""


def _environment(pid: int) -> set[str]:
    try:
        raw = pathlib.Path("/proc", str(pid), "environ").read_bytes()
    except OSError:
        return set()
    return {item.partition(b"=")[0].decode(errors="replace") for item in raw.split(b"\0")}
