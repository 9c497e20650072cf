# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Supervisors as real processes: budgets, faults, ends, and that nothing of a unit outlives it.

``elastic_launcher.py`` stands for torchrun: it starts rank recorders in sessions of their own and restarts them.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import socket
import sys
import time
import typing as t
import uuid

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import (
    files,
    host_log_follow,
    host_preflight,
    host_units,
    processes,
)
from ansible_collections.muster.training.plugins.module_utils._node import rank as rank_module
from ansible_collections.muster.training.tests.support.node_lab import (
    FAKES,
    NodeLab,
    eventually,
    fill,
    free_port,
    small_disk,
    unit_exit,
)

# Supervisors end what carries the mark of their run, whoever started it: no two sessions share one.
RUN = f"r-{uuid.uuid4().hex[:8]}"
RANK = [sys.executable, "-I", "-S", str(pathlib.Path(rank_module.__file__))]
LAUNCHER = [sys.executable, str(FAKES / "elastic_launcher.py")]
Dict = dict[str, t.Any]


class Unit:
    """One unit of one run whose supervisor this process starts."""

    def __init__(self, lab: NodeLab) -> None:
        self.lab, self.run = lab, lab.run("a", RUN)
        self.folder = self.run / "units" / "agent"
        self.program = pathlib.Path(str(lab.installed("a").program))
        files.private_dir(self.run)

    def start(self, *argv: str, **changes: t.Any) -> bool:
        return host_units.start_unit(self.lab.spec("a", RUN, argv, **changes), self.program)

    def ranks(self, nproc: int, restarts: int, *command: str, **changes: t.Any) -> bool:
        """Start the launcher with this many ranks and restarts of its own."""
        argv = [*LAUNCHER, str(nproc), str(restarts), *RANK, str(self.run / "events.jsonl"), *command]
        env = {"MUSTER_NODE": "a", "MUSTER_ATTEMPT_COUNTER": str(self.run / "attempts")}
        return self.start(*argv, policy="torchrun", env=env, launcher_restarts=restarts, **changes)

    def events(self, kind: str) -> list[Dict]:
        return [line for line in self.lab.events("a", RUN) if line["kind"] == kind]

    def end(self) -> Dict:
        value = unit_exit(self.run)
        # An exit file comes before the last event, and a process that ends loses its environment before its life.
        eventually(lambda: not any(" supervise " in line for line in self.lab.left().values()), "the supervisor's end")
        eventually(lambda: not self.status()["alive"], "the supervisor's end")
        return value

    def status(self) -> Dict:
        return host_units.unit_status(self.folder)

    def log(self) -> str:
        place = self.folder / "log"
        return place.read_text() if place.exists() else ""

    def supervisor(self) -> int:
        pid = processes.living_pid((files.read_json(self.folder / "state.json") or {}).get("supervisor"))
        assert pid is not None
        return pid

    def gate(self) -> pathlib.Path:
        """Return a file whose coming a program can wait for."""
        return self.lab.root / "gate"


