# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node agent as a real process behind a shell: from the first question to the last file."""

from __future__ import annotations

import base64
import errno
import hashlib
import os
import pathlib
import shutil
import signal
import sys
import threading
import typing as t
import uuid
import zlib

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import NodeError
from ansible_collections.muster.training.plugins.module_utils._node import files as node_files
from ansible_collections.muster.training.plugins.module_utils._node import host_agent, processes
from ansible_collections.muster.training.plugins.plugin_utils._hosts import agent_package
from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import NodeClient
from ansible_collections.muster.training.tests.support.node_lab import (
    NodeLab,
    eventually,
    fingerprint,
    free_port,
    unit_exit,
)

# Supervisors end what carries the mark of their run, whoever started it: no two sessions share one.
RUN = f"r-{uuid.uuid4().hex[:8]}"
RANK = [sys.executable, "-I", "-S", "{program}/muster_node/rank.py", "{run}/events.jsonl"]
Dict = dict[str, t.Any]


@pytest.fixture
def lab(tmp_path: pathlib.Path) -> t.Iterator[NodeLab]:
    lab = NodeLab(tmp_path)
    yield lab
    lab.close()


@pytest.fixture
def node(lab: NodeLab) -> NodeClient:
    return lab.installed("a")


def ranked(lab: NodeLab, node: NodeClient, *command: str) -> list[str]:
    """Return the command of one rank inside its recorder."""
    own = [item.format(program=node.program, run=lab.run("a", RUN)) for item in RANK]
    return [*own, *command]


def test_the_first_question_is_answered_from_memory_and_writes_nothing(lab: NodeLab) -> None:
    remote = lab.remote("a")
    before = fingerprint(lab.root)
    wanted: Dict = {
        "python": sys.executable,
        "packages": ["no-such"],
        "address": "127.0.0.1",
        "tools": ["sh", "no-tool"],
    }
    port = free_port()
    more: Dict = {
        "ports": [["127.0.0.1", port]],
        "paths": [str(lab.root / "ckpt")],
        "files": ["/etc/hosts", "/no/file"],
    }
    answer = remote.call("info", run_id=RUN, blobs=["ab" * 32], **wanted, **more)
    assert fingerprint(lab.root) == before
    assert answer["state_dir"] == str(lab.state("a")) and answer["program"] is None and remote.program is None
    assert (answer["claim"], answer["units"], answer["live_runs"], answer["missing"]) == (None, {}, [], {"ab" * 32: 0})
    assert answer["training"]["packages"] == {"no-such": None} and answer["interface"] == "lo"
    assert answer["tools"]["sh"] and answer["tools"]["no-tool"] is None and answer["ports"] == {str(port): None}
    assert answer["files"] == {"/etc/hosts": True, "/no/file": False}
    assert answer["paths"][str(lab.root / "ckpt")]["problem"] is None and answer["free_bytes"] > 0
    # HOME is unset on this connection.
    assert answer["home"] == os.path.expanduser("~") or answer["home"].startswith("/")


def test_facts_are_gathered_only_when_asked_for(node: NodeClient) -> None:
    assert "facts" not in node.call("info")
    assert node.call("info", facts=True)["facts"]["gpu"] is not None


def test_the_sources_are_installed_once_and_privately(lab: NodeLab) -> None:
    remote = lab.remote("a")
    first = remote.call("install", **agent_package.install_request())
    assert first["changed"] is True and remote.call("install", **agent_package.install_request())["changed"] is False
    assert remote.call("info")["program"] == first["program"] == remote.program
    modes = {mode & 0o777 for mode, _ in fingerprint(lab.nodes).values()}
    assert modes <= {0o700, 0o600}
    installed = pathlib.Path(first["program"], "muster_node")
    assert {path.name: path.read_text() for path in installed.glob("*.py")} == agent_package.read_sources()


