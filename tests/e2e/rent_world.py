# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A world for end-to-end tests of renting: real ``ansible-playbook`` processes against a provider on loopback.

Time passes faster in all of them, so that the minutes for which a provider has to be watched are seconds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import sys
import threading
import time
import typing as t
from collections.abc import Callable, Iterator

from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger.ledger_store import (
    LedgerContent,
    read_ledger,
)
from ansible_collections.muster.training.tests.e2e.playbook_world import Play, descendants, until
from ansible_collections.muster.training.tests.fakes.api import FakeApi, _server
from ansible_collections.muster.training.tests.fakes.cycle import KEY
from ansible_collections.muster.training.tests.fakes.wire import TOKEN

SCALE = 30.0
# Instead of a number: at every call.
EVERY = 0
FAST_TIME = pathlib.Path(__file__).parents[1] / "support" / "fast_time"
ANSIBLE = pathlib.Path(sys.executable).parent
SIGNALS = {"int": signal.SIGINT, "term": signal.SIGTERM, "kill": signal.SIGKILL}
# Each signal, each side of the effect and each call is in some case of the short set.
SHORT = {
    ("rent", "list", 1, "before", "term"),
    ("rent", "create", 1, "before", "kill"),
    ("rent", "create", 1, "after", "int"),
    ("rent", "create", 2, "after", "term"),
    ("rent", "list", 2, "before", "int"),
    ("teardown", "delete", 1, "after", "kill"),
    ("teardown", "list", 2, "before", "int"),
}


class FastClock:
    """The clock of the fake: the same time as in the processes of the test."""

    def __init__(self) -> None:
        self.base = time.time()
        self.shift = 0.0

    @property
    def setting(self) -> str:
        """The value of MUSTER_TEST_TIME that makes a process keep this time."""
        return f"{self.base}:{SCALE}:{self.shift}"

    def time(self) -> float:
        return self.base + (time.time() - self.base) * SCALE + self.shift

    def monotonic(self) -> float:
        return self.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds / SCALE)

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        threading.Timer(seconds / SCALE, action).start()


@dataclasses.dataclass
class Point:
    """Where a test steps in: at the ``nth`` call of an operation, before or after its effect, or in its place."""

    operation: str
    nth: int = 1
    after: bool = False
    act: Callable[[], None] = lambda: None
    instead: Callable[[], t.Any] | None = None
    count: int = 0


class Door:
    """What stands between the client and the fake: it steps in at one point, while the call waits for its answer."""

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        self.point: Point | None = None
        self._lock = threading.Lock()

    def serve(self, method: str, target: str, headers: dict[str, str], body: bytes) -> t.Any:
        point = self._reached(method, target)
        if point and not point.after:
            point.act()
        if point and point.instead:
            return point.instead(), ""
        answer = self.api.serve(method, target, headers, body)
        if point and point.after:
            point.act()
        return answer

    def _reached(self, method: str, target: str) -> Point | None:
        name = self.api._route(method, target.partition("?")[0])[0]
        with self._lock:
            point = self.point
            if point is None or point.operation != name:
                return None
            point.count += 1
            return point if point.nth in (point.count, EVERY) else None