@pytest.fixture
def unit(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[Unit]:
    lab = NodeLab(tmp_path)
    monkeypatch.setattr(host_units, "unit_manager", lambda: "detached")
    for name, value in lab.env.items():
        monkeypatch.setenv(name, value)
    yield Unit(lab)
    lab.close()


def waits_for(gate: pathlib.Path, then: str) -> tuple[str, ...]:
    return ("sh", "-c", f"echo ready; while [ ! -e {gate} ]; do sleep 0.01; done; {then}")


def test_a_unit_from_its_start_to_its_good_end(unit: Unit) -> None:
    secrets = unit.run / "secrets"
    files.write_json(files.private_dir(secrets) / "env.json", {"TOKEN": "geheim-42"})
    files.write_atomic(secrets / "CERT", b"geheim-43")
    program = waits_for(unit.gate(), "echo $TOKEN $MUSTER_UNIT $PLAIN; exit 0")
    values: Dict = {
        "secrets": str(secrets / "env.json"),
        "secret_files": [str(secrets / "CERT")],
        "env": {"PLAIN": "p"},
    }
    assert unit.start(*program, usage=str(unit.run / "usage.jsonl"), **values) is True
    eventually(lambda: unit.status()["child"], "the program")
    assert unit.start(*program, **values) is False
    assert unit.status()["state"] == "running" and unit.status()["heartbeat_age_s"] < 30
    assert (secrets / "env.json").stat().st_mode & 0o777 == 0o600
    unit.gate().touch()
    ending = unit.end()
    assert {key: ending[key] for key in ("exit_code", "cause", "crashes", "lost", "generation")} == {
        "exit_code": 0,
        "cause": "succeeded",
        "crashes": 0,
        "lost": 0,
        "generation": 1,
    }
    assert (
        unit.log() == f"ready\ngeheim-42 {unit.lab.spec('a', RUN, [])['marker']} p\n"
        and unit.status()["state"] == "ended"
    )
    assert [line["kind"] for line in unit.lab.events("a", RUN)] == ["agent_started", "agent_exit"]
    assert list(secrets.iterdir()) == [] and unit.lab.left() == {}
    assert "geheim" not in (unit.folder / "spec.json").read_text() + (unit.run / "events.jsonl").read_text()


@pytest.mark.parametrize(
    ("changes", "program", "starts", "ending"),
    [
        ({}, "exit 7", 1, (7, "crash", 0, 0)),
        ({"policy": "whole", "restart": {"max_crashes": 2}}, "exit 7", 3, (7, "crash", 2, 0)),
        ({"policy": "whole", "restart": {"max_lost_nodes": 1}}, "kill -9 $$", 2, (137, "node_lost", 0, 1)),
        ({"policy": "store", "restart": {"max_lost_nodes": 1}}, "exit 0", 1, (0, "succeeded", 0, 0)),
        ({"policy": "whole", "restart": {"fatal_exit_codes": [65]}}, "exit 65", 1, (65, "fatal_exit_code", 0, 0)),
        # Once lost and then well: the end is good and the loss is told.
        ({"policy": "whole"}, "[ -e once ] && exit 0; : > once; kill -9 $$", 2, (0, "succeeded", 0, 1)),
        ({"policy": "whole"}, "[ -e once ] && exit 0; : > once; exit 3", 2, (0, "succeeded", 1, 0)),
    ],
)
def test_budgets_hold(unit: Unit, changes: Dict, program: str, starts: int, ending: tuple[t.Any, ...]) -> None:
    unit.start("sh", "-c", program, **changes)
    found = unit.end()
    assert tuple(found[key] for key in ("exit_code", "cause", "crashes", "lost")) == ending
    assert len(unit.events("agent_started")) == starts and len(unit.events("agent_restart")) == starts - 1


def test_a_program_that_is_not_there_ends_the_unit_and_says_so(unit: Unit) -> None:
    unit.start("no-such-program", "--token", "geheim-42")
    assert (unit.end()["exit_code"], unit.log()) == (
        127,
        "muster: cannot run no-such-program: No such file or directory\n",
    )


def test_the_orphans_of_a_killed_supervisor_are_ended_by_the_next_one(unit: Unit) -> None:
    program = waits_for(unit.gate(), "exit 0")
    unit.start(*program)
    orphan = eventually(lambda: unit.status()["child"], "the program")
    os.kill(unit.supervisor(), signal.SIGKILL)
    eventually(lambda: not unit.status()["alive"], "the supervisor's end")
    left = host_log_follow.unit_statuses(unit.run)["agent"]
    assert processes.start_time(orphan) is not None and left["exit"] is None and left["left"] >= 1
    assert unit.start(*program) is True
    assert eventually(lambda: unit.status()["child"], "the new program") != orphan
    assert processes.start_time(orphan) is None and unit.status()["lost"] == 1
    os.kill(unit.supervisor(), signal.SIGKILL)
    eventually(lambda: not unit.status()["alive"], "the supervisor's end")
    # Another generation is another run of the unit: nothing is carried over.
    unit.start(*program, generation=2)
    eventually(lambda: unit.status()["child"], "the program")
    assert (unit.status()["lost"], unit.status()["generation"]) == (0, 2)
    assert len(processes.find_marked(unit.lab.spec("a", RUN, [])["marker"])) <= 2
    unit.gate().touch()
    assert unit.end()["exit_code"] == 0


def test_a_supervisor_that_may_not_start_again_ends_the_unit(unit: Unit) -> None:
    allowed: Dict = {"restart": {"max_lost_nodes": 0}}
    unit.start(*waits_for(unit.gate(), "exit 0"), **allowed)
    eventually(lambda: unit.log() == "ready\n", "the program")
    orphan = unit.status()["child"]
    os.kill(unit.supervisor(), signal.SIGKILL)
    eventually(lambda: not unit.status()["alive"], "the supervisor's end")
    unit.start(*waits_for(unit.gate(), "exit 0"), **allowed)
    ending = unit.end()
    assert (ending["exit_code"], ending["cause"], ending["lost"]) == (137, "node_lost", 1)
    assert processes.start_time(orphan) is None and unit.log() == "ready\n" and unit.lab.left() == {}


def test_the_time_allowed_ends_the_unit_and_a_new_supervisor_does_not_begin_it_anew(unit: Unit) -> None:
    unit.start("sh", "-c", "exec sleep 60", timeout_s=1, generation=1)
    deadline = eventually(lambda: (files.read_json(unit.folder / "state.json") or {}).get("deadline"), "the deadline")
    os.kill(unit.supervisor(), signal.SIGKILL)
    eventually(lambda: not unit.status()["alive"], "the supervisor's end")
    unit.start("sh", "-c", "exec sleep 60", timeout_s=1, generation=1)
    ending = unit.end()
    assert (ending["exit_code"], ending["cause"]) == (124, "timeout") and ending["at"] >= deadline
    assert (files.read_json(unit.folder / "state.json") or {})["deadline"] == deadline


def test_a_program_that_ignores_the_stop_is_killed_after_its_grace(unit: Unit) -> None:
    unit.start("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done", grace_s=0.2)
    eventually(lambda: unit.log() == "ready\n", "the program")
    began = time.monotonic()
    assert host_units.stop_unit(unit.folder, 30) == []
    assert time.monotonic() - began < 20
    ending = unit.end()
    assert (ending["exit_code"], ending["cause"]) == (143, "cancelled") and unit.lab.left() == {}


def test_a_launcher_whose_ranks_have_ended_has_no_grace(unit: Unit) -> None:
    """As torchrun at its exit barrier: nothing of the program is left that could save."""
    events = unit.run / "events.jsonl"
    lines = [{"kind": "worker_started", "attempt": 1}, {"kind": "worker_exit", "attempt": 1, "exit_code": 0}]
    noted = "; ".join(f"echo '{json.dumps({'at': 1.0, 'rank': 0, **line})}' >> {events}" for line in lines)
    waits = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
    unit.start("sh", "-c", f"{noted}; {waits}", policy="torchrun", grace_s=600)
    eventually(lambda: "ready" in unit.log(), "the launcher")
    began = time.monotonic()
    assert host_units.stop_unit(unit.folder, 300) == []
    assert time.monotonic() - began < 200 and unit.end()["cause"] == "cancelled"


def test_the_ranks_of_a_launcher_may_save_before_they_end(unit: Unit) -> None:
    unit.ranks(2, 0, "sh", "-c", "trap 'echo saved $RANK; exit 0' TERM; echo ready; while :; do sleep 0.01; done")
    eventually(lambda: unit.log().count("ready") == 2, "two ranks")
    host_units.stop_unit(unit.folder, 30)
    assert unit.end()["cause"] == "cancelled"
    assert sorted(line for line in unit.log().split("\n") if "saved" in line) == ["saved 0", "saved 1"]
    assert len(unit.events("worker_exit")) == 2 and unit.lab.left() == {}


def test_the_launcher_restarts_its_ranks_itself(unit: Unit) -> None:
    first = "if [ $RANK = 1 ]; then : > up; exec sleep 60; fi; while [ ! -e up ]; do sleep 0.01; done; exit 5"
    unit.ranks(2, 3, "sh", "-c", f"[ $MUSTER_ATTEMPT = 2 ] && exit 0; {first}")
    ending = unit.end()
    assert (ending["exit_code"], ending["crashes"], ending["lost"]) == (0, 0, 0)
    started = sorted((line["attempt"], line["rank"]) for line in unit.events("worker_started"))
    assert started == [(1, 0), (1, 1), (2, 0), (2, 1)] and len(unit.events("agent_started")) == 1
    failed = [
        (line["attempt"], line["rank"], line["exit_code"]) for line in unit.events("worker_exit") if line["exit_code"]
    ]
    assert sorted(failed) == [(1, 0, 5), (1, 1, 143)] and unit.lab.left() == {}


def test_a_launcher_that_has_spent_its_restarts_is_a_crash_with_the_ranks_code(unit: Unit) -> None:
    unit.ranks(1, 1, "sh", "-c", "exit 9")
    ending = unit.end()
    assert (ending["exit_code"], ending["cause"], ending["lost"]) == (9, "crash", 0)
    assert [line["attempt"] for line in unit.events("worker_started")] == [1, 2]


@pytest.mark.parametrize(
    ("name", "ended", "starts"),
    [
        ("RendezvousClosedError", ("rendezvous_closed", 0), 1),
        ("RendezvousTimeoutError", ("rendezvous_timeout", 0), 1),
        # Its store was lost with the first node.
        ("RendezvousConnectionError", ("node_lost", 1), 2),
    ],
)
def test_a_rendezvous_that_is_over_is_no_lost_node(unit: Unit, name: str, ended: tuple[str, int], starts: int) -> None:
    """torchrun writes what has ended it into a file."""
    error = json.dumps({"message": {"message": f"{name}: of the gang", "extraInfo": {}}})
    unit.start("sh", "-c", f"echo '{error}' > $TORCHELASTIC_ERROR_FILE; exit 1", policy="torchrun", max_lost=1)
    ending = unit.end()
    assert (ending["cause"], ending["lost"], ending["exit_code"]) == (*ended, 1)
    assert len(unit.events("agent_started")) == starts


def test_the_ranks_of_a_killed_launcher_are_gone_before_the_next_one_starts(unit: Unit) -> None:
    command = ("sh", "-c", f"while [ ! -e {unit.gate()} ]; do sleep 0.01; done")
    unit.ranks(2, 3, *command)
    eventually(lambda: len(unit.events("worker_started")) == 2, "two ranks")
    first = [line["pid"] for line in unit.events("worker_started")]
    processes.kill_all([t.cast(int, unit.status()["child"])])
    eventually(lambda: len(unit.events("worker_started")) == 4, "two new ranks")
    assert [processes.start_time(pid) for pid in first] == [None, None]
    unit.gate().touch()
    ending = unit.end()
    assert (ending["exit_code"], ending["lost"], unit.lab.left()) == (0, 1, {})
    assert [line["attempt"] for line in unit.events("worker_started")] == [1, 1, 2, 2]
    second = next(line for line in unit.events("agent_started")[1:])
    assert (
        unit.events("agent_restart")[0]["detail"] == "node_lost"
        and second["at"] >= unit.events("agent_restart")[0]["at"]
    )


def test_a_fatal_exit_code_of_a_rank_is_not_repeated_by_the_launcher(unit: Unit) -> None:
    unit.ranks(1, 1000, "sh", "-c", "sleep 0.02; exit 65", restart={"fatal_exit_codes": [65]})
    ending = unit.end()
    assert (ending["exit_code"], ending["cause"]) == (65, "fatal_exit_code") and unit.lab.left() == {}


def test_a_unit_waits_for_its_rendezvous_and_gives_up_in_time(unit: Unit) -> None:
    where: Dict = {"host": "127.0.0.1", "port": free_port()}
    unit.start("true", wait_for={**where, "seconds": 0})
    ending = unit.end()
    assert (ending["exit_code"], ending["cause"]) == (111, "rendezvous_unreachable") and unit.events(
        "agent_started"
    ) == []
    unit.start("true", wait_for={**where, "seconds": 60}, generation=2)
    assert eventually(lambda: unit.status()["state"] == "waiting", "the wait") and unit.status()["alive"]
    with socket.create_server((where["host"], where["port"])):
        assert unit.end()["exit_code"] == 0
    unit.start("true", wait_for={**where, "seconds": 60}, generation=3)
    eventually(lambda: unit.status()["state"] == "waiting", "the wait")
    host_units.stop_unit(unit.folder, 30)
    assert unit.end()["cause"] == "cancelled"


SERVE = "import socket, sys\ns = socket.socket(fileno=int(sys.argv[1]))\nwhile True: s.accept()[0].sendall(b'here')"


def test_a_store_gets_a_port_that_listens_already_and_keeps_it_when_it_is_killed(unit: Unit) -> None:
    address = ("127.0.0.1", free_port())
    where = {"host": address[0], "port": address[1]}
    unit.start(sys.executable, "-I", "-c", SERVE, "{listen_fd}", policy="store", listen=where)

    def talk() -> bytes:
        with socket.create_connection(address, timeout=30) as sock:
            return sock.recv(4)

    assert talk() == b"here"
    first = t.cast(int, unit.status()["child"])
    processes.kill_all([first])
    eventually(lambda: processes.start_time(first) is None, "the end of the first store")
    assert talk() == b"here" and eventually(lambda: unit.status()["child"], "the next store") != first
    host_units.stop_unit(unit.folder, 30)
    assert unit.end()["lost"] == 1


def test_a_store_whose_supervisor_was_killed_gets_its_port_from_the_one_that_held_it(unit: Unit) -> None:
    """What has ended keeps its port for a moment: here a process of no unit, which no marker finds, does."""
    where: Dict = {"host": "127.0.0.1", "port": free_port()}
    argv = (sys.executable, "-I", "-c", SERVE, "{listen_fd}")
    unit.start(*argv, policy="store", listen=where)
    first = t.cast(int, eventually(lambda: unit.status()["child"], "the store"))
    processes.kill_all([unit.supervisor(), first])
    eventually(lambda: not unit.status()["alive"] and processes.start_time(first) is None, "the end of both")
    eventually(lambda: host_preflight.port_problem(where["host"], where["port"]) is None, "the free port")
    with socket.create_server((where["host"], where["port"])):
        unit.start(*argv, policy="store", listen=where, restart={"max_lost_nodes": 3})
        time.sleep(0.4)
        assert unit.status()["alive"] and unit.status()["exit"] is None
    assert eventually(lambda: unit.status()["state"] == "running" and unit.status()["child"], "the next store")
    with socket.create_connection((where["host"], where["port"]), timeout=30) as sock:
        assert sock.recv(4) == b"here"
    host_units.stop_unit(unit.folder, 30)
    assert unit.end()["lost"] == 1


def test_a_killed_supervisor_of_a_store_leaves_a_store_that_the_next_one_ends(unit: Unit) -> None:
    where: Dict = {"host": "127.0.0.1", "port": free_port()}
    argv = (sys.executable, "-I", "-c", SERVE, "{listen_fd}")
    unit.start(*argv, policy="store", listen=where)
    first = t.cast(int, eventually(lambda: unit.status()["child"], "the store"))
    processes.kill_all([unit.supervisor()])
    eventually(lambda: not unit.status()["alive"], "the supervisor's end")
    assert processes.start_time(first) is not None
    unit.start(*argv, policy="store", listen=where, restart={"max_lost_nodes": 3})
    assert eventually(lambda: unit.status()["state"] == "running" and unit.status()["child"], "the next store") != first
    assert processes.start_time(first) is None
    host_units.stop_unit(unit.folder, 30)
    assert unit.end()["lost"] == 1


def test_a_store_ends_when_no_agent_needs_it_any_more(unit: Unit) -> None:
    """Not with the agent beside it: those of other nodes say good-bye through the store, which is its own client, too."""
    address = ("127.0.0.1", free_port())
    where = {"host": address[0], "port": address[1]}
    hold = SERVE.replace("s.accept()[0].sendall(b'here')", "held.append(s.accept()[0]); held[-1].sendall(b'here')")
    # As torch's store does it, by a socket of IPv6.
    mapped = (f"::ffff:{address[0]}", address[1])
    client = (
        f"import threading\nthreading.Thread(target=lambda: held.append(socket.create_connection({mapped}))).start()"
    )
    program = hold.replace("while True", f"{client}\nwhile True")
    argv = (sys.executable, "-I", "-c", f"held = []\n{program}", "{listen_fd}")
    folder = str(unit.run / "units" / "store")
    unit.start(*argv, unit="store", policy="store", listen=where, folder=folder)
    with socket.create_connection(address, timeout=30) as other:
        assert other.recv(4) == b"here"
        unit.start("true")
        unit_exit(unit.run)
        began = time.monotonic()
        while time.monotonic() < began + 7:
            assert files.read_json(unit.run / "units" / "store" / "exit.json") is None
            time.sleep(0.2)
    ending = unit_exit(unit.run, "store")
    assert (ending["exit_code"], ending["cause"]) == (0, "finished")
    eventually(lambda: not unit.lab.left(), "the end of all processes")


def test_a_taken_port_is_found_before_anything_starts(unit: Unit) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = {"host": "127.0.0.1", "port": server.getsockname()[1]}
        unit.start("true", policy="store", listen=where)
        ending = unit.end()
    assert (ending["exit_code"], ending["cause"]) == (98, "port_taken") and unit.events("agent_started") == []
    assert unit.status()["exit"]["cause"] == "port_taken"
    assert unit.status()["detail"] == f"cannot listen on 127.0.0.1:{where['port']}: Address already in use"


def test_a_full_disk_delays_the_end_and_does_not_lose_it(unit: Unit, tmp_path: pathlib.Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        unit.run = unit.lab.nodes = disk
        unit.run = unit.lab.run("a", RUN)
        unit.folder = unit.run / "units" / "agent"
        files.private_dir(unit.run)
        unit.start(*waits_for(unit.gate(), "exit 0"))
        child = eventually(lambda: unit.status()["child"], "the program")
        filler = fill(disk)
        unit.gate().touch()
        eventually(lambda: processes.start_time(child) is None, "the end of the program")
        # Room comes back only after the supervisor has tried to write; one that gave up is gone by then.
        end = time.monotonic() + 1.0
        while unit.status()["alive"] and time.monotonic() < end:
            time.sleep(0.01)
        filler.unlink()
        eventually(lambda: unit.status()["exit"] or not unit.status()["alive"], "an exit file")
        assert unit.status()["exit"]["exit_code"] == 0


HOG = "import sys; held = [bytearray(8 << 20) for _ in range(int(sys.argv[1]))]; print(len(held))"


@pytest.mark.parametrize(("pieces", "code"), [(4, 0), (64, 1)])
def test_without_systemd_each_process_has_the_memory_of_the_job(unit: Unit, pieces: int, code: int) -> None:
    unit.start(sys.executable, "-c", HOG, str(pieces), memory=256 << 20)
    assert unit.end()["exit_code"] == code
    assert unit.log() == ("4\n" if code == 0 else unit.log()) and ("MemoryError" in unit.log()) == (code == 1)


def test_checkpoints_beyond_the_kept_ones_are_removed(unit: Unit) -> None:
    folder = files.private_dir(unit.run / "c")
    program = (
        f"for n in 1 2 3; do echo x > {folder}/s$n; sleep 0.02; "
        f'echo "{{\\"at\\": 1, \\"checkpoint_step\\": $n, \\"path\\": \\"s$n\\"}}" >> {unit.run}/metrics.jsonl; done'
    )
    rules: Dict = {"format": "files", "keep": 2, "shared": False, "folder": str(folder), "first": True}
    unit.start("sh", "-c", program, checkpoints=rules)
    assert unit.end()["exit_code"] == 0
    assert sorted(path.name for path in folder.iterdir() if not path.name.startswith(".")) == ["s2", "s3"]
    assert [line["detail"] for line in unit.events("checkpoint_removed")] == ["s1"]


def test_an_end_says_which_files_of_the_program_are_gone_and_what_room_is_left(unit: Unit) -> None:
    """They are compared with what was there at the start: a word that names no file is none that is missing."""
    home, script = unit.lab.root / "code", unit.lab.root / "code" / "train.sh"
    home.mkdir()
    script.write_text(f"echo ready; while [ ! -e {unit.gate()} ]; do sleep 0.01; done; exit 1\n")
    assert unit.start("sh", str(script), "/no/such/argument", cwd=str(home)) is True
    eventually(lambda: "ready" in unit.log(), "the program")
    shutil.rmtree(home)
    unit.gate().touch()
    assert unit.end()["exit_code"] == 1
    (line,) = unit.events("agent_exit")
    assert line["missing"] == [str(home), str(script)]
    free = shutil.disk_usage(unit.lab.root).free
    assert line["room"]["folder"] == str(unit.folder) and abs(line["room"]["free_bytes"] - free) < 1 << 30
    assert not (unit.folder / "reserve").exists()