def test_a_run_from_its_claim_to_its_last_file(lab: NodeLab, node: NodeClient) -> None:
    content = b"print('hello')\n"
    entry = {"path": "t.py", "sha256": "", "mode": 0o600, "size": len(content)}
    packed = payload_piece(content)
    entry["sha256"] = packed["sha256"]
    assert node.call("put", pieces=[packed])["refused"] == {}
    tree = {"target": "code", "manifest": [entry], "link": False}
    secrets = {"env": {"TOKEN": "geheim-42"}, "files": {"CERT": base64.b64encode(b"geheim-43").decode()}}
    run = lab.run("a", RUN)
    assert lab.prepare(
        node, RUN, trees=[tree], files={"x/hosts": "a\n"}, secrets=secrets, write=[str(run / "ckpt")]
    ) == {
        "problem": None,
        "program": node.program,
    }
    assert (run / "code" / "t.py").read_bytes() == content and (run / "x" / "hosts").read_text() == "a\n"
    files = {"secrets": f"{run}/secrets/env.json", "secret_files": [f"{run}/secrets/CERT"]}
    gate = lab.root / "gate"
    script = f"echo $TOKEN; cat {run}/secrets/CERT; while [ ! -e {gate} ]; do sleep 0.01; done; exit 3"
    (lab.root / "bin" / "cat").symlink_to(t.cast(str, shutil.which("cat")))
    assert lab.start(node, RUN, ranked(lab, node, "sh", "-c", script), **files)["started"] is True
    eventually(lambda: lab.events("a", RUN)[-1:] and lab.events("a", RUN)[-1]["kind"] == "worker_started", "the rank")
    # While it runs the secrets are files of mode 0600 in folders of mode 0700, whatever umask the login had.
    found = fingerprint(lab.nodes)
    assert {mode & 0o777 for name, (mode, _) in found.items() if "/secrets/" in name} == {0o600}
    assert {mode & 0o077 for name, (mode, _) in found.items() if f"runs/{RUN}" in name} == {0}
    holders = [name for name, (_, data) in found.items() if b"geheim" in data and "secrets" not in name]
    assert holders in ([], [f"a/runs/{RUN}/units/agent/log"])
    answer = node.call("watch", run_id=RUN, offsets={}, streams=["events", "log"], digest=None, wait_s=0, batch_s=0)
    assert answer["units"]["agent"]["alive"] is True and answer["units"]["agent"]["state"] == "running"
    assert node.call("info")["live_runs"] == [{"run_id": RUN, "gpus": 0}]
    assert node.ask("remove", run_id=RUN)["problem"] == f"run {RUN} is running"
    gate.touch()
    assert (unit_exit(run)["exit_code"], unit_exit(run)["cause"]) == (3, "crash")
    eventually(lambda: lab.left() == {}, "the end of the supervisor")
    last = node.call(
        "watch", run_id=RUN, offsets=answer["offsets"], streams=["events", "log"], digest=None, wait_s=0, batch_s=0
    )
    kinds = [
        line.split('"kind"')[1].split('"')[1]
        for line in (answer["text"]["events"] + last["text"]["events"]).splitlines()
    ]
    assert kinds == ["agent_started", "worker_started", "worker_exit", "agent_exit"]
    stopped = node.call("stop", run_id=RUN, forget=True, within_s=5)
    assert (stopped["stopped"], stopped["left"]) == (False, [])
    assert not (run / "secrets").exists() and not (run / "claim.json").exists() and lab.left() == {}
    log = node.call("read", run_id=RUN, pattern="units/*/log", limit=10)["files"]
    assert [(item["path"], item["size"], item["text"]) for item in log] == [("units/agent/log", 19, "\ngeheim-43")]
    assert node.call("remove", run_id=RUN)["removed"] is True and not run.exists()
    assert node.call("remove", run_id=RUN)["removed"] is False


def payload_piece(data: bytes) -> Dict:
    packed = base64.b64encode(zlib.compress(data)).decode()
    return {"sha256": hashlib.sha256(data).hexdigest(), "offset": 0, "data": packed, "last": True}