class RentWorld:
    """A controller and one provider with a fake API; ``alive`` counts what bills there."""

    def __init__(self, root: pathlib.Path, make: Callable[[t.Any], FakeApi], provider: str) -> None:
        self.root, self.provider = root, provider
        self.clock = FastClock()
        self.api = make(self.clock)
        self.door = Door(self.api)
        self.plays: list[Play] = []
        self.program = ANSIBLE / "ansible-playbook"
        self.url = ""
        self.home = root / "home"
        self.home.mkdir()
        (root / "ansible.cfg").write_text("[defaults]\n")
        (root / "key.pub").write_text(KEY + "\n")
        (root / "token").write_text(TOKEN + "\n")
        (root / "token").chmod(0o600)

    @contextlib.contextmanager
    def running(self) -> Iterator[RentWorld]:
        server = _server(self.door)  # type: ignore[arg-type]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_address[1]}{self.api.base_path}"
        try:
            yield self
        finally:
            for play in self.plays:
                play.kill(9)
            server.shutdown()
            server.server_close()
            thread.join(5)

    @property
    def alive(self) -> int:
        """How many things bill now."""
        return len(self.api.alive())

    @property
    def ledger(self) -> LedgerContent:
        """What is in the ledger."""
        return read_ledger(self.root / "state" / "lab")

    @property
    def states(self) -> list[str]:
        """The states of all leases."""
        return sorted(lease.state for lease in self.ledger.leases.values())

    def values(self, **extra: t.Any) -> dict[str, t.Any]:
        """Return the extra variables of every playbook."""
        account = {"name": self.provider, "api_token_file": str(self.root / "token"), "api_url": self.url}
        return {
            "muster_cluster": "lab",
            "muster_state": {"path": str(self.root / "state")},
            "muster_providers": [account],
            "muster_lease": False,
            "muster_hygiene": False,
            "rented_nodes_pool": "h100",
            "rented_nodes_count": 2,
            "rented_nodes_lease_s": 7200,
            "rented_nodes_candidates": [{"provider": self.provider, "gpu_model": "H100", "gpu_count": 1, "image": "i"}],
            "rented_nodes_ssh_public_key_file": str(self.root / "key.pub"),
            "rented_nodes_readiness": {"ssh": False},
            **extra,
        }

    def environment(self, **changes: str) -> dict[str, str]:
        """Return an environment without anybody's settings or credentials."""
        dropped = ("ANSIBLE_", "PYTHON", "MUSTER_", "XDG_", "LAMBDA_", "RUNPOD_", "VAST_", "SHADEFORM_", "TAILSCALE_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        return {
            **kept,
            "HOME": str(self.home),
            "ANSIBLE_CONFIG": str(self.root / "ansible.cfg"),
            "ANSIBLE_HOME": str(self.root / "ansible"),
            "ANSIBLE_NOCOLOR": "1",
            "PYTHONPATH": str(FAST_TIME),
            "MUSTER_TEST_TIME": self.clock.setting,
            "LC_ALL": "C.UTF-8",
            **changes,
        }

    def start(self, playbook: str, *args: str, env: dict[str, str] | None = None, **extra: t.Any) -> Play:
        """Start a playbook of the collection, or a file."""
        name = playbook if "/" in playbook else f"muster.training.{playbook}"
        inventory = [] if "-i" in args else ["-i", "localhost,"]
        # In a file: Ansible itself prints what stands behind -e.
        place = self.root / "values.json"
        place.write_text(json.dumps(self.values(**extra)))
        argv = [str(self.program), *inventory, name, "-e", f"@{place}", *args]
        log = self.root / f"play-{len(self.plays)}.log"
        play = Play(argv, self.environment(**(env or {})), log, self.root, 0o022)
        self.plays.append(play)
        return play

    def play(self, playbook: str, *args: str, **extra: t.Any) -> t.Any:
        """Run a playbook to its end."""
        return self.start(playbook, *args, **extra).wait()

    def pass_time(self, seconds: float) -> None:
        """Let the time of everything that starts from now on be later."""
        self.clock.shift += seconds


def lives(pid: int) -> bool:
    try:
        return pathlib.Path("/proc", str(pid), "stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def interrupt(world: RentWorld, playbook: str, point: Point, number: int, **extra: t.Any) -> Play:
    """Run a playbook and send it a signal at a point; return when it and its workers have ended."""
    seen: list[int] = []

    def act() -> None:
        play = world.plays[-1]
        seen.extend(descendants(play.process.pid))
        play.signal(number)
        end = time.monotonic() + 15
        while lives(play.process.pid) and time.monotonic() < end:
            time.sleep(0.02)

    point.act = act
    world.door.point = point
    play = world.start(playbook, **extra)
    assert play.wait().code != 0, play.output
    assert point.count >= point.nth, f"never came to {point.operation} {point.nth}:\n{play.output}"
    until(lambda: not any(map(lives, seen)), "the workers to end", 60)
    world.door.point = None
    return play