def test_reading_follows_no_link_and_stays_below_its_limit(
    lab: NodeLab, node: NodeClient, tmp_path: pathlib.Path
) -> None:
    run = node_files.private_dir(lab.run("a", RUN) / "ranks")
    (tmp_path / "secret").write_text("geheim")
    (run / "std.log").symlink_to(tmp_path / "secret")
    (run / "real.log").write_bytes(b"\xff" * 9 + b"end")
    (run / "folder.log").mkdir()
    files = node.call("read", run_id=RUN, pattern="ranks/*.log", limit=3)["files"]
    written = files[0].pop("modified_at")
    assert files == [{"path": "ranks/real.log", "size": 12, "text": "end"}]
    assert written == (run / "real.log").stat().st_mtime
    # Only the end of a large file is read: a hole of 2 GiB before it costs nothing.
    with open(run / "real.log", "r+b") as log:
        log.seek(2 << 30)
        log.write(b"last")
    assert [item["text"] for item in node.call("read", run_id=RUN, pattern="ranks/*.log", limit=4)["files"]] == ["last"]


def test_stopping_lets_the_program_save_and_ends_all_of_it(lab: NodeLab, node: NodeClient) -> None:
    lab.prepare(node, RUN)
    lab.start(node, RUN, ["sh", "-c", "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.01; done"])
    log = lab.run("a", RUN) / "units" / "agent" / "log"
    eventually(lambda: log.exists() and log.read_text() == "ready\n", "the program")
    stopped = node.call("stop", run_id=RUN, within_s=20)
    assert (stopped["stopped"], stopped["left"], stopped["units"]["agent"]["exit"]["cause"]) == (True, [], "cancelled")
    assert "saved" in log.read_text() and lab.left() == {}
    assert (lab.run("a", RUN) / "claim.json").exists()
    assert node.call("stop", run_id=RUN, within_s=20)["stopped"] is False
    assert node.call("stop", run_id="never-was", within_s=20) == {"stopped": False, "left": [], "units": {}}


def test_a_drill_kills_one_rank_and_no_other_process(lab: NodeLab, node: NodeClient) -> None:
    lab.prepare(node, RUN)
    lab.start(node, RUN, ranked(lab, node, "sleep", "60"), env={"RANK": "2"})
    assert node.call("kill", run_id="never-was", target="worker", rank=0)["killed"] == []
    pid = eventually(
        lambda: [line.get("pid") for line in lab.events("a", RUN) if line["kind"] == "worker_started"], "it"
    )[0]
    assert node.call("kill", run_id=RUN, target="worker", rank=1)["killed"] == []
    answer = node.call("kill", run_id=RUN, target="worker", rank=2)
    assert (answer["killed"], answer["left"]) == ([pid], [])
    assert unit_exit(lab.run("a", RUN))["exit_code"] == 137
    # The number may belong to somebody else by now: without the run's mark nothing is killed.
    with open(lab.run("a", RUN) / "events.jsonl", "a") as handle:
        handle.write(f'{{"kind": "worker_started", "rank": 7, "pid": {os.getpid()}}}\ntorn')
    assert node.call("kill", run_id=RUN, target="worker", rank=7)["killed"] == []


def test_a_drill_on_the_host_leaves_nothing_and_no_end(lab: NodeLab, node: NodeClient) -> None:
    lab.prepare(node, RUN)
    lab.start(node, RUN, ranked(lab, node, "sh", "-c", "sleep 60 & sleep 60"))
    eventually(lambda: len(lab.left()) >= 4, "supervisor, recorder, shell and two programs")
    supervisor = processes.living_pid(
        (node_files.read_json(lab.run("a", RUN) / "units" / "agent" / "state.json"))["supervisor"]
    )
    answer = node.call("kill", run_id=RUN, target="host")
    assert (answer["killed"], answer["left"]) == ([supervisor], [])
    eventually(lambda: lab.left() == {}, "the end of all processes")
    status = node.call("info", run_id=RUN)["units"]["agent"]
    assert (status["alive"], status["exit"]) == (False, None)


def test_a_drill_on_the_agent_costs_one_lost_node(lab: NodeLab, node: NodeClient) -> None:
    lab.prepare(node, RUN)
    lab.start(node, RUN, ["sh", "-c", "sleep 60 & exec sleep 60"], policy="whole", restart={"max_lost_nodes": 1000})
    state = lab.run("a", RUN) / "units" / "agent" / "state.json"

    def child() -> int | None:
        return processes.living_pid((node_files.read_json(state) or {}).get("child"))

    for drill in range(1, 9):
        first = eventually(child, "the agent")
        answer = node.call("kill", run_id=RUN, target="agent")
        assert answer["left"] == [] and (not answer["killed"] or processes.start_time(int(first or 0)) is None)
        eventually(lambda seen=first: child() not in (None, seen), "the next agent")  # type: ignore[misc]
        assert (node_files.read_json(state) or {})["lost"] == drill


def test_of_many_controllers_exactly_one_gets_the_run(lab: NodeLab, node: NodeClient) -> None:
    answers: dict[str, Dict] = {}
    start = threading.Barrier(6)

    def claim(owner: str) -> None:
        remote = lab.remote("a", program=node.program)
        start.wait()
        answers[owner] = lab.prepare(
            remote, RUN, claim={"owner": owner, "controller": f"on {owner}", "take_over": False}
        )

    threads = [threading.Thread(target=claim, args=(f"c{number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [owner for owner, answer in answers.items() if answer["problem"] is None]
    assert len(winners) == 1
    held = node_files.read_json(lab.run("a", RUN) / "claim.json")
    assert held == {"owner": winners[0], "controller": f"on {winners[0]}"}
    losers = {answer["problem"] for owner, answer in answers.items() if owner not in winners}
    assert losers == {f"run {RUN} belongs to another controller (on {winners[0]})"}
    assert sorted(path.name for path in lab.run("a", RUN).iterdir()) == ["claim.json", "folder.json"]
    again = lab.prepare(node, RUN, claim={"owner": winners[0], "controller": "elsewhere"})
    over = lab.prepare(node, RUN, claim={"owner": "new", "controller": "new", "take_over": True})
    assert (again["problem"], over["problem"]) == (None, None)
    assert node_files.read_json(lab.run("a", RUN) / "claim.json") == {"owner": "new", "controller": "new"}


def test_what_cannot_be_prepared_is_given_up_with_its_reason(lab: NodeLab, node: NodeClient) -> None:
    blocked = lab.root / "file"
    blocked.touch()
    cases: list[tuple[Dict, str]] = [
        ({"write": [str(blocked / "ckpt")]}, f"{blocked}/ckpt cannot be written: Not a directory"),
        (
            {
                "trees": [
                    {"target": "code", "manifest": [{"path": "a", "sha256": "00", "mode": 0, "size": 1}], "link": False}
                ]
            },
            "No such",
        ),
    ]
    for values, problem in cases:
        answer = lab.prepare(node, RUN, secrets={"env": {"T": "geheim"}}, **values)
        assert problem in answer["problem"]
        assert not (lab.run("a", RUN) / "claim.json").exists() and not (lab.run("a", RUN) / "secrets").exists()
    with pytest.raises(NodeError, match="^a: "):
        node.call("prepare", run_id=RUN, claim={"owner": "me"}, program=node.program, write=[str(blocked / "x")])


SERVE = "import socket, sys\ns = socket.socket(fileno=int(sys.argv[1]))\nwhile True: s.accept()[0].sendall(b'here')"


def left_store(lab: NodeLab, node: NodeClient) -> tuple[int, int]:
    """Start the store of a run, kill its supervisor and delete all state; return the store's pid and port."""
    port = free_port()
    argv, where = [sys.executable, "-I", "-c", SERVE, "{listen_fd}"], {"host": "127.0.0.1", "port": port}
    folder = lab.run("a", RUN) / "units" / "store"
    lab.prepare(node, RUN)
    lab.start(node, RUN, argv, unit="store", policy="store", listen=where)
    state = eventually(lambda: (node_files.read_json(folder / "state.json") or {}).get("child"), "the store")
    child = processes.living_pid(state)
    assert child is not None
    processes.kill_all([processes.living_pid(node_files.read_json(folder / "state.json")["supervisor"]) or 0])
    shutil.rmtree(lab.state("a"))
    return child, port


@pytest.mark.parametrize("deleted", ["again", "check"])
def test_a_port_that_the_run_itself_left_busy_is_the_runs_own(lab: NodeLab, node: NodeClient, deleted: str) -> None:
    child, port = left_store(lab, node)
    ask: Dict = {"run_id": RUN, "ports": [["127.0.0.1", port]], "end_left": None if deleted == "check" else "me"}
    asked = lab.remote("a")
    assert asked.call("info", **{**ask, "run_id": f"{RUN}-2"})["ports"][str(port)]["cause"] == "port"
    assert processes.start_time(child) is not None
    assert asked.call("info", **ask)["ports"] == {str(port): None}
    assert (processes.start_time(child) is None) is (deleted == "again")


def test_a_port_of_another_controllers_run_stays_busy(lab: NodeLab, node: NodeClient) -> None:
    child, port = left_store(lab, node)
    node_files.write_json(node_files.private_dir(lab.run("a", RUN)) / "claim.json", {"owner": "you"})
    asked = lab.remote("a").call("info", run_id=RUN, ports=[["127.0.0.1", port]], end_left="me")
    assert asked["ports"][str(port)]["cause"] == "port" and processes.start_time(child) is not None


def test_a_stop_ends_what_is_left_of_a_run_whose_folder_was_deleted(lab: NodeLab, node: NodeClient) -> None:
    child, _port = left_store(lab, node)
    answer = lab.remote("a").call("stop", run_id=RUN, within_s=5)
    assert (answer["stopped"], answer["left"], processes.start_time(child)) == (True, [], None)
    assert lab.remote("a").call("stop", run_id=RUN, within_s=5)["stopped"] is False


def test_what_runs_is_not_stopped_because_it_could_not_be_prepared_again(lab: NodeLab, node: NodeClient) -> None:
    lab.prepare(node, RUN)
    lab.start(node, RUN, ["sleep", "60"])
    blocked = lab.root / "file"
    blocked.touch()
    answer = lab.prepare(node, RUN, again=True, write=[str(blocked / "x")])
    unit = node.call("info", run_id=RUN)["units"]["agent"]
    assert "cannot be written" in answer["problem"] and unit["alive"] and unit["exit"] is None
    assert (lab.run("a", RUN) / "claim.json").exists()


def test_a_run_of_the_same_name_in_another_state_folder_is_left_alone(lab: NodeLab, node: NodeClient) -> None:
    lab.prepare(node, RUN)
    lab.start(node, RUN, ["sleep", "60"])
    first = eventually(lambda: node.call("info", run_id=RUN)["units"]["agent"]["child"], "the first program")
    folder = lab.nodes
    lab.nodes = lab.root / "other"
    other = lab.remote("a", program=node.program)
    lab.prepare(other, RUN)
    lab.start(other, RUN, ["true"])
    unit_exit(lab.run("a", RUN))
    lab.nodes = folder
    assert processes.start_time(first) is not None


def test_a_signal_to_the_connection_does_not_reach_the_run(lab: NodeLab, node: NodeClient) -> None:
    lab.prepare(node, RUN)
    lab.start(node, RUN, ["sleep", "60"])
    supervisor = processes.living_pid(
        node_files.read_json(lab.run("a", RUN) / "units" / "agent" / "state.json")["supervisor"]
    )
    assert supervisor is not None and os.getsid(supervisor) == supervisor
    for number in (signal.SIGHUP, signal.SIGINT):
        os.kill(supervisor, number)
    assert node.call("info", run_id=RUN)["units"]["agent"]["alive"] is True


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_home_that_may_not_be_written_names_the_way_on(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute nodes of several centres have such homes; the folder is the node's, and not the controller's."""

    def refuse(_request: object) -> t.NoReturn:
        raise OSError(number, os.strerror(number), "/home/me/.local")

    monkeypatch.setitem(host_agent._OPS, "install", refuse)
    problem = host_agent.answer_request({"op": "install", "node": "n", "state_root": None})["problem"]
    assert problem.startswith(f"/home/me/.local: {os.strerror(number)}. The node keeps a run's state there: ")
    assert "set muster_node_state to a folder of this node that this user may write, on a local disk" in problem
